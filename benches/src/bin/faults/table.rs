//! All runs in one table, by kind.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cases::Class;
use crate::judge::{Kind, Outcome};

/// The largest relative error of a cost that counts as correct.
const CLOSE: f64 = 0.15;

/// The score of a group of runs.
struct Score {
    faults: usize,
    right_rank: usize,
    right_cause: usize,
    close: usize,
    median_error: f64,
    worst_error: f64,
}

impl Score {
    fn new<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Self {
        let outcomes: Vec<&Outcome> = outcomes.filter(|outcome| outcome.counts()).collect();
        let count =
            |holds: &dyn Fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| holds(outcome)).count();
        let right = outcomes.iter().filter(|outcome| outcome.right_rank() == Some(true));
        let mut errors: Vec<f64> = right.filter_map(|outcome| Some(outcome.cost_error()?.abs())).collect();
        errors.sort_by(f64::total_cmp);
        Self {
            faults: outcomes.len(),
            right_rank: count(&|outcome| outcome.right_rank() == Some(true)),
            right_cause: count(&|outcome| outcome.right_cause() == Some(true)),
            close: errors.iter().filter(|error| **error <= CLOSE).count(),
            median_error: errors.get(errors.len() / 2).copied().unwrap_or(f64::NAN),
            worst_error: errors.last().copied().unwrap_or(f64::NAN),
        }
    }

    fn line(&self, name: &str) -> String {
        format!(
            "{name:22}{:>7}{:>12}{:>13}{:>14}{:>12.1} %{:>11.1} %\n",
            self.faults,
            self.right_rank,
            self.right_cause,
            self.close,
            self.median_error * 100.0,
            self.worst_error * 100.0
        )
    }

    fn to_json(&self) -> Value {
        json!({
            "faults": self.faults, "right_rank": self.right_rank, "right_cause": self.right_cause,
            "cost_within_15_percent": self.close, "median_cost_error": self.median_error,
            "worst_cost_error": self.worst_error,
        })
    }
}

pub fn text(outcomes: &[Outcome]) -> String {
    let mut out = format!(
        "{:22}{:>7}{:>12}{:>13}{:>14}{:>14}{:>13}\n",
        "faults >= 5 % of step",
        "runs",
        "right rank",
        "right cause",
        "cost in 15 %",
        "median error",
        "worst error"
    );
    let has_runs = |kind: &Kind| outcomes.iter().any(|outcome| outcome.kind == *kind);
    for kind in Kind::ALL.into_iter().filter(has_runs) {
        let matching = || outcomes.iter().filter(move |outcome| outcome.kind == kind);
        out += &Score::new(matching()).line(kind.name());
        let jobs: BTreeSet<_> = matching().map(|outcome| (outcome.job.as_str(), outcome.ranks)).collect();
        for (job, ranks) in jobs.into_iter().filter(|_| kind != Kind::Simulated) {
            let job_outcomes =
                matching().filter(|outcome| (outcome.job.as_str(), outcome.ranks) == (job, ranks));
            out += &Score::new(job_outcomes).line(&format!("  {job}, {ranks} ranks"));
        }
        for class in Class::ALL {
            let class_outcomes = matching().filter(move |outcome| {
                outcome.planted.as_ref().is_some_and(|planted| planted.class == class)
            });
            out += &Score::new(class_outcomes).line(&format!("  {}", class.phase()));
        }
        let (alarms, healthy) = alarms(matching());
        let small = matching().filter(|outcome| outcome.planted.is_some() && !outcome.counts()).count();
        out += &format!(
            "  verdicts on a rank in {healthy} healthy runs: {alarms}; smaller faults, not scored: {small}\n"
        );
    }
    out
}

fn alarms<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> (usize, usize) {
    let alarms: Vec<bool> = outcomes.filter_map(Outcome::false_alarm).collect();
    (alarms.iter().filter(|alarm| **alarm).count(), alarms.len())
}

pub fn summary(outcomes: &[Outcome]) -> Value {
    let mut summary = json!({ "kind": "summary" });
    for kind in Kind::ALL {
        let matching = || outcomes.iter().filter(move |outcome| outcome.kind == kind);
        let (alarms, healthy) = alarms(matching());
        let mut score = Score::new(matching()).to_json();
        score["healthy_runs"] = healthy.into();
        score["false_alarms"] = alarms.into();
        summary[kind.name()] = score;
    }
    summary
}
