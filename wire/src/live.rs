//! Dense answers as little-endian columns: what a browser draws without parsing text.
//!
//! A frame is `"PCLV" version:u16 kind:u16`, then scalars and columns in a fixed order; a column is
//! `count:u32` and that many values. Frames are read by the client that was served with the server, so they
//! carry a version only to refuse a stale page, not to be read for years.

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

/// Why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameError(pub &'static str);

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad frame: {}", self.0)
    }
}

impl std::error::Error for FrameError {}

/// The parts of the step ledger, in the order they are stacked; they sum to the step time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Part {
    /// Waiting for or making input.
    Input = 0,
    /// Copying it to the device.
    H2d = 1,
    /// Forward.
    Forward = 2,
    /// Backward.
    Backward = 3,
    /// Exposed wait for a later rank.
    ExposedWait = 4,
    /// Exposed transfer.
    ExposedTransfer = 5,
    /// Parameter update.
    Optimizer = 6,
    /// None of these.
    Other = 7,
}

impl Part {
    /// All parts, in the order they are stacked.
    pub const ALL: [Self; 8] = [
        Self::Input,
        Self::H2d,
        Self::Forward,
        Self::Backward,
        Self::ExposedWait,
        Self::ExposedTransfer,
        Self::Optimizer,
        Self::Other,
    ];

    /// The name as METRICS.md and the report write it.
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
            Self::Other => "other",
        }
    }
}

/// Bit of `flags`: this rank's records of the step have not arrived.
pub const FLAG_MISSING: u8 = 1;
/// Bit of `flags`: a shadow step, only its length is known.
pub const FLAG_SHADOW: u8 = 2;

/// Closed steps of a run, each as a whole: what goes to a page as it happens, 64 bytes a step however many
/// ranks there are. Single ranks are asked for: [`tile::Tile`] for many steps, [`StepRanks`] for one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepColumns {
    /// True when the client must forget the steps it has: a snapshot, not a delta.
    pub reset: bool,
    /// How many ranks each step has.
    pub ranks: u32,
    /// Step numbers, ascending.
    pub step: Vec<u64>,
    /// When the step ended, in nanoseconds since the Unix epoch on the server's clock.
    pub ended_unix_nanos: Vec<u64>,
    /// Step time over all ranks (METRICS.md, T), in nanoseconds.
    pub step_nanos: Vec<f32>,
    /// Samples of all ranks together.
    pub samples: Vec<u64>,
    /// |hidden| / |collectives| over all ranks; NaN where nothing was reduced.
    pub overlap: Vec<f32>,
    /// The ledger: one column per [`Part`], the mean over the ranks that are there, in nanoseconds; NaN for
    /// shadow steps.
    pub parts: [Vec<f32>; 8],
    /// [`FLAG_SHADOW`], and [`FLAG_MISSING`] where any rank is.
    pub flags: Vec<u8>,
}

/// One step, rank by rank; columns of as many entries as there are ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepRanks {
    /// Which step.
    pub step: u64,
    /// The ledger: one column per [`Part`], in nanoseconds; NaN where unknown.
    pub parts: [Vec<f32>; 8],
    /// Local step times, in nanoseconds.
    pub rank_nanos: Vec<f32>,
    /// How much later than the median rank each one started its collectives, the mean over buckets, in
    /// nanoseconds; NaN where unknown.
    pub lateness: Vec<f32>,
    /// [`FLAG_MISSING`] and [`FLAG_SHADOW`].
    pub flags: Vec<u8>,
}

/// What a [`Waterfall`] slice shows.
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
    /// Communication: ready, but waiting for its turn on the thread (launch to start).
    Queued = 6,
    /// Communication: waiting for a later rank, behind compute.
    WaitHidden = 7,
    /// Communication: waiting for a later rank, in the open.
    WaitExposed = 8,
    /// Communication: moving bytes, behind compute.
    TransferHidden = 9,
    /// Communication: moving bytes, in the open.
    TransferExposed = 10,
}

impl SliceKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Input,
        Self::H2d,
        Self::Forward,
        Self::Backward,
        Self::Optimizer,
        Self::Blocked,
        Self::Queued,
        Self::WaitHidden,
        Self::WaitExposed,
        Self::TransferHidden,
        Self::TransferExposed,
    ];

    /// A name for tooltips and exports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::H2d => "host to device",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Blocked => "blocked in reducer",
            Self::Queued => "queued",
            Self::WaitHidden => "wait, hidden",
            Self::WaitExposed => "wait, exposed",
            Self::TransferHidden => "transfer, hidden",
            Self::TransferExposed => "transfer, exposed",
        }
    }

    /// True for what the communication thread does.
    #[must_use]
    pub fn is_communication(self) -> bool {
        self as u8 >= Self::Queued as u8
    }
}

/// One step over all ranks on one clock. Times are nanoseconds since [`Waterfall::origin_unix_nanos`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waterfall {
    /// Which step.
    pub step: u64,
    /// The earliest begin of any rank, in nanoseconds since the Unix epoch on the server's clock.
    pub origin_unix_nanos: u64,
    /// From the origin to the last end of any rank.
    pub span_nanos: f64,
    /// Ranks that are shown, ascending.
    pub rank: Vec<u32>,
    /// Error bound of each rank's alignment, in nanoseconds; NaN where unknown.
    pub clock_bound: Vec<f64>,
    /// Begin of each rank's step.
    pub rank_begin: Vec<f64>,
    /// End of each rank's step.
    pub rank_end: Vec<f64>,
    /// Slices: index into [`Self::rank`].
    pub slice_row: Vec<u32>,
    /// Slices: a [`SliceKind`] as number.
    pub slice_kind: Vec<u8>,
    /// Slices: index into the bucket columns, or `u32::MAX` for the training thread.
    pub slice_bucket: Vec<u32>,
    /// Slices: begin.
    pub slice_begin: Vec<f64>,
    /// Slices: end.
    pub slice_end: Vec<f64>,
    /// Buckets: index into [`Self::rank`].
    pub bucket_row: Vec<u32>,
    /// Buckets: number.
    pub bucket: Vec<u32>,
    /// Buckets: sequence number of the collective; equal on all ranks.
    pub bucket_seq: Vec<u64>,
    /// Buckets: payload in bytes.
    pub bucket_bytes: Vec<u64>,
    /// Buckets: last gradient written.
    pub bucket_ready: Vec<f64>,
    /// Buckets: handed to the communicator.
    pub bucket_launch: Vec<f64>,
    /// Buckets: began.
    pub bucket_start: Vec<f64>,
    /// Buckets: finished.
    pub bucket_end: Vec<f64>,
    /// Buckets: wait for the last rank (aligned clocks).
    pub bucket_wait: Vec<f64>,
    /// Buckets: wait by the clock-free form.
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
    /// Rows agree with each other and steps ascend; a reader may index without looking, and search by halves.
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
    /// Columns agree with each other; a reader may index without looking.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let ranks = self.rank_nanos.len();
        self.parts.iter().all(|part| part.len() == ranks)
            && self.lateness.len() == ranks
            && self.flags.len() == ranks
    }
}

impl Waterfall {
    /// Rows agree with each other and indices are in range; a reader may index without looking.
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

    /// A view reaches types all over the crate: none of their files may be missing from the version.
    #[test]
    fn the_version_is_made_of_every_source_of_the_crate() {
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
    fn an_inconsistent_frame_is_seen() {
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
