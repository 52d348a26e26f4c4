//! What a server answers in JSON: one type from the analysis to the report, the API and the browser.
//!
//! A figure that cannot be computed is `None`, and [`Report::missing`] says why; it is never 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::batch::Drop;
use crate::burst::Burst;
use crate::device::DeviceSample;
use crate::ids::{Rank, RunId, Seq, Step};
use crate::live::Part;
use what_if::{LossLedger, WhatIf};

mod collectives;
pub mod comparison;
pub mod scaling;
pub mod what_if;

pub use collectives::{
    AlphaBeta, BucketStats, CollectiveCost, Group, GroupStats, LatencyHistogram, OneGroup,
};

/// Where a run is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Ranks have said hello, no step is complete yet.
    Starting,
    /// Steps complete.
    Running,
    /// No step completed for max(10 x median step, 10 s): see [`Hang`].
    Hung,
    /// Every rank said goodbye, its work done.
    Completed,
    /// A rank ended with an error, or never said goodbye.
    Failed,
}

impl RunState {
    /// The name in reports, in Prometheus and on the dashboard.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Hung => "hung",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// Who is waited for in a run that does not move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hang {
    /// Seconds since the last step completed.
    pub since_seconds: f64,
    /// The limit that was passed, in seconds.
    pub limit_seconds: f64,
    /// Ranks whose next collective has not started.
    pub ranks: Vec<Rank>,
    /// One sentence for a person.
    pub sentence: String,
}

/// How a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// The rank that failed first, as far as records show.
    pub rank: Rank,
    /// What its launcher or the rank itself said; empty when neither did.
    pub reason: String,
    /// The newest step that it finished.
    pub last_step: Option<Step>,
    /// The newest collective that it started.
    pub last_collective: Option<Seq>,
    /// How many other ranks ended badly.
    pub others: u32,
    /// One sentence for a person.
    pub sentence: String,
}

/// One line of the list of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// Its name; runs of one name are compared.
    pub name: String,
    /// Where it is in its life.
    pub state: RunState,
    /// When its first batch came, in milliseconds since the Unix epoch.
    pub started_unix_millis: u64,
    /// When its last batch came.
    pub last_seen_unix_millis: u64,
    /// Ranks it has.
    pub ranks_expected: u32,
    /// Ranks heard from in the last ten seconds (of a live run) or at all (of an ended one).
    pub ranks_reporting: u32,
    /// Completed steps.
    pub steps: u64,
    /// The newest completed step.
    pub last_step: Option<u64>,
    /// Mean time from one step to the next ([`Report::period_ns`]), in nanoseconds.
    pub step_time_nanos: Option<u64>,
    /// Samples (or tokens) per second over all ranks, over the recent steps.
    pub throughput: Option<f64>,
    /// Samples of one rank in one step.
    pub batch: Option<f64>,
    /// What a sample is.
    pub sample_unit: String,
    /// Overlap ratio.
    pub overlap_ratio: Option<f64>,
    /// Implied scaling efficiency.
    pub efficiency_implied: Option<f64>,
    /// What there is to say first: how it failed, else the worst verdict.
    pub verdict: Option<String>,
    /// Why it does not move, when it does not.
    pub hang: Option<Hang>,
}

/// Median and tails of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// A tenth of the values are smaller.
    pub p10: f64,
    /// A tenth of the values are larger.
    pub p90: f64,
    /// A hundredth of the values are larger.
    pub p99: f64,
    /// The mean.
    pub mean: f64,
}

impl Spread {
    /// The standard deviation that normal values of this spread have: 80 % of them lie between p10 and p90,
    /// which are 2.563 deviations apart.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        (self.p90 - self.p10) / 2.563
    }
}

/// Scaling efficiency, both kinds (METRICS.md, "One run").
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScalingEfficiency {
    /// Mean over ranks of useful compute / T.
    pub implied: Option<f64>,
    /// Weak scaling: throughput per rank / throughput per rank of [`Report::baseline`].
    pub measured: Option<f64>,
}

/// The run that measured scaling efficiency is against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BaselineRun {
    /// The completed run of the same name and batch per rank on the fewest ranks; the newest of several.
    pub run: RunId,
    /// Its world size.
    pub ranks: u32,
    /// Its samples per second, over all ranks.
    pub throughput: f64,
}

/// One rank's step ledger, summed over the observed steps. The parts sum to `step_ns` exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[allow(missing_docs, reason = "each field is the part of the same name in METRICS.md, in nanoseconds")]
pub struct RankLedger {
    pub rank: Rank,
    pub input_ns: u64,
    pub h2d_ns: u64,
    pub forward_ns: u64,
    pub backward_ns: u64,
    pub exposed_wait_ns: u64,
    pub exposed_transfer_ns: u64,
    pub optimizer_ns: u64,
    pub other_ns: u64,
    pub step_ns: u64,
}

impl RankLedger {
    /// The rank's own work: its steps less what it spent on collectives in the open, in nanoseconds.
    #[must_use]
    pub fn own_ns(&self) -> u64 {
        self.step_ns - self.exposed_wait_ns - self.exposed_transfer_ns
    }

    /// The parts in the order of [`crate::live::Part::ALL`].
    #[must_use]
    pub fn parts(&self) -> [u64; 8] {
        [
            self.input_ns,
            self.h2d_ns,
            self.forward_ns,
            self.backward_ns,
            self.exposed_wait_ns,
            self.exposed_transfer_ns,
            self.optimizer_ns,
            self.other_ns,
        ]
    }
}

/// Who a verdict is against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// One rank: `{"rank": 2}`.
    Rank(u32),
    /// Several ranks that are slow together, so that fixing one saves nothing: `{"ranks": [2, 5]}`.
    Ranks(Vec<u32>),
    /// Every rank alike: `"all"`.
    All,
}

impl Culprit {
    /// The ranks that are named; none for a verdict against all.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        match self {
            Self::Rank(rank) => std::slice::from_ref(rank),
            Self::Ranks(ranks) => ranks,
            Self::All => &[],
        }
    }
}

/// Why a step is slower than it could be (METRICS.md, "verdict").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Waiting for input.
    Input,
    /// Copying to the device.
    H2d,
    /// Compute: a slow device.
    Compute,
    /// Compute: more work than the others have, for instance longer sequences.
    MoreWork,
    /// The device lowered its clocks.
    ClockThrottle,
    /// Launch gaps, preemption, garbage collection.
    Host,
    /// Compute on a CPU that is slower for a while, by no more than such processors vary: clock frequency, a neighbour
    /// on the same core, time stolen by the hypervisor, or cache. Not the rank's own doing as far as records show.
    Processor,
    /// Transfers of one rank or link are slow.
    Network,
    /// Bucket sizes or the tail.
    CollectiveConfiguration,
    /// Something is slow and the records do not say what.
    Unknown,
}

impl Cause {
    /// The name as the report and Prometheus write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::H2d => "h2d",
            Self::Compute => "compute",
            Self::MoreWork => "more_work",
            Self::ClockThrottle => "clock_throttle",
            Self::Host => "host",
            Self::Processor => "processor",
            Self::Network => "network",
            Self::CollectiveConfiguration => "collective_configuration",
            Self::Unknown => "unknown",
        }
    }
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Something is there, but too few steps or too wide a clock bound to act on it.
    InsufficientEvidence,
    /// More likely than not.
    Medium,
    /// Seen in nearly every step, by both forms.
    High,
}

/// How a fault behaves over the steps that were watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    /// In nearly all steps that were watched.
    Persistent,
    /// It began while the run was watched and is still there: a fail-slow.
    Onset,
    /// It came and went.
    Transient,
    /// It comes back: several episodes.
    Recurring,
}

/// Whether a fault is there after the newest step that was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerdictState {
    /// It is there: the newest steps have it.
    Active,
    /// It has come back at least once, and may do so again.
    Recurring,
    /// It is over.
    Resolved,
}

/// What the ranks of a run compute on, which is what hours are counted of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ComputedOn {
    /// No device of a rank was seen: processes on CPUs.
    #[default]
    Cpu,
    /// Some rank's GPU was seen.
    Gpu,
}

impl ComputedOn {
    /// What an hour of one rank is called.
    #[must_use]
    pub fn hours(self) -> &'static str {
        match self {
            Self::Cpu => "rank-hours",
            Self::Gpu => "GPU-hours",
        }
    }
}

/// When a fault began, and how the step time bears it out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangePoint {
    /// The first step that has it.
    pub step: u64,
    /// It began no earlier than this.
    pub earliest: u64,
    /// And no later than this.
    pub latest: u64,
    /// When that step ended on the server's clock, in milliseconds since the Unix epoch; null without
    /// aligned clocks.
    pub unix_millis: Option<u64>,
    /// Median of the rank's own work in the steps before, in nanoseconds.
    pub before_ns: f64,
    /// Median of it from that step on.
    pub after_ns: f64,
    /// True when the two sides differ by more than their own scatter explains (p < 0.001).
    pub verified: bool,
}

/// What is wrong, what it costs, and how one knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verdict {
    /// Who, or null when no one can be named.
    pub culprit: Option<Culprit>,
    /// Why.
    pub cause: Cause,
    /// Whether it is there now.
    pub state: VerdictState,
    /// What fixing it would save in a step that has it: the mean without the lowest and the highest tenth, in
    /// nanoseconds.
    pub cost_ns_per_step: u64,
    /// The same as a share of such a step's time ([`Report::period_ns`] over these steps), 0 to 1.
    pub cost_share: f64,
    /// How many of the observed steps have it.
    pub affected_steps: u64,
    /// `cost_share` x ranks x 24: what a day costs while it lasts, in hours of [`Report::computed_on`]. Null once it is
    /// resolved.
    pub device_hours_per_day: Option<f64>,
    /// How sure.
    pub confidence: Confidence,
    /// One sentence for a person.
    pub sentence: String,
    /// What speaks for it.
    pub evidence: Vec<String>,
    /// What speaks against it.
    pub counter_evidence: Vec<String>,
    /// The step that shows it best.
    pub example_step: Option<u64>,
    /// Whether it stays, came and went, or comes back; null for verdicts against all ranks.
    pub persistence: Option<Persistence>,
    /// The first and the last observed step that have it.
    pub steps: (u64, u64),
    /// When it began, if it began while the run was watched.
    pub onset: Option<ChangePoint>,
}

impl Verdict {
    /// What it has cost the run so far, in nanoseconds.
    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.cost_ns_per_step * self.affected_steps
    }
}

/// How well a rank's clock is aligned to the server's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankClock {
    /// The rank.
    pub rank: Rank,
    /// Error bound of its aligned times, in nanoseconds; null before the first probe.
    pub bound_ns: Option<u64>,
    /// Its drift against the server's clock, in parts per billion.
    pub drift_ppb: f64,
}

/// What the recording itself costs, from shadow steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnOverhead {
    /// Median of (observed step / neighbouring shadow step) - 1. May be negative: that is noise.
    pub ratio: f64,
    /// Lower end of its 95 % interval (sign test on the pairs).
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How many pairs.
    pub pairs: u64,
}

/// Records that one rank lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankDrops {
    /// The rank.
    pub rank: Rank,
    /// What it lost.
    pub drops: Vec<Drop>,
}

/// The newest look at a rank's device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankDevice {
    /// The rank.
    pub rank: Rank,
    /// What its device said.
    pub sample: DeviceSample,
}

/// What a rank's devices did when somebody asked last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankBurst {
    /// The rank.
    pub rank: Rank,
    /// How long ago it came, in milliseconds.
    pub age_millis: u64,
    /// The burst.
    pub burst: Burst,
}

/// Everything that is known about a run: what `paceline report` prints and the page shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Report {
    /// The run.
    pub run: RunId,
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: RunState,
    /// How many ranks it has.
    pub ranks: u32,
    /// Observed steps: complete on all ranks, not shadow, not the first (which warms up).
    pub steps: u64,
    /// The first and the last observed step.
    pub step_range: Option<(u64, u64)>,
    /// Step time T over the observed steps, in nanoseconds.
    pub step_time_ns: Option<Spread>,
    /// The median over ranks of the local step time, over the observed steps, in nanoseconds.
    pub local_step_time_ns: Option<Spread>,
    /// Mean time from one step to the next, in nanoseconds: what shares of the step are shares of. Shorter than the mean
    /// of `step_time_ns` where ranks begin a step at different times, so that steps overlap.
    pub period_ns: Option<f64>,
    /// Samples per second over all ranks.
    pub throughput: Option<f64>,
    /// Samples of one rank in one step, as the job stated them: the median over steps of the mean over ranks.
    pub batch: Option<f64>,
    /// What a sample is.
    pub sample_unit: String,
    /// |hidden| / |collectives| over ranks and steps.
    pub overlap_ratio: Option<f64>,
    /// T_comm / (T_comp + T_comm).
    pub communication_fraction: Option<f64>,
    /// Median tail: end of the last bucket after the end of the last backward compute, in nanoseconds.
    pub tail_ns: Option<f64>,
    /// Both kinds of scaling efficiency.
    pub scaling_efficiency: ScalingEfficiency,
    /// What measured efficiency is against.
    pub baseline: Option<BaselineRun>,
    /// What recording costs, as one number.
    pub own_overhead_ratio: Option<f64>,
    /// The same with its interval.
    pub own_overhead: Option<OwnOverhead>,
    /// What the step would take if something were fixed.
    pub what_if: Option<WhatIf>,
    /// Where efficiency goes.
    pub loss_ledger: Option<LossLedger>,
    /// One ledger a rank, summed over the observed steps.
    pub ledger: Vec<RankLedger>,
    /// Those that are there before those that are over, each worst first.
    pub verdicts: Vec<Verdict>,
    /// Effects that cost less than is worth a verdict: nothing is alerted, nothing fails a check.
    pub notes: Vec<Verdict>,
    /// What the ranks compute on.
    pub computed_on: ComputedOn,
    /// One entry a bucket.
    pub buckets: Vec<BucketStats>,
    /// One entry a shape of group, the largest first.
    pub groups: Vec<GroupStats>,
    /// The latency-bandwidth model of the communicator.
    pub comm_model: Option<AlphaBeta>,
    /// One entry a rank.
    pub clocks: Vec<RankClock>,
    /// Ranks that lost records.
    pub drops: Vec<RankDrops>,
    /// Why it does not move, when it does not.
    pub hang: Option<Hang>,
    /// How it failed, when it did.
    pub failure: Option<Failure>,
    /// Figures that are not there, by name, each with its reason.
    pub missing: BTreeMap<String, String>,
}

impl Report {
    /// What these parts of the ledger take in a step, the mean over ranks, in nanoseconds; `None` without
    /// observed steps.
    #[must_use]
    pub fn mean_ns(&self, parts: &[Part]) -> Option<f64> {
        let of_rank = |rank: &RankLedger| parts.iter().map(|&part| rank.parts()[part as usize]).sum::<u64>();
        let count = self.steps * self.ledger.len() as u64;
        (count > 0).then(|| self.ledger.iter().map(of_rank).sum::<u64>() as f64 / count as f64)
    }
}

/// What the live stream says beside the columns of [`crate::live`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LiveView {
    /// The list of runs, newest first (stream without a run).
    Runs {
        /// All runs.
        runs: Vec<RunSummary>,
    },
    /// One run's summary and report (stream of a run).
    Run {
        /// The line of the list.
        summary: Box<RunSummary>,
        /// The report over the recent window.
        report: Box<Report>,
    },
    /// The run that was asked for is not there.
    NoSuchRun,
}

/// An error as the API answers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiError {
    /// What is wrong, where, and how to mend it.
    pub error: String,
}
