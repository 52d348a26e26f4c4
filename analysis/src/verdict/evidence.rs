//! A case against one or more ranks, in words: the sentence, what speaks for it and what against.

use std::ops::Range;

use wire::live::Part;
use wire::views::{Cause, ChangePoint, Persistence, VerdictState};

use super::excess::Excess;
use super::millis;
use super::says::{SLOW_COMPUTE, SLOW_PROCESSOR, TO_ITS_HOST, TO_THEIR_HOSTS};
use crate::cost::Cost;
use crate::frontier;
use crate::stats;
use crate::step::StepAnalysis;

/// Ranks that compute without their processor for this share of the time share it with others.
pub(super) const SHARED_CORES: f64 = 0.2;
/// Episodes that are listed by their steps.
const SHOWN_EPISODES: usize = 4;
/// An excess is worth a line from this share of the step on.
const WORTH_A_LINE: f64 = 0.05;

/// What is held against the suspects; times in nanoseconds.
pub(super) struct Case<'a> {
    pub(super) ranks: &'a [usize],
    /// All observed steps.
    pub(super) steps: &'a [&'a StepAnalysis],
    /// Those that have the fault.
    pub(super) bad: &'a [&'a StepAnalysis],
    /// Of these, how many fixing them would have made shorter.
    pub(super) last_in: usize,
    pub(super) excess: Excess,
    pub(super) persistence: Persistence,
    pub(super) state: VerdictState,
    /// Ranges of indices into `steps`.
    pub(super) episodes: &'a [Range<usize>],
    pub(super) onset: Option<ChangePoint>,
    /// Of a step that has the fault.
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

    /// What the suspects do, or did when it is over.
    fn says(&self) -> String {
        let of = |one: &'static str, several: &'static str| if self.is_one() { one } else { several };
        // The verb for one rank now, for several now, and for what is over; then the rest.
        let ([one, several, past], rest) = match self.excess.cause() {
            Cause::Input => (["waits", "wait", "waited"], of("for its input", "for their input")),
            Cause::H2d => (["copies", "copy", "copied"], of("its input slowly", "their input slowly")),
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
            _ => (["is", "are", of("was", "were")], "late, for a reason the records do not show,"),
        };
        let verb = if self.state == VerdictState::Resolved { past } else { of(one, several) };
        format!("{verb} {rest}")
    }

    pub(super) fn range(&self) -> (u64, u64) {
        (self.bad[0].step.0, self.bad[self.bad.len() - 1].step.0)
    }

    /// Who does what, since when, and the cost of a step that has it.
    pub(super) fn sentence(&self) -> String {
        let (who, says) = (self.who(), self.says());
        let (first, last) = self.range();
        let (cost, share) = (millis(self.cost.nanos), format!("{:.0} %", self.cost.share * 100.0));
        let costs = match (self.state, self.is_one()) {
            (VerdictState::Resolved, _) => "cost",
            (_, true) => "costs",
            (_, false) => "cost",
        };
        match (self.state, self.persistence) {
            (VerdictState::Active, Persistence::Onset) => {
                format!(
                    "Since step {first}, {} {says} and {costs} every step {cost} ({share} of it).",
                    lower(&who)
                )
            }
            (VerdictState::Active, _) => {
                format!("{who} {says} and {costs} every step {cost} ({share} of it).")
            }
            (VerdictState::Recurring, _) => format!(
                "{who} {says} again and again and {costs} {cost} ({share}) in each of {} steps between {first} and {last}.",
                self.bad.len()
            ),
            (VerdictState::Resolved, _) if self.episodes.len() > 1 => format!(
                "{who} {says} and {costs} {cost} ({share}) in each of {} steps between {first} and {last}; it is over.",
                self.bad.len()
            ),
            (VerdictState::Resolved, _) => format!(
                "{who} {says} from step {first} to {last} and {costs} each of them {cost} ({share} of it); it is over."
            ),
        }
    }

    pub(super) fn evidence(&self) -> Vec<String> {
        let its = self.its();
        let mut evidence = vec![if self.is_one() {
            format!("fixing it would have shortened {} of {} steps", self.last_in, self.bad.len())
        } else {
            format!(
                "fixing one of them would save little, fixing all would have shortened {} of {} steps",
                self.last_in,
                self.bad.len()
            )
        }];
        let step = stats::mean(self.bad.iter().map(|step| step.step_nanos() as f64)).unwrap_or(0.0);
        for (nanos, name) in self.excess.named() {
            if nanos > WORTH_A_LINE * step {
                evidence.push(format!("{its} {name} takes {} longer than the others' mean", millis(nanos)));
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
                "only {} of that is processor time: the thread was off the processor",
                millis(cpu.max(0.0))
            )),
            (Cause::MoreWork, _, Some(variation)) if excess.work_varies() => Some(format!(
                "{} forward and backward rise and fall together (r = {:.2}) by {:.0} %: the work varies, \
                 as with sequence lengths, not the device",
                self.its(),
                variation.correlation(),
                variation.coefficient() * 100.0
            )),
            (Cause::MoreWork, ..) => Some(format!(
                "more samples than the others have explain {} of it",
                millis(excess.compute_by_samples.max(0.0))
            )),
            (Cause::Processor, ..) => Some(
                "CPUs vary by as much for a while: clock frequency, a neighbour on the same core, time stolen by the \
                 hypervisor, cache; no record says that it is the rank's own doing"
                    .into(),
            ),
            _ => None,
        }
    }

    fn caused_wait(&self, rank: usize) -> Option<String> {
        let caused =
            self.bad.iter().filter_map(|step| Some(step.ranks.get(rank)?.as_ref()?.caused_wait_nanos));
        let caused = stats::mean(caused).filter(|&caused| caused > 0.0)?;
        Some(format!("the others wait for it {} a step on average", millis(caused)))
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
                "it began at step {} (between {} and {}): {} own work went from {} to {}, more than \
                 chance explains (p < 0.001)",
                onset.step,
                onset.earliest,
                onset.latest,
                self.its(),
                millis(onset.before_ns),
                millis(onset.after_ns)
            )
        }));
        dates
    }

    /// What share of their compute the others were off the processor, where that is much: ranks that share cores, of
    /// which each is as fast as the others let it be. `None` too where processor time is not known, as on GPUs.
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
                "the other ranks were off the processor for {:.0} % of their compute: ranks share cores, so that what \
                 one takes depends on the others, and the cost is uncertain",
                off * 100.0
            ));
        }
        let not_last = self.bad.len() - self.last_in;
        if not_last > 0 {
            against.push(format!("in {not_last} of these steps another rank was as late or later"));
        }
        if !self.excess.is_clear() {
            against.push("no single phase explains most of it".into());
        }
        if let (Cause::Compute, Some(variation)) = (self.excess.cause(), self.excess.compute_variation)
            && variation.correlation() >= super::excess::MORE_WORK_CORRELATION
        {
            against.push(format!(
                "{} forward and backward rise and fall together (r = {:.2}), though by {:.0} % only: it may \
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
            against.push("waits are split by durations, since the clocks are not aligned well enough".into());
        }
        let trusted = |step: &&&StepAnalysis| step.replay.as_ref().is_some_and(|replay| replay.is_trusted());
        let trusted = self.bad.iter().filter(trusted).count();
        if trusted * 2 < self.bad.len() {
            against.push(format!(
                "only {trusted} of these {} steps can be replayed closely; the cost is from own work alone",
                self.bad.len()
            ));
        }
        against
    }
}

fn lower(who: &str) -> String {
    who.replacen('R', "r", 1)
}

/// The frontier ledger's word, when it names the same rank.
fn frontier_evidence(rank: usize, steps: &[&StepAnalysis]) -> Option<String> {
    let mut counts = [0_usize; 8];
    for step in steps {
        let increments = frontier::frontier(step);
        // Where it takes the lead that it keeps until the collectives.
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
            "the frontier ledger, which needs no clocks, first sees the delay in {} on this rank",
            part.name()
        )
    })
}
