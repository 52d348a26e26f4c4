//! Which runs the list shows. The address contains the filter, so that a copied link shows the same runs.

use std::collections::BTreeMap;

use wire::views::{RunState, RunSummary};

use crate::attributes::written;

/// The states, those that need attention first.
pub const STATES: [RunState; 5] =
    [RunState::Hung, RunState::Failed, RunState::Running, RunState::Starting, RunState::Completed];

/// What a run must have to be shown. An empty filter shows all runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Words that must all occur in the run's name, id, labels, state or worst verdict.
    pub text: String,
    /// The states, of which the run must have one; empty for any.
    pub states: Vec<RunState>,
    pub name: Option<String>,
    /// The number of ranks.
    pub ranks: Option<u32>,
    /// A label, as `key=value`.
    pub label: Option<String>,
}

impl Filter {
    /// Returns true if the filter shows all runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self { text: self.text.clone(), ..Self::default() } && self.text.trim().is_empty()
    }

    #[must_use]
    pub fn shows(&self, run: &RunSummary) -> bool {
        (self.states.is_empty() || self.states.contains(&run.state)) && self.shows_in_some_state(run)
    }

    /// Returns how many runs each of [`STATES`] would add, under the rest of the filter.
    #[must_use]
    pub fn counts(&self, runs: &[RunSummary]) -> [usize; STATES.len()] {
        let mut counts = [0; STATES.len()];
        for run in runs.iter().filter(|run| self.shows_in_some_state(run)) {
            counts[attention(run.state)] += 1;
        }
        counts
    }

    fn shows_in_some_state(&self, run: &RunSummary) -> bool {
        self.name.as_ref().is_none_or(|name| run.name == *name)
            && self.ranks.is_none_or(|ranks| run.ranks_expected == ranks)
            && self.label.as_ref().is_none_or(|label| written(run).any(|own| own == *label))
            && has_words(run, &self.text)
    }
}

/// Returns the position of `state` among [`STATES`].
#[must_use]
pub fn attention(state: RunState) -> usize {
    STATES.iter().position(|other| *other == state).unwrap_or_default()
}

fn has_words(run: &RunSummary, text: &str) -> bool {
    if text.trim().is_empty() {
        return true;
    }
    let hang = run.hang.as_ref().map_or("", |hang| hang.sentence.as_str());
    let verdict = run.verdict.as_deref().unwrap_or_default();
    let mut all = [run.name.as_str(), run.run.as_str(), run.state.name(), hang, verdict].join("\n");
    written(run).for_each(|label| all.extend(["\n", &label]));
    let all = all.to_lowercase();
    text.to_lowercase().split_whitespace().all(|word| all.contains(word))
}

/// Parses what [`write_states`] formats. Unknown names are ignored.
#[must_use]
pub fn read_states(text: &str) -> Vec<RunState> {
    STATES.into_iter().filter(|state| text.split(',').any(|name| name == state.name())).collect()
}

/// Formats states for the address: `hung,failed`. Returns `None` for no state.
#[must_use]
pub fn write_states(states: &[RunState]) -> Option<String> {
    let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Returns `items` with `item` added, or without it if it was there.
#[must_use]
pub fn toggled<T: PartialEq>(mut items: Vec<T>, item: T) -> Vec<T> {
    match items.iter().position(|other| *other == item) {
        Some(at) => drop(items.remove(at)),
        None => items.push(item),
    }
    items
}

/// Returns the names of the runs in alphabetical order, each with its number of runs.
#[must_use]
pub fn names(runs: &[RunSummary]) -> Vec<(String, usize)> {
    counted(runs.iter().map(|run| run.name.clone()))
}

/// Returns the numbers of ranks in ascending order, each with its number of runs.
#[must_use]
pub fn ranks(runs: &[RunSummary]) -> Vec<(u32, usize)> {
    counted(runs.iter().map(|run| run.ranks_expected))
}

fn counted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<(T, usize)> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::order::tests::run;

    fn list() -> Vec<RunSummary> {
        vec![
            RunSummary {
                verdict: Some("Rank 2 waits for its input.".into()),
                ..run("a-1", "bert", RunState::Running)
            },
            RunSummary { ranks_expected: 8, ..run("a-2", "bert", RunState::Failed) },
            RunSummary {
                labels: [("team".into(), "nlp".into())].into(),
                ..run("b-1", "gpt", RunState::Completed)
            },
        ]
    }

    fn shown(filter: &Filter) -> Vec<String> {
        list().iter().filter(|run| filter.shows(run)).map(|run| run.run.to_string()).collect()
    }

    #[test]
    fn every_word_must_occur_somewhere() {
        let text = |text: &str| shown(&Filter { text: text.into(), ..Filter::default() });
        assert_eq!(text("bert"), ["a-1", "a-2"]);
        assert_eq!(text("BERT input"), ["a-1"]);
        assert_eq!(text("failed"), ["a-2"]);
        assert_eq!(text("b-1"), ["b-1"]);
        assert_eq!(text("bert gpt"), [""; 0]);
        assert_eq!(text("team=nlp"), ["b-1"]);
        assert_eq!(text(" ").len(), 3);
    }

    #[test]
    fn filters_narrow_each_other() {
        let states = vec![RunState::Failed, RunState::Completed];
        assert_eq!(shown(&Filter { states: states.clone(), ..Filter::default() }), ["a-2", "b-1"]);
        let named = Filter { states, name: Some("bert".into()), ..Filter::default() };
        assert_eq!(shown(&named), ["a-2"]);
        assert_eq!(shown(&Filter { ranks: Some(4), ..named }), [""; 0]);
        assert_eq!(shown(&Filter { label: Some("team=nlp".into()), ..Filter::default() }), ["b-1"]);
        assert_eq!(shown(&Filter { label: Some("team=nl".into()), ..Filter::default() }), [""; 0]);
        assert!(Filter::default().is_empty() && !Filter { ranks: Some(4), ..Filter::default() }.is_empty());
    }

    #[test]
    fn the_count_of_a_state_does_not_depend_on_the_chosen_states() {
        let filter = Filter { states: vec![RunState::Hung], name: Some("bert".into()), ..Filter::default() };
        assert_eq!(filter.counts(&list()), [0, 1, 1, 0, 0]);
    }

    #[test]
    fn written_states_read_the_same() {
        assert_eq!(write_states(&[]), None);
        assert_eq!(read_states("never,failed,hung"), [RunState::Hung, RunState::Failed]);
        let all = write_states(&STATES).unwrap();
        assert_eq!(read_states(&all), STATES);
    }

    #[test]
    fn a_second_toggle_undoes_the_first() {
        assert_eq!(toggled(toggled(vec![1], 2), 1), [2]);
        assert_eq!(toggled(toggled(vec![1], 2), 2), [1]);
    }

    #[test]
    fn choices_are_listed_once_with_their_number_of_runs() {
        assert_eq!(names(&list()), [("bert".into(), 2), ("gpt".into(), 1)]);
        assert_eq!(ranks(&list()), [(4, 2), (8, 1)]);
    }
}
