//! The model of all exports: the slices and bucket records of a step, rank by rank, on the server's clock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use wire::event::Function;
use wire::live::{SliceKind, Waterfall};

/// A stretch of time of one kind. Times are in nanoseconds since the Unix epoch, on the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The kind of work or waiting.
    pub kind: SliceKind,
    pub begin: i64,
    pub end: i64,
}

/// A bucket of a rank: a row of the tables, and a slice with parts of the traces. Durations are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketRow {
    /// The index of the bucket.
    pub bucket: u32,
    /// The sequence number of the collective, which is the same on all ranks.
    pub sequence: u64,
    /// The function of the collective.
    pub function: Function,
    /// The number of its communicator; 0 if all ranks are in it.
    pub comm: u32,
    /// The ranks of the step whose records have a collective of this communicator, in ascending order.
    pub members: Arc<[u32]>,
    /// The size of the payload, in bytes.
    pub bytes: u64,
    /// The time when the last gradient was written.
    pub ready: i64,
    /// The time when the bucket was handed to the communicator.
    pub launch: i64,
    /// The time when the collective began.
    pub start: i64,
    /// The time when the collective ended.
    pub end: i64,
    /// The wait for the last rank by aligned clocks, or `None` if the clocks are not aligned.
    pub wait: Option<i64>,
    /// The wait for the last rank by durations alone.
    pub wait_clock_free: Option<i64>,
    /// The rest of the duration, after the better of the two waits.
    pub transfer: i64,
    /// The part of the duration during which the rank computes.
    pub hidden: i64,
    /// The part of the duration during which the rank does not compute.
    pub exposed: i64,
    parts: Range<usize>,
}

/// One rank's part of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankStep {
    pub step: u64,
    pub rank: u32,
    /// The begin of the step on this rank.
    pub begin: i64,
    /// The end of the step on this rank.
    pub end: i64,
    /// The largest error of these times, or `None` before the first probe of this rank's clock.
    pub clock_error_bound: Option<i64>,
    /// The stretches of the training thread.
    pub training: Vec<Stretch>,
    /// The collectives.
    pub buckets: Vec<BucketRow>,
    parts: Vec<Stretch>,
}

impl RankStep {
    /// Returns the stretches of a bucket: hidden and exposed wait and transfer, and the time in the queue before them.
    #[must_use]
    pub fn parts(&self, bucket: &BucketRow) -> &[Stretch] {
        &self.parts[bucket.parts.clone()]
    }

    /// Returns the number of slices in a trace of this part of the step.
    #[must_use]
    pub fn slices(&self) -> usize {
        let queued = self.parts.iter().filter(|part| part.kind == SliceKind::Queued).count();
        1 + self.training.len() + self.buckets.len() + self.parts.len() - queued
    }
}

/// Returns the ranks of a step in ascending order. If `rank` is given, returns only that rank.
#[must_use]
pub fn ranks(step: &Waterfall, rank: Option<u32>) -> Vec<RankStep> {
    let origin = i64::try_from(step.origin_unix_nanos).unwrap_or(i64::MAX);
    // Times within a step are whole nanoseconds, and small enough for a double to represent exactly.
    let place = |nanos: f64| origin.saturating_add(nanos as i64);
    let mut ranks: Vec<RankStep> = (0..step.rank.len())
        .map(|row| RankStep {
            step: step.step,
            rank: step.rank[row],
            begin: place(step.rank_begin[row]),
            end: place(step.rank_end[row]),
            clock_error_bound: known(step.clock_bound[row]),
            ..RankStep::default()
        })
        .collect();
    let mut slices: Vec<usize> = (0..step.slice_row.len()).collect();
    // The slices are usually in this order already. Sorting them then costs one pass.
    slices.sort_by_key(|&at| (step.slice_row[at], step.slice_bucket[at].wrapping_add(1)));
    let mut parts_of = vec![0..0; step.bucket_row.len()];
    for at in slices {
        let row = &mut ranks[step.slice_row[at] as usize];
        let kind = SliceKind::ALL[usize::from(step.slice_kind[at])];
        let stretch = Stretch { kind, begin: place(step.slice_begin[at]), end: place(step.slice_end[at]) };
        match parts_of.get_mut(step.slice_bucket[at] as usize) {
            None => row.training.push(stretch),
            Some(range) => {
                let start = if range.start == range.end { row.parts.len() } else { range.start };
                row.parts.push(stretch);
                *range = start..row.parts.len();
            }
        }
    }
    let members = members(step);
    for (at, parts) in parts_of.into_iter().enumerate() {
        let row = &mut ranks[step.bucket_row[at] as usize];
        let members = members[&step.bucket_comm[at]].clone();
        let bucket = bucket(step, (at, members), parts, &row.parts, place);
        row.buckets.push(bucket);
    }
    ranks.retain(|row| rank.is_none_or(|rank| rank == row.rank));
    ranks
}

/// Returns the ranks of each communicator.
fn members(step: &Waterfall) -> BTreeMap<u32, Arc<[u32]>> {
    let mut rows: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (comm, row) in step.bucket_comm.iter().zip(&step.bucket_row) {
        rows.entry(*comm).or_default().push(step.rank[*row as usize]);
    }
    let in_order = |mut ranks: Vec<u32>| {
        ranks.sort_unstable();
        ranks.dedup();
        ranks.into()
    };
    rows.into_iter().map(|(comm, ranks)| (comm, in_order(ranks))).collect()
}

fn bucket(
    step: &Waterfall,
    (at, members): (usize, Arc<[u32]>),
    parts: Range<usize>,
    stretches: &[Stretch],
    place: impl Fn(f64) -> i64,
) -> BucketRow {
    let sum = |kinds: [SliceKind; 2]| {
        let slices = stretches[parts.clone()].iter().filter(|part| kinds.contains(&part.kind));
        slices.map(|part| part.end - part.begin).sum()
    };
    use SliceKind::{TransferExposed, TransferHidden, WaitExposed, WaitHidden};
    BucketRow {
        bucket: step.bucket[at],
        sequence: step.bucket_seq[at],
        function: Function::from_code(step.bucket_function[at]),
        comm: step.bucket_comm[at],
        members,
        bytes: step.bucket_bytes[at],
        ready: place(step.bucket_ready[at]),
        launch: place(step.bucket_launch[at]),
        start: place(step.bucket_start[at]),
        end: place(step.bucket_end[at]),
        wait: known(step.bucket_wait[at]),
        wait_clock_free: known(step.bucket_wait_clock_free[at]),
        transfer: sum([TransferHidden, TransferExposed]),
        hidden: sum([WaitHidden, TransferHidden]),
        exposed: sum([WaitExposed, TransferExposed]),
        parts,
    }
}

/// Returns a figure in whole nanoseconds, or `None` if it is missing.
fn known(nanos: f64) -> Option<i64> {
    nanos.is_finite().then_some(nanos as i64)
}

/// The columns of the tables, in order. Times are in nanoseconds since the Unix epoch, on the server's clock.
pub const COLUMNS: [&str; 15] = [
    "step",
    "rank",
    "bucket",
    "sequence",
    "size_bytes",
    "ready_unix_ns",
    "launch_unix_ns",
    "start_unix_ns",
    "end_unix_ns",
    "wait_ns",
    "wait_clock_free_ns",
    "transfer_ns",
    "hidden_ns",
    "exposed_ns",
    "clock_error_bound_ns",
];

/// The columns whose values may be missing.
pub const OPTIONAL: [&str; 3] = ["wait_ns", "wait_clock_free_ns", "clock_error_bound_ns"];

/// Returns a row of the tables, in the order of [`COLUMNS`].
#[must_use]
pub fn row(step: &RankStep, bucket: &BucketRow) -> [Option<i64>; COLUMNS.len()] {
    let signed = |value: u64| Some(i64::try_from(value).unwrap_or(i64::MAX));
    [
        signed(step.step),
        Some(i64::from(step.rank)),
        Some(i64::from(bucket.bucket)),
        signed(bucket.sequence),
        signed(bucket.bytes),
        Some(bucket.ready),
        Some(bucket.launch),
        Some(bucket.start),
        Some(bucket.end),
        bucket.wait,
        bucket.wait_clock_free,
        Some(bucket.transfer),
        Some(bucket.hidden),
        Some(bucket.exposed),
        step.clock_error_bound,
    ]
}
