//! The usual step of a run, as one rank that represents all ranks.

use crate::replay::Replay;
use crate::stats;

/// The usual step of one rank; times in nanoseconds.
#[derive(Clone)]
pub(super) struct Profile {
    /// The collectives in launch order.
    collectives: Vec<Usual>,
    /// The local work before the thread blocks for the last bucket.
    before: f64,
    /// The local work after the last bucket.
    after: f64,
}

/// The usual times of one collective.
#[derive(Clone)]
struct Usual {
    bytes: f64,
    ready: f64,
    gap: f64,
    transfer: f64,
}

impl Profile {
    /// Computes means over the steps that have the same bucket layout as the newest step.
    pub(super) fn new(replays: &[&Replay]) -> Option<Self> {
        let newest = replays.last().filter(|replay| !replay.collectives.is_empty())?;
        let bytes = |replay: &Replay| replay.collectives.iter().map(|c| c.bytes).collect::<Vec<_>>();
        let layout = bytes(newest);
        let alike: Vec<&&Replay> = replays.iter().filter(|replay| bytes(replay) == layout).collect();
        let mean = |value: &dyn Fn(&Replay) -> f32| {
            stats::mean(alike.iter().map(|replay| f64::from(value(replay)))).unwrap_or(0.0)
        };
        let usual = |at: usize| Usual {
            bytes: layout[at] as f64,
            ready: mean(&|replay| replay.collectives[at].ready_nanos),
            gap: mean(&|replay| replay.collectives[at].gap_nanos),
            transfer: mean(&|replay| replay.collectives[at].transfer_nanos),
        };
        Some(Self {
            collectives: (0..layout.len()).map(usual).collect(),
            before: mean(&|replay| replay.before_nanos),
            after: mean(&|replay| replay.after_nanos),
        })
    }

    /// Returns the size of each collective in bytes, and its transfer in seconds.
    pub(super) fn transfers(&self) -> Vec<(u64, f64)> {
        self.collectives.iter().map(|usual| (usual.bytes as u64, usual.transfer / 1e9)).collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.collectives.iter().map(|collective| collective.bytes).sum::<f64>() as u64
    }

    /// Returns the size of the largest collective, in bytes.
    pub(super) fn largest(&self) -> f64 {
        self.collectives.iter().map(|collective| collective.bytes).fold(0.0, f64::max)
    }

    /// Returns the step time of a rank that reduces nothing.
    pub(super) fn alone(&self) -> f64 {
        self.before + self.after
    }

    /// Returns the step time with every transfer longer by `more(bytes)`.
    pub(super) fn step(&self, more: impl Fn(f64) -> f64) -> f64 {
        let chain = self.collectives.iter().map(|collective| {
            (collective.ready, collective.gap, (collective.transfer + more(collective.bytes)).max(0.0))
        });
        self.play(chain)
    }

    /// Returns the step time with the gradients cut into buckets of at most `cap` bytes, each of which takes
    /// `transfer(bytes)`. Gradients are assumed to become ready evenly between the known points; returns `None` if only
    /// one point is known.
    pub(super) fn with_cap(&self, cap: u64, transfer: impl Fn(f64) -> f64) -> Option<f64> {
        let points = self.readiness()?;
        let total = self.bytes() as f64;
        let count = (total / cap as f64).ceil().max(1.0);
        let size = (total / count).max(1.0);
        let gap = stats::median(self.collectives.iter().map(|collective| collective.gap))?;
        let chain =
            (1..=count as usize).map(|nth| (ready_at(&points, size * nth as f64), gap, transfer(size)));
        Some(self.play(chain))
    }

    fn readiness(&self) -> Option<Vec<ReadyPoint>> {
        let (first, last) = (self.collectives.first()?, self.collectives.last()?);
        let rest = self.bytes() as f64 - first.bytes;
        if rest <= 0.0 {
            return None;
        }
        // The first bucket is assumed to fill as fast as the others.
        let begin = (first.ready - (last.ready - first.ready) / rest * first.bytes).max(0.0);
        let mut points = vec![ReadyPoint { bytes: 0.0, time: begin }];
        let mut sum = 0.0;
        points.extend(self.collectives.iter().map(|collective| {
            sum += collective.bytes;
            ReadyPoint { bytes: sum, time: collective.ready }
        }));
        Some(points)
    }

    /// Returns the step time with the collectives one after another, each given as (ready, gap, transfer).
    fn play(&self, chain: impl Iterator<Item = (f64, f64, f64)>) -> f64 {
        let reduced = chain.fold(0.0_f64, |free, (ready, gap, transfer)| ready.max(free) + gap + transfer);
        reduced.max(self.before) + self.after
    }
}

/// The bytes of gradient that are ready at a time.
#[derive(Clone, Copy)]
struct ReadyPoint {
    bytes: f64,
    time: f64,
}

/// Interpolates linearly between the points; constant after the last one.
fn ready_at(points: &[ReadyPoint], bytes: f64) -> f64 {
    let next = points.partition_point(|point| point.bytes < bytes);
    match (points.get(next.wrapping_sub(1)), points.get(next)) {
        (Some(a), Some(b)) => a.time + (b.time - a.time) * (bytes - a.bytes) / (b.bytes - a.bytes),
        (_, Some(b)) => b.time,
        (Some(a), None) => a.time,
        (None, None) => 0.0,
    }
}
