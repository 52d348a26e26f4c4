//! Verdicts against no rank in particular: communication in the open that every rank pays alike.

use wire::live::Part;
use wire::views::{Cause, Confidence, Culprit, Verdict};

use super::{LEAST_COST_SHARE, cost_share, millis};
use crate::stats;
use crate::step::StepAnalysis;

/// Exposed transfer is worth a verdict from this share of the step on.
const LEAST_SHARE: f64 = 0.05;
/// When this much of what is exposed comes after the last compute, bucket sizes are the matter: the last
/// bucket becomes ready only when backward ends, so its size is what sticks out.
const TAIL_SHARE: f64 = 0.7;

pub(super) fn verdicts(steps: &[&StepAnalysis]) -> Option<Verdict> {
    let exposed = stats::trimmed_mean(steps.iter().filter_map(|step| mean_part(step)), 0.02)?;
    let cost = exposed as u64;
    let share = cost_share(cost, steps);
    if share < LEAST_SHARE.max(LEAST_COST_SHARE) {
        return None;
    }
    let ranks = steps[0].ranks.len();
    let tail = stats::median(steps.iter().filter_map(|step| mean_tail(step))).unwrap_or(0.0);
    let (largest, total) = bucket_bytes(steps);
    // A tail made of one bucket that holds most of the gradient is a matter of sizes; a tail behind small
    // buckets is a slow network.
    let sizes = tail >= TAIL_SHARE * exposed && total > 0 && largest * 2 > total;
    let (cause, what) = if sizes {
        (Cause::CollectiveConfiguration, "a smaller bucket cap would let it start earlier")
    } else {
        (Cause::Network, "transfers take longer than backward can hide")
    };
    Some(Verdict {
        culprit: Some(Culprit::All),
        cause,
        cost_ns_per_step: cost,
        cost_share: share,
        gpu_hours_per_day: share * ranks as f64 * 24.0,
        confidence: Confidence::Medium,
        sentence: format!(
            "All ranks spend {} of every step ({:.0} %) in all-reduce transfers that nothing hides; {what}.",
            millis(exposed),
            share * 100.0
        ),
        evidence: vec![
            format!("exposed transfer is {} a step, the mean over ranks", millis(exposed)),
            format!("the last bucket ends {} after the last backward compute", millis(tail)),
        ],
        counter_evidence: vec!["the cost assumes that all of it could be hidden".into()],
        example_step: steps.last().map(|step| step.step.0),
        persistence: None,
        steps: None,
        onset: None,
    })
}

fn mean_part(step: &StepAnalysis) -> Option<f64> {
    stats::mean(step.present().map(|(_, rank)| rank.part(Part::ExposedTransfer) as f64))
}

fn mean_tail(step: &StepAnalysis) -> Option<f64> {
    stats::mean(step.present().filter_map(|(_, rank)| rank.tail_nanos.map(|nanos| nanos as f64)))
}

fn bucket_bytes(steps: &[&StepAnalysis]) -> (u64, u64) {
    let bytes = || steps.last().into_iter().flat_map(|step| step.collectives.iter().map(|c| c.bytes));
    (bytes().max().unwrap_or(0), bytes().sum())
}
