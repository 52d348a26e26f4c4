//! The memory budgets and other limits of a server, with their arithmetic.
//!
//! Every limit is per run, so that one sender cannot use up the memory of others, and one limit covers all runs
//! together. Records beyond a limit are still on disk: a limit restricts what is analyzed and shown, never what is
//! stored.
//!
//! The supported scale is one run of 16,384 ranks at 3 steps/s with 40 buckets, and 1,024 ranks with 2,000 steps in
//! view. A record in memory takes `size_of::<Event>()` = 88 bytes.

use std::time::Duration;

/// The number of newest steps that the report of a live run covers.
pub const RECENT_STEPS: usize = 512;

/// The largest step number: 45 years at 3 steps/s. Charts and exports count steps in 32 bits.
pub const MAX_STEP: u64 = u32::MAX as u64;

/// The number of open steps of a run beyond which steps close incomplete once they are old ([`OPEN_NANOS`]). Ranks of a
/// synchronous job are one step apart, so any further distance is transport delay.
pub const OPEN_STEPS: usize = 256;

/// The largest number of open steps of a run, however young: over an hour at 3 steps/s. Beyond it the oldest closes
/// incomplete. A batch of a hundred bytes may name 65,536 steps.
pub const MOST_OPEN_STEPS: usize = 16_384;

/// The shortest time that an incomplete step stays open while its records fit in memory ([`OPEN_BYTES`]), in
/// nanoseconds. After an outage of the server or a full disk, each rank sends its backlog when its own wait of up to 2 s
/// is over. The first rank may then be thousands of steps ahead of the others.
pub const OPEN_NANOS: i64 = 10_000_000_000;

/// The largest size of the records in a run's open steps, in bytes. A step of 16,384 ranks has 16,384 x (40 buckets + 7
/// others) x 88 bytes = 68 MB, and about two of them are open at a time. Beyond this size the oldest step closes
/// incomplete.
pub const OPEN_BYTES: usize = 256 << 20;

/// The largest size of a run's closed steps that wait for analysis, in bytes: three steps of 16,384 ranks. Beyond this
/// size the oldest step is skipped, because this machine cannot analyze the run in real time.
pub const WAITING_BYTES: usize = 256 << 20;

/// The largest size of the records of a run's analyzed steps, in bytes, for waterfalls and exports. Records of older
/// steps are read from disk.
pub const KEPT_BYTES: usize = 128 << 20;

/// The largest size of a run's records that were read back from disk, in bytes: seven steps of 1,024 ranks. Moving back
/// and forth then reads them once. A larger step is read each time.
pub const RECALLED_BYTES: usize = 32 << 20;

/// The largest size of the records of one step that is read back from disk, in bytes: the same as for an open step. One
/// step is read at a time. In addition, memory holds a log (16 MiB, and as much again for its entries) or the columns
/// of a segment.
pub const RECALL_BYTES: usize = OPEN_BYTES;

/// The time limit for reading one step back. A request is answered within 30 s.
pub const RECALL_WITHIN: Duration = Duration::from_secs(20);

/// The largest number of requests that wait for steps to be read back. Requests beyond it are answered 503.
pub const WAITING_RECALLS: usize = 64;

/// The largest size of a run's analyzed steps, in bytes. 1,024 ranks x 2,000 steps x 176 bytes = 360 MB, and 40
/// collectives x 2,000 steps x 240 bytes = 19 MB.
pub const ANALYZED_BYTES: usize = 512 << 20;

/// The largest number of a run's analyzed steps, which bounds what a chart has to draw.
pub const ANALYZED_STEPS: usize = 20_000;

/// The largest size of a run's notes and rank state, in bytes. 16,384 ranks x (2 KB of state and texts + 120 device
/// samples x 48 bytes + 68 spans of host history x 48 bytes) = 180 MB. A batch that would exceed it is refused.
pub const RANK_BYTES: usize = 256 << 20;

/// The largest size of a run's samples of devices and hosts over time, in bytes. 1,024 ranks x 29 measures x (3,600 seconds + 2,880
/// means) x 2.6 bytes, as measured with noisy values, = 500 MB. Each rank has an equal share. In a larger run, samples are averaged before they are an
/// hour old.
pub const USAGE_BYTES: usize = 512 << 20;

/// The largest number of records of one rank in one step that are analyzed. Tensor parallelism of 100 layers over 32
/// micro-batches has 4 x 100 x 32 = 12,800 collectives. Records beyond it are counted as late.
pub const RANK_STEP_RECORDS: usize = 16_384;

/// The divisor for the smallest number of ranks in an analyzed step: a step is analyzed if at least one rank in this
/// many has sent it. The cost of an analysis grows with the run's world size, so a step that hardly any rank sent would
/// cost far more than its records did.
pub const MIN_PRESENT: usize = 64;

/// The largest number of probes that a run stores for its clocks: 1 Mi x 32 bytes = 32 MB. 16,384 ranks on 2,048 hosts
/// have 512 per clock.
pub const PROBES: usize = 1 << 20;

/// The largest number of probes that one clock stores: four minutes of eight ranks on one clock, each probing twice per
/// second.
pub const CLOCK_PROBES: usize = 4_096;

/// The largest size of all runs in memory together, in bytes. A run of 1,024 ranks takes at most 360 (analyzed) + 128
/// (stored records) + 20 (open) + 480 (devices and hosts over time) MB. Beyond this size ended runs leave memory first,
/// least recently used first. Then the largest run drops the older half of what it holds. If no run can drop anything,
/// batches of new runs, and of runs that take more than an equal share, are refused until there is room.
pub const ALL_BYTES: usize = 2 << 30;

/// The time that an ended run stays in memory after the last request for it. After that, requests read it from disk.
pub const KEEP_ENDED: Duration = Duration::from_secs(600);

/// The largest number of ended runs in memory: those that users are likely to have open.
pub const ENDED_RUNS: usize = 64;

/// The largest number of runs of a server. Each has a summary of about 1 KB, and the dashboard lists them all.
pub const RUNS: usize = 10_000;

/// The largest number of commands that wait for a run to be read from disk. Requests beyond it are answered 503.
pub const WAITING_FOR_DISK: usize = 256;
