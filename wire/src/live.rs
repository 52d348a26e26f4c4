//! Dense answers as little-endian columns: what a browser draws without parsing text.
//!
//! A frame is `"PCLV" version:u16 kind:u16`, then scalars and columns in a fixed order; a column is
//! `count:u32` and that many values. Frames are read by the client that was served with the server, so they
//! carry a version only to refuse a stale page, not to be read for years.

use std::fmt;

/// Changes whenever a frame's layout does.
pub const LIVE_VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"PCLV";
const KIND_STEPS: u16 = 1;
const KIND_WATERFALL: u16 = 2;

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

/// Bit of [`StepColumns::flags`]: this rank's records of the step have not arrived.
pub const FLAG_MISSING: u8 = 1;
/// Bit of [`StepColumns::flags`]: a shadow step, only its length is known.
pub const FLAG_SHADOW: u8 = 2;

/// Closed steps of a run, each over all ranks. Row `(s, r)` of a per-rank column is at `s * ranks + r`.
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
    /// The ledger: one column per [`Part`], each of `steps * ranks` nanoseconds.
    pub parts: [Vec<f32>; 8],
    /// `steps * ranks` step times of single ranks, in nanoseconds.
    pub rank_nanos: Vec<f32>,
    /// `steps * ranks`: how much later than the median rank this one started its collectives, the mean over
    /// buckets, in nanoseconds; NaN where unknown.
    pub lateness: Vec<f32>,
    /// `steps * ranks` of [`FLAG_MISSING`] and [`FLAG_SHADOW`].
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

macro_rules! frame_codec {
    ($kind:expr, $type:ident { $($field:ident: $method:ident),+ $(,)? }) => {
        impl $type {
            /// Writes the frame.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                let mut out = FrameWriter::new($kind);
                $(out.$method(&self.$field);)+
                out.bytes
            }

            /// Reads the frame.
            ///
            /// # Errors
            /// When the bytes are another frame, another version, or end too early.
            pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
                let mut input = FrameReader::new(bytes, $kind)?;
                Ok(Self { $($field: input.$method()?),+ })
            }
        }
    };
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
        rank_nanos: f32s,
        lateness: f32s,
        flags: u8s,
    }
);

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
    /// Rows agree with each other; a reader may index without looking.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let steps = self.step.len();
        let cells = steps * self.ranks as usize;
        [self.ended_unix_nanos.len(), self.step_nanos.len(), self.samples.len(), self.overlap.len()]
            .iter()
            .all(|&len| len == steps)
            && self.parts.iter().all(|part| part.len() == cells)
            && self.rank_nanos.len() == cells
            && self.lateness.len() == cells
            && self.flags.len() == cells
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

struct FrameWriter {
    bytes: Vec<u8>,
}

impl FrameWriter {
    fn new(kind: u16) -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&LIVE_VERSION.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        Self { bytes }
    }

    fn flag(&mut self, value: &bool) {
        self.bytes.push(u8::from(*value));
    }

    fn u8s(&mut self, values: &[u8]) {
        self.u32(&(values.len() as u32));
        self.bytes.extend_from_slice(values);
    }

    fn parts(&mut self, parts: &[Vec<f32>; 8]) {
        parts.iter().for_each(|part| self.f32s(part));
    }
}

struct FrameReader<'a> {
    rest: &'a [u8],
}

const TRUNCATED: FrameError = FrameError("it ends too early");

impl<'a> FrameReader<'a> {
    fn new(bytes: &'a [u8], kind: u16) -> Result<Self, FrameError> {
        let (head, rest) = bytes.split_at_checked(8).ok_or(TRUNCATED)?;
        if head[..4] != MAGIC {
            return Err(FrameError("it does not start with the magic"));
        }
        if head[4..6] != LIVE_VERSION.to_le_bytes() {
            return Err(FrameError("the server is of another version: reload the page"));
        }
        if head[6..8] != kind.to_le_bytes() {
            return Err(FrameError("it is a frame of another kind"));
        }
        Ok(Self { rest })
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    fn flag(&mut self) -> Result<bool, FrameError> {
        Ok(self.take(1)?[0] != 0)
    }

    fn u8s(&mut self) -> Result<Vec<u8>, FrameError> {
        let count = self.u32()? as usize;
        Ok(self.take(count)?.to_vec())
    }

    fn parts(&mut self) -> Result<[Vec<f32>; 8], FrameError> {
        let mut parts: [Vec<f32>; 8] = Default::default();
        for part in &mut parts {
            *part = self.f32s()?;
        }
        Ok(parts)
    }
}

macro_rules! number_columns {
    ($($one:ident, $many:ident: $type:ty;)+) => {
        #[allow(dead_code, reason = "one method per number type, whether or not a frame uses it yet")]
        impl FrameWriter {
            $(
                fn $one(&mut self, value: &$type) {
                    self.bytes.extend_from_slice(&value.to_le_bytes());
                }

                fn $many(&mut self, values: &[$type]) {
                    self.u32(&(values.len() as u32));
                    values.iter().for_each(|value| self.$one(value));
                }
            )+
        }

        #[allow(dead_code, reason = "one method per number type, whether or not a frame uses it yet")]
        impl FrameReader<'_> {
            $(
                fn $one(&mut self) -> Result<$type, FrameError> {
                    let bytes = self.take(size_of::<$type>())?;
                    Ok(<$type>::from_le_bytes(bytes.try_into().map_err(|_| TRUNCATED)?))
                }

                fn $many(&mut self) -> Result<Vec<$type>, FrameError> {
                    const WIDTH: usize = size_of::<$type>();
                    let count = self.u32()? as usize;
                    let bytes = self.take(count.checked_mul(WIDTH).ok_or(TRUNCATED)?)?;
                    let (chunks, _) = bytes.as_chunks::<WIDTH>();
                    Ok(chunks.iter().map(|chunk| <$type>::from_le_bytes(*chunk)).collect())
                }
            )+
        }
    };
}

number_columns! {
    u32, u32s: u32;
    u64, u64s: u64;
    f32, f32s: f32;
    f64, f64s: f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> StepColumns {
        StepColumns {
            reset: true,
            ranks: 2,
            step: vec![7],
            ended_unix_nanos: vec![1],
            step_nanos: vec![30.0],
            samples: vec![8],
            overlap: vec![0.5],
            parts: std::array::from_fn(|part| vec![part as f32, 1.0]),
            rank_nanos: vec![28.0, 30.0],
            lateness: vec![-1.0, 1.0],
            flags: vec![0, FLAG_SHADOW],
        }
    }

    #[test]
    fn frames_round_trip() {
        assert_eq!(StepColumns::decode(&steps().encode()).unwrap(), steps());
        let waterfall = Waterfall { step: 3, rank: vec![0], clock_bound: vec![1.0], ..Waterfall::default() };
        assert_eq!(Waterfall::decode(&waterfall.encode()).unwrap(), waterfall);
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
        assert!(!StepColumns { flags: vec![0], ..steps() }.is_consistent());
        assert!(!Waterfall { slice_row: vec![0], ..Waterfall::default() }.is_consistent());
    }
}
