//! What a server spends on the runs it shows, in bytes and in counts, with the arithmetic.
//!
//! One sender must not take what others need, so every bound is per run, and one bounds all runs together. What is
//! beyond a bound is on disk all the same: a bound limits what is analysed and shown, never what is kept.
//!
//! The promised scale is one run of 16,384 ranks at 3 steps/s with 40 buckets, and 1,024 ranks with 2,000 steps in
//! view. A record in memory takes `size_of::<Event>()` = 88 bytes.

use std::time::Duration;

/// Largest number of a step: 45 years at 3 steps/s. Charts and exports count steps in 32 bits.
pub const MOST_STEP: u64 = u32::MAX as u64;

/// Steps that may be open at once in a run. Ranks of a synchronous job are one step apart; what lies between them is
/// transport.
pub const OPEN_STEPS: usize = 256;

/// Bytes of records in open steps of a run. A step of 16,384 ranks has 16,384 x (40 buckets + 7 others) x 88 bytes =
/// 68 MB, and some two of them are open at a time. Beyond, the oldest step closes as it is.
pub const OPEN_BYTES: usize = 256 << 20;

/// Bytes of closed steps of a run that wait to be analysed: three of 16,384 ranks. Beyond, the oldest is given up:
/// its run is larger than this machine can analyse in real time.
pub const WAITING_BYTES: usize = 256 << 20;

/// Bytes of records of analysed steps of a run, for waterfalls and exports. Older ones are read from disk.
pub const KEPT_BYTES: usize = 128 << 20;

/// Bytes of records of steps of a run that were read back from disk, so that going back and forth reads them once: seven
/// steps of 1,024 ranks. A larger step is read each time.
pub const RECALLED_BYTES: usize = 32 << 20;

/// Bytes of records of a step that is read back from disk, of one at a time: as many as a step may have when it comes.
/// Beside them a log (16 MiB, and as much again for its entries) or the columns of a segment are in memory.
pub const RECALL_BYTES: usize = OPEN_BYTES;

/// How long reading a step back may take. A request is answered within 30 s.
pub const RECALL_WITHIN: Duration = Duration::from_secs(20);

/// Requests for steps that wait until others are read back. Beyond, a request is answered 503.
pub const WAITING_RECALLS: usize = 64;

/// Bytes of analysed steps of a run. 1,024 ranks x 2,000 steps x 176 bytes = 360 MB, and 40 collectives x 2,000 steps
/// x 240 bytes = 19 MB.
pub const ANALYSED_BYTES: usize = 512 << 20;

/// Analysed steps of a run, so that no chart has to draw more.
pub const ANALYSED_STEPS: usize = 20_000;

/// Bytes of what ranks say of themselves. 16,384 ranks x (2 KB of state and texts + 120 looks at a device x 48 bytes)
/// = 128 MB. A batch that would exceed it is refused.
pub const RANK_BYTES: usize = 192 << 20;

/// Records of one rank in one step that are analysed. Tensor parallelism of 100 layers over 32 micro-batches has
/// 4 x 100 x 32 = 12,800 collectives. What a rank sends beyond is counted as late.
pub const RANK_STEP_RECORDS: usize = 16_384;

/// A step is analysed when at least one rank in this many has sent it. What it costs to analyse grows with all ranks of
/// the run, so that a step that hardly any rank sent would cost far more than its records did.
pub const LEAST_PRESENT: usize = 64;

/// Probes that a run keeps for its clocks: 1 Mi x 32 bytes = 32 MB. 16,384 ranks on 2,048 hosts have 512 a clock.
pub const PROBES: usize = 1 << 20;

/// Probes that one clock keeps: with eight ranks on it, each asking twice a second, four minutes.
pub const CLOCK_PROBES: usize = 4_096;

/// Bytes of all runs together. A run of 1,024 ranks takes at most 360 (analysed) + 128 (kept) + 20 (open) MB. Beyond,
/// runs that are over leave memory first, the one that ended longest ago before the others; then the largest run
/// gives up the older half of what it holds.
pub const ALL_BYTES: usize = 2 << 30;

/// A run that is over stays in memory for this long after the last request for it. After that it is read from disk when
/// somebody asks.
pub const KEEP_ENDED: Duration = Duration::from_secs(600);

/// Runs that are over and stay in memory: what somebody may be looking at.
pub const ENDED_RUNS: usize = 64;

/// Runs that a server lists: a summary of about 1 KB each. The page lists them all.
pub const RUNS: usize = 10_000;

/// Commands that wait until a run is read from disk. Beyond, a request is answered 503.
pub const WAITING_FOR_DISK: usize = 256;
