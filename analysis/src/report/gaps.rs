//! What a report does not cover.

use wire::batch::Instrumentation;
use wire::views::{Gap, GapKind, Missing};

use super::observed::Observed;
use crate::wording;

/// What an unmodified job lacks.
const NO_PHASES: &str = "only collectives are recorded, so compute is inferred: it is taken to last until the last \
    collective of a step that found its stream idle, except for collectives whose result the rank waits for; forward, \
    optimizer and unmarked input are part of it, and all of it is called backward";

/// What traces lack that have no operators.
const NO_PHASES_IN_TRACES: &str = "the traces have no operators, so nothing shows which kernels are of the forward pass or of the \
    optimizer: all compute is called backward";

/// What files lack that hold only collectives.
const ONLY_COLLECTIVES: &str = "the files hold only collectives: what ranks do while none runs is not recorded, and is called other, whatever \
    it was";

/// The gap that says which figures of the step ledger are assumed if the overlap is unknown.
const ASSUMED_SPLIT: &str =
    "the step ledger's split into compute and exposed time, and all that rests on it, is assumed";

/// Why some steps of a run are left out.
const SAMPLED_OUT: &str = "only the enqueueing of their collectives was recorded, because observing every step in full \
    would exceed the overhead budget; all figures come from the other steps, which are the same on every rank";

/// Returns why compute is not split into phases, if it is not.
fn phases_missing(observed: &Observed<'_>) -> Option<&'static str> {
    let is_split = observed.ledger.iter().any(|rank| rank.forward_nanos > 0) || observed.ledger.is_empty();
    match observed.facts.instrumentation {
        Instrumentation::Trace if observed.has_only_collectives() => Some(ONLY_COLLECTIVES),
        Instrumentation::Trace => (!is_split).then_some(NO_PHASES_IN_TRACES),
        _ => observed.infers_compute().then_some(NO_PHASES),
    }
}

pub(super) fn gaps(observed: &Observed<'_>) -> Vec<Gap> {
    let Observed { facts, left_out, ledger, reasons, .. } = observed;
    let left_out = *left_out;
    let steps = (left_out > 0).then(|| Gap {
        kind: GapKind::Steps,
        sentence: format!(
            "{left_out} of {} steps are left out: {SAMPLED_OUT}",
            left_out + observed.steps.len()
        ),
    });
    let ranks = observed.lacks_files().then(|| Gap {
        kind: GapKind::Ranks,
        sentence: format!(
            "{} of {} ranks have no file: figures are of the others, no rank is last in a collective with one of them, and waiting \
             for them counts as transfer",
            facts.ranks as usize - ledger.len(),
            facts.ranks
        ),
    });
    let phases = phases_missing(observed).map(|text| Gap { kind: GapKind::Phases, sentence: text.into() });
    let buckets = reasons
        .only_enqueued
        .then(|| Gap { kind: GapKind::Buckets, sentence: Missing::OnlyEnqueued.to_string() });
    let parameters = (!facts.other_layouts.is_empty())
        .then(|| Gap { kind: GapKind::Parameters, sentence: wording::layouts::differ(&facts.other_layouts) });
    let unclear = reasons.unclear.as_ref().filter(|_| !reasons.only_enqueued);
    let overlap =
        unclear.map(|reason| Gap { kind: GapKind::Overlap, sentence: format!("{reason}; {ASSUMED_SPLIT}") });
    [steps, ranks, phases, overlap, buckets, parameters].into_iter().flatten().collect()
}
