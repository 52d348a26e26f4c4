//! The order and the groups of the list of runs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use wire::views::{RunState, RunSummary};

use super::filter::attention;
use crate::sort::{Sort, SortKey, sorted};

/// A column by which the list can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The state, in the order of attention.
    State,
    Name,
    Started,
    /// The number of ranks.
    Ranks,
    /// The number of completed steps.
    Steps,
    StepTime,
    /// The step time relative to the best run of the same name.
    ToBest,
    /// Samples per second.
    Throughput,
    Overlap,
    /// The implied scaling efficiency.
    Efficiency,
    /// The cost of the worst verdict.
    Verdict,
}

impl Column {
    /// All columns, left to right.
    pub const ALL: [Self; 11] = [
        Self::State,
        Self::Name,
        Self::Started,
        Self::Ranks,
        Self::Steps,
        Self::StepTime,
        Self::ToBest,
        Self::Throughput,
        Self::Overlap,
        Self::Efficiency,
        Self::Verdict,
    ];

    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::State => "State",
            Self::Name => "Run",
            Self::Started => "Started",
            Self::Ranks => "Ranks",
            Self::Steps => "Steps",
            Self::StepTime => "Step time",
            Self::ToBest => "To best",
            Self::Throughput => "Throughput",
            Self::Overlap => "Overlap",
            Self::Efficiency => "Efficiency",
            Self::Verdict => "Worst verdict",
        }
    }

    /// Returns what the column contains, if its heading does not say all.
    #[must_use]
    pub fn means(self) -> Option<&'static str> {
        match self {
            Self::Ranks => Some("Ranks that report / ranks of the run"),
            Self::StepTime => {
                Some("The line is the step time over the whole run; the number is the newest mean")
            }
            Self::ToBest => {
                Some("Difference to the best step time among the completed and running runs of the same name")
            }
            Self::Efficiency => {
                Some("Implied scaling efficiency: mean over ranks of compute time / mean step time")
            }
            Self::Verdict => {
                Some("Who delays the run, why, and how much shorter the step would be without it")
            }
            _ => None,
        }
    }

    /// Returns the name in the address: `step-time`.
    fn key(self) -> String {
        self.heading().to_ascii_lowercase().replace(' ', "-")
    }

    fn sort_key(self, run: &RunSummary, groups: &Groups) -> SortKey {
        let known = |value: Option<f64>| SortKey::Number(value.unwrap_or(f64::NAN));
        match self {
            Self::State => SortKey::Number(-(attention(run.state) as f64)),
            Self::Name => SortKey::Text(run.name.clone()),
            Self::Started => SortKey::Number(run.started_unix_millis as f64),
            Self::Ranks => SortKey::Number(run.ranks_expected.into()),
            Self::Steps => SortKey::Number(run.steps as f64),
            Self::StepTime => known(run.step_time_nanos.map(|nanos| nanos as f64)),
            Self::ToBest => known(groups.to_best(run)),
            Self::Throughput => known(run.throughput),
            Self::Overlap => known(run.overlap_ratio),
            Self::Efficiency => known(run.efficiency_implied),
            Self::Verdict => known(run.worst.as_ref().map(|worst| worst.cost_share)),
        }
    }
}

/// Parses what [`write_sort`] formats; `None` if it names no column.
#[must_use]
pub fn read_sort(text: &str) -> Option<Sort> {
    let (key, direction) = text.split_once(':')?;
    let column = Column::ALL.iter().position(|column| column.key() == key)?;
    let is_ascending = match direction {
        "asc" => true,
        "desc" => false,
        _ => return None,
    };
    Some(Sort { column, is_ascending })
}

/// Formats an order for the address: `step-time:asc`.
#[must_use]
pub fn write_sort(sort: Sort) -> String {
    let direction = if sort.is_ascending { "asc" } else { "desc" };
    format!("{}:{direction}", Column::ALL[sort.column].key())
}

/// The runs of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    /// The number of runs.
    pub runs: usize,
    /// The best step time among the completed and running runs, in nanoseconds.
    pub best: Option<u64>,
}

/// All runs by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Groups(BTreeMap<String, Group>);

impl Groups {
    /// Groups `runs` by name.
    #[must_use]
    pub fn new(runs: &[RunSummary]) -> Self {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for run in runs {
            let group = groups.entry(run.name.clone()).or_default();
            group.runs += 1;
            // A run that failed or hangs is not a standard, however fast it was.
            if let RunState::Completed | RunState::Running = run.state {
                group.best = group.best.into_iter().chain(run.step_time_nanos).min();
            }
        }
        Self(groups)
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<Group> {
        self.0.get(name).copied()
    }

    /// Returns true if several runs have the same name.
    #[must_use]
    pub fn has_several(&self) -> bool {
        self.0.values().any(|group| group.runs > 1)
    }

    /// Returns the step time of `run` relative to the best of its name: 0 for the best, 0.1 if it is 10 % longer.
    /// Returns `None` if the run is the only one of its name, or if a step time is unknown.
    #[must_use]
    pub fn to_best(&self, run: &RunSummary) -> Option<f64> {
        let group = self.get(&run.name).filter(|group| group.runs > 1)?;
        let (own, best) = (run.step_time_nanos? as f64, group.best? as f64);
        (best > 0.0).then(|| own / best - 1.0)
    }
}

/// Returns true if the list is grouped by name. `choice` is from the address: `name` or `none`. Without a choice, the
/// list is grouped if several runs have the same name.
#[must_use]
pub fn is_grouped(choice: Option<&str>, groups: &Groups) -> bool {
    match choice {
        Some("name") => true,
        Some("none") => false,
        _ => groups.has_several(),
    }
}

/// Returns the indices of the runs for which `shows` returns true, in the order of `sort`. Without an order, hung and
/// failed runs come first, then running and starting ones, then completed ones; the newest first among equals.
#[must_use]
pub fn ordered(
    runs: &[RunSummary],
    shows: impl Fn(&RunSummary) -> bool,
    sort: Option<Sort>,
    groups: &Groups,
) -> Vec<usize> {
    let mut given: Vec<usize> = (0..runs.len()).filter(|&at| shows(&runs[at])).collect();
    given.sort_by_key(|&at| (attention(runs[at].state), Reverse(runs[at].started_unix_millis)));
    let key = |row: usize, column: usize| Column::ALL[column].sort_key(&runs[given[row]], groups);
    sorted(given.len(), sort, key).into_iter().map(|row| given[row]).collect()
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// The heading of the runs of a name.
    Group(String),
    Run {
        id: String,
        /// True if the run is below the heading of its group.
        in_group: bool,
    },
}

/// The lines of the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// The lines, top to bottom.
    pub lines: Vec<Line>,
    /// The number of runs that the filter shows, even those in closed groups and those left out.
    pub runs: usize,
    /// The number of runs that are left out because the list would be long.
    pub left_out: usize,
}

/// Returns the lines for runs in this order, at most `most` runs. A group is as high in the list as its first run. Runs
/// of a name in `closed` are hidden below their heading. A run without others of its name has no heading.
#[must_use]
pub fn lines(ordered: &[&RunSummary], grouped: bool, closed: &[String], most: usize) -> Lines {
    let mut out = Lines { runs: ordered.len(), ..Lines::default() };
    let mut room = most;
    let mut add = |out: &mut Lines, run: &RunSummary, in_group: bool| {
        if room == 0 {
            out.left_out += 1;
        } else {
            room -= 1;
            out.lines.push(Line::Run { id: run.run.to_string(), in_group });
        }
    };
    for members in groups_of(ordered, grouped) {
        let in_group = members.len() > 1;
        let name = &members[0].name;
        if in_group && out.left_out == 0 {
            out.lines.push(Line::Group(name.clone()));
        }
        if !(in_group && closed.contains(name)) {
            members.iter().for_each(|run| add(&mut out, run, in_group));
        }
    }
    out
}

/// Returns the runs by name in the order in which names first occur; each run alone if `grouped` is false.
fn groups_of<'a>(ordered: &[&'a RunSummary], grouped: bool) -> Vec<Vec<&'a RunSummary>> {
    if !grouped {
        return ordered.iter().map(|run| vec![*run]).collect();
    }
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out: Vec<Vec<&RunSummary>> = Vec::new();
    for run in ordered {
        let place = *places.entry(&run.name).or_insert(out.len());
        if place == out.len() {
            out.push(Vec::new());
        }
        out[place].push(run);
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use wire::fixtures;
    use wire::ids::RunId;

    /// Returns a run of 4 ranks.
    pub fn run(id: &str, name: &str, state: RunState) -> RunSummary {
        RunSummary { run: RunId::new(id).unwrap(), name: name.into(), state, ..fixtures::run_summary() }
    }

    fn timed(id: &str, name: &str, state: RunState, started: u64, nanos: u64) -> RunSummary {
        RunSummary { started_unix_millis: started, step_time_nanos: Some(nanos), ..run(id, name, state) }
    }

    fn list() -> Vec<RunSummary> {
        vec![
            timed("e", "gpt", RunState::Completed, 5, 90),
            timed("d", "bert", RunState::Running, 4, 110),
            timed("c", "bert", RunState::Completed, 3, 100),
            timed("b", "bert", RunState::Failed, 2, 80),
            timed("a", "gpt-2", RunState::Hung, 1, 70),
        ]
    }

    fn ids(sort: Option<&str>) -> String {
        let runs = list();
        let sort = sort.map(|text| read_sort(text).unwrap());
        let order = ordered(&runs, |_| true, sort, &Groups::new(&runs));
        order.into_iter().map(|at| runs[at].run.to_string()).collect()
    }

    #[test]
    fn runs_that_need_attention_come_first_and_then_the_newest() {
        assert_eq!(ids(None), "abdec");
    }

    #[test]
    fn every_column_sorts_both_ways() {
        assert_eq!(ids(Some("step-time:asc")), "abecd");
        assert_eq!(ids(Some("started:desc")), "edcba");
        assert_eq!(ids(Some("state:desc")), "abdec");
        // Runs without others of their name have no difference and come last.
        assert_eq!(ids(Some("to-best:asc")), "bcdae");
        assert_eq!(ids(Some("run:asc")), "bdcea");
    }

    #[test]
    fn a_written_order_reads_the_same() {
        for column in 0..Column::ALL.len() {
            for is_ascending in [false, true] {
                let sort = Sort { column, is_ascending };
                assert_eq!(read_sort(&write_sort(sort)), Some(sort));
            }
        }
        assert_eq!(["", "state", "state:up", "nothing:asc"].map(read_sort), [None; 4]);
    }

    #[test]
    fn the_best_of_a_name_is_a_run_that_works() {
        let runs = list();
        let groups = Groups::new(&runs);
        let group = groups.get("bert").unwrap();
        assert_eq!((group.runs, group.best), (3, Some(100)), "the failed run was faster, but failed");
        let to_best = |at: usize| groups.to_best(&runs[at]).map(|share| (share * 100.0).round());
        assert_eq!([0, 1, 2, 3].map(to_best), [None, Some(10.0), Some(0.0), Some(-20.0)]);
    }

    fn shown(grouped: bool, closed: &[&str], most: usize) -> (String, usize) {
        let runs = list();
        let order = ordered(&runs, |_| true, None, &Groups::new(&runs));
        let order: Vec<&RunSummary> = order.into_iter().map(|at| &runs[at]).collect();
        let closed: Vec<String> = closed.iter().map(|name| (*name).to_owned()).collect();
        let found = lines(&order, grouped, &closed, most);
        assert_eq!(found.runs, runs.len());
        let text = found.lines.iter().map(|line| match line {
            Line::Group(name) => format!("[{name}]"),
            Line::Run { id, in_group } => format!("{}{id}", if *in_group { "-" } else { "" }),
        });
        (text.collect::<Vec<_>>().join(" "), found.left_out)
    }

    #[test]
    fn a_group_is_as_high_as_its_first_run() {
        assert_eq!(shown(true, &[], 9), ("a [bert] -b -d -c e".into(), 0));
        assert_eq!(shown(false, &[], 9), ("a b d e c".into(), 0));
    }

    #[test]
    fn closed_groups_keep_their_heading_and_long_lists_are_cut() {
        assert_eq!(shown(true, &["bert", "gpt"], 9), ("a [bert] e".into(), 0));
        assert_eq!(shown(true, &[], 2), ("a [bert] -b".into(), 3));
        assert_eq!(shown(false, &[], 0), (String::new(), 5));
    }

    #[test]
    fn lists_with_repeated_names_are_grouped_unless_the_address_says_otherwise() {
        let (several, single) = (Groups::new(&list()), Groups::new(&list()[..2]));
        assert!(is_grouped(None, &several) && !is_grouped(None, &single));
        assert!(!is_grouped(Some("none"), &several) && is_grouped(Some("name"), &single));
    }
}
