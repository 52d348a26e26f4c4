//! What each rank spends the time of the observed steps on.

use wire::ids::Rank;
use wire::views::RankLedger;

use crate::step::StepAnalysis;

/// The ledger of each rank over all steps together; empty without steps, because the parts are then unknown and not 0.
pub(super) fn ledger(steps: &[&StepAnalysis], ranks: u32) -> Vec<RankLedger> {
    if steps.is_empty() {
        return Vec::new();
    }
    let mut ledger: Vec<RankLedger> =
        (0..ranks).map(|rank| RankLedger { rank: Rank(rank), ..RankLedger::default() }).collect();
    for (rank, analysis) in steps.iter().flat_map(|step| step.present()) {
        let Some(sum) = ledger.get_mut(rank) else { continue };
        let [input, h2d, forward, backward, wait, transfer, optimizer, pause, idle, other] = analysis.parts;
        sum.input_nanos += input;
        sum.h2d_nanos += h2d;
        sum.forward_nanos += forward;
        sum.backward_nanos += backward;
        sum.exposed_wait_nanos += wait;
        sum.exposed_transfer_nanos += transfer;
        sum.optimizer_nanos += optimizer;
        sum.pause_nanos += pause;
        sum.pauses_nanos.iter_mut().zip(analysis.pauses).for_each(|(sum, nanos)| *sum += nanos);
        if idle > 0 {
            *sum.idle_nanos.get_or_insert_default() += idle;
        }
        sum.other_nanos += other;
        sum.step_nanos += analysis.step_nanos;
        if analysis.processor_nanos.iter().any(|&nanos| nanos > 0) {
            let processor = sum.processor_nanos.get_or_insert_default();
            processor.iter_mut().zip(analysis.processor_nanos).for_each(|(sum, nanos)| *sum += nanos);
        }
    }
    // A rank without a record has no figure, which is not 0.
    ledger.retain(|rank| rank.step_nanos > 0);
    ledger.shrink_to_fit();
    ledger
}
