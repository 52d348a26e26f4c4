//! What to simulate.

use std::ops::Range;

/// What goes wrong on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Its input takes longer.
    Input,
    /// Its device is slower: forward and backward take longer.
    Compute,
    /// It has more to compute, now more, now less: longer sequences.
    MoreWork,
    /// It loses time outside every phase.
    Host,
    /// Every reduced bucket reaches it later; the time is shared out over the buckets.
    Network,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Input, Self::Compute, Self::MoreWork, Self::Host, Self::Network];
}

/// One planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// On which rank.
    pub rank: usize,
    /// Of which kind.
    pub kind: FaultKind,
    /// How much longer, in nanoseconds a step.
    pub nanos: i64,
    /// The first step that has it.
    pub from: u64,
    /// The first step that has it no more.
    pub to: u64,
}

/// A job to simulate. Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What all draws come from. Print it when a test fails.
    pub seed: u64,
    /// How many ranks, 1 to 4,096.
    pub ranks: usize,
    /// Ranks that share a host, and so a clock.
    pub ranks_per_host: usize,
    /// How many steps.
    pub steps: u64,
    /// Buckets a step.
    pub buckets: usize,
    /// Bytes of a bucket.
    pub bucket_bytes: u64,
    /// Mean compute of a step, forward and backward together.
    pub compute: i64,
    /// Standard deviation of a rank's compute in a step, as a share of the mean.
    pub jitter: f64,
    /// Standard deviation of the sequence length, which scales forward and backward together.
    pub sequence_spread: f64,
    /// Latency of a collective.
    pub alpha: i64,
    /// Nanoseconds a byte.
    pub beta: f64,
    /// Hosts' clocks are off by up to this.
    pub clock_offset: i64,
    /// And drift by up to this, in parts per billion.
    pub drift_ppb: f64,
    /// One way of a probe takes this and up to ten times more.
    pub probe_way: i64,
    /// One batch in this many is lost; 0 for none.
    pub lose_one_in: u64,
    /// Batches come up to this late.
    pub late: i64,
    /// Agents send this often.
    pub tick: i64,
    /// From this step on, every step is a batch of its own: for feeding a server in real time.
    pub singly_from: u64,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

impl Plan {
    /// Four ranks on two hosts, 100 steps of some 40 ms, nothing wrong.
    #[must_use]
    pub fn small(seed: u64) -> Self {
        Self {
            seed,
            ranks: 4,
            ranks_per_host: 2,
            steps: 100,
            buckets: 4,
            bucket_bytes: 1 << 20,
            compute: 30_000_000,
            jitter: 0.02,
            sequence_spread: 0.0,
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

    /// The same with one fault more, from the first step to the last.
    #[must_use]
    pub fn with_fault(self, rank: usize, kind: FaultKind, nanos: i64) -> Self {
        let steps = 0..self.steps;
        self.with_fault_in(steps, rank, kind, nanos)
    }

    /// The same with one fault more, in `steps`.
    #[must_use]
    pub fn with_fault_in(mut self, steps: Range<u64>, rank: usize, kind: FaultKind, nanos: i64) -> Self {
        self.faults.push(Fault { rank, kind, nanos, from: steps.start, to: steps.end });
        self
    }
}
