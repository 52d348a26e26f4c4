//! The observed steps of a report, and what all of its figures rest on.

use wire::views::RankLedger;

use super::facts::RunFacts;
use super::is_observed;
use super::ledger::ledger;
use super::reasons::Reasons;
use crate::loss;
use crate::step::StepAnalysis;

pub(super) struct Observed<'a> {
    pub(super) facts: &'a RunFacts,
    /// In step order. Either the running times of the collectives are known in all of them, or in none.
    pub(super) steps: Vec<&'a StepAnalysis>,
    /// The number of observed steps that are in no figure, because only the enqueueing of their collectives is known.
    pub(super) left_out: usize,
    /// The ranks without a record in any of the steps are not in it.
    pub(super) ledger: Vec<RankLedger>,
    pub(super) period_nanos: Option<f64>,
    pub(super) reasons: Reasons,
}

impl<'a> Observed<'a> {
    /// `all` are all steps of the window.
    pub(super) fn new(facts: &'a RunFacts, all: &[&'a StepAnalysis]) -> Self {
        let (steps, left_out) = best_known(all.iter().copied().filter(|step| is_observed(step)).collect());
        Self {
            facts,
            left_out,
            ledger: ledger(&steps, facts.ranks),
            period_nanos: loss::period(&steps),
            reasons: Reasons::new(facts, all, &steps),
            steps,
        }
    }

    /// Returns true if the run is imported from files that hold collectives and nothing else.
    pub(super) fn has_only_collectives(&self) -> bool {
        let holds_none = |rank: &RankLedger| {
            rank.forward_nanos + rank.backward_nanos + rank.optimizer_nanos == 0 && rank.idle_nanos.is_none()
        };
        self.facts.is_imported() && !self.ledger.is_empty() && self.ledger.iter().all(holds_none)
    }

    /// Returns true if compute is inferred, because only collectives are recorded.
    pub(super) fn infers_compute(&self) -> bool {
        self.facts.instrumentation.is_unmodified_job()
            && self.ledger.iter().all(|rank| rank.forward_nanos == 0)
    }

    /// The ledger as users see it. Where neither compute nor the times of collectives are recorded, each part would be 0 or
    /// unknown.
    pub(super) fn into_shown_ledger(self) -> Vec<RankLedger> {
        match self.reasons.only_enqueued && self.has_only_collectives() {
            true => Vec::new(),
            false => self.ledger,
        }
    }

    /// Returns true if the run is imported, and some of its ranks have no file.
    pub(super) fn lacks_files(&self) -> bool {
        let ranks = self.ledger.len();
        self.facts.is_imported() && ranks > 0 && ranks < self.facts.ranks as usize
    }
}

/// Returns the steps whose collectives have known running times, and the number of other steps. A run whose recording
/// was reduced has both kinds, whose figures cannot be averaged. Returns all steps if no step has known running times.
fn best_known(steps: Vec<&StepAnalysis>) -> (Vec<&StepAnalysis>, usize) {
    let (enqueued, known): (Vec<_>, Vec<_>) = steps.iter().partition(|step| step.is_only_enqueued());
    if known.is_empty() { (steps, 0) } else { (known, enqueued.len()) }
}
