//! Tests of labels and software versions, from the command line and the environment to reports.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use anyhow::ensure;
use serde_json::{Value, json};
use testkit::programs::{Job, Server, get_json, program, report, wait_until};

/// A job whose rank 1 is in another rack, as a label of its host says. It contradicts the launcher's label of one rank.
const TWO_RACKS: &str = r#"#!/bin/sh
if [ "$RANK" = 1 ]; then export PACELINE_LABELS="$PACELINE_LABELS,rack=b"; fi
exec "$@"
"#;

fn attribute<'a>(report: &'a Value, name: &str) -> Vec<(&'a Value, &'a Value)> {
    let all = report["attributes"].as_array().into_iter().flatten();
    all.filter(|label| label["name"] == name).map(|label| (&label["value"], &label["ranks"])).collect()
}

#[test]
fn a_run_has_the_labels_that_its_ranks_share_and_reports_those_that_differ() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let script = data.path().join("two_racks.sh");
    std::fs::write(&script, TWO_RACKS)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    let (script, char_lm) = (script.to_string_lossy(), program("char_lm"));
    let job = ["--", &script, &char_lm.to_string_lossy(), "--steps", "20"];
    let labels = ["-n", "3", "--label", "team=nlp", "--label", "rack=a", "--server", &server.address];
    let (code, printed, complaints) = Job::start(&[&labels[..], &job].concat())?.finish()?;
    ensure!(code == 0, "{printed}{complaints}");

    let summary = wait_until("the run to complete", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        Some(runs[0].clone()).filter(|run| run["state"] == "completed")
    })?;
    ensure!(summary["labels"] == json!({ "team": "nlp" }), "{summary:#}");
    let id = summary["run"].as_str().unwrap_or_default().to_owned();
    let live = get_json(&format!("{}/api/v1/runs/{id}", server.address))?;
    drop(server);
    // Another process reads the same from disk.
    for report in [live, report(data.path(), &id)?] {
        let racks = attribute(&report, "rack");
        let expected =
            [(json!("a"), json!([0, 0])), (json!("b"), json!([1, 1])), (json!("a"), json!([2, 2]))];
        ensure!(racks.iter().copied().eq(expected.iter().map(|(value, ranks)| (value, ranks))), "{racks:?}");
        let kernel = attribute(&report, "kernel");
        ensure!(kernel.len() == 1 && kernel[0].1 == &json!([0, 2]), "{kernel:?}");
    }
    Ok(())
}

#[test]
fn a_label_without_a_value_is_refused_before_the_job_starts() -> anyhow::Result<()> {
    let refused = |labels: &[&str], variable: &str| -> anyhow::Result<String> {
        let data = tempfile::tempdir()?;
        let mut command = Command::new(program("paceline"));
        command.args(["run", "-n", "1"]).args(labels).arg("--data").arg(data.path());
        command.env("PACELINE_LABELS", variable).args(["--", "sh", "-c", "echo started"]);
        let output = command.output()?;
        ensure!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let said = refused(&["--label", "team"], "")?;
    ensure!(said.contains("\"team\" is not a label: write KEY=VALUE, such as team=nlp"), "{said}");
    let said = refused(&[], "team=nlp,oops")?;
    ensure!(said.contains("PACELINE_LABELS: \"oops\" is not a label"), "{said}");
    Ok(())
}
