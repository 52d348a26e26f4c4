//! The judgment of one run.

use serde_json::{Value, json};
use wire::views::{Culprit, Report, Verdict};

use crate::cases::Class;

/// The kind of a run. Each kind has separate figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A training job whose ranks have their own cores.
    Real,
    /// A training job with more ranks than cores.
    Shared,
    /// A healthy job whose ranks stay on the cores that the job binds them to.
    Plain,
    Simulated,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Real, Self::Shared, Self::Plain, Self::Simulated];

    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Shared => "shared",
            Self::Plain => "plain",
            Self::Simulated => "simulated",
        }
    }
}

/// The planted fault, its true cost, and the verdict.
pub struct Outcome {
    pub kind: Kind,
    pub job: String,
    pub ranks: usize,
    /// The planted fault; `None` in a healthy run.
    pub planted: Option<Planted>,
    pub found: Found,
    /// The load of the machine before a real run.
    pub load: String,
}

pub struct Planted {
    pub class: Class,
    pub slow: Vec<u32>,
    /// The extra time in each bad step, in milliseconds.
    pub millis: f64,
    pub bad_share: f64,
    pub bad: (u64, u64),
    /// The true cost per step in milliseconds, averaged over all steps.
    pub cost_millis: f64,
    /// The standard error of the cost; 0 in a simulation.
    pub standard_error: f64,
    /// The cost as a share of the healthy step.
    pub share: f64,
    /// The number of runs that measured the true cost; 0 in a simulation.
    pub measured: u32,
}

/// The findings of the report.
pub struct Found {
    /// The worst verdict on a rank.
    pub verdict: Option<Verdict>,
    /// Whether that verdict is the first of all verdicts, including those on all ranks.
    pub is_first: bool,
    /// The sentences of notes, which are effects of a rank that cost little.
    pub notes: Vec<String>,
    /// The cost in milliseconds per step, spread over all observed steps.
    pub cost_millis: Option<f64>,
    pub step_millis: f64,
    pub simulation_error: Option<f64>,
}

impl Found {
    pub fn from_report(report: &Report) -> Self {
        let against_rank =
            |verdict: &&Verdict| verdict.culprit.as_ref().is_some_and(|culprit| !culprit.ranks().is_empty());
        let verdict = report.verdicts.iter().find(against_rank).cloned();
        let spread = |verdict: &Verdict| verdict.lost_nanos() as f64 / 1e6 / report.steps.max(1) as f64;
        Self {
            cost_millis: verdict.as_ref().map(spread),
            notes: report.notes.iter().filter(against_rank).map(|note| note.sentence.clone()).collect(),
            is_first: verdict.is_some() && verdict.as_ref() == report.verdicts.first(),
            verdict,
            step_millis: report.local_step_time_nanos.known().map_or(f64::NAN, |spread| spread.mean / 1e6),
            simulation_error: report.what_if.known().map(|what_if| what_if.simulation_error),
        }
    }
}

pub fn head() -> String {
    format!(
        "{:9} {:12} {:>5}  {:8} {:>6} {:>8} {:>9} {:>9}  {:22} {:>9} {:>7}",
        "", "job", "ranks", "fault", "rank", "size", "steps", "true cost", "named", "cost", "error"
    )
}

impl Outcome {
    /// Returns whether the first verdict on a rank names the planted rank. Verdicts on all ranks may come before it.
    pub fn right_rank(&self) -> Option<bool> {
        let planted = self.planted.as_ref()?;
        let named = self.found.verdict.as_ref().and_then(|verdict| verdict.culprit.as_ref());
        Some(named.map(Culprit::ranks) == Some(planted.slow.as_slice()))
    }

    pub fn right_cause(&self) -> Option<bool> {
        let planted = self.planted.as_ref()?;
        let cause = self.found.verdict.as_ref().map(|verdict| verdict.cause.name());
        Some(self.right_rank()? && cause == Some(planted.class.cause()))
    }

    /// Returns the relative error of the cost: (found - true) / true.
    pub fn cost_error(&self) -> Option<f64> {
        Some(self.found.cost_millis? / self.planted.as_ref()?.cost_millis - 1.0)
    }

    pub fn false_alarm(&self) -> Option<bool> {
        self.planted.is_none().then(|| self.found.verdict.is_some())
    }

    /// Returns true if the fault costs at least 5 % of the step. Smaller faults are shown but not scored.
    pub fn counts(&self) -> bool {
        self.planted.as_ref().is_some_and(|planted| planted.share >= 0.05)
    }

    pub fn line(&self) -> String {
        let kind = self.kind.name();
        let named = self.found.verdict.as_ref().map_or_else(
            || "no rank".into(),
            |verdict| {
                let ranks = verdict.culprit.as_ref().map_or(&[][..], Culprit::ranks);
                format!("{} {}", list(ranks), verdict.cause.name())
            },
        );
        let Some(planted) = &self.planted else {
            let notes = match self.found.notes.len() {
                0 => String::new(),
                notes => format!(", {notes} notes"),
            };
            return format!("{kind:9} {:12} {:>5}  {:44}  {named}{notes}", self.job, self.ranks, "healthy");
        };
        let cost = self.found.cost_millis.unwrap_or(f64::NAN);
        let error = self.cost_error().map_or_else(|| "-".into(), |error| format!("{:+.0} %", error * 100.0));
        let wrong = match (self.right_rank(), self.right_cause()) {
            (Some(false), _) => "  WRONG RANK",
            (_, Some(false)) => "  WRONG CAUSE",
            _ => "",
        };
        format!(
            "{kind:9} {:12} {:>5}  {:8} {:>6} {:>5.1} ms {:>9} {:>6.1} ms  {named:22} {cost:>6.1} ms {error:>7}{wrong}",
            self.job,
            self.ranks,
            planted.class.phase(),
            list(&planted.slow),
            planted.millis,
            format!("{}-{}", planted.bad.0, planted.bad.1),
            planted.cost_millis,
        )
    }

    pub fn to_json(&self) -> Value {
        let planted = self.planted.as_ref().map(|planted| {
            json!({
                "class": planted.class.phase(), "ranks": planted.slow, "ms_per_bad_step": planted.millis,
                "bad_steps": [planted.bad.0, planted.bad.1], "bad_share": planted.bad_share,
                "cost_ms_per_step": planted.cost_millis, "standard_error_ms": planted.standard_error,
                "share_of_step": planted.share, "runs_measured": planted.measured,
            })
        });
        json!({
            "kind": self.kind.name(), "job": self.job, "ranks": self.ranks,
            "load_before": self.load, "planted": planted, "verdict": self.found.verdict,
            "notes": self.found.notes, "is_first": self.found.is_first, "right_rank": self.right_rank(),
            "right_cause": self.right_cause(), "cost_error": self.cost_error(),
            "false_alarm": self.false_alarm(), "step_ms": self.found.step_millis,
            "simulation_error": self.found.simulation_error,
        })
    }
}

fn list(ranks: &[u32]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
}
