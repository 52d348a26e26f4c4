//! Short texts for verdicts: chips, bands, and the title of the browser's tab.

use wire::live::Part;
use wire::live::tile::Measure;
use wire::views::{Cause, Confidence, Culprit, Report, RunState, VerdictState};

/// The largest number of ranks that a short text names.
const MAX_NAMED: usize = 3;

/// Names a culprit: `Rank 2`, `Ranks 1 and 4`, `7 ranks`, `All ranks`.
#[must_use]
pub fn who(culprit: Option<&Culprit>) -> String {
    match culprit {
        None => "No rank".into(),
        Some(Culprit::Rank(rank)) => format!("Rank {rank}"),
        Some(Culprit::Ranks(ranks)) if ranks.len() > MAX_NAMED => units::ranks(ranks.len() as u32),
        Some(Culprit::Ranks(ranks)) => {
            let names: Vec<String> = ranks.iter().map(u32::to_string).collect();
            match names.split_last() {
                Some((last, rest)) if !rest.is_empty() => format!("Ranks {} and {last}", rest.join(", ")),
                _ => format!("Rank {}", names.concat()),
            }
        }
        Some(Culprit::All) => "All ranks".into(),
    }
}

/// Describes a fault in a few words: `Rank 2 · input`.
#[must_use]
pub fn label(culprit: Option<&Culprit>, cause: Cause) -> String {
    format!("{} · {}", who(culprit), cause.words())
}

/// Returns the first rank that a verdict names, the worst one first.
#[must_use]
pub fn first_culprit(report: &Report) -> Option<u32> {
    report.verdicts.iter().find_map(|verdict| verdict.culprit.as_ref()?.ranks().first().copied())
}

/// Returns the figure that shows a cause: the part of the step in which it lengthens the culprit's own time.
#[must_use]
pub fn measure(cause: Cause) -> Measure {
    match cause {
        Cause::Input => Measure::Part(Part::Input),
        Cause::H2d => Measure::Part(Part::H2d),
        Cause::Network | Cause::Communication => Measure::Part(Part::ExposedTransfer),
        Cause::Optimizer => Measure::Part(Part::Optimizer),
        Cause::Checkpoint | Cause::Evaluation | Cause::GarbageCollection | Cause::Compilation => {
            Measure::Part(Part::Pause)
        }
        Cause::Unknown => Measure::Lateness,
        Cause::Compute
        | Cause::MoreWork
        | Cause::ClockThrottle
        | Cause::Host
        | Cause::Processor
        | Cause::Restart
        | Cause::Start
        | Cause::Hang => Measure::LocalWork,
    }
}

/// Names a state.
#[must_use]
pub fn state(state: VerdictState) -> &'static str {
    match state {
        VerdictState::Active => "active",
        VerdictState::Recurring => "recurring",
        VerdictState::Resolved => "resolved",
    }
}

/// Names a confidence.
#[must_use]
pub fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

/// Returns what is wrong with a run now, for the title of the browser's tab: `(!) Rank 2: input`.
#[must_use]
pub fn alarm(report: &Report) -> Option<String> {
    if let RunState::Hung | RunState::Failed = report.state {
        return Some(format!("(!) {}", report.state.name()));
    }
    let worst = report.verdicts.first().filter(|verdict| verdict.state != VerdictState::Resolved)?;
    Some(format!("(!) {}: {}", who(worst.culprit.as_ref()), worst.cause.words()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_culprit_is_named_in_few_words() {
        let ranks = |ranks: &[u32]| who(Some(&Culprit::Ranks(ranks.to_vec())));
        assert_eq!(who(Some(&Culprit::Rank(2))), "Rank 2");
        assert_eq!([ranks(&[1, 4]), ranks(&[1, 4, 7])], ["Ranks 1 and 4", "Ranks 1, 4 and 7"]);
        assert_eq!(ranks(&[1, 2, 3, 4]), "4 ranks");
        assert_eq!([who(Some(&Culprit::All)), who(None)], ["All ranks", "No rank"]);
    }
}
