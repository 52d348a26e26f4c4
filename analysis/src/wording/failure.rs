//! The sentence on a failed run.

use super::hang::collective;
use crate::finding::FirstFailure;

pub(crate) fn failure(failure: &FirstFailure<'_>) -> String {
    let FirstFailure { rank, fell_silent, reason, others, alike, .. } = *failure;
    let reason = reason.trim_end_matches('.');
    // The reason that a launcher reports begins with the rank.
    let what = match reason.strip_prefix(&format!("rank {rank} ")) {
        Some(what) => what.to_owned(),
        None if reason.is_empty() && fell_silent => "fell silent".into(),
        None if reason.is_empty() => "failed and gave no reason".into(),
        None => format!("failed: {reason}"),
    };
    let (who, them, what) = match alike {
        0 => (format!("Rank {rank}"), "it", what),
        _ => {
            let what = what.strip_prefix("was ").map_or(what.clone(), |what| format!("were {what}"));
            (format!("{} ranks", units::count((alike + 1).into())), "them", what)
        }
    };
    let mut sentence = format!("{who} {what}{}", progress(failure));
    if alike > 0 {
        sentence += ". Which of them was the first is not known";
    }
    let others = others - alike;
    if others > 0 {
        let plural = if others == 1 { "" } else { "s" };
        sentence += &format!(". {} other rank{plural} failed with {them}", units::count(others.into()));
    }
    sentence + "."
}

/// Returns how far the first failed rank, or those that ended like it, had come.
fn progress(failure: &FirstFailure<'_>) -> String {
    let FirstFailure { last_step, last_collective, alike, instrumentation, .. } = *failure;
    let (they, their) = if alike == 0 { ("it", "its") } else { ("they", "their") };
    let last_step = last_step.map(|step| units::count(step.0));
    let last_collective = last_collective.map(|seq| collective(seq, instrumentation));
    match (last_step, last_collective) {
        (Some(step), Some(collective)) => {
            format!("; {they} had finished step {step} and started {collective}")
        }
        (Some(step), None) if alike > 0 => format!("; {they} had finished step {step} or a later one"),
        (Some(step), None) => format!("; {they} had finished step {step}"),
        // There may have been hundreds of steps by then.
        (None, _) if instrumentation.is_unmodified_job() => {
            format!(" before Paceline had found {their} steps")
        }
        (None, Some(collective)) => format!("; {they} had started {collective} of {their} first step"),
        (None, None) => format!(" before {their} first step"),
    }
}
