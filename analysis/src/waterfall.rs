//! One step over all ranks on one clock, as the slices of a waterfall or a trace.

use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Function, SpanKind};
use wire::live::{SliceKind, Waterfall};

use crate::join::{Joined, Wait};
use crate::records::{RankStep, StepRecords};
use crate::step::RankSets;
use timing::clocks::ClockFit;
use timing::intervals::{Interval, Intervals};

/// Returns the slices of `records`. `numbers_by_function` is that of the run's instrumentation. Ranks without an aligned clock are left out, because they cannot be placed.
#[must_use]
pub fn waterfall(records: &StepRecords, fits: &[Option<ClockFit>], numbers_by_function: bool) -> Waterfall {
    let waits = Joined::new(records, fits).waits;
    let placed: Vec<(usize, &RankStep, ClockFit)> = records
        .ranks
        .iter()
        .enumerate()
        .filter_map(|(rank, step)| Some((rank, step.as_deref()?, fits.get(rank).copied().flatten()?)))
        .collect();
    let begins = placed.iter().map(|(_, step, fit)| fit.align(step.record.begin));
    let Some(origin) = begins.min() else {
        return Waterfall { step: records.step.0, ..Waterfall::default() };
    };
    let mut out = Waterfall {
        step: records.step.0,
        origin_unix_nanos: origin.0.max(0).unsigned_abs(),
        only_enqueued: records.is_only_enqueued(),
        ..Waterfall::default()
    };
    for (rank, step, fit) in placed {
        let place = |time: MonoNanos| (fit.align(time) - origin) as f64;
        let row = out.rank.len() as u32;
        out.rank.push(rank as u32);
        out.clock_bound.push(fit.bound() as f64);
        out.rank_begin.push(place(step.record.begin));
        out.rank_end.push(place(step.record.end));
        out.span_nanos = out.span_nanos.max(place(step.record.end));
        let sets = RankSets::new(rank, step, &waits[rank]);
        let mut lane = Lane { out: &mut out, row, place: &place, numbers_by_function };
        lane.training(&sets);
        for (bucket, wait) in step.buckets.iter().zip(&waits[rank]) {
            lane.bucket(bucket, wait, &sets);
        }
    }
    out
}

/// Adds the slices of one rank.
struct Lane<'a, P: Fn(MonoNanos) -> f64> {
    out: &'a mut Waterfall,
    row: u32,
    place: &'a P,
    numbers_by_function: bool,
}

impl<P: Fn(MonoNanos) -> f64> Lane<'_, P> {
    fn slices(&mut self, kind: SliceKind, bucket: u32, stretches: &Intervals) {
        for &(begin, end) in stretches.as_slice() {
            self.out.slice_row.push(self.row);
            self.out.slice_kind.push(kind as u8);
            self.out.slice_bucket.push(bucket);
            self.out.slice_begin.push((self.place)(MonoNanos(begin)));
            self.out.slice_end.push((self.place)(MonoNanos(end)));
        }
    }

    fn training(&mut self, sets: &RankSets) {
        let blocked = &sets.by_kind[SpanKind::Blocked as usize];
        let kinds = [
            (SpanKind::Input, SliceKind::Input),
            (SpanKind::H2d, SliceKind::H2d),
            (SpanKind::Forward, SliceKind::Forward),
            (SpanKind::Backward, SliceKind::Backward),
            (SpanKind::Optimizer, SliceKind::Optimizer),
        ];
        let pauses = [
            (SpanKind::Checkpoint, SliceKind::Checkpoint),
            (SpanKind::Evaluation, SliceKind::Evaluation),
            (SpanKind::GarbageCollection, SliceKind::GarbageCollection),
            (SpanKind::Compilation, SliceKind::Compilation),
        ];
        for (span, slice) in kinds {
            let own = sets.by_kind[span as usize].subtract(blocked).subtract(&sets.paused);
            self.slices(slice, u32::MAX, &own);
        }
        for (span, slice) in pauses {
            self.slices(slice, u32::MAX, &sets.by_kind[span as usize]);
        }
        self.slices(SliceKind::Blocked, u32::MAX, blocked);
    }

    fn bucket(&mut self, bucket: &BucketRecord, wait: &Wait, sets: &RankSets) {
        let index = self.out.bucket.len() as u32;
        let (split, _) = wait.best();
        let (launch, start, end) = (bucket.launch.0, bucket.start.0, bucket.end.0);
        let turn = (bucket.start + split).0.clamp(start.min(end), end);
        self.slices(SliceKind::Queued, index, &Intervals::union([(launch, start)]));
        self.split(index, (start, turn), sets, SliceKind::WaitHidden, SliceKind::WaitExposed);
        self.split(index, (turn, end), sets, SliceKind::TransferHidden, SliceKind::TransferExposed);
        let function =
            if self.numbers_by_function { Function::from_seq(bucket.seq) } else { Function::AllReduce };
        let place = self.place;
        let out = &mut *self.out;
        out.bucket_row.push(self.row);
        out.bucket.push(bucket.bucket.0);
        out.bucket_seq.push(bucket.seq.0);
        out.bucket_function.push(function as u8);
        out.bucket_comm.push(bucket.comm.0);
        out.bucket_bytes.push(bucket.bytes);
        out.bucket_ready.push(place(bucket.ready));
        out.bucket_launch.push(place(bucket.launch));
        out.bucket_start.push(place(bucket.start));
        out.bucket_end.push(place(bucket.end));
        out.bucket_wait.push(wait.aligned.map_or(f64::NAN, |wait| wait as f64));
        out.bucket_wait_clock_free.push(wait.clock_free as f64);
    }

    fn split(
        &mut self,
        index: u32,
        stretch: Interval,
        sets: &RankSets,
        hidden: SliceKind,
        exposed: SliceKind,
    ) {
        let stretch = Intervals::union([stretch]);
        self.slices(hidden, index, &stretch.intersect(&sets.compute));
        self.slices(exposed, index, &stretch.subtract(&sets.compute));
    }
}
