//! The parameters of a simulation.

use std::ops::Range;

/// The kind of fault on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Input takes longer.
    Input,
    /// The device is slower: forward and backward take longer.
    Compute,
    /// The rank has a varying amount of extra work, as with longer sequences.
    MoreWork,
    /// The rank loses time outside every phase.
    Host,
    /// Every reduced bucket reaches the rank later. The delay is divided among the buckets.
    Network,
}

impl FaultKind {
    pub const ALL: [Self; 5] = [Self::Input, Self::Compute, Self::MoreWork, Self::Host, Self::Network];
}

/// One planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank that has the fault.
    pub rank: usize,
    pub kind: FaultKind,
    /// The extra time in nanoseconds per step.
    pub nanos: i64,
    /// The first step with the fault.
    pub from: u64,
    /// The first step after the fault.
    pub to: u64,
}

/// A job to simulate. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of all draws. Print it if a test fails.
    pub seed: u64,
    /// The number of ranks, 1 to 4,096.
    pub ranks: usize,
    /// The number of ranks that share a host, and therefore a clock.
    pub ranks_per_host: usize,
    /// The number of steps.
    pub steps: u64,
    /// The number of buckets per step.
    pub buckets: usize,
    /// The size of a bucket in bytes.
    pub bucket_bytes: u64,
    /// The size of the first bucket, which DDP makes smaller.
    pub first_bucket_bytes: u64,
    /// The mean compute time of a step, forward and backward together.
    pub compute: i64,
    /// The standard deviation of a rank's compute time in a step, as a share of the mean.
    pub jitter: f64,
    /// The standard deviation of the sequence length, which scales forward and backward together.
    pub sequence_spread: f64,
    /// A rank stalls in one of this many steps, as in a pause of its host; 0 if it never stalls.
    pub stall_one_in: u64,
    /// The mean duration of a stall. Durations are exponential.
    pub stall: i64,
    /// The latency of a collective.
    pub alpha: i64,
    /// The transfer time in nanoseconds per byte.
    pub beta: f64,
    /// The largest offset of a host's clock.
    pub clock_offset: i64,
    /// The largest drift of a host's clock, in parts per billion.
    pub drift_ppb: f64,
    /// The shortest delay of a probe in one direction. The actual delay is up to ten times longer.
    pub probe_way: i64,
    /// One batch in this many is lost; 0 if none is lost.
    pub lose_one_in: u64,
    /// The largest delay of a batch.
    pub late: i64,
    /// The interval at which agents send.
    pub tick: i64,
    /// The first step that is sent in its own batch, as are all later steps. Used to feed a server in real time.
    pub singly_from: u64,
    /// The planted faults.
    pub faults: Vec<Fault>,
}

impl Plan {
    /// Returns a plan of four ranks on two hosts and 100 steps of about 40 ms, without faults.
    #[must_use]
    pub fn small(seed: u64) -> Self {
        Self {
            seed,
            ranks: 4,
            ranks_per_host: 2,
            steps: 100,
            buckets: 4,
            bucket_bytes: 1 << 20,
            first_bucket_bytes: 1 << 20,
            compute: 30_000_000,
            jitter: 0.02,
            sequence_spread: 0.0,
            stall_one_in: 0,
            stall: 0,
            alpha: 100_000,
            beta: 0.5,
            clock_offset: 3_600_000_000_000,
            drift_ppb: 50_000.0,
            probe_way: 40_000,
            lose_one_in: 0,
            late: 0,
            tick: 100_000_000,
            singly_from: u64::MAX,
            faults: Vec::new(),
        }
    }

    /// Returns the size of a bucket in bytes.
    #[must_use]
    pub fn bytes(&self, bucket: usize) -> u64 {
        if bucket == 0 { self.first_bucket_bytes } else { self.bucket_bytes }
    }

    /// Adds a fault in all steps.
    #[must_use]
    pub fn with_fault(self, rank: usize, kind: FaultKind, nanos: i64) -> Self {
        let steps = 0..self.steps;
        self.with_fault_in(steps, rank, kind, nanos)
    }

    /// Adds a fault in `steps`.
    #[must_use]
    pub fn with_fault_in(mut self, steps: Range<u64>, rank: usize, kind: FaultKind, nanos: i64) -> Self {
        self.faults.push(Fault { rank, kind, nanos, from: steps.start, to: steps.end });
        self
    }
}
