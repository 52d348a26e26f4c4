//! A sweep as a table and as CSV.

use std::fmt::Write as _;

use analysis::sweep::{self, Best, CapRun};

/// Returns a line for each run.
pub(super) fn csv(runs: &[CapRun]) -> String {
    let mut out = String::from(
        "bucket_cap_mib,run,buckets,seconds_per_step,seconds_per_step_p95,samples_per_second,communication_fraction,overlap,exposed_ms_per_step,accuracy\n",
    );
    for run in runs {
        // Writing to a string cannot fail.
        let _infallible = writeln!(
            out,
            "{},{},{},{:.6},{:.6},{},{:.4},{:.4},{:.3},{}",
            run.cap_mib,
            run.run,
            run.buckets,
            run.seconds_per_step,
            run.seconds_p95,
            run.samples_per_second.map_or_else(String::new, |rate| format!("{rate:.3}")),
            run.communication_fraction,
            run.overlap,
            run.exposed_millis,
            run.known_accuracy().map_or_else(String::new, |accuracy| accuracy.to_string())
        );
    }
    out
}

/// Returns the table of the median run of each cap, the sentence that names the best cap, and the accuracies that are unknown.
pub(super) fn table(runs: &[CapRun]) -> String {
    let medians = sweep::medians(runs);
    let mut out = format!(
        "{:>10}{:>10}{:>12}{:>12}{:>14}{:>16}{:>10}{:>12}",
        "cap", "buckets", "s/step", "p95", "samples/s", "communication", "overlap", "exposed"
    );
    let has_accuracy = runs.iter().any(|run| run.known_accuracy().is_some());
    out += if has_accuracy { "    accuracy\n" } else { "\n" };
    for run in &medians {
        out += &format!(
            "{:>6} MiB{:>10}{:>12.4}{:>12.4}{:>14}{:>14.1} %{:>8.1} %{:>9.2} ms",
            run.cap_mib,
            run.buckets,
            run.seconds_per_step,
            run.seconds_p95,
            run.samples_per_second.map_or_else(|| "-".to_owned(), units::significant),
            run.communication_fraction * 100.0,
            run.overlap * 100.0,
            run.exposed_millis
        );
        out += &match (has_accuracy, run.known_accuracy()) {
            (false, _) => "\n".to_owned(),
            (true, None) => format!("{:>12}\n", "-"),
            (true, Some(accuracy)) => format!("{accuracy:>12.4}\n"),
        };
    }
    if let Some(best) = Best::find(&medians) {
        out += &sentences(&best);
    }
    out + &unknown_accuracies(runs)
}

/// Says which cap is best, and which are as good.
fn sentences(found: &Best<'_>) -> String {
    let mut out = format!(
        "\nA cap of {} MiB is best: {:.4} s per step, {:.1} % less than {} MiB, the slowest.\n",
        found.best.cap_mib,
        found.best.seconds_per_step,
        100.0 * found.gain(),
        found.slowest.cap_mib
    );
    if !found.equally_good.is_empty() {
        let caps: Vec<String> = found.equally_good.iter().map(|run| format!("{} MiB", run.cap_mib)).collect();
        out += &format!("Equally good within the scatter of the steps: {}.\n", caps.join(", "));
    }
    out
}

/// Returns a line for each run whose accuracy is unknown although its job states one.
fn unknown_accuracies(runs: &[CapRun]) -> String {
    let unknown = runs.iter().filter_map(|run| Some((run.cap_mib, &run.run, run.accuracy.as_ref().err()?)));
    unknown.map(|(cap, run, reason)| format!("No accuracy of {run} ({cap} MiB): {reason}.\n")).collect()
}
