//! The report as a document: what is said, in the order it is read. Terminal, Markdown and HTML are renderings of
//! it, so that they cannot say different things.

mod figures;
mod groups;
mod html;
mod markdown;
mod page;
mod tables;
mod terminal;

use wire::views::{ComputedOn, Confidence, Report, Verdict, VerdictState};

pub use html::html;
pub use markdown::markdown;
pub use page::{groups_part, trust_part};
pub use terminal::terminal;
use units::nanos;

/// A report for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The run's name.
    pub name: String,
    /// Its id.
    pub run: String,
    /// What it is a report of, a line each.
    pub about: Vec<String>,
    /// How the run failed, a hang, or that nothing stands out; empty where a verdict says what there is to say.
    pub headlines: Vec<String>,
    /// Those that are there before those that are over, each worst first.
    pub verdicts: Vec<Statement>,
    /// What is true and costs little.
    pub notes: Vec<Statement>,
    /// What they rest on.
    pub sections: Vec<Section>,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Who, what, and the cost.
    pub sentence: String,
    /// Cause, confidence, and the cost on GPUs.
    pub details: String,
    /// What speaks for it.
    pub evidence: Vec<String>,
    /// What speaks against it.
    pub counter_evidence: Vec<String>,
}

/// A part of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// How to read it, or what it rests on; a sentence each.
    pub about: Vec<String>,
    /// What is in it.
    pub body: Body,
    /// Whether a terminal shows it too; it has no room for all.
    pub brief: bool,
}

/// What is in a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Names with their values.
    Figures(Vec<(String, String)>),
    /// Rows and columns.
    Table(Table),
}

/// Rows and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Names of the columns; the first column names the rows.
    pub head: Vec<String>,
    /// As many cells each as there are names.
    pub rows: Vec<Vec<Cell>>,
    /// A terminal shows the first few rows as columns: it is narrow.
    pub sideways: bool,
    /// Rows that are not shown, where there are too many.
    pub left_out: usize,
    /// The same as bars: per row its parts in nanoseconds, by [`wire::live::Part`].
    pub bars: Vec<(String, [f64; 8])>,
}

/// What is in a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Text with its unit.
    Text(String),
    /// Counts in bins of a quarter of an octave, of waits and transfers.
    Histogram(wire::views::LatencyHistogram),
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

/// Puts a report into words.
#[must_use]
pub fn document(report: &Report) -> Document {
    let state = report.state.name();
    let of = |list: &[Verdict]| list.iter().map(|one| statement(one, report.computed_on)).collect();
    let mut about = vec![format!("{} ranks, {state}", report.ranks)];
    if let Some((first, last)) = report.step_range {
        about.push(format!("{} observed steps, {first} to {last}", report.steps));
    }
    Document {
        name: report.name.clone(),
        run: report.run.to_string(),
        about,
        headlines: headlines(report),
        verdicts: of(&report.verdicts),
        notes: of(&report.notes),
        sections: [
            Some(figures::section(report)),
            tables::what_if(report),
            tables::losses(report),
            tables::ledger(report),
            tables::buckets(report),
            groups::groups(report),
            tables::clocks(report),
            tables::drops(report),
            figures::missing(report),
        ]
        .into_iter()
        .flatten()
        .filter(|section| !section.is_empty())
        .collect(),
    }
}

impl Section {
    fn is_empty(&self) -> bool {
        match &self.body {
            Body::Figures(figures) => figures.is_empty(),
            Body::Table(table) => table.rows.is_empty(),
        }
    }
}

fn headlines(report: &Report) -> Vec<String> {
    let failure = report.failure.iter().map(|failure| failure.sentence.clone());
    let hang = report.hang.iter().map(|hang| hang.sentence.clone());
    let mut headlines: Vec<String> = failure.chain(hang).collect();
    if report.verdicts.is_empty() && headlines.is_empty() {
        let none = "No rank, phase or bucket stands out.";
        headlines.push(report.missing.get("verdicts").map_or(none, String::as_str).to_owned());
    }
    headlines
}

fn statement(verdict: &Verdict, computed_on: ComputedOn) -> Statement {
    let sure = match verdict.confidence {
        Confidence::High => "high confidence",
        Confidence::Medium => "medium confidence",
        Confidence::InsufficientEvidence => "insufficient evidence",
    };
    let mut details = format!("cause {}, {sure}", verdict.cause.name());
    let (first, last) = verdict.steps;
    details.push_str(&match verdict.state {
        VerdictState::Active => format!(", active since step {first}"),
        VerdictState::Recurring => {
            format!(", recurring: in {} steps from {first} to {last}", verdict.affected_steps)
        }
        VerdictState::Resolved => {
            format!(", resolved: in {} steps from {first} to {last}", verdict.affected_steps)
        }
    });
    details.push_str(&match verdict.device_hours_per_day {
        Some(hours) => format!("; {hours:.1} {} a day while it lasts", computed_on.hours()),
        None => format!("; {} lost in all", nanos(verdict.lost_ns() as f64)),
    });
    Statement {
        sentence: verdict.sentence.clone(),
        details,
        evidence: verdict.evidence.clone(),
        counter_evidence: verdict.counter_evidence.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
