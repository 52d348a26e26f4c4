//! The report on a run: its figures, its verdicts, and a line per rank.

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::collectives::{AlphaBeta, BucketParameters, BucketStats, GroupStats, LastRank};
use super::figure::{Figure, Gap, Missing};
use super::goodput::Goodput;
use super::memory::MemoryGrowth;
use super::run::{AttributeRanks, Failure, Hang, HostRanks, RankEvent, RunState};
use super::verdict::{PastFault, Verdict};
use super::what_if::{LossLedger, WhatIf};
use crate::batch::Drop;
use crate::burst::Burst;
use crate::device::DeviceSample;
use crate::event::SpanKind;
use crate::ids::{Bucket, Rank, RunId};
use crate::layout::Layout;
use crate::live::Part;
use crate::stacks::Stacks;
use crate::traces::TraceSummary;
use crate::usage::Usage;

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
    /// The 95th percentile: a twentieth of the values are larger.
    pub p95: f64,
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
    /// Measured efficiency: throughput per rank / throughput per rank of [`Report::baseline`], whose
    /// [`rule`](BaselineRun::rule) says whether the scaling is weak or strong.
    pub measured: Figure<f64>,
}

/// What a run and its baseline have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ScalingRule {
    /// Weak scaling: the same batch per rank.
    #[default]
    Weak,
    /// Strong scaling: the same batch over all ranks.
    Strong,
}

impl ScalingRule {
    /// All rules, in the order in which they are tried.
    pub const ALL: [Self; 2] = [Self::Weak, Self::Strong];

    /// Returns the name used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Weak => "weak scaling",
            Self::Strong => "strong scaling",
        }
    }

    /// Returns what the runs have in common.
    #[must_use]
    pub fn shared(self) -> &'static str {
        match self {
            Self::Weak => "batch per rank",
            Self::Strong => "total batch",
        }
    }
}

/// The baseline of measured scaling efficiency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BaselineRun {
    /// The baseline: the completed run of the same name and batch per rank on the fewest ranks; the newest of several.
    /// Without one, the same with the total batch.
    pub run: RunId,
    /// The world size of the baseline.
    pub ranks: u32,
    /// The samples per second of the baseline, over all ranks.
    pub throughput: f64,
    /// True if the baseline has a verdict itself. Efficiency against it looks too high.
    pub has_verdict: bool,
    /// What the run and the baseline have in common.
    pub rule: ScalingRule,
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
    pub pause_nanos: u64,
    /// Null if the run's records do not show when the device ran nothing: only imported traces do.
    pub idle_nanos: Option<u64>,
    pub other_nanos: u64,
    pub step_nanos: u64,
    /// The parts of `pause_nanos`, in the order of [`SpanKind::PAUSES`].
    pub pauses_nanos: [u64; SpanKind::PAUSES.len()],
    /// The processor time of the training thread in each phase, in the order of [`SpanKind::PHASES`]; null if it was not
    /// measured.
    pub processor_nanos: Option<[u64; SpanKind::PHASES.len()]>,
}

impl RankLedger {
    /// Returns the rank's local work: its steps less exposed communication, in nanoseconds.
    #[must_use]
    pub fn own_nanos(&self) -> u64 {
        self.step_nanos - self.exposed_wait_nanos - self.exposed_transfer_nanos
    }

    /// Returns the share of a phase in which the training thread ran on a processor, 0 to 1: its processor time over the
    /// time of the phase, less the time that it is blocked in a collective. `None` if it was not measured, or if the rank
    /// was not in the phase.
    #[must_use]
    pub fn processor_share(&self, phase: SpanKind) -> Option<f64> {
        let nanos = match phase {
            SpanKind::Input => self.input_nanos,
            SpanKind::H2d => self.h2d_nanos,
            SpanKind::Forward => self.forward_nanos,
            SpanKind::Backward => self.backward_nanos,
            SpanKind::Optimizer => self.optimizer_nanos,
            _ => return None,
        };
        let processor = *self.processor_nanos?.get(phase as usize)?;
        (nanos > 0).then(|| (processor as f64 / nanos as f64).min(1.0))
    }

    /// Returns the parts in the order of [`crate::live::Part::ALL`].
    #[must_use]
    pub fn parts(&self) -> [u64; Part::COUNT] {
        [
            self.input_nanos,
            self.h2d_nanos,
            self.forward_nanos,
            self.backward_nanos,
            self.exposed_wait_nanos,
            self.exposed_transfer_nanos,
            self.optimizer_nanos,
            self.pause_nanos,
            self.idle_nanos.unwrap_or(0),
            self.other_nanos,
        ]
    }
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

/// One measure of devices or hosts over the last minute, on all ranks that report it: means, and of a count the largest values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecentUsage {
    /// The measure.
    pub usage: Usage,
    /// The number of ranks that report it.
    pub ranks: u32,
    /// The median over these ranks (the lower one of two), in the measure's unit.
    pub median: f32,
    /// The smallest value, and the first rank that has it.
    pub low: (f32, u32),
    /// The largest value, and the first rank that has it.
    pub high: (f32, u32),
    /// The largest sample on any rank since the run began.
    pub most: f32,
}

/// The newest stacks of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RankStacks {
    /// The rank.
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub rank: Rank,
    /// Its stacks, or the reason why there are none.
    pub stacks: Stacks,
}

/// The layouts of one module's buckets, as rank 0 has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ModuleLayouts {
    /// The number of the module in its process, in the order in which the job made them.
    pub module: u32,
    /// The name of the module's class; empty if it is unknown.
    pub class: String,
    /// The layouts, oldest first: the one that the module began with, and those after rebuilds.
    pub layouts: Vec<Layout>,
    /// The ranks that have other parameters in a bucket than rank 0.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<u32>))]
    pub different: Vec<Rank>,
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
    /// How much of what the devices can compute the samples use.
    pub flops_utilization: FlopsUtilization,
    /// What the run used its wall time for, over all its attempts. Reports over a part of a run have none.
    pub goodput: Figure<Goodput>,
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
    /// Where the wall time goes, over all ranks together.
    pub account: Account,
    /// What the job spends its time on, as a sentence; empty without observed steps.
    pub spent: String,
    /// The verdicts, the one that costs most time first.
    pub verdicts: Vec<Verdict>,
    /// The reason why there can be no verdict yet; null if the lack of a verdict means that nothing stands out.
    pub verdicts_missing: Option<Missing>,
    /// Faults that reports over fewer or earlier steps found, that are over, and that the verdicts show only in part or not
    /// at all: the newest 64, oldest first. Reports over a part of a run, as of a selected range, have none.
    pub past_faults: Vec<PastFault>,
    /// The memory that grows all along. What is full first comes first.
    pub memory: Vec<MemoryGrowth>,
    /// Effects that cost too little for a verdict. No alert or check acts on them.
    pub notes: Vec<Verdict>,
    /// What ran on all ranks together, by name, if the run is imported from traces; each step counts once for each rank.
    pub traced: Option<TraceSummary>,
    /// The ranks that start collectives last, at most 16, the one that is latest in all first. Being last costs only what the other
    /// ranks cannot use: [`Self::what_if`] has what a fix would save.
    pub last_ranks: Vec<LastRank>,
    /// The kind of device that the ranks compute on.
    pub computed_on: ComputedOn,
    /// One entry per bucket.
    pub buckets: Vec<BucketStats>,
    /// One entry per shape of group, the largest first.
    pub groups: Vec<GroupStats>,
    /// The latency-bandwidth model of the communicator.
    pub comm_model: Figure<AlphaBeta>,
    /// One entry per rank that has sent anything.
    pub clocks: Vec<RankClock>,
    /// The ranks that lost records.
    pub drops: Vec<RankDrops>,
    /// The hang, if the run hangs.
    pub hang: Option<Hang>,
    /// The failure, if the run failed.
    pub failure: Option<Failure>,
    /// What happened to ranks, oldest first: the newest 64 events.
    pub events: Vec<RankEvent>,
    /// The host of each rank, as far as ranks have named theirs.
    pub hosts: Vec<HostRanks>,
    /// The labels and software versions of the ranks, by kind, name and rank.
    pub attributes: Vec<AttributeRanks>,
    /// What the report does not cover.
    pub gaps: Vec<Gap>,
}

/// The floating-point operations of a run's samples, as a share of what the devices of all ranks could execute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlopsUtilization {
    /// Model FLOPs utilization (MFU), 0 to 1: the operations of the forward and the backward pass, each counted once.
    pub model: Figure<f64>,
    /// Hardware FLOPs utilization (HFU), 0 to 1: the operations that the devices execute, recomputation included.
    pub hardware: Figure<f64>,
    /// The operations of the forward and the backward pass per second, over all ranks.
    pub model_flops_per_second: Figure<f64>,
    /// How the operations are counted and which peak they are compared with; null if the MFU is missing.
    pub basis: Option<String>,
}

impl Report {
    /// Returns whether the run's records show when a device ran nothing.
    #[must_use]
    pub fn has_idle(&self) -> bool {
        self.ledger.iter().any(|rank| rank.idle_nanos.is_some())
    }

    /// Returns how long these parts of the ledger take in one step, as the mean over ranks, in nanoseconds; `None`
    /// without observed steps.
    #[must_use]
    pub fn mean_nanos(&self, parts: &[Part]) -> Option<f64> {
        let nanos = |rank: &RankLedger| parts.iter().map(|&part| rank.parts()[part as usize]).sum::<u64>();
        let count = self.steps * self.ledger.len() as u64;
        (count > 0).then(|| self.ledger.iter().map(nanos).sum::<u64>() as f64 / count as f64)
    }

    /// Returns the parameters in a bucket of the largest group; `None` if they are not known.
    #[must_use]
    pub fn parameters(&self, bucket: Bucket) -> Option<&BucketParameters> {
        self.buckets.iter().find(|stats| stats.bucket == bucket)?.parameters.as_ref()
    }

    /// Returns the name of a bucket of the largest group, with its parameters: `bucket 3 (fc.weight, fc.bias)`.
    #[must_use]
    pub fn bucket_name(&self, bucket: Bucket) -> String {
        let listed = self.parameters(bucket).map(|parameters| format!(" ({})", parameters.listed()));
        format!("bucket {bucket}{}", listed.unwrap_or_default())
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
            ("MFU", self.flops_utilization.model.reason()),
            ("model FLOP/s", self.flops_utilization.model_flops_per_second.reason()),
            ("HFU", self.flops_utilization.hardware.reason()),
            ("goodput", self.goodput.reason()),
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

    /// Returns what the report lacks, each with its reason. Figures that are missing for one reason share a line.
    #[must_use]
    pub fn reasons(&self) -> Vec<(String, String)> {
        let mut reasons: Vec<(String, String)> = Vec::new();
        for (name, reason) in self.missing() {
            let reason = reason.to_string();
            match reasons.iter_mut().find(|(_, other)| *other == reason) {
                Some((names, _)) => *names += &format!(", {name}"),
                None => reasons.push((name.to_owned(), reason)),
            }
        }
        let gaps = self.gaps.iter().map(|gap| (gap.kind.name().to_owned(), gap.sentence.clone()));
        reasons.into_iter().chain(gaps).collect()
    }
}
