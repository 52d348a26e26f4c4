//! The verdict on one or more ranks in words: its sentence, its evidence and its counter-evidence.

use std::ops::Range;

use wire::live::Part;
use wire::views::{Cause, ChangePoint, Persistence, VerdictState};

use super::excess::Excess;
use super::says::{SLOW_COMPUTE, SLOW_PROCESSOR, TO_ITS_HOST, TO_THEIR_HOSTS};
use crate::cost::Cost;
use crate::frontier;
use crate::stats;
use crate::step::StepAnalysis;

/// The share of compute time off the processor from which ranks are considered to share cores.
pub(super) const SHARED_CORES: f64 = 0.2;
/// The largest number of episodes that are listed by their steps.
const SHOWN_EPISODES: usize = 4;
/// The share of the step from which an excess gets a line of evidence.
const WORTH_A_LINE: f64 = 0.05;

/// The facts about the suspected ranks; times in nanoseconds.
pub(super) struct Case<'a> {
    pub(super) ranks: &'a [usize],
    /// All observed steps.
    pub(super) steps: &'a [&'a StepAnalysis],
    /// The steps that have the fault.
    pub(super) bad: &'a [&'a StepAnalysis],
    /// The number of steps in `bad` that fixing the suspects would have shortened.
    pub(super) last_in: usize,
    pub(super) excess: Excess,
    pub(super) persistence: Persistence,
    pub(super) state: VerdictState,
    /// The episodes, as ranges of indices into `steps`.
    pub(super) episodes: &'a [Range<usize>],
    pub(super) onset: Option<ChangePoint>,
    /// The cost per step that has the fault.
    pub(super) cost: Cost,
}

impl Case<'_> {
    fn is_one(&self) -> bool {
        self.ranks.len() == 1
    }

    fn who(&self) -> String {
        match self.ranks {
            [one] => format!("Rank {one}"),
            [rest @ .., last] => {
                let rest: Vec<String> = rest.iter().map(ToString::to_string).collect();
                format!("Ranks {} and {last}", rest.join(", "))
            }
            [] => String::new(),
        }
    }

    fn its(&self) -> &'static str {
        if self.is_one() { "its" } else { "their" }
    }

    /// Returns what the suspects do, or did if the fault is over.
    fn says(&self) -> String {
        let of = |one: &'static str, several: &'static str| if self.is_one() { one } else { several };
        // The verb for one rank now, for several ranks now, and for a fault that is over; then the rest of the phrase.
        let ([one, several, past], rest) = match self.excess.cause() {
            Cause::Input => (["waits", "wait", "waited"], of("for its input", "for their input")),
            Cause::H2d => (
                ["copies", "copy", "copied"],
                of("its input to the device slowly", "their input to the device slowly"),
            ),
            Cause::MoreWork => (["has", "have", "had"], "more work than the others"),
            Cause::Network => (
                ["gets", "get", "got"],
                of(
                    "its reduced gradients later than the others",
                    "their reduced gradients later than the others",
                ),
            ),
            Cause::Host => (["loses", "lose", "lost"], of(TO_ITS_HOST, TO_THEIR_HOSTS)),
            Cause::Processor => (["computes", "compute", "computed"], SLOW_PROCESSOR),
            Cause::Compute => (["computes", "compute", "computed"], SLOW_COMPUTE),
            _ => (["is", "are", of("was", "were")], "late for a reason that the records do not show"),
        };
        let verb = if self.state == VerdictState::Resolved { past } else { of(one, several) };
        format!("{verb} {rest}")
    }

    pub(super) fn range(&self) -> (u64, u64) {
        (self.bad[0].step.0, self.bad[self.bad.len() - 1].step.0)
    }

    /// Returns the sentence: who does what, since when, and the cost per step that has the fault.
    pub(super) fn sentence(&self) -> String {
        let (who, says) = (self.who(), self.says());
        let (first, last) = self.range();
        let (cost, share) = (units::millis(self.cost.nanos), format!("{:.0} %", self.cost.share * 100.0));
        let costs = if self.state == VerdictState::Resolved { "cost" } else { "costs" };
        match (self.state, self.persistence) {
            (VerdictState::Active, Persistence::Onset) => {
                format!(
                    "From step {first} on, {} {says}, which {costs} {cost} per step ({share} of step time).",
                    lower(&who)
                )
            }
            (VerdictState::Active, _) => {
                format!("{who} {says}, which {costs} {cost} per step ({share} of step time).")
            }
            (VerdictState::Recurring, _) => format!(
                "{who} repeatedly {says}, which {costs} {cost} ({share} of step time) in each of {} steps between \
                 {first} and {last}.",
                self.bad.len()
            ),
            (VerdictState::Resolved, _) if self.episodes.len() > 1 => format!(
                "{who} repeatedly {says}, which {costs} {cost} ({share} of step time) in each of {} steps between \
                 {first} and {last}. The fault is over.",
                self.bad.len()
            ),
            (VerdictState::Resolved, _) => format!(
                "{who} {says} from step {first} to {last}, which {costs} {cost} per step ({share} of step time). \
                 The fault is over."
            ),
        }
    }

    pub(super) fn evidence(&self) -> Vec<String> {
        let its = self.its();
        let mut evidence = vec![if self.is_one() {
            format!("fixing it would have shortened {} of {} steps", self.last_in, self.bad.len())
        } else {
            format!(
                "fixing one of them would save little; fixing all of them would have shortened {} of {} steps",
                self.last_in,
                self.bad.len()
            )
        }];
        let step = stats::mean(self.bad.iter().map(|step| step.step_nanos() as f64)).unwrap_or(0.0);
        for (nanos, name) in self.excess.named() {
            if nanos > WORTH_A_LINE * step {
                evidence.push(format!(
                    "{its} {name} is {} longer than the mean of the other ranks",
                    units::millis(nanos)
                ));
            }
        }
        evidence.extend(self.of_the_cause());
        if let [rank] = self.ranks {
            evidence.extend(self.caused_wait(*rank));
            evidence.extend(frontier_evidence(*rank, self.bad));
        }
        evidence.extend(self.dates());
        evidence
    }

    fn of_the_cause(&self) -> Option<String> {
        let excess = &self.excess;
        match (excess.cause(), excess.compute_cpu, excess.compute_variation) {
            (Cause::Host, Some(cpu), _) if excess.compute > excess.other => Some(format!(
                "only {} of that is processor time: for the rest, the thread was off the processor",
                units::millis(cpu.max(0.0))
            )),
            (Cause::MoreWork, _, Some(variation)) if excess.work_varies() => Some(format!(
                "{} forward and backward times rise and fall together (r = {:.2}) by {:.0} %: the amount of work \
                 varies, as with sequence lengths, not the speed of the device",
                self.its(),
                variation.correlation(),
                variation.coefficient() * 100.0
            )),
            (Cause::MoreWork, ..) => Some(format!(
                "{} of that is explained by more samples than the other ranks have",
                units::millis(excess.compute_by_samples.max(0.0))
            )),
            (Cause::Processor, ..) => Some(
                "CPUs vary this much for short periods: clock frequency, a neighbor on the same core, time taken by \
                 the hypervisor (steal), cache; no record shows that the rank itself is the cause"
                    .into(),
            ),
            _ => None,
        }
    }

    fn caused_wait(&self, rank: usize) -> Option<String> {
        let caused =
            self.bad.iter().filter_map(|step| Some(step.ranks.get(rank)?.as_ref()?.caused_wait_nanos));
        let caused = stats::mean(caused).filter(|&caused| caused > 0.0)?;
        Some(format!("the other ranks wait for it {} per step on average", units::millis(caused)))
    }

    fn dates(&self) -> Vec<String> {
        let mut dates = Vec::new();
        if self.episodes.len() > 1 {
            let range = |episode: &Range<usize>| {
                format!("{} to {}", self.steps[episode.start].step.0, self.steps[episode.end - 1].step.0)
            };
            let (shown, more) = self.episodes.split_at(self.episodes.len().min(SHOWN_EPISODES));
            let mut ranges = shown.iter().map(range).collect::<Vec<_>>().join(", ");
            if !more.is_empty() {
                ranges += &format!(" and {} more", more.len());
            }
            dates.push(format!("{} episodes: steps {ranges}", self.episodes.len()));
        }
        dates.extend(self.onset.filter(|onset| onset.verified).map(|onset| {
            format!(
                "the fault began at step {} (between {} and {}): {} local work went from {} to {}, more than \
                 chance explains (p < 0.001)",
                onset.step,
                onset.earliest,
                onset.latest,
                self.its(),
                units::millis(onset.before_nanos),
                units::millis(onset.after_nanos)
            )
        }));
        dates
    }

    /// Returns the share of compute time that the other ranks were off the processor, if it is large. Such ranks share
    /// cores, and each is only as fast as the others let it be. Returns `None` if processor time is not known, as on
    /// GPUs.
    pub(super) fn shared_cores(&self) -> Option<f64> {
        let others = self.bad.iter().flat_map(|step| step.present());
        let others = others.filter(|(rank, _)| !self.ranks.contains(rank));
        let off = others.filter_map(|(_, rank)| {
            let compute = rank.compute_nanos as f64;
            (compute > 0.0).then_some(1.0 - rank.compute_cpu_nanos? as f64 / compute)
        });
        stats::median(off).filter(|off| *off >= SHARED_CORES)
    }

    pub(super) fn counter_evidence(&self) -> Vec<String> {
        let mut against = Vec::new();
        if let Some(off) = self.shared_cores() {
            against.push(format!(
                "the other ranks were off the processor for {:.0} % of their compute time: ranks share cores, so the \
                 speed of each depends on the others, and the cost is uncertain",
                off * 100.0
            ));
        }
        let not_last = self.bad.len() - self.last_in;
        if not_last > 0 {
            against.push(format!("in {not_last} of these steps another rank was as late or later"));
        }
        if !self.excess.is_clear() {
            against.push("no single phase explains most of the delay".into());
        }
        if let (Cause::Compute, Some(variation)) = (self.excess.cause(), self.excess.compute_variation)
            && variation.correlation() >= super::excess::MORE_WORK_CORRELATION
        {
            against.push(format!(
                "{} forward and backward times rise and fall together (r = {:.2}), but only by {:.0} %: the cause may \
                 be more work, not a slow device",
                self.its(),
                variation.correlation(),
                variation.coefficient() * 100.0
            ));
        }
        let of_ranks = |step: &&&StepAnalysis| {
            let own = self.ranks.first().and_then(|&rank| step.ranks.get(rank)?.as_ref());
            own.is_some_and(|rank| rank.clock_free)
        };
        if self.bad.iter().filter(of_ranks).count() * 2 > self.bad.len() {
            against.push("waits are computed from durations: the clocks are not aligned well enough".into());
        }
        let trusted = |step: &&&StepAnalysis| step.replay.as_ref().is_some_and(|replay| replay.is_trusted());
        let trusted = self.bad.iter().filter(trusted).count();
        if trusted * 2 < self.bad.len() {
            against.push(format!(
                "only {trusted} of these {} steps can be replayed accurately; the cost is estimated from local work",
                self.bad.len()
            ));
        }
        against
    }
}

fn lower(who: &str) -> String {
    who.replacen('R', "r", 1)
}

/// Returns a line of evidence from the frontier ledger if it names the same rank.
fn frontier_evidence(rank: usize, steps: &[&StepAnalysis]) -> Option<String> {
    let mut counts = [0_usize; 8];
    for step in steps {
        let increments = frontier::frontier(step);
        // The part in which the rank takes the lead that it keeps until the collectives.
        let own_work = increments.iter().take_while(|increment| increment.part != Part::ExposedTransfer);
        let led: Vec<_> = own_work.collect();
        let others = led.iter().rposition(|increment| increment.rank != rank).map_or(0, |at| at + 1);
        if let Some(first) = led.get(others) {
            counts[first.part as usize] += 1;
        }
    }
    let (part, count) = Part::ALL.into_iter().zip(counts).max_by_key(|&(_, count)| count)?;
    (count * 2 > steps.len()).then(|| {
        format!(
            "the frontier ledger, which needs no clocks, first shows the delay in {} on this rank",
            part.name()
        )
    })
}
