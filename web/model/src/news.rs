//! What changed between two reports, for a message to the reader.

use wire::views::{Report, RunState, VerdictState};

use crate::verdict::label;

/// A message to the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// True if something got worse.
    pub is_bad: bool,
    /// The message.
    pub text: String,
}

/// What the news depend on: the state of the run, and each verdict's label, state and sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    state: RunState,
    verdicts: Vec<(String, VerdictState, String)>,
}

impl Known {
    /// Reads a report.
    #[must_use]
    pub fn new(report: &Report) -> Self {
        let verdicts = report.verdicts.iter();
        let verdicts = verdicts
            .map(|verdict| {
                (label(verdict.culprit.as_ref(), verdict.cause), verdict.state, verdict.sentence.clone())
            })
            .collect();
        Self { state: report.state, verdicts }
    }

    #[must_use]
    pub fn since(&self, before: &Self) -> Vec<News> {
        let mut news = Vec::new();
        if self.state != before.state {
            let is_bad = matches!(self.state, RunState::Hung | RunState::Failed);
            if is_bad || self.state == RunState::Completed {
                news.push(News { is_bad, text: format!("The run is {}.", self.state.name()) });
            }
        }
        for (label, state, sentence) in &self.verdicts {
            let old = before.verdicts.iter().find(|(other, ..)| other == label).map(|(_, state, _)| *state);
            match (old, state) {
                (None, VerdictState::Resolved) => {}
                (None, _) => news.push(News { is_bad: true, text: sentence.clone() }),
                (Some(old), VerdictState::Resolved) if old != VerdictState::Resolved => {
                    news.push(News { is_bad: false, text: format!("Resolved: {label}.") });
                }
                (Some(VerdictState::Resolved), VerdictState::Active | VerdictState::Recurring) => {
                    news.push(News { is_bad: true, text: format!("{label} is back.") });
                }
                _ => {}
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(state: RunState, verdicts: &[(&str, VerdictState)]) -> Known {
        let verdict = |&(label, state): &(&str, VerdictState)| (label.to_owned(), state, format!("{label}!"));
        Known { state, verdicts: verdicts.iter().map(verdict).collect() }
    }

    #[test]
    fn a_verdict_that_appears_ends_or_comes_back_is_news() {
        let quiet = known(RunState::Running, &[]);
        let active = known(RunState::Running, &[("Rank 2 · input", VerdictState::Active)]);
        let over = known(RunState::Running, &[("Rank 2 · input", VerdictState::Resolved)]);
        let texts = |now: &Known, before: &Known| -> Vec<String> {
            now.since(before).into_iter().map(|news| news.text).collect()
        };
        assert_eq!(texts(&active, &quiet), ["Rank 2 · input!"]);
        assert_eq!(texts(&over, &active), ["Resolved: Rank 2 · input."]);
        assert_eq!(texts(&active, &over), ["Rank 2 · input is back."]);
        assert_eq!(texts(&active, &active), [""; 0]);
        assert_eq!(texts(&over, &quiet), [""; 0]);
    }

    #[test]
    fn a_run_that_hangs_or_ends_is_news() {
        let states = [RunState::Running, RunState::Hung, RunState::Failed, RunState::Completed];
        let [running, hung, failed, completed] = states.map(|state| known(state, &[]));
        assert!(hung.since(&running)[0].is_bad && failed.since(&hung)[0].is_bad);
        assert_eq!(running.since(&hung), []);
        assert!(!completed.since(&running)[0].is_bad);
    }
}
