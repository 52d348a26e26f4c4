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

/// A verdict, as far as news depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownVerdict {
    label: String,
    state: VerdictState,
    sentence: String,
}

/// What the news depend on: the state of the run, and its verdicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    state: RunState,
    verdicts: Vec<KnownVerdict>,
}

impl Known {
    /// Reads a report.
    #[must_use]
    pub fn new(report: &Report) -> Self {
        let verdicts = report.verdicts.iter();
        let verdicts = verdicts
            .map(|verdict| KnownVerdict {
                label: label(verdict.culprit.as_ref(), verdict.cause),
                state: verdict.state,
                sentence: verdict.sentence.clone(),
            })
            .collect();
        Self { state: report.state, verdicts }
    }

    #[must_use]
    pub fn news_since(&self, earlier: &Self) -> Vec<News> {
        let mut news = Vec::new();
        if self.state != earlier.state {
            let is_bad = matches!(self.state, RunState::Hung | RunState::Failed);
            if is_bad || self.state == RunState::Completed {
                news.push(News { is_bad, text: format!("The run is {}.", self.state.name()) });
            }
        }
        for KnownVerdict { label, state, sentence } in &self.verdicts {
            let old = earlier.verdicts.iter().find(|old| old.label == *label).map(|old| old.state);
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
        let verdict = |&(label, state): &(&str, VerdictState)| KnownVerdict {
            label: label.to_owned(),
            state,
            sentence: format!("{label}!"),
        };
        Known { state, verdicts: verdicts.iter().map(verdict).collect() }
    }

    #[test]
    fn a_verdict_that_appears_ends_or_comes_back_is_news() {
        let quiet = known(RunState::Running, &[]);
        let active = known(RunState::Running, &[("Rank 2 · input", VerdictState::Active)]);
        let resolved = known(RunState::Running, &[("Rank 2 · input", VerdictState::Resolved)]);
        let texts = |now: &Known, earlier: &Known| -> Vec<String> {
            now.news_since(earlier).into_iter().map(|news| news.text).collect()
        };
        assert_eq!(texts(&active, &quiet), ["Rank 2 · input!"]);
        assert_eq!(texts(&resolved, &active), ["Resolved: Rank 2 · input."]);
        assert_eq!(texts(&active, &resolved), ["Rank 2 · input is back."]);
        assert_eq!(texts(&active, &active), [""; 0]);
        assert_eq!(texts(&resolved, &quiet), [""; 0]);
    }

    #[test]
    fn a_run_that_hangs_or_ends_is_news() {
        let states = [RunState::Running, RunState::Hung, RunState::Failed, RunState::Completed];
        let [running, hung, failed, completed] = states.map(|state| known(state, &[]));
        assert!(hung.news_since(&running)[0].is_bad && failed.news_since(&hung)[0].is_bad);
        assert_eq!(running.news_since(&hung), []);
        assert!(!completed.news_since(&running)[0].is_bad);
    }
}
