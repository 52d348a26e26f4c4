//! The lines of evidence for and against a verdict.

use units::percent;
use wire::stacks::ThreadRole;
use wire::traces::OUTSIDE;
use wire::views::ChangePoint;

use super::Who;
use super::listed::first_of;
use crate::finding::{CoreUse, Doubt, Evidence, HostBound, JointVariation, Risen, Segment, UsualClock};
use crate::stacks::{Place, location};

impl Who<'_> {
    /// Returns whose time it is that all ranks lose alike.
    fn usual_rank(&self) -> &'static str {
        if self.is_alone { "" } else { " of the usual rank" }
    }

    /// Returns a line of evidence. It is a clause, without a capital or a full stop.
    pub(super) fn evidence(&self, evidence: &Evidence) -> String {
        let its = self.its();
        match evidence {
            Evidence::WouldShorten { shortened, steps } => format!(
                "{} would have shortened {shortened} of {steps} steps",
                self.choose("fixing it", "fixing one of them would save little; fixing all of them")
            ),
            Evidence::LastInCollectives { last, collectives, chance } => format!(
                "it was the last to start in {last} of {collectives} collectives; if all ranks were equally often last, \
                 some rank would be so far behind with a probability of {}",
                if *chance < 0.001 { "less than 0.1 %".into() } else { percent(*chance) }
            ),
            Evidence::LongestOfGroup { among, longest, steps, chance } => format!(
                "it computes longest of ranks {}, which run the same collectives and messages, in {longest} of {steps} steps; if all \
                 ranks of a group were equally often the longest, some rank would stand out so far with a probability of {}",
                first_of(&among.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap_or_default(),
                if *chance < 0.001 { "less than 0.1 %".into() } else { percent(*chance) }
            ),
            Evidence::Longer { segment, nanos, .. } => {
                format!("{its} {} is {} longer than the mean of the other ranks", name(*segment), units::nanos(*nanos))
            }
            Evidence::OnUsualRank { segment, nanos } => {
                format!("the {}{} is {} per step", name(*segment), self.usual_rank(), units::nanos(*nanos))
            }
            Evidence::Attempts { attempts, repeated_steps } => match repeated_steps {
                0 => format!("there were {} attempts at the job, and no step is known to be done twice", units::count(*attempts)),
                steps => format!(
                    "there were {} attempts at the job, and {} steps were done again",
                    units::count(*attempts),
                    units::count(*steps)
                ),
            },
            Evidence::BestInterval { failure_interval, checkpoint, seconds } => format!(
                "with a restart every {} and checkpoints of {}, a checkpoint every {} of training loses the least (Daly 2006)",
                units::nanos(failure_interval * 1e9),
                units::nanos(checkpoint * 1e9),
                units::nanos(seconds * 1e9)
            ),
            Evidence::Start { launch, setup, warm_up } => format!(
                "launch and imports took {}, setup {}, and then the first two steps and compilation {}",
                units::nanos(*launch),
                units::nanos(*setup),
                units::nanos(*warm_up)
            ),
            Evidence::Grew { segment, from, to } => {
                format!("the {} went from {} to {}", name(*segment), units::nanos(*from), units::nanos(*to))
            }
            Evidence::GrowthRate { per_thousand, range } => format!(
                "it grows by {} per 1,000 steps (95 % interval {} to {}), in each third of the steps",
                units::nanos(*per_thousand),
                units::nanos(range.0),
                units::nanos(range.1)
            ),
            Evidence::Happened { segment, times: number, first, total_nanos } => {
                let steps: Vec<String> = first.iter().map(|step| units::count(*step)).collect();
                format!(
                    "the {}{} is {} in all: {} so far, in steps {}{}",
                    name(*segment),
                    if self.is_alone { "" } else { " that others wait for" },
                    units::nanos(*total_nanos),
                    times(*number as u64),
                    steps.join(", "),
                    if *number > steps.len() { " and later ones" } else { "" }
                )
            }
            Evidence::ProcessorTime { nanos } => processor_time(*nanos, "thread was"),
            Evidence::ProcessorTimeOfAll { nanos } => processor_time(*nanos, "threads were"),
            Evidence::WorkVaries(variation) => format!(
                "{its} {} by {}: the amount of work varies, as with sequence lengths, not the speed of the device",
                together(variation),
                percent(variation.share)
            ),
            Evidence::WorkOfRanksVaries(JointVariation { correlation, share }) => format!(
                "forward and backward times of a rank rise and fall together (r = {correlation:.2}) by {} from step to \
                 step",
                percent(*share)
            ),
            Evidence::MoreSamples { nanos } => {
                format!("{} of that is explained by more samples than the other ranks have", units::nanos(*nanos))
            }
            Evidence::ProcessorsVary => "CPUs vary this much for short periods: clock frequency, a neighbor on the same \
                core, time taken by the hypervisor (steal), cache; no record shows that the rank itself is the cause"
                .into(),
            Evidence::CausedWait { nanos } => {
                format!("it starts its collectives later than the rank before it, by {} per step in all", units::nanos(*nanos))
            }
            Evidence::Frontier { part } => format!(
                "the frontier ledger, which needs no clocks, first shows the delay in {} on this rank",
                part.name()
            ),
            Evidence::Episodes { count, first } => episodes(*count, first),
            Evidence::Began(onset) => format!(
                "the fault began at step {}: {its} local work {}",
                step_and_range(onset),
                change(onset)
            ),
            Evidence::ExposedTransfer { nanos } => {
                format!("exposed transfer is {} per step (mean over ranks)", units::nanos(*nanos))
            }
            Evidence::Tail { nanos, last } => format!(
                "the last bucket{} ends {} after the last backward compute",
                last.as_ref().map_or_else(String::new, |last| format!(" ({})", last.listed())),
                units::nanos(*nanos)
            ),
            Evidence::Rose { what, onset } => rose(*what, self.usual_rank(), onset),
            Evidence::EvenRanksSave { nanos } => {
                format!(
                    "if no rank were slower than the mean of the others, the step would be {} shorter",
                    units::nanos(*nanos)
                )
            }
            Evidence::EvenPhaseSaves { phase, nanos } => {
                format!("evening out {} alone saves {}", phase.name(), units::nanos(*nanos))
            }
            Evidence::RanksOffProcessor { share } => format!(
                "ranks were off the processor for {} of their compute time: other ranks or processes used their cores",
                percent(*share)
            ),
            Evidence::LoweredClock { lowered, samples, clock, usual, usual_clock } => format!(
                "{its} GPU reports a lowered clock in {lowered} of {samples} samples: {clock:.0} MHz, against \
                 {usual:.0} MHz {}",
                match usual_clock {
                    UsualClock::OfOtherRanks => "on other ranks",
                    UsualClock::Full => "at full clock",
                    UsualClock::Before => "before",
                }
            ),
            Evidence::LoweredClocks { devices, ranks, share, clock, usual, usual_clock } => format!(
                "the GPUs of {devices} of {ranks} ranks report lowered clocks, in {} of the samples: {clock:.0} MHz, against \
                 {usual:.0} MHz {}",
                percent(*share),
                match usual_clock {
                    UsualClock::Before => "before",
                    UsualClock::OfOtherRanks | UsualClock::Full => "at full clock",
                }
            ),
            Evidence::HostBound(bound) => host_bound(bound),
            Evidence::OutOfMemory { retries, others } => format!(
                "PyTorch's allocator ran out of memory on {its} GPU {} and emptied its cache each time, which stops the \
                 GPU{}",
                times(*retries),
                others.map_or_else(String::new, |others| match others {
                    0 => "; on other ranks, this did not happen".into(),
                    others => format!("; on other ranks, {} at most", times(others)),
                })
            ),
            Evidence::CoreUse(used) => self.core_use(used),
            Evidence::WaitedForCore { seconds, training: None } => format!(
                "{its} threads waited for a core {seconds:.2} s per second (sum over all threads of a process)"
            ),
            Evidence::WaitedForCore { seconds, training: Some(training) } => format!(
                "{its} threads waited for a core {seconds:.2} s per second (sum over all threads of a process), the training thread \
                 {training:.2} s of that"
            ),
            Evidence::WaitsInPasses { off, waited } => format!(
                "in forward and backward, the training thread{} is off its processor for {} per step, and it waited for \
                 a core for only {waited:.2} s per second",
                self.usual_rank(),
                units::nanos(*off)
            ),
            Evidence::Throttled { seconds } => format!(
                "{its} CPU limit (cgroup) kept a process from running for {seconds:.2} s per second"
            ),
            Evidence::ShortOfMemory { seconds } => format!(
                "tasks waited for memory to be reclaimed or read back for {} per second (pressure, PSI)",
                units::nanos(seconds * 1e9)
            ),
            Evidence::Paged { faults, seconds } => format!(
                "{} major page faults per second, while tasks waited for disks for {} per second (pressure, PSI)",
                units::significant(*faults),
                units::nanos(seconds * 1e9)
            ),
            Evidence::SlowerKernels { share, other_rank, burst_seconds } => format!(
                "kernel by kernel, {its} device takes {} longer than that of rank {other_rank} (burst of \
                 {burst_seconds:.1} s)",
                percent(*share)
            ),
            Evidence::IdlerDevice { own, other, other_rank } => format!(
                "{its} device is idle for {} of the time, that of rank {other_rank} for {}: its host does not keep it \
                 busy",
                percent(*own),
                percent(*other)
            ),
            Evidence::InCode { place, rank, other_rank } => self.code_place(place, *rank, *other_rank),
            Evidence::LoadersAtWork { shares: [(rank, own), (other_rank, other)] } => format!(
                "the loader workers of rank {rank} are at work {} of the time and those of rank {other_rank} {}: neither loader keeps up",
                units::percent(*own),
                units::percent(*other)
            ),
            Evidence::Called { frame, rank } => {
                format!("rank {rank} does so in {}", location(frame))
            }
            Evidence::InTrace { name, nanos, other_rank, step } => {
                let takes = match name.as_str() {
                    OUTSIDE => "what is outside of operators takes".into(),
                    name => format!("`{name}` takes"),
                };
                let (nanos, step) = (units::nanos(*nanos), units::count(*step));
                format!("{takes} {nanos} longer per step than on rank {other_rank} (trace from step {step} on)")
            }
        }
    }

    fn code_place(&self, place: &Place, rank: u32, other_rank: Option<u32>) -> String {
        let (whose, were) = match place.role {
            ThreadRole::Worker | ThreadRole::WorkerThread => ("worker processes", "were"),
            ThreadRole::Main | ThreadRole::Thread => ("main thread", "was"),
        };
        let threads = match self.ranks {
            [_] => format!("its {whose} {were}"),
            _ => format!("the {whose} of rank {rank} {were}"),
        };
        let other = other_rank.map_or_else(String::new, |other_rank| {
            format!(", those of rank {other_rank} in {}", percent(place.other_share))
        });
        format!(
            "{threads} in {} in {} of {} samples{other}",
            place.location(),
            percent(place.share),
            place.samples
        )
    }

    pub(super) fn doubt(&self, doubt: &Doubt) -> String {
        match doubt {
            Doubt::SharedCores { off } => format!(
                "the other ranks were off the processor for {} of their compute time: ranks share cores, so the speed \
                 of each depends on the others, and the cost is uncertain",
                percent(*off)
            ),
            Doubt::OthersAsLate { steps } => {
                format!("in {steps} of these steps another rank was as late or later")
            }
            Doubt::NothingStandsOut => "no single phase explains most of the delay".into(),
            Doubt::MayBeMoreWork(variation) => format!(
                "{} {}, but only by {}: the cause may be more work, not a slow device",
                self.its(),
                together(variation),
                percent(variation.share)
            ),
            Doubt::ClocksNotAligned => {
                "waits are computed from durations: the clocks are not aligned well enough".into()
            }
            Doubt::FewReplayed { replayed, steps } => format!(
                "only {replayed} of these {steps} steps can be replayed accurately; the cost is estimated from local work"
            ),
            Doubt::SameWorkAssumed => "the ranks of a group are taken to be given the same work; the records do not show which of the waits of \
                 other ranks are for this one, so the cost is that of all ranks that are slower than others like them"
                .into(),
            Doubt::WholeGroup => "these are all ranks that run the same collectives and messages, as a pipeline stage does: they may be given \
                 more work than the others, such as more layers or the loss, and then no device is slow"
                .into(),
            Doubt::AssumesAllHidden => "the cost assumes that all exposed transfer could be hidden".into(),
            Doubt::MoreMayBeExposed { nanos } => format!(
                "another {} per step in collectives may be exposed, too; nothing shows whether ranks compute meanwhile, so the cost leaves \
                 it out",
                units::nanos(*nanos)
            ),
            Doubt::Explained { nanos } => format!(
                "{} of that saving is in the cost of other verdicts, and not in this one",
                units::nanos(*nanos)
            ),
            Doubt::ProcessorsVary => {
                "CPUs vary this much for short periods: clock frequency, neighbors, steal, cache".into()
            }
            Doubt::InAllParts => {
                "this lengthens all parts of the step, so that other findings hold some of the same time".into()
            }
            Doubt::AssumesClockBound => {
                "the cost assumes that compute takes as much longer as the clock is lower: what waits for memory does not".into()
            }
            Doubt::IdleForUnknownReason => format!(
                "{} did nothing in that time, and the trace does not say why: the host was late, or waited for something that is \
                 not recorded",
                self.choose("its device", "their devices")
            ),
            Doubt::JobMayHaveChanged => {
                "the job itself may have changed what it computes at that step".into()
            }
        }
    }

    fn core_use(&self, CoreUse { cores, own, peers, others, stolen }: &CoreUse) -> String {
        let mut users = vec![format!("{} {}", self.itself(), percent(*own))];
        if *peers > 0.0 {
            users.push(format!("other ranks {}", percent(*peers)));
        }
        users.push(format!("other processes {}", percent(*others)));
        users.push(format!("the hypervisor (steal) {}", percent(*stolen)));
        let cores = cores.as_ref().map_or_else(String::new, |cores| format!(" ({cores})"));
        format!("{} cores{cores} were used by: {}", self.its(), users.join(", "))
    }
}

fn host_bound(bound: &HostBound) -> String {
    format!(
        "per step, the host waits for the device {} in {} calls, takes {} for operators and launches and {} outside of them; the \
         device runs {} kernels of {} each",
        units::nanos(bound.synchronizing),
        units::significant(bound.synchronizations),
        units::nanos(bound.operators),
        units::nanos(bound.outside),
        units::significant(bound.kernels),
        units::nanos(bound.kernel)
    )
}

pub(super) fn name(segment: Segment) -> String {
    match segment {
        Segment::Input => "input time".into(),
        Segment::H2d => "host-to-device copy time".into(),
        Segment::Compute => "compute time".into(),
        Segment::Forward => "time in the forward pass".into(),
        Segment::Backward => "time in the backward pass".into(),
        Segment::Optimizer => "time in the optimizer".into(),
        Segment::Transfer => "exposed transfer time".into(),
        Segment::Pause(kind) => format!("time in {}s", kind.name()),
        Segment::Idle => "device idle time".into(),
        Segment::Other => "time outside every phase".into(),
    }
}

/// `whose` is the subject and verb of the last clause.
fn processor_time(nanos: f64, whose: &str) -> String {
    format!(
        "only {} of that is processor time: for the rest, the {whose} off the processor",
        units::nanos(nanos.max(0.0))
    )
}

fn together(variation: &JointVariation) -> String {
    format!("forward and backward times rise and fall together (r = {:.2})", variation.correlation)
}

fn episodes(count: usize, first: &[(u64, u64)]) -> String {
    let range = |&(from, to): &(u64, u64)| match from == to {
        true => from.to_string(),
        false => format!("{from} to {to}"),
    };
    let ranges: Vec<String> = first.iter().map(range).collect();
    let more = match count - first.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{count} episodes: steps {}{more}", ranges.join(", "))
}

fn rose(what: Risen, usual_rank: &str, onset: &ChangePoint) -> String {
    let what = match what {
        Risen::ExposedTransfer => "exposed transfer",
        Risen::Compute => "the median rank's compute time",
        Risen::Part(segment) => &format!("the {}{usual_rank}", name(segment)),
    };
    let (before, after) = (units::nanos(onset.before_nanos), units::nanos(onset.after_nanos));
    format!(
        "{what} went from {before} to {after} at step {}, more than chance explains (p < 0.001)",
        step_and_range(onset)
    )
}

fn change(onset: &ChangePoint) -> String {
    format!(
        "went from {} to {}, more than chance explains (p < 0.001)",
        units::nanos(onset.before_nanos),
        units::nanos(onset.after_nanos)
    )
}

fn step_and_range(ChangePoint { step, earliest, latest, .. }: &ChangePoint) -> String {
    let [step, earliest, latest] = [step, earliest, latest].map(|step| units::count(*step));
    format!("{step} (between {earliest} and {latest})")
}

fn times(number: u64) -> String {
    if number == 1 { "once".into() } else { format!("{} times", units::count(number)) }
}
