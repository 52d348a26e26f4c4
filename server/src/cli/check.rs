//! `paceline check`, a regression gate for CI.

mod limit;

use std::process::ExitCode;

use analysis::compare::{compare, difference};
use clap::Args;
use wire::views::Report;

use super::{DataArgument, print, source};
use crate::export::comparison::{signed, value};
use crate::store::directory::Layout;
use limit::{Limit, Limited};

/// The arguments of `paceline check`.
#[derive(Debug, Args)]
#[command(
    after_help = "A limit is relative to the baseline (+3%, -2%, +5ms; for shares +2pt) or absolute (60ms, 850us, \
    0.7).\n\
    Exit code: 0 if all limits hold, 1 if a limit does not hold, 2 if the check cannot be made.\n\n\
    Example: paceline check latest --against baseline.json --max-step-time +3% --max-exposed +5%"
)]
pub(super) struct CheckArguments {
    /// Run to check: an id, `latest`, or the .json file of a report
    #[arg(default_value = "latest")]
    run: String,
    /// Baseline: a run id, or a file that `paceline report --format json` wrote
    #[arg(long, value_name = "BASELINE")]
    against: String,
    #[command(flatten)]
    data: DataArgument,
    /// Largest median step time
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    max_step_time: Option<Limit>,
    /// Largest 99th percentile of step time
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    max_step_time_p99: Option<Limit>,
    /// Largest sum of exposed wait and exposed transfer, mean per step
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    max_exposed: Option<Limit>,
    /// Largest input time (input and h2d), mean per step
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    max_input: Option<Limit>,
    /// Largest tail: the time from the end of backward to the end of the last collective
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    max_tail: Option<Limit>,
    /// Largest communication fraction
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    max_communication_fraction: Option<Limit>,
    /// Smallest throughput
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    min_throughput: Option<Limit>,
    /// Smallest overlap
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    min_overlap: Option<Limit>,
    /// Smallest implied efficiency
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    min_efficiency: Option<Limit>,
    /// Smallest model FLOPs utilization (MFU)
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    min_mfu: Option<Limit>,
    /// Smallest goodput: the share of the wall time of all ranks that is steps that advance the job
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    min_goodput: Option<Limit>,
    /// Fail on a verdict, or a growth of memory, that the baseline does not have
    #[arg(long)]
    no_new_verdicts: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The exit code if the check cannot be made, for instance because the baseline cannot be read.
const CANNOT_TELL: u8 = 2;

pub(super) fn run(arguments: &CheckArguments, notable_share: f64) -> anyhow::Result<ExitCode> {
    match check(arguments, notable_share) {
        Ok(checks) => {
            let holds = checks.iter().all(|check| check.holds);
            print(&if arguments.json { json(&checks)? } else { table(arguments, &checks) })?;
            Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            super::complain(&format!("{error:#}"));
            Ok(ExitCode::from(CANNOT_TELL))
        }
    }
}

/// A limit and its outcome.
#[derive(serde::Serialize)]
struct Check {
    name: &'static str,
    baseline: String,
    found: String,
    difference: String,
    limit: String,
    holds: bool,
    /// What was found, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sentences: Vec<String>,
}

fn check(arguments: &CheckArguments, notable_share: f64) -> anyhow::Result<Vec<Check>> {
    let layout = Layout::new(arguments.data.path());
    let baseline = source::report(&layout, &arguments.against, notable_share)?;
    let report = source::report(&layout, &arguments.run, notable_share)?;
    let comparison = compare(&baseline, &report);
    let limits = [
        (Limited::StepTime, arguments.max_step_time),
        (Limited::StepTimeP99, arguments.max_step_time_p99),
        (Limited::Exposed, arguments.max_exposed),
        (Limited::Input, arguments.max_input),
        (Limited::Tail, arguments.max_tail),
        (Limited::CommunicationFraction, arguments.max_communication_fraction),
        (Limited::Throughput, arguments.min_throughput),
        (Limited::Overlap, arguments.min_overlap),
        (Limited::Efficiency, arguments.min_efficiency),
        (Limited::Mfu, arguments.min_mfu),
        (Limited::Goodput, arguments.min_goodput),
    ];
    let asked = limits.into_iter().filter_map(|(figure, limit)| Some((figure, limit?)));
    let mut checks = asked
        .map(|(figure, limit)| checked(figure, limit, &baseline, &report))
        .collect::<anyhow::Result<Vec<Check>>>()?;
    if arguments.no_new_verdicts {
        checks.push(none_of("new verdicts", comparison.verdicts_new));
        checks.push(none_of("new growth of memory", comparison.memory_new));
    }
    anyhow::ensure!(
        !checks.is_empty(),
        "no limit is given, so nothing can fail: give at least one, such as --max-step-time +3%"
    );
    Ok(checks)
}

fn checked(figure: Limited, limit: Limit, baseline: &Report, report: &Report) -> anyhow::Result<Check> {
    let known = |report: &Report| {
        figure.value(report).map_err(|reason| {
            anyhow::anyhow!("{} of run {} is not known: {reason}", figure.name(), report.run)
        })
    };
    let (baseline_value, found) = (known(baseline)?, known(report)?);
    let bound = limit.bound(baseline_value, figure)?;
    let holds = if figure.is_maximum() { found <= bound } else { found >= bound };
    let unit = figure.unit();
    let difference = difference(unit, baseline_value, found);
    Ok(Check {
        name: figure.name(),
        baseline: value(Some(baseline_value), unit),
        found: value(Some(found), unit),
        difference: difference.map_or_else(|| "-".into(), |difference| signed(difference, unit)),
        limit: format!(
            "{} {}",
            if figure.is_maximum() { "at most" } else { "at least" },
            value(Some(bound), unit)
        ),
        holds,
        sentences: Vec::new(),
    })
}

/// Returns the check that nothing is new. The sentences say what is.
fn none_of(name: &'static str, sentences: Vec<String>) -> Check {
    Check {
        name,
        baseline: "-".into(),
        found: sentences.len().to_string(),
        difference: "-".into(),
        limit: "none".into(),
        holds: sentences.is_empty(),
        sentences,
    }
}

fn table(arguments: &CheckArguments, checks: &[Check]) -> String {
    let mut out =
        format!("{:24}{:>14}{:>14}{:>14}   {:24}\n", "", "baseline", "found", "difference", "limit");
    for check in checks {
        let outcome = if check.holds { "ok" } else { "FAILED" };
        out += &format!(
            "{:24}{:>14}{:>14}{:>14}   {:24}{outcome}\n",
            check.name, check.baseline, check.found, check.difference, check.limit
        );
        for sentence in &check.sentences {
            out += &format!("  {sentence}\n");
        }
    }
    let failed = checks.iter().filter(|check| !check.holds).count();
    let summary = if failed == 0 {
        "All limits hold".into()
    } else {
        format!("{failed} of {} limits do not hold", checks.len())
    };
    out + &format!("\n{summary}: {} against {}.\n", arguments.run, arguments.against)
}

fn json(checks: &[Check]) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(checks)? + "\n")
}
