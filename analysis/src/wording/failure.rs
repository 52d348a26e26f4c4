//! The sentence on a failed run.

use super::hang::collective;
use crate::finding::FirstFailure;

pub(crate) fn failure(failure: &FirstFailure<'_>) -> String {
    let FirstFailure { rank, fell_silent, reason, last_step, last_collective, others, instrumentation } =
        *failure;
    let reason = reason.trim_end_matches('.');
    // The reason that a launcher reports begins with the rank.
    let what = match reason.strip_prefix(&format!("rank {rank} ")) {
        Some(what) => what.to_owned(),
        None if reason.is_empty() && fell_silent => "fell silent".into(),
        None if reason.is_empty() => "failed and gave no reason".into(),
        None => format!("failed: {reason}"),
    };
    let mut sentence = format!("Rank {rank} {what}");
    let last_step = last_step.map(|step| units::count(step.0));
    let last_collective = last_collective.map(|seq| collective(seq, instrumentation));
    match (last_step, last_collective) {
        (Some(step), Some(collective)) => {
            sentence += &format!("; it had finished step {step} and started {collective}");
        }
        (Some(step), None) => sentence += &format!("; it had finished step {step}"),
        // It may have made hundreds of steps by then.
        (None, _) if instrumentation.is_unmodified_job() => {
            sentence += " before Paceline had found its steps";
        }
        (None, Some(collective)) => {
            sentence += &format!("; it had started {collective} of its first step");
        }
        (None, None) => sentence += " before its first step",
    }
    if others > 0 {
        let plural = if others == 1 { "" } else { "s" };
        sentence += &format!(". {} other rank{plural} failed with it", units::count(others.into()));
    }
    sentence + "."
}
