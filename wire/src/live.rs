//! Live frames: large answers as little-endian columns, which a browser draws without parsing text.
//!
//! A frame is `"PCLV" version:u16 kind:u16`, then scalars and columns in a fixed order. A column is `count:u32` and
//! that many values. Only the dashboard that came with the server reads its frames. The version exists to refuse a
//! stale dashboard, not to read old frames.

use std::fmt;

mod frame;
pub mod tile;
pub mod view;

use frame::frame_codec;

const KIND_STEPS: u16 = 1;
const KIND_WATERFALL: u16 = 2;
const KIND_RANKS: u16 = 3;
const KIND_TILE: u16 = 4;
const KIND_VIEW: u16 = 5;

/// The reason why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameError(pub &'static str);

impl FrameError {
    /// The bytes come from a server of another version than the reader.
    pub const OTHER_VERSION: Self = Self("the server is of another version than this page; reload the page");
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad frame: {}", self.0)
    }
}

impl std::error::Error for FrameError {}

/// The parts of the step ledger, in the order in which they are stacked. They sum to the step time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Part {
    /// Waiting for input or making it.
    Input = 0,
    /// Copying input to the device.
    H2d = 1,
    /// Forward compute.
    Forward = 2,
    /// Backward compute.
    Backward = 3,
    /// Exposed wait for a later rank.
    ExposedWait = 4,
    /// Exposed transfer.
    ExposedTransfer = 5,
    /// Parameter update.
    Optimizer = 6,
    /// A pause of training: a checkpoint, an evaluation, a garbage collection, or a compilation.
    Pause = 7,
    /// The device ran nothing, and nothing recorded says why. Only imported traces show it.
    Idle = 8,
    /// Time that no other part claims.
    Other = 9,
}

impl Part {
    /// The number of parts.
    pub const COUNT: usize = Self::ALL.len();
    /// All parts, in the order in which they are stacked.
    pub const ALL: [Self; 10] = [
        Self::Input,
        Self::H2d,
        Self::Forward,
        Self::Backward,
        Self::ExposedWait,
        Self::ExposedTransfer,
        Self::Optimizer,
        Self::Pause,
        Self::Idle,
        Self::Other,
    ];

    /// Returns the name used in `docs/metrics.md` and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::H2d => "h2d",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::ExposedWait => "exposed wait",
            Self::ExposedTransfer => "exposed transfer",
            Self::Optimizer => "optimizer",
            Self::Pause => "pause",
            Self::Idle => "device idle",
            Self::Other => "other",
        }
    }

    /// Returns the parts of a run's steps, in the order in which they are stacked. Few runs have [`Part::Idle`].
    pub fn stacked(has_idle: bool) -> impl DoubleEndedIterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(move |part| has_idle || *part != Self::Idle)
    }
}

/// The bit of `flags` for a rank whose records of the step have not arrived.
pub const FLAG_MISSING: u8 = 1;
/// The bit of `flags` for a shadow step. Only its length is known.
pub const FLAG_SHADOW: u8 = 2;

/// Closed steps of a run, each summarized over all ranks: 64 bytes per step for any number of ranks. The server sends
/// them to the dashboard as they close. Figures of single ranks are requested separately: [`tile::Tile`] for many
/// steps, [`StepRanks`] for one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepColumns {
    /// True for a snapshot: the client discards the steps it has. False for a delta.
    pub reset: bool,
    /// The number of ranks in each step.
    pub ranks: u32,
    /// Step indices, ascending.
    pub step: Vec<u64>,
    /// The end of the step, in nanoseconds since the Unix epoch on the server's clock.
    pub ended_unix_nanos: Vec<u64>,
    /// The step time over all ranks (T in `docs/metrics.md`), in nanoseconds.
    pub step_nanos: Vec<f32>,
    /// The samples of all ranks together.
    pub samples: Vec<u64>,
    /// The overlap over all ranks: hidden communication / communication; NaN if nothing was reduced, or if the step was not
    /// observed in full.
    pub overlap: Vec<f32>,
    /// The ledger, one column per [`Part`]: the mean over the ranks whose records have arrived, in nanoseconds; NaN for
    /// steps that were not observed in full.
    pub parts: [Vec<f32>; Part::COUNT],
    /// [`FLAG_SHADOW`], and [`FLAG_MISSING`] if any rank's records are missing.
    pub flags: Vec<u8>,
}

/// One step, rank by rank. Each column has one entry per rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepRanks {
    /// The step.
    pub step: u64,
    /// The ledger, one column per [`Part`], in nanoseconds; NaN if unknown.
    pub parts: [Vec<f32>; Part::COUNT],
    /// Local step times, in nanoseconds.
    pub rank_nanos: Vec<f32>,
    /// The lateness of each rank, in nanoseconds: how much later than the median rank it starts its collectives, as the
    /// mean over buckets; NaN if unknown.
    pub lateness: Vec<f32>,
    /// [`FLAG_MISSING`] and [`FLAG_SHADOW`].
    pub flags: Vec<u8>,
}

/// The kind of activity that a slice of a [`Waterfall`] shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SliceKind {
    /// Training thread: input.
    Input = 0,
    /// Training thread: host to device.
    H2d = 1,
    /// Training thread: forward.
    Forward = 2,
    /// Training thread: backward.
    Backward = 3,
    /// Training thread: optimizer.
    Optimizer = 4,
    /// Training thread: blocked in the reducer.
    Blocked = 5,
    /// Training thread: a checkpoint.
    Checkpoint = 6,
    /// Training thread: an evaluation.
    Evaluation = 7,
    /// Training thread: a garbage collection.
    GarbageCollection = 8,
    /// Training thread: a compilation of the model.
    Compilation = 9,
    /// Communication: launched, but waiting for the thread to become free (launch to start).
    Queued = 10,
    /// Communication: waiting for a later rank, hidden by compute.
    WaitHidden = 11,
    /// Communication: waiting for a later rank, exposed.
    WaitExposed = 12,
    /// Communication: transfer, hidden by compute.
    TransferHidden = 13,
    /// Communication: transfer, exposed.
    TransferExposed = 14,
}

impl SliceKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 15] = [
        Self::Input,
        Self::H2d,
        Self::Forward,
        Self::Backward,
        Self::Optimizer,
        Self::Blocked,
        Self::Checkpoint,
        Self::Evaluation,
        Self::GarbageCollection,
        Self::Compilation,
        Self::Queued,
        Self::WaitHidden,
        Self::WaitExposed,
        Self::TransferHidden,
        Self::TransferExposed,
    ];

    /// Returns the name used in tooltips and exports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::H2d => "h2d",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Blocked => "blocked in reducer",
            Self::Checkpoint => "checkpoint",
            Self::Evaluation => "evaluation",
            Self::GarbageCollection => "garbage collection",
            Self::Compilation => "compilation",
            Self::Queued => "queued",
            Self::WaitHidden => "hidden wait",
            Self::WaitExposed => "exposed wait",
            Self::TransferHidden => "hidden transfer",
            Self::TransferExposed => "exposed transfer",
        }
    }

    /// Returns true for activity of the communication thread.
    #[must_use]
    pub fn is_communication(self) -> bool {
        self as u8 >= Self::Queued as u8
    }
}

/// One step over all ranks on one clock. Times are nanoseconds since [`Waterfall::origin_unix_nanos`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waterfall {
    /// The step.
    pub step: u64,
    /// The earliest beginning of any rank, in nanoseconds since the Unix epoch on the server's clock.
    pub origin_unix_nanos: u64,
    /// The time from the origin to the last end of any rank.
    pub span_nanos: f64,
    /// True if the records of some collective say only when it was enqueued. No wait or transfer is then known.
    pub only_enqueued: bool,
    /// The ranks that are shown, ascending.
    pub rank: Vec<u32>,
    /// The error bound of each rank's alignment, in nanoseconds; NaN if unknown.
    pub clock_bound: Vec<f64>,
    /// The beginning of each rank's step.
    pub rank_begin: Vec<f64>,
    /// The end of each rank's step.
    pub rank_end: Vec<f64>,
    /// Slices: index into [`Self::rank`].
    pub slice_row: Vec<u32>,
    /// Slices: code of a [`SliceKind`].
    pub slice_kind: Vec<u8>,
    /// Slices: index into the bucket columns, or `u32::MAX` for the training thread.
    pub slice_bucket: Vec<u32>,
    /// Slices: beginning.
    pub slice_begin: Vec<f64>,
    /// Slices: end.
    pub slice_end: Vec<f64>,
    /// Buckets: index into [`Self::rank`].
    pub bucket_row: Vec<u32>,
    /// Buckets: index of the bucket.
    pub bucket: Vec<u32>,
    /// Buckets: sequence number of the collective, equal on all ranks.
    pub bucket_seq: Vec<u64>,
    /// Buckets: code of the [`Function`](crate::event::Function).
    pub bucket_function: Vec<u8>,
    /// Buckets: number of the communicator; 0 if all ranks are in it.
    pub bucket_comm: Vec<u32>,
    /// Buckets: payload in bytes.
    pub bucket_bytes: Vec<u64>,
    /// Buckets: time at which the last gradient was written.
    pub bucket_ready: Vec<f64>,
    /// Buckets: time at which the collective was handed to the communicator.
    pub bucket_launch: Vec<f64>,
    /// Buckets: beginning of the collective.
    pub bucket_start: Vec<f64>,
    /// Buckets: end of the collective.
    pub bucket_end: Vec<f64>,
    /// Buckets: wait for the last rank, on aligned clocks.
    pub bucket_wait: Vec<f64>,
    /// Buckets: clock-free wait.
    pub bucket_wait_clock_free: Vec<f64>,
}

frame_codec!(
    KIND_STEPS,
    StepColumns {
        reset: flag,
        ranks: u32,
        step: u64s,
        ended_unix_nanos: u64s,
        step_nanos: f32s,
        samples: u64s,
        overlap: f32s,
        parts: parts,
        flags: u8s,
    }
);

frame_codec!(KIND_RANKS, StepRanks { step: u64, parts: parts, rank_nanos: f32s, lateness: f32s, flags: u8s });

frame_codec!(
    KIND_WATERFALL,
    Waterfall {
        step: u64,
        origin_unix_nanos: u64,
        span_nanos: f64,
        only_enqueued: flag,
        rank: u32s,
        clock_bound: f64s,
        rank_begin: f64s,
        rank_end: f64s,
        slice_row: u32s,
        slice_kind: u8s,
        slice_bucket: u32s,
        slice_begin: f64s,
        slice_end: f64s,
        bucket_row: u32s,
        bucket: u32s,
        bucket_seq: u64s,
        bucket_function: u8s,
        bucket_comm: u32s,
        bucket_bytes: u64s,
        bucket_ready: f64s,
        bucket_launch: f64s,
        bucket_start: f64s,
        bucket_end: f64s,
        bucket_wait: f64s,
        bucket_wait_clock_free: f64s,
    }
);

impl StepColumns {
    /// Returns true if all columns have one entry per step and steps ascend. A reader may then index without checks and
    /// use binary search.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let steps = self.step.len();
        if !self.step.is_sorted_by(|earlier, later| earlier < later) {
            return false;
        }
        let others = [self.ended_unix_nanos.len(), self.step_nanos.len(), self.samples.len()];
        others.iter().all(|&len| len == steps)
            && [self.overlap.len(), self.flags.len()].iter().all(|&len| len == steps)
            && self.parts.iter().all(|part| part.len() == steps)
    }
}

impl StepRanks {
    /// Returns true if all columns have one entry per rank. A reader may then index without checks.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let ranks = self.rank_nanos.len();
        self.parts.iter().all(|part| part.len() == ranks)
            && self.lateness.len() == ranks
            && self.flags.len() == ranks
    }
}

impl Waterfall {
    /// Returns true if related columns have equal lengths and indices are in range. A reader may then index without
    /// checks.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let (ranks, slices, buckets) = (self.rank.len(), self.slice_row.len(), self.bucket_row.len());
        [self.clock_bound.len(), self.rank_begin.len(), self.rank_end.len()].iter().all(|&len| len == ranks)
            && [self.slice_kind.len(), self.slice_bucket.len(), self.slice_begin.len(), self.slice_end.len()]
                .iter()
                .all(|&len| len == slices)
            && [
                self.bucket.len(),
                self.bucket_seq.len(),
                self.bucket_function.len(),
                self.bucket_comm.len(),
                self.bucket_bytes.len(),
                self.bucket_ready.len(),
                self.bucket_launch.len(),
                self.bucket_start.len(),
                self.bucket_end.len(),
                self.bucket_wait.len(),
                self.bucket_wait_clock_free.len(),
            ]
            .iter()
            .all(|&len| len == buckets)
            && self.slice_row.iter().chain(&self.bucket_row).all(|&row| (row as usize) < ranks)
            && self.slice_kind.iter().all(|&kind| usize::from(kind) < SliceKind::ALL.len())
            && self.slice_bucket.iter().all(|&at| at == u32::MAX || (at as usize) < buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frame::TRUNCATED;

    fn steps() -> StepColumns {
        StepColumns {
            reset: true,
            ranks: 2,
            step: vec![7],
            ended_unix_nanos: vec![1],
            step_nanos: vec![30.0],
            samples: vec![8],
            overlap: vec![0.5],
            parts: std::array::from_fn(|part| vec![part as f32]),
            flags: vec![FLAG_SHADOW],
        }
    }

    /// A view contains types from the whole crate, so the version must cover every file.
    #[test]
    fn the_version_covers_every_source_of_the_crate() {
        fn count(folder: &std::path::Path) -> usize {
            let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
        }
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        assert_eq!(env!("PACELINE_LIVE_SOURCES"), count(&sources).to_string());
    }

    #[test]
    fn frames_round_trip() {
        assert_eq!(StepColumns::decode(&steps().encode()).unwrap(), steps());
        let waterfall = Waterfall { step: 3, rank: vec![0], clock_bound: vec![1.0], ..Waterfall::default() };
        assert_eq!(Waterfall::decode(&waterfall.encode()).unwrap(), waterfall);
        let ranks = StepRanks { step: 9, lateness: vec![-1.0, 1.0], ..StepRanks::default() };
        assert_eq!(StepRanks::decode(&ranks.encode()).unwrap(), ranks);
    }

    #[test]
    fn bad_frames_are_refused() {
        let good = steps().encode();
        assert!(Waterfall::decode(&good).is_err());
        for end in 0..good.len() {
            assert!(StepColumns::decode(&good[..end]).is_err());
        }
        let mut huge = good;
        huge[13..17].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(StepColumns::decode(&huge), Err(TRUNCATED));
    }

    #[test]
    fn an_inconsistent_frame_is_detected() {
        assert!(steps().is_consistent());
        assert!(!StepColumns { flags: Vec::new(), ..steps() }.is_consistent());
        let twice = |column: &Vec<f32>| [column.as_slice(), column].concat();
        let same_step_twice = StepColumns {
            step: vec![7, 7],
            ended_unix_nanos: vec![1, 2],
            samples: vec![8, 8],
            step_nanos: twice(&steps().step_nanos),
            overlap: twice(&steps().overlap),
            parts: steps().parts.each_ref().map(twice),
            flags: vec![0, 0],
            ..steps()
        };
        assert!(!same_step_twice.is_consistent());
        assert!(StepColumns { step: vec![7, 8], ..same_step_twice }.is_consistent());
        assert!(!StepRanks { lateness: vec![0.0], ..StepRanks::default() }.is_consistent());
        assert!(!Waterfall { slice_row: vec![0], ..Waterfall::default() }.is_consistent());
    }
}
