//! The runs that a list offers, by name.

use wire::ids::RunId;
use wire::views::RunSummary;

/// The runs of one name, for a list from which one is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    pub name: String,
    /// The id of each run and what the list shows, in the order of the list of runs.
    pub runs: Vec<(String, String)>,
}

/// Returns the id of a run and what a list shows.
#[must_use]
pub fn choice(run: &RunId, ranks: u32) -> (String, String) {
    (run.to_string(), format!("{run} · {}", units::ranks(ranks)))
}

/// Groups runs by name, in alphabetical order.
#[must_use]
pub fn choices(runs: &[RunSummary]) -> Vec<Choices> {
    let mut groups: Vec<Choices> = Vec::new();
    for run in runs {
        let choice = choice(&run.run, run.ranks_expected);
        match groups.iter_mut().find(|group| group.name == run.name) {
            Some(group) => group.runs.push(choice),
            None => groups.push(Choices { name: run.name.clone(), runs: vec![choice] }),
        }
    }
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    groups
}

/// Offers the chosen run too if it is in no group, because a link may name a run before the list has loaded.
#[must_use]
pub fn with_chosen(mut groups: Vec<Choices>, chosen: Option<&str>) -> Vec<Choices> {
    let is_offered = |chosen: &str| groups.iter().flat_map(|group| &group.runs).any(|(run, _)| run == chosen);
    if let Some(chosen) = chosen.filter(|chosen| !is_offered(chosen)) {
        let runs = vec![(chosen.to_owned(), chosen.to_owned())];
        groups.insert(0, Choices { name: "from the link".into(), runs });
    }
    groups
}

#[cfg(test)]
mod tests {
    use wire::views::RunState;

    use super::*;
    use crate::runs::order::tests::run;

    #[test]
    fn runs_are_offered_by_name_and_the_chosen_one_is_always_among_them() {
        let runs = [
            run("b-2", "b", RunState::Completed),
            run("a-1", "a", RunState::Running),
            run("b-1", "b", RunState::Failed),
        ];
        let ids = |chosen| -> Vec<(String, Vec<String>)> {
            let listed = |group: Choices| (group.name, group.runs.into_iter().map(|(id, _)| id).collect());
            with_chosen(choices(&runs), chosen).into_iter().map(listed).collect()
        };
        let known =
            [("a".to_owned(), vec!["a-1".to_owned()]), ("b".into(), vec!["b-2".into(), "b-1".into()])];
        assert_eq!(ids(None), known);
        assert_eq!(ids(Some("b-1")), known);
        assert_eq!(ids(Some("gone"))[0], ("from the link".into(), vec!["gone".into()]));
    }
}
