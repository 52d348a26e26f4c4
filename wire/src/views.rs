//! Views: what a server answers in JSON. The analysis, the report, the API and the browser use the same types.
//!
//! A figure that cannot be computed is never 0. In a report it is a [`Figure`], which says why it is missing.

use serde::{Deserialize, Serialize};

use crate::batch::Drop;
use crate::burst::Burst;
use crate::device::DeviceSample;
use crate::ids::{Rank, RunId, Seq, Step};
use crate::live::Part;
use what_if::{LossLedger, WhatIf};

mod collectives;
pub mod comparison;
mod figure;
pub mod scaling;
pub mod what_if;

pub use collectives::{
    AlphaBeta, BucketStats, CollectiveCost, Group, GroupStats, LatencyHistogram, OneGroup,
};
pub use figure::{Figure, Gap, GapKind, Missing};

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Ranks have connected; no step is complete.
    Starting,
    /// The run completes steps.
    Running,
    /// No step completed for max(10 x median step, 10 s). See [`Hang`].
    Hung,
    /// Every rank completed its work and sent its end-of-run message.
    Completed,
    /// A rank ended with an error, or vanished.
    Failed,
}

impl RunState {
    /// Returns the name used in reports, in Prometheus and on the dashboard.
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

/// A hang: the ranks that the others wait for in a run without progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hang {
    /// The time since the last step completed, in seconds.
    pub since_seconds: f64,
    /// The limit that was exceeded, in seconds.
    pub limit_seconds: f64,
    /// The ranks whose next collective has not started.
    pub ranks: Vec<Rank>,
    /// A sentence for the user.
    pub sentence: String,
}

/// The failure of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// The rank that failed first, as far as records show.
    pub rank: Rank,
    /// The error reported by the launcher or by the rank; empty if neither reported one.
    pub reason: String,
    /// The newest step that the rank finished.
    pub last_step: Option<Step>,
    /// The newest collective that the rank started.
    pub last_collective: Option<Seq>,
    /// The number of other ranks that failed.
    pub others: u32,
    /// A sentence for the user.
    pub sentence: String,
}

/// One line in the list of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// The name of the run. Runs of one name are compared with each other.
    pub name: String,
    /// The state of the run.
    pub state: RunState,
    /// The arrival of the first batch, in milliseconds since the Unix epoch.
    pub started_unix_millis: u64,
    /// The arrival of the last batch, in milliseconds since the Unix epoch.
    pub last_seen_unix_millis: u64,
    /// The number of ranks in the run.
    pub ranks_expected: u32,
    /// The number of ranks that sent a batch in the last ten seconds. For a run that has ended: the number of ranks
    /// that sent any batch.
    pub ranks_reporting: u32,
    /// The number of completed steps.
    pub steps: u64,
    /// The newest completed step.
    pub last_step: Option<u64>,
    /// The mean time from one step to the next, in nanoseconds ([`Report::period_nanos`]).
    pub step_time_nanos: Option<u64>,
    /// Samples (or tokens) per second over all ranks, over the recent steps.
    pub throughput: Option<f64>,
    /// The number of samples of one rank in one step.
    pub batch: Option<f64>,
    /// The unit of a sample.
    pub sample_unit: String,
    /// The overlap: the hidden share of communication.
    pub overlap_ratio: Option<f64>,
    /// The implied scaling efficiency.
    pub efficiency_implied: Option<f64>,
    /// The sentence shown first: the failure if the run failed, otherwise the worst verdict.
    pub verdict: Option<String>,
    /// The hang, if the run hangs.
    pub hang: Option<Hang>,
}

/// The median, tails and mean of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The 10th percentile: a tenth of the values are smaller.
    pub p10: f64,
    /// The 90th percentile: a tenth of the values are larger.
    pub p90: f64,
    /// The 99th percentile: a hundredth of the values are larger.
    pub p99: f64,
    /// The mean.
    pub mean: f64,
}

impl Spread {
    /// Returns the standard deviation of normally distributed values with this spread. 80 % of such values lie between
    /// p10 and p90, which are 2.563 standard deviations apart.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        (self.p90 - self.p10) / 2.563
    }
}

/// Both kinds of scaling efficiency (`docs/metrics.md`, "One run").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScalingEfficiency {
    /// Implied efficiency: the mean over ranks of compute time / period.
    pub implied: Figure<f64>,
    /// Measured efficiency (weak scaling): throughput per rank / throughput per rank of [`Report::baseline`].
    pub measured: Figure<f64>,
}

/// The baseline of measured scaling efficiency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BaselineRun {
    /// The baseline: the completed run of the same name and batch per rank on the fewest ranks; the newest of several.
    pub run: RunId,
    /// The world size of the baseline.
    pub ranks: u32,
    /// The samples per second of the baseline, over all ranks.
    pub throughput: f64,
}

/// The step ledger of one rank, summed over the observed steps. The parts sum to `step_nanos` exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[allow(missing_docs, reason = "each field is the part of the same name in docs/metrics.md, in nanoseconds")]
pub struct RankLedger {
    pub rank: Rank,
    pub input_nanos: u64,
    pub h2d_nanos: u64,
    pub forward_nanos: u64,
    pub backward_nanos: u64,
    pub exposed_wait_nanos: u64,
    pub exposed_transfer_nanos: u64,
    pub optimizer_nanos: u64,
    pub other_nanos: u64,
    pub step_nanos: u64,
}

impl RankLedger {
    /// Returns the rank's local work: its steps less exposed communication, in nanoseconds.
    #[must_use]
    pub fn own_nanos(&self) -> u64 {
        self.step_nanos - self.exposed_wait_nanos - self.exposed_transfer_nanos
    }

    /// Returns the parts in the order of [`crate::live::Part::ALL`].
    #[must_use]
    pub fn parts(&self) -> [u64; 8] {
        [
            self.input_nanos,
            self.h2d_nanos,
            self.forward_nanos,
            self.backward_nanos,
            self.exposed_wait_nanos,
            self.exposed_transfer_nanos,
            self.optimizer_nanos,
            self.other_nanos,
        ]
    }
}

/// The culprit that a verdict names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// One rank: `{"rank": 2}`.
    Rank(u32),
    /// Several ranks that are slow together, so that fixing only one of them saves nothing: `{"ranks": [2, 5]}`.
    Ranks(Vec<u32>),
    /// All ranks alike: `"all"`.
    All,
}

impl Culprit {
    /// Returns the named ranks; empty if the culprit is all ranks.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        match self {
            Self::Rank(rank) => std::slice::from_ref(rank),
            Self::Ranks(ranks) => ranks,
            Self::All => &[],
        }
    }
}

/// The cause of lost time (`docs/metrics.md`, "Verdict").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Waiting for input.
    Input,
    /// Copying to the device.
    H2d,
    /// Longer compute with the same work: a slow device.
    Compute,
    /// Longer compute because of more work than on the other ranks, for instance longer sequences.
    MoreWork,
    /// Slow compute on a device that lowered its clocks.
    ClockThrottle,
    /// Time off the processor: launch gaps, preemption, garbage collection.
    Host,
    /// Slow compute on a CPU, within what such processors vary by: clock frequency, another thread on the same core,
    /// time stolen by the hypervisor, or cache. As far as records show, it is not a fault of the rank.
    Processor,
    /// Long transfers of one rank or link.
    Network,
    /// The bucket sizes or the tail cost time on all ranks.
    CollectiveConfiguration,
    /// Time is lost, and no record says why.
    Unknown,
}

impl Cause {
    /// Returns the name used in reports and in Prometheus.
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

/// The confidence in a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The evidence suffices to name the culprit, but not for high confidence.
    Medium,
    /// At least 100 steps have the fault. In most of them the culprit is last, and its excess is clear.
    High,
}

/// The persistence of a fault over the observed steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    /// Nearly all observed steps have the fault.
    Persistent,
    /// The fault began while the run was observed and is still present (fail-slow).
    Onset,
    /// The fault began and ended.
    Transient,
    /// The fault has several episodes.
    Recurring,
}

/// The state of a fault after the newest observed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerdictState {
    /// The newest steps have the fault.
    Active,
    /// The fault has come back at least once and may come back again.
    Recurring,
    /// The fault is over.
    Resolved,
}

/// The kind of device that the ranks of a run compute on. It decides the unit in which hours are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ComputedOn {
    /// No rank reported a GPU: the ranks compute on CPUs.
    #[default]
    Cpu,
    /// At least one rank reported a GPU.
    Gpu,
}

impl ComputedOn {
    /// Returns the unit of hours.
    #[must_use]
    pub fn hours(self) -> &'static str {
        match self {
            Self::Cpu => "rank-hours",
            Self::Gpu => "GPU-hours",
        }
    }
}

/// The step in which a fault began, with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangePoint {
    /// The first step with the fault.
    pub step: u64,
    /// The earliest possible first step.
    pub earliest: u64,
    /// The latest possible first step.
    pub latest: u64,
    /// The end of the first step on the server's clock, in milliseconds since the Unix epoch; null without aligned
    /// clocks.
    pub unix_millis: Option<u64>,
    /// The median of the culprit's local work before the first step, in nanoseconds.
    pub before_nanos: f64,
    /// The median of the culprit's local work from the first step on, in nanoseconds.
    pub after_nanos: f64,
    /// True if the two sides differ by more than their scatter explains (p < 0.001).
    pub verified: bool,
}

/// A verdict: who delays the run, why, what it costs, and on what evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verdict {
    /// The culprit; null if none can be named.
    pub culprit: Option<Culprit>,
    /// The cause.
    pub cause: Cause,
    /// The state of the fault after the newest observed step.
    pub state: VerdictState,
    /// The saving from fixing the culprit in a step that has the fault, in nanoseconds: the mean without the lowest and
    /// the highest tenth.
    pub cost_nanos_per_step: u64,
    /// The saving as a share of the period of such a step ([`Report::period_nanos`] over these steps), 0 to 1.
    pub cost_share: f64,
    /// The number of observed steps that have the fault.
    pub affected_steps: u64,
    /// The cost of one day with the fault, in hours of [`Report::computed_on`]: `cost_share` x ranks x 24. Null once
    /// the fault is resolved.
    pub device_hours_per_day: Option<f64>,
    /// The confidence.
    pub confidence: Confidence,
    /// A sentence for the user.
    pub sentence: String,
    /// The evidence for the verdict, one sentence each.
    pub evidence: Vec<String>,
    /// The evidence against the verdict, one sentence each.
    pub counter_evidence: Vec<String>,
    /// A typical step with the fault.
    pub example_step: Option<u64>,
    /// The persistence of the fault; null for verdicts on all ranks.
    pub persistence: Option<Persistence>,
    /// The first and the last observed step that have the fault.
    pub steps: (u64, u64),
    /// The change point, if the fault began while the run was observed.
    pub onset: Option<ChangePoint>,
}

impl Verdict {
    /// Returns the cost of the fault in the observed steps, in nanoseconds.
    #[must_use]
    pub fn lost_nanos(&self) -> u64 {
        self.cost_nanos_per_step * self.affected_steps
    }
}

/// The alignment of a rank's clock to the server's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankClock {
    /// The rank.
    pub rank: Rank,
    /// The error bound of the rank's aligned times, in nanoseconds; null before the first probe.
    pub bound_nanos: Option<u64>,
    /// The drift of the rank's clock against the server's, in parts per billion.
    pub drift_ppb: f64,
}

/// The cost of recording, measured with shadow steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnOverhead {
    /// The median of (observed step / neighboring shadow step) - 1. A negative value is noise.
    pub ratio: f64,
    /// The lower end of the 95 % interval (sign test on the pairs).
    pub low: f64,
    /// The upper end of the 95 % interval.
    pub high: f64,
    /// The number of pairs.
    pub pairs: u64,
}

/// The records that one rank lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankDrops {
    /// The rank.
    pub rank: Rank,
    /// The lost records, by kind and reason.
    pub drops: Vec<Drop>,
}

/// The newest sample of a rank's device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankDevice {
    /// The rank.
    pub rank: Rank,
    /// The sample.
    pub sample: DeviceSample,
}

/// The newest burst of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankBurst {
    /// The rank.
    pub rank: Rank,
    /// The age of the burst since its arrival, in milliseconds.
    pub age_millis: u64,
    /// The burst.
    pub burst: Burst,
}

/// The report on a run: everything that `paceline report` prints and the dashboard shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Report {
    /// The run.
    pub run: RunId,
    /// The name of the run.
    pub name: String,
    /// The state of the run.
    pub state: RunState,
    /// The number of ranks in the run.
    pub ranks: u32,
    /// The number of observed steps: complete on all ranks, not shadow steps, and past the two warm-up steps.
    pub steps: u64,
    /// The first and the last observed step.
    pub step_range: Option<(u64, u64)>,
    /// The step time T over the observed steps, in nanoseconds.
    pub step_time_nanos: Figure<Spread>,
    /// The local step time over the observed steps, in nanoseconds: the median over ranks in each step.
    pub local_step_time_nanos: Figure<Spread>,
    /// The mean time from one step to the next, in nanoseconds. Shares of a step are shares of this period. It is
    /// shorter than the mean of `step_time_nanos` if ranks begin a step at different times, because steps then overlap.
    pub period_nanos: Figure<f64>,
    /// Samples per second over all ranks.
    pub throughput: Figure<f64>,
    /// The number of samples of one rank in one step, as the job states it: the median over steps of the mean over
    /// ranks.
    pub batch: Figure<f64>,
    /// The unit of a sample.
    pub sample_unit: String,
    /// The overlap over ranks and steps: hidden communication / communication.
    pub overlap_ratio: Figure<f64>,
    /// The communication fraction: communication / (compute + communication), summed over ranks and steps.
    pub communication_fraction: Figure<f64>,
    /// The median tail, in nanoseconds: from the end of the last backward compute to the end of the last bucket.
    pub tail_nanos: Figure<f64>,
    /// Both kinds of scaling efficiency.
    pub scaling_efficiency: ScalingEfficiency,
    /// The baseline of measured efficiency.
    pub baseline: Option<BaselineRun>,
    /// The cost of recording, with its 95 % interval.
    pub own_overhead: Figure<OwnOverhead>,
    /// The step as it would be with one thing fixed.
    pub what_if: Figure<WhatIf>,
    /// The loss ledger: where efficiency is lost.
    pub loss_ledger: Figure<LossLedger>,
    /// The step ledger of each rank, summed over the observed steps.
    pub ledger: Vec<RankLedger>,
    /// The verdicts: those that are active or recurring before those that are resolved, each worst first.
    pub verdicts: Vec<Verdict>,
    /// The reason why there can be no verdict yet; null if the lack of a verdict means that nothing stands out.
    #[serde(default)]
    pub verdicts_missing: Option<Missing>,
    /// Effects that cost too little for a verdict. No alert or check acts on them.
    pub notes: Vec<Verdict>,
    /// The kind of device that the ranks compute on.
    pub computed_on: ComputedOn,
    /// One entry per bucket.
    pub buckets: Vec<BucketStats>,
    /// One entry per shape of group, the largest first.
    pub groups: Vec<GroupStats>,
    /// The latency-bandwidth model of the communicator.
    pub comm_model: Figure<AlphaBeta>,
    /// One entry per rank.
    pub clocks: Vec<RankClock>,
    /// The ranks that lost records.
    pub drops: Vec<RankDrops>,
    /// The hang, if the run hangs.
    pub hang: Option<Hang>,
    /// The failure, if the run failed.
    pub failure: Option<Failure>,
    /// What the report does not cover.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

impl Report {
    /// Returns how long these parts of the ledger take in one step, as the mean over ranks, in nanoseconds; `None`
    /// without observed steps.
    #[must_use]
    pub fn mean_nanos(&self, parts: &[Part]) -> Option<f64> {
        let of_rank = |rank: &RankLedger| parts.iter().map(|&part| rank.parts()[part as usize]).sum::<u64>();
        let count = self.steps * self.ledger.len() as u64;
        (count > 0).then(|| self.ledger.iter().map(of_rank).sum::<u64>() as f64 / count as f64)
    }

    /// Returns the name of each missing figure, with the reason.
    #[must_use]
    pub fn missing(&self) -> Vec<(&'static str, &Missing)> {
        let figures = [
            ("step time", self.period_nanos.reason()),
            ("step time, median and tails", self.step_time_nanos.reason()),
            ("local step time", self.local_step_time_nanos.reason()),
            ("throughput", self.throughput.reason()),
            ("batch per rank", self.batch.reason()),
            ("overlap", self.overlap_ratio.reason()),
            ("communication fraction", self.communication_fraction.reason()),
            ("tail", self.tail_nanos.reason()),
            ("efficiency, implied", self.scaling_efficiency.implied.reason()),
            ("efficiency, measured", self.scaling_efficiency.measured.reason()),
            ("own overhead", self.own_overhead.reason()),
            ("what-if", self.what_if.reason()),
            ("loss ledger", self.loss_ledger.reason()),
            ("all-reduce model", self.comm_model.reason()),
            ("verdicts", self.verdicts_missing.as_ref()),
        ];
        figures.into_iter().filter_map(|(name, reason)| Some((name, reason?))).collect()
    }
}

/// A message on the live stream, in addition to the columns of [`crate::live`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LiveView {
    /// The list of runs, newest first, on the stream without a run.
    Runs {
        /// All runs.
        runs: Vec<RunSummary>,
    },
    /// The summary and the report of one run, on the stream of that run.
    Run {
        /// The run's line in the list of runs.
        summary: Box<RunSummary>,
        /// The report over the recent window.
        report: Box<Report>,
    },
    /// The requested run does not exist.
    NoSuchRun,
}

/// An error that the API answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiError {
    /// What is wrong, where, and how to fix it.
    pub error: String,
}
