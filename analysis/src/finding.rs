//! What the analysis finds about a run, before [`crate::wording`] puts it into words.

use wire::batch::Instrumentation;
use wire::event::SpanKind;
use wire::ids::{Rank, Seq, Step};
use wire::live::Part;
use wire::stacks::{Frame, ThreadRole};
use wire::views::what_if::Phase;
use wire::views::{BucketParameters, ChangePoint, Verdict};

use crate::stacks::Place;

/// The least part of what takes longer that lies outside of every phase for all of it to count as such.
const OUTSIDE: f64 = 0.8;

/// A verdict or a note, with typed evidence instead of sentences.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    /// The verdict. Its texts are empty until [`crate::wording`] writes them.
    pub(crate) verdict: Verdict,
    pub(crate) statement: Statement,
    /// What is known beyond the cause, if anything.
    pub(crate) reason: Option<Reason>,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) counter_evidence: Vec<Doubt>,
    /// Whether it is the unsteadiness of a machine that ranks share, and so a note whatever it costs.
    pub(crate) is_scatter: bool,
    /// Whether all ranks run on one host, for advice that fits.
    pub(crate) is_one_host: bool,
    /// Whether the job has one rank only, so that all ranks are this one.
    pub(crate) is_alone: bool,
}

impl Finding {
    /// Returns true if the cost is a lower bound: it is not known of all collectives whether ranks wait for them.
    pub(crate) fn is_least(&self) -> bool {
        self.counter_evidence.iter().any(|doubt| matches!(doubt, Doubt::MoreMayBeExposed { .. }))
    }

    /// Returns true if a line of code is known in which the ranks stop now and then.
    pub(crate) fn stops_in_code(&self) -> bool {
        let names_code =
            |evidence: &Evidence| matches!(evidence, Evidence::InCode { .. } | Evidence::Called { .. });
        matches!(self.statement, Statement::NowAndThen { .. }) && self.evidence.iter().any(names_code)
    }

    /// Returns true if what takes the ranks longest takes them at most this many times as long as the others.
    pub(crate) fn is_stretched(&self, times: f64) -> bool {
        let longer = self.evidence.iter().filter_map(|evidence| match evidence {
            Evidence::Longer { nanos, usual, .. } => Some((*nanos, *usual)),
            _ => None,
        });
        let longest = longer.max_by(|a, b| a.0.total_cmp(&b.0));
        longest.is_some_and(|(nanos, usual)| nanos <= (times - 1.0) * usual)
    }

    /// Returns true if the time is lost in a line that worker processes run.
    pub(crate) fn is_in_workers(&self) -> bool {
        let is_in = |evidence: &Evidence| matches!(evidence, Evidence::InCode { place, .. } if place.role == ThreadRole::Worker);
        self.evidence.iter().any(is_in)
    }

    /// Returns true if the finding is that ranks wait for each other in turn, or mostly for one of them.
    pub(crate) fn is_of_turns(&self) -> bool {
        matches!(self.statement, Statement::Turns { .. } | Statement::MostlyFor { .. })
    }

    /// Returns true if a line of code is known in which the ranks are, and another rank hardly is.
    pub(crate) fn names_own_line(&self) -> bool {
        let is_own =
            |evidence: &Evidence| matches!(evidence, Evidence::InCode { place, .. } if !place.is_common());
        self.evidence.iter().any(is_own)
    }

    /// Returns true if nearly all of what takes the ranks longer than others is outside of every phase.
    pub(crate) fn is_outside_phases(&self) -> bool {
        let longer = |wanted: Option<Segment>| -> f64 {
            let nanos = self.evidence.iter().filter_map(|evidence| match evidence {
                Evidence::Longer { segment, nanos, .. } if wanted.is_none_or(|wanted| wanted == *segment) => {
                    Some(*nanos)
                }
                _ => None,
            });
            nanos.sum()
        };
        longer(None) > 0.0 && longer(Some(Segment::Other)) >= OUTSIDE * longer(None)
    }

    /// Returns a finding without evidence.
    pub(crate) fn new(verdict: Verdict, statement: Statement) -> Self {
        Self {
            verdict,
            statement,
            reason: None,
            evidence: Vec::new(),
            counter_evidence: Vec::new(),
            is_scatter: false,
            is_one_host: false,
            is_alone: false,
        }
    }
}

/// What a finding states. Who, why and at what cost is in its verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Statement {
    /// The named ranks are late, in this number of episodes.
    Late { episodes: usize },
    /// The named ranks, of this number of ranks, lose time now and then.
    NowAndThen { ranks: usize },
    /// The named ranks, of this number of ranks, lose time in most steps, in pauses.
    Always { ranks: usize },
    /// All ranks lose time alike, all the time.
    AllAlike,
    /// The named ranks, or all, take longer and longer in a part of the step; in all of it if no part alone holds the growth.
    Grows { segment: Option<Segment> },
    /// The job was restarted. Each time, this passed until the first step and in steps that had been done, in nanoseconds.
    Restarted { recovery_nanos: f64, repeated_nanos: f64 },
    /// The job took long to its first step. If it waited for the named rank, `others_waited` is for how long, in nanoseconds.
    StartedLate { others_waited: Option<f64> },
    /// The named rank is late in a recording of this number of steps. If most of its lateness costs nothing, `mostly_hidden` is how late
    /// it is, in nanoseconds per step.
    InRecordedSteps { steps: usize, mostly_hidden: Option<f64> },
    /// The named rank computes by this much longer per step than the next one of its group, in nanoseconds.
    LongestOfGroup { nanos: f64 },
    /// Ranks take turns at being last.
    Turns { kept_off_processors: bool },
    /// Ranks wait for each other, and mostly for this one, which no verdict names.
    MostlyFor { rank: u32 },
    /// All ranks compute longer from one step on, by this share of the time before.
    Slower { share: f64 },
}

/// A reason that is more precise than a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The device lowered its clock, for these reasons (bits of [`wire::device::throttle`]).
    LoweredClock(u64),
    /// The hypervisor takes so much time that it explains slow compute.
    Steal,
    /// Something else uses the ranks' cores.
    CoresTaken(Taker),
    /// Something takes time from all ranks, whatever they do.
    SlowsAll(Taker),
    /// Only collectives are recorded: what comes before them may be compute or its host.
    OnlyCollectives,
    /// The ranks spend the time in a line of the job's own code, as their stacks show.
    OwnCode,
    /// The devices have nothing to do, for what their hosts do; `None` if the records do not show it.
    DevicesWait(Option<HostWork>),
    /// The ranks wait within their passes, and not for a core.
    WaitsInPasses,
    /// The ranks spend the time outside of every phase. What uses their cores would lengthen the phases too.
    OutsidePhases,
}

/// What the hosts of the ranks do while their devices wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostWork {
    /// They wait for the device first, so that it has no more work when they go on.
    Synchronizes,
    /// They launch work more slowly than the device does it.
    Launches,
    /// They run Python or other code outside of operators.
    Code,
}

/// What the host and the device of a rank do in a step, as traces show: means over ranks and steps, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct HostBound {
    /// The time in which the host waits for the device in calls of its runtime.
    pub(crate) synchronizing: f64,
    /// The number of these calls.
    pub(crate) synchronizations: f64,
    /// The self time of operators and of the other calls of the runtime.
    pub(crate) operators: f64,
    /// The time outside of operators, at most that in which no thread runs one.
    pub(crate) outside: f64,
    /// The number of kernels.
    pub(crate) kernels: f64,
    /// The mean duration of a kernel.
    pub(crate) kernel: f64,
}

/// What keeps ranks off their processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// A CPU limit of the control group.
    Limit,
    /// The hypervisor.
    Hypervisor,
    /// Other processes on the same cores.
    Processes,
    /// Other ranks on the same cores.
    Ranks,
    /// A lack of memory: pages must be reclaimed or read back.
    Memory,
    /// Pages that are read from a disk.
    Paging,
}

/// A part of a step in which ranks can spend more time than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Waiting for input.
    Input,
    /// Copying input to the device.
    H2d,
    /// Forward, backward and optimizer.
    Compute,
    Forward,
    Backward,
    /// The parameter update alone.
    Optimizer,
    /// Exposed transfers.
    Transfer,
    Pause(SpanKind),
    /// The device ran nothing, and nothing recorded says why.
    Idle,
    /// The time in no phase.
    Other,
}

/// How forward and backward times vary together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct JointVariation {
    pub(crate) correlation: f64,
    /// The joint variation as a share of their mean.
    pub(crate) share: f64,
}

/// A time that rose on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Risen {
    ExposedTransfer,
    /// The compute time of the median rank.
    Compute,
    /// A part of the usual rank's step.
    Part(Segment),
}

/// What a lowered clock is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsualClock {
    /// The median clock of the other ranks' devices.
    OfOtherRanks,
    /// The highest clock of the device itself.
    Full,
    /// The clock before the steps in question.
    Before,
}

/// The users of some ranks' cores, as shares of the time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CoreUse {
    /// The cores; `None` for several ranks.
    pub(crate) cores: Option<String>,
    /// The ranks themselves.
    pub(crate) own: f64,
    /// Other ranks of the run.
    pub(crate) peers: f64,
    /// All other processes.
    pub(crate) others: f64,
    /// The hypervisor.
    pub(crate) stolen: f64,
}

/// One piece of evidence for a verdict. Times are in nanoseconds per step, shares 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Evidence {
    /// Fixing the ranks would have shortened this many of the steps with the fault.
    WouldShorten { shortened: usize, steps: usize },
    /// The rank was last in this number of collectives. If all ranks were equally often last, one of them would have as
    /// much with this probability.
    LastInCollectives { last: usize, collectives: usize, chance: f64 },
    /// The rank computes longest of these ranks in this number of steps. If all ranks of a group were equally often the
    /// longest, one of them would stand out as much with this probability.
    LongestOfGroup { among: Vec<usize>, longest: usize, steps: usize, chance: f64 },
    /// The ranks spend more time in a part of the step than the others, whose mean is `usual`.
    Longer { segment: Segment, nanos: f64, usual: f64 },
    /// A part of the step takes the usual rank this long.
    OnUsualRank { segment: Segment, nanos: f64 },
    /// The number of attempts at the job, and of the steps that more than one did.
    Attempts { attempts: u64, repeated_steps: u64 },
    /// With a restart every `failure_interval` seconds and checkpoints of `checkpoint` seconds, one every `seconds` loses the least.
    BestInterval { failure_interval: f64, checkpoint: f64, seconds: f64 },
    /// What a start consists of, in nanoseconds of wall time.
    Start { launch: f64, setup: f64, warm_up: f64 },
    /// A part of the step grew from the first steps to the last ones.
    Grew { segment: Segment, from: f64, to: f64 },
    /// The growth over 1,000 steps, with its 95 % interval.
    GrowthRate { per_thousand: f64, range: (f64, f64) },
    /// It happened this often, and took this long in all. `first` lists the earliest steps.
    Happened { segment: Segment, times: usize, first: Vec<u64>, total_nanos: f64 },
    /// Only this part of additional compute time is processor time.
    ProcessorTime { nanos: f64 },
    /// The amount of work varies.
    WorkVaries(JointVariation),
    /// The ranks of the run vary in their amount of work.
    WorkOfRanksVaries(JointVariation),
    /// The ranks have more samples, which explains this time.
    MoreSamples { nanos: f64 },
    /// The effect lies within what processors vary by, and no record shows that the rank is the cause.
    ProcessorsVary,
    /// How much later than the rank before it the rank starts its collectives, per step.
    CausedWait { nanos: f64 },
    /// The frontier ledger first shows the delay on the rank.
    Frontier { part: Part },
    /// The fault has `count` episodes. `first` lists the first and last step of the earliest ones.
    Episodes { count: usize, first: Vec<(u64, u64)> },
    /// The fault began while the run was observed.
    Began(ChangePoint),
    /// The exposed transfer, averaged over ranks.
    ExposedTransfer { nanos: f64 },
    /// The last bucket, with its parameters if they are known, ends this long after the last backward compute.
    Tail { nanos: f64, last: Option<BucketParameters> },
    /// A time of all ranks rose at a step.
    Rose { what: Risen, onset: ChangePoint },
    /// The saving if no rank were slower than the others like it.
    EvenRanksSave { nanos: f64 },
    /// The saving from evening out one phase.
    EvenPhaseSaves { phase: Phase, nanos: f64 },
    /// Ranks were off the processor for this share of their compute time.
    RanksOffProcessor { share: f64 },
    /// The threads of all ranks were off the processor for the rest of additional compute time.
    ProcessorTimeOfAll { nanos: f64 },
    /// The device reports a lowered clock; clocks in megahertz.
    LoweredClock { lowered: usize, samples: usize, clock: f64, usual: f64, usual_clock: UsualClock },
    /// This many of the ranks' devices report lowered clocks, in this share of the samples; the median clock in megahertz.
    LoweredClocks {
        devices: usize,
        ranks: usize,
        share: f64,
        clock: f64,
        usual: f64,
        usual_clock: UsualClock,
    },
    /// What the hosts and the devices do per step of a rank, as traces show.
    HostBound(HostBound),
    /// How often PyTorch's allocator ran out of memory, and the largest such number of other ranks; `None` if no other
    /// rank reports one.
    OutOfMemory { retries: u64, others: Option<u64> },
    /// Who used the cores of the ranks.
    CoreUse(CoreUse),
    /// The seconds per second that threads waited for a core, over all threads of a process, and those of the training
    /// thread if they are known.
    WaitedForCore { seconds: f64, training: Option<f64> },
    /// The time for which the usual rank is off the processor in its passes, and the seconds per second that its training thread waited
    /// for a core.
    WaitsInPasses { off: f64, waited: f64 },
    /// The seconds per second in which a CPU limit kept a process from running.
    Throttled { seconds: f64 },
    /// Tasks waited for memory, in seconds per second.
    ShortOfMemory { seconds: f64 },
    /// The page faults that had to read from a disk, per second, while tasks waited for disks, in seconds per second.
    Paged { faults: f64, seconds: f64 },
    /// Kernel by kernel, the device takes longer than that of another rank.
    SlowerKernels { share: f64, other_rank: u32, burst_seconds: f64 },
    /// The device is idle for a larger share of the time than that of another rank.
    IdlerDevice { own: f64, other: f64, other_rank: u32 },
    /// Its stacks are more often in a line of code than those of another rank. Without another rank, the stacks of one of the
    /// ranks that lose time.
    InCode { place: Place, rank: u32, other_rank: Option<u32> },
    /// The loader workers of two ranks are busy for these shares of their time.
    LoadersAtWork { shares: [(u32, f64); 2] },
    /// A rank reported the line of its own code in which it does what is recorded.
    Called { frame: Frame, rank: u32 },
    /// In a trace, an operator or kernel takes it longer than another rank. The trace begins with this step.
    InTrace { name: String, nanos: f64, other_rank: u32, step: u64 },
}

/// One reason to doubt a verdict. Times are in nanoseconds per step, shares 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Doubt {
    /// The other ranks share cores, so the speed of each depends on the others.
    SharedCores { off: f64 },
    /// In this number of steps another rank was as late or later.
    OthersAsLate { steps: usize },
    /// No part of the step explains most of the delay.
    NothingStandsOut,
    /// The cause may be more work.
    MayBeMoreWork(JointVariation),
    /// Waits come from durations, because clocks are not aligned.
    ClocksNotAligned,
    /// Few steps can be replayed accurately.
    FewReplayed { replayed: usize, steps: usize },
    /// The cost assumes that all exposed transfer could be hidden.
    AssumesAllHidden,
    /// This much more time in collectives may be exposed: nothing shows whether ranks compute meanwhile.
    MoreMayBeExposed { nanos: f64 },
    /// The ranks of a group are taken to be given the same work, and the cost is that of all ranks that are slower than
    /// others.
    SameWorkAssumed,
    /// The ranks are all of a group that runs the same collectives and messages, and may be given more work than others.
    WholeGroup,
    /// A part of the saving is in the cost of other verdicts.
    Explained { nanos: f64 },
    /// The processors of all ranks vary this much.
    ProcessorsVary,
    /// The job may have changed what it computes.
    JobMayHaveChanged,
    /// What is lost is in all parts of the step, so that other findings hold some of it too.
    InAllParts,
    /// The cost assumes that compute takes as much longer as the clock is lower.
    AssumesClockBound,
    /// The device did nothing, and the recording does not say why.
    IdleForUnknownReason,
}

/// Why a run makes no progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall<'a> {
    /// The time since the last step completed, in seconds.
    pub(crate) since_seconds: f64,
    /// The newest collective that any rank has launched.
    pub(crate) furthest: Option<Seq>,
    /// The ranks that the others wait for.
    pub(crate) suspects: &'a [Rank],
    /// The number of these ranks that send no data.
    pub(crate) silent: usize,
    /// True if these ranks have started the newest collective, but not finished it.
    pub(crate) have_started: bool,
    /// What records the run, and thereby numbers its collectives.
    pub(crate) instrumentation: Instrumentation,
    /// True if no step has completed at all. `since_seconds` is then how long a rank has waited in a collective.
    pub(crate) is_before_steps: bool,
}

/// The rank that failed first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstFailure<'a> {
    pub(crate) rank: usize,
    /// True if the server received nothing from the rank for some time.
    pub(crate) fell_silent: bool,
    /// The reason as reported; empty if none was reported.
    pub(crate) reason: &'a str,
    /// The newest step that the rank finished.
    pub(crate) last_step: Option<Step>,
    /// The newest collective that the rank started.
    pub(crate) last_collective: Option<Seq>,
    /// The number of other ranks that failed.
    pub(crate) others: u32,
    /// How many of these ended in the same way and had come as far, so that they may as well have been the first.
    pub(crate) alike: u32,
    /// What records the run, and thereby numbers its collectives.
    pub(crate) instrumentation: Instrumentation,
}
