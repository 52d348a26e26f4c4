//! The command list: what can be found by typing, and in which order.

use wire::views::{Report, RunSummary};

use crate::route::Tab;

/// The largest number of commands shown.
pub const MOST: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Opens this address.
    Go(String),
    /// Acts on the page.
    Act(Action),
}

/// An action on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Follows the newest steps.
    Follow,
    /// Shows all steps.
    ShowAll,
    /// Pauses the page, or resumes it.
    Pause,
    /// Switches between light and dark.
    Theme,
    /// Opens the list of keys.
    Keys,
    /// Copies the address.
    CopyLink,
    /// Asks for permission to notify of verdicts.
    Notify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its name, which is searched.
    pub name: String,
    /// Its kind: `view`, `rank`, `run`, ...
    pub kind: &'static str,
    /// What it does.
    pub target: Target,
}

impl Command {
    fn go(kind: &'static str, name: String, url: String) -> Self {
        Self { name, kind, target: Target::Go(url) }
    }

    fn act(name: &str, action: Action) -> Self {
        Self { name: name.into(), kind: "action", target: Target::Act(action) }
    }
}

/// Returns the commands for what the user typed: those that match it, best first, at most [`MOST`].
#[must_use]
pub fn find(typed: &str, run: Option<(&str, Option<&Report>)>, runs: &[RunSummary]) -> Vec<Command> {
    let mut all = Vec::new();
    if let Some((id, report)) = run {
        all.extend(numbered(typed, id, report));
        all.extend(Tab::ALL.map(|tab| Command::go("view", tab.name().into(), tab.path(id))));
        all.extend(hosts(id, report));
    }
    all.extend(actions(run.is_some()));
    all.push(Command::go("view", "All runs".into(), "/".into()));
    all.push(Command::go("view", "Compare two runs".into(), "/compare".into()));
    let plan = run.map_or_else(|| "/plan".into(), |(id, _)| format!("/plan?run={id}"));
    all.push(Command::go("view", "Training plan".into(), plan));
    all.extend(runs.iter().map(|summary| {
        let id = summary.run.as_str();
        let name = if summary.name == id { id.to_owned() } else { format!("{} · {id}", summary.name) };
        Command::go("run", name, Tab::Overview.path(id))
    }));
    let mut ranked: Vec<(u32, Command)> =
        all.into_iter().filter_map(|command| Some((score(typed, &command.name)?, command))).collect();
    ranked.sort_by_key(|(score, _)| *score);
    ranked.into_iter().take(MOST).map(|(_, command)| command).collect()
}

fn actions(in_run: bool) -> Vec<Command> {
    let mut actions = vec![
        Command::act("Copy link to this page", Action::CopyLink),
        Command::act("Pause or resume", Action::Pause),
        Command::act("Light or dark", Action::Theme),
        Command::act("Keys", Action::Keys),
        Command::act("Notify me of verdicts", Action::Notify),
    ];
    if in_run {
        actions.push(Command::act("Follow the newest steps", Action::Follow));
        actions.push(Command::act("Show all steps", Action::ShowAll));
    }
    actions
}

/// Returns the rank, the step and the bucket with the number that was typed.
fn numbered(typed: &str, run: &str, report: Option<&Report>) -> Vec<Command> {
    let digits: String = typed.chars().filter(char::is_ascii_digit).collect();
    let Ok(number) = digits.parse::<u64>() else { return Vec::new() };
    let ranks = report.map_or(0, |report| u64::from(report.ranks));
    let has_bucket =
        report.is_some_and(|report| report.buckets.iter().any(|bucket| u64::from(bucket.bucket.0) == number));
    let mut found = Vec::new();
    if number < ranks {
        let url = format!("{}?rank={number}", Tab::Ranks.path(run));
        found.push(Command::go("rank", format!("Rank {number}"), url));
    }
    let buckets = Tab::Buckets.path(run);
    found.push(Command::go("step", format!("Step {number}"), format!("{buckets}?step={number}")));
    if has_bucket {
        found.push(Command::go("bucket", format!("Bucket {number}"), format!("{buckets}?bucket={number}")));
    }
    found
}

fn hosts(run: &str, report: Option<&Report>) -> Vec<Command> {
    let hosts = report.map(|report| report.hosts.as_slice()).unwrap_or_default();
    let command = |host: &wire::views::HostRanks| {
        let url = format!("{}?order=host&rank={}", Tab::Ranks.path(run), host.ranks.0);
        Command::go("host", format!("Host {}", host.host), url)
    };
    hosts.iter().map(command).collect()
}

/// Returns how well a name matches, smaller for better; `None` if it does not match.
fn score(typed: &str, name: &str) -> Option<u32> {
    let (typed, name) = (typed.trim().to_lowercase(), name.to_lowercase());
    if typed.is_empty() || name == typed {
        return Some(0);
    }
    if name.starts_with(&typed) {
        return Some(1);
    }
    if name.split(|c: char| !c.is_alphanumeric()).any(|word| word.starts_with(&typed)) {
        return Some(2);
    }
    name.contains(&typed).then_some(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(typed: &str, run: bool) -> Vec<String> {
        let found = find(typed, run.then_some(("r", None)), &[]);
        found.into_iter().map(|command| command.name).collect()
    }

    #[test]
    fn words_find_views_and_actions() {
        assert_eq!(names("heal", true), ["Health"]);
        assert_eq!(names("NEWEST", true), ["Follow the newest steps"]);
        assert_eq!(names("newest", false), [""; 0]);
        assert_eq!(names("", true).len(), MOST);
    }

    #[test]
    fn a_number_finds_the_step() {
        assert_eq!(names("step 120", true), ["Step 120"]);
        assert_eq!(names("120", true), ["Step 120"]);
        assert_eq!(names("120", false), [""; 0]);
    }

    #[test]
    fn the_beginning_of_a_name_comes_before_its_middle() {
        let scores = ["Ranks", "All ranks", "Cranks", "Health"].map(|name| score("rank", name));
        assert_eq!(scores, [Some(1), Some(2), Some(3), None]);
    }
}
