//! A case against one or more ranks, in words: the sentence, what speaks for it and what against.

use wire::live::Part;
use wire::views::{Cause, ChangePoint, Persistence};

use super::excess::Excess;
use super::millis;
use crate::frontier;
use crate::stats;
use crate::step::StepAnalysis;

/// Ranks that compute without their processor for this share of the time share it with others.
const SHARED_CORES: f64 = 0.2;
/// An excess is worth a line from this share of the step on.
const WORTH_A_LINE: f64 = 0.05;

/// What is held against the suspects; times in nanoseconds.
pub(super) struct Case<'a> {
    pub(super) ranks: &'a [usize],
    /// The steps that count against them.
    pub(super) bad: &'a [&'a StepAnalysis],
    /// All observed steps.
    pub(super) watched: usize,
    /// Bad steps in which fixing them would have saved something.
    pub(super) last_in: usize,
    pub(super) excess: Excess,
    pub(super) persistence: Persistence,
    pub(super) episodes: usize,
    pub(super) onset: Option<ChangePoint>,
    /// Saving spread over all observed steps.
    pub(super) cost: u64,
    /// Saving in a bad step.
    pub(super) usual: f64,
    pub(super) share: f64,
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

    /// What the suspects do, singular or plural.
    fn says(&self) -> &'static str {
        match (self.excess.cause(), self.is_one()) {
            (Cause::Input, true) => "waits for its input",
            (Cause::Input, false) => "wait for their input",
            (Cause::H2d, true) => "copies its input slowly",
            (Cause::H2d, false) => "copy their input slowly",
            (Cause::Compute, true) => "computes longer than the others",
            (Cause::Compute, false) => "compute longer than the others",
            (Cause::MoreWork, true) => "has more work than the others",
            (Cause::MoreWork, false) => "have more work than the others",
            (Cause::Network, true) => "gets its reduced gradients later than the others",
            (Cause::Network, false) => "get their reduced gradients later than the others",
            (Cause::Host, true) => "loses time on its host",
            (Cause::Host, false) => "lose time on their hosts",
            (_, true) => "is late, for a reason the records do not show,",
            (_, false) => "are late, for a reason the records do not show,",
        }
    }

    fn range(&self) -> (u64, u64) {
        (self.bad[0].step.0, self.bad[self.bad.len() - 1].step.0)
    }

    pub(super) fn sentence(&self) -> String {
        let (who, says, share) = (self.who(), self.says(), self.share * 100.0);
        let (first, last) = self.range();
        let (usual, cost, bad) = (millis(self.usual), millis(self.cost as f64), self.bad.len());
        let s = if self.is_one() { "s" } else { "" };
        match self.persistence {
            Persistence::Persistent => {
                format!("{who} {says} and cost{s} every step {cost} ({share:.0} % of it).")
            }
            Persistence::Onset => format!(
                "Since step {first}, {} {says} and cost{s} every step {usual} \
                 ({share:.0} % of all time watched).",
                who.to_lowercase()
            ),
            Persistence::Transient | Persistence::Recurring => format!(
                "{who} {says} and cost {usual} in each of {bad} steps up to {last} \
                 ({share:.0} % of all time watched)."
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
        let (first, last) = self.range();
        let mut dates = Vec::new();
        if self.persistence == Persistence::Persistent {
            return dates;
        }
        let times =
            if self.episodes > 1 { format!(", in {} episodes", self.episodes) } else { String::new() };
        dates.push(format!(
            "it stands out in {} steps between {first} and {last}{times}; spread over all {} it costs {} a step",
            self.bad.len(),
            self.watched,
            millis(self.cost as f64)
        ));
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
