//! The report as a document: its sentences, figures and tables, in reading order. Terminal, Markdown and HTML render
//! the same document, so they cannot differ in content.

mod account;
mod figures;
mod goodput;
mod groups;
mod html;
mod last_ranks;
mod markdown;
mod tables;
mod terminal;
mod traced;

use analysis::wording;
use wire::live::Part;
use wire::views::{Confidence, MemoryGrowth, Missing, Report, Verdict, VerdictState};

pub use html::html;
pub use markdown::markdown;
pub use terminal::terminal;
use units::nanos;

/// A report in words, before it is rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The name of the run.
    pub name: String,
    /// The id of the run.
    pub run: String,
    /// The scope of the report, in lines.
    pub scope: Vec<String>,
    /// The failure or the hang of the run, or the sentence that nothing stands out. Empty if there is only a verdict.
    pub headlines: Vec<String>,
    /// The verdicts, the one that cost most first.
    pub verdicts: Vec<Statement>,
    /// The faults that are over and that the verdicts do not show whole.
    pub past_faults: Vec<String>,
    /// The notes: effects that cost too little for a verdict.
    pub notes: Vec<Statement>,
    /// The figures and tables.
    pub sections: Vec<Section>,
}

/// A verdict or a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The culprit, the cause and the cost, in a sentence.
    pub sentence: String,
    /// The cause, the confidence, the steps concerned, and the cost in hours of rank or GPU.
    pub details: String,
    /// The evidence, in sentences.
    pub evidence: Vec<String>,
    /// The counter-evidence, in sentences.
    pub counter_evidence: Vec<String>,
    /// What to do first; empty if nothing is advised.
    pub advice: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// Sentences on how to read the section, or on what it is based.
    pub introduction: Vec<String>,
    /// The content.
    pub body: Body,
    /// Whether a terminal shows the section. A terminal has no room for all sections.
    pub brief: bool,
}

/// The content of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Names with their values.
    Figures(Vec<(String, String)>),
    Table(Table),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The names of the columns. The first column names the rows.
    pub head: Vec<String>,
    /// The rows, with one cell per column.
    pub rows: Vec<Vec<Cell>>,
    /// Whether a terminal, which is narrow, shows the first few rows as columns.
    pub sideways: bool,
    /// The number of rows that are left out.
    pub left_out: usize,
    /// The rows as bars: name and parts in nanoseconds, in the order of [`wire::live::Part`].
    pub bars: Vec<(String, [f64; Part::COUNT])>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Text, with its unit.
    Text(String),
    /// The distributions of waits and transfers: counts in bins of a quarter octave.
    Histogram(wire::views::LatencyHistogram),
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

#[must_use]
pub fn document(report: &Report) -> Document {
    let state = report.state.name();
    let statements = |list: &[Verdict]| list.iter().map(|verdict| statement(report, verdict)).collect();
    let mut scope = vec![format!("{}, {state}", units::ranks(report.ranks))];
    if let Some((first, last)) = report.step_range {
        scope.push(match report.steps {
            1 => format!("1 observed step, {first}"),
            steps => format!("{steps} observed steps, {first} to {last}"),
        });
    }
    Document {
        name: report.name.clone(),
        run: report.run.to_string(),
        scope,
        headlines: headlines(report),
        verdicts: statements(&report.verdicts),
        past_faults: report.past_faults.iter().map(wording::past_fault).collect(),
        notes: memory_notes(report).chain(report.notes.iter().map(|note| statement(report, note))).collect(),
        sections: [
            account::account(report),
            Some(figures::section(report)),
            tables::what_if(report),
            tables::losses(report),
            last_ranks::last_ranks(report),
            goodput::uses(report),
            goodput::attempts(report),
            tables::ledger(report),
            tables::buckets(report),
            groups::groups(report),
            traced::traced(report),
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

/// Returns the memory that grows, with what to do. What is urgent is a headline instead.
fn memory_notes(report: &Report) -> impl Iterator<Item = Statement> {
    let is_calm = |growth: &&MemoryGrowth| !growth.is_urgent;
    report.memory.iter().filter(is_calm).map(|growth| Statement {
        sentence: growth.sentence.clone(),
        details: "costs nothing until it is full".into(),
        evidence: Vec::new(),
        counter_evidence: Vec::new(),
        advice: growth.advice.clone(),
    })
}

fn headlines(report: &Report) -> Vec<String> {
    let failure = report.failure.iter().map(|failure| failure.sentence.clone());
    let hang = report.hang.iter().map(|hang| hang.sentence.clone());
    let mut headlines: Vec<String> = failure.chain(hang).collect();
    if report.verdicts.is_empty() && headlines.is_empty() {
        let none =
            if report.spent.is_empty() { "No rank, phase or bucket stands out." } else { &report.spent };
        headlines.push(report.verdicts_missing.as_ref().map_or(none.to_owned(), Missing::to_string));
    }
    let urgent = report.memory.iter().filter(|growth| growth.is_urgent);
    headlines.extend(urgent.map(|growth| format!("Warning: {} {}", growth.sentence, growth.advice)));
    headlines
}

fn statement(report: &Report, verdict: &Verdict) -> Statement {
    let has_ended = report.state.has_ended();
    let sure = match verdict.confidence {
        Confidence::High => "high confidence",
        Confidence::Medium => "medium confidence",
    };
    let mut details = format!("cause {}, {sure}", verdict.cause.name());
    let (first, last) = (units::count(verdict.steps.0), units::count(verdict.steps.1));
    details.push_str(&match verdict.state {
        _ if verdict.cause.is_outside_steps() => ", outside of steps".into(),
        VerdictState::Active if has_ended => format!(", from step {first} until the run ended"),
        VerdictState::Active => format!(", active since step {first}"),
        VerdictState::Recurring => {
            format!(", recurring: in {} steps from {first} to {last}", verdict.affected_steps)
        }
        VerdictState::Resolved => {
            format!(", resolved: in {} steps from {first} to {last}", verdict.affected_steps)
        }
    });
    details.push_str(&match verdict.device_hours_per_day {
        Some(hours) if !has_ended => {
            format!("; {hours:.1} {} per day while it lasts", report.computed_on.hours())
        }
        _ => format!("; {} lost in total", nanos(verdict.lost_nanos() as f64)),
    });
    Statement {
        sentence: verdict.sentence.clone(),
        details,
        evidence: verdict.evidence.clone(),
        counter_evidence: verdict.counter_evidence.clone(),
        advice: verdict.advice.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
