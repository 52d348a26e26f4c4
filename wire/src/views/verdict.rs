//! Verdicts: who delays a run, why, and what it costs.

use serde::{Deserialize, Serialize};

use crate::stacks::ThreadRole;

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
    /// Time is lost, and no record says why.
    Unknown,
    /// All ranks wait for collectives that the backward pass does not hide.
    Communication,
    /// All ranks spend much of the step in the parameter update.
    Optimizer,
    /// Training waits while checkpoints are written.
    Checkpoint,
    /// Training waits while the model is evaluated.
    Evaluation,
    /// Python collects garbage.
    GarbageCollection,
    /// Code is compiled again after the warm-up.
    Compilation,
    /// No step ended for so long that it counted as a hang, and then the job went on.
    Hang,
    /// The job was restarted, and did steps again.
    Restart,
    /// The job took long to its first step.
    Start,
}

impl Cause {
    /// Returns whether a rank computes slowly for this cause, as far as the records tell.
    #[must_use]
    pub fn is_slow_compute(self) -> bool {
        matches!(self, Self::Compute | Self::MoreWork | Self::Host | Self::Processor)
    }

    /// Returns whether training pauses for this cause, which is not a fault of the rank that has it.
    #[must_use]
    pub fn is_pause(self) -> bool {
        matches!(self, Self::Checkpoint | Self::Evaluation | Self::GarbageCollection | Self::Compilation)
    }

    /// Returns whether the loss is outside of steps: in the wall time between them, before them, or in steps that were done before.
    #[must_use]
    pub fn is_outside_steps(self) -> bool {
        matches!(self, Self::Restart | Self::Start)
    }

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
            Self::Unknown => "unknown",
            Self::Communication => "communication",
            Self::Optimizer => "optimizer",
            Self::Checkpoint => "checkpoint",
            Self::Evaluation => "evaluation",
            Self::GarbageCollection => "garbage_collection",
            Self::Compilation => "compilation",
            Self::Hang => "hang",
            Self::Restart => "restart",
            Self::Start => "start",
        }
    }

    /// Returns the name in words: `more work`.
    #[must_use]
    pub fn words(self) -> String {
        self.name().replace('_', " ")
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
    /// the highest tenth. Of restarts: the wall time of each. Of a start: its wall time.
    pub cost_nanos_per_step: u64,
    /// The saving as a share of the period of such a step ([`super::Report::period_nanos`] over these steps), 0 to 1. Of
    /// restarts and of a start: their share of the wall time.
    pub cost_share: f64,
    /// The number of observed steps that have the fault. Of restarts: their number. Of a start: 1.
    pub affected_steps: u64,
    /// The cost of one day with the fault, in hours of [`super::Report::computed_on`]: `cost_share` x ranks x
    /// 24. Of stalls, which most steps do not have: their share of all observed time x ranks x 24. Null once the fault is resolved.
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
    /// How often it happens, of what happens now and then; null for what lasts.
    pub recurrence: Option<Recurrence>,
    /// How fast the time grows, of what takes longer and longer; null for what does not.
    pub growth: Option<Growth>,
    /// The line of code in which the culprit spends more of its time than another rank, or in which ranks stand while they lose
    /// the time, if it stands out in their stacks.
    pub code: Option<CodeLine>,
    /// The first thing to try.
    pub advice: String,
}

/// How often something happens that does not happen in every step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Recurrence {
    /// How many times it happened in the observed steps.
    pub times: u64,
    /// The number of steps from one time to the next, if they are regular.
    pub every_steps: Option<u64>,
    /// How much longer it makes the step, in the mean, in nanoseconds.
    pub nanos: u64,
    /// The time that all of them cost, as a share of all observed time, 0 to 1.
    pub share_of_time: f64,
    /// The steps in which the newest of them began, at most [`Recurrence::MAX_STEPS`], ascending.
    pub steps: Vec<u64>,
}

impl Recurrence {
    /// The largest number of steps that are listed.
    pub const MAX_STEPS: usize = 64;
}

/// A part of the step that takes longer and longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Growth {
    /// How long it takes in the first of the steps, in nanoseconds: the median of the first 24th of them.
    pub from_nanos: f64,
    /// How long it takes in the last of the steps, in nanoseconds: the median of the last 24th of them.
    pub to_nanos: f64,
    /// The growth over 1,000 steps, in nanoseconds: the median slope.
    pub nanos_per_thousand_steps: f64,
    /// The 95 % interval of the growth over 1,000 steps, in nanoseconds.
    pub range_per_thousand_steps: (f64, f64),
}

/// A line of code in which ranks spend the time that they lose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CodeLine {
    /// The line of the user's code, and the function of a library that it called there: `data.py:12 (decode)`.
    pub at: String,
    /// The threads that are in it.
    pub threads: ThreadRole,
    /// The share of the rank's samples in it, 0 to 1; null if the rank reported the line itself.
    pub share: Option<f64>,
    /// The rank that it is compared with; null if all ranks lose the time alike.
    pub other_rank: Option<u32>,
    /// The share of that rank's samples in it, 0 to 1.
    pub other_share: Option<f64>,
}

impl Verdict {
    /// Returns a verdict of medium confidence on an active fault that costs nothing yet, without texts and evidence.
    #[must_use]
    pub fn new(culprit: Culprit, cause: Cause) -> Self {
        Self {
            culprit: Some(culprit),
            cause,
            state: VerdictState::Active,
            cost_nanos_per_step: 0,
            cost_share: 0.0,
            affected_steps: 0,
            device_hours_per_day: None,
            confidence: Confidence::Medium,
            sentence: String::new(),
            evidence: Vec::new(),
            counter_evidence: Vec::new(),
            example_step: None,
            persistence: None,
            steps: (0, 0),
            onset: None,
            recurrence: None,
            growth: None,
            code: None,
            advice: String::new(),
        }
    }

    /// Returns the cost of the fault in the observed steps, in nanoseconds.
    #[must_use]
    pub fn lost_nanos(&self) -> u64 {
        self.cost_nanos_per_step * self.affected_steps
    }

    /// Returns the share of the time that the fault costs on `ranks` ranks, 0 to 1; 0 once the fault is resolved.
    #[must_use]
    pub fn share_of_time(&self, ranks: u32) -> f64 {
        self.device_hours_per_day.map_or(0.0, |hours| hours / (24.0 * f64::from(ranks.max(1))))
    }

    /// Returns the first step that has the fault, observed or not.
    #[must_use]
    pub fn first_step(&self) -> u64 {
        self.onset.map_or(self.steps.0, |onset| onset.step.min(self.steps.0))
    }
}

/// A fault that is over and that the verdicts of a report show only in part or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PastFault {
    /// The culprit; null if none could be named.
    pub culprit: Option<Culprit>,
    /// The cause.
    pub cause: Cause,
    /// The cost in a step that had the fault, in nanoseconds ([`Verdict::cost_nanos_per_step`]).
    pub cost_nanos_per_step: u64,
    /// The first and the last step that had the fault.
    pub steps: (u64, u64),
}

impl From<&Verdict> for PastFault {
    fn from(verdict: &Verdict) -> Self {
        Self {
            culprit: verdict.culprit.clone(),
            cause: verdict.cause,
            cost_nanos_per_step: verdict.cost_nanos_per_step,
            steps: (verdict.first_step(), verdict.steps.1),
        }
    }
}
