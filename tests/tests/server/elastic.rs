//! An elastic job: it is killed with `kill -9` and continues with fewer ranks, and then with more.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::programs::{Running, Server, gap, get_bytes, get_json, paceline, report, said, wait_until};
use testkit::stored::{one_step, one_step_and_goodbye};
use wire::batch::Batch;
use wire::ids::{Incarnation, RunId};
use wire::live::Waterfall;

use super::goodput::start;

const RUN: &str = "elastic";

/// Kills all ranks of the job.
fn kill(ranks: Vec<Running>) -> anyhow::Result<()> {
    for mut rank in ranks {
        rank.0.kill()?;
        rank.0.wait()?;
    }
    Ok(())
}

fn sum_of_uses(goodput: &Value) -> u64 {
    goodput["uses"].as_object().into_iter().flat_map(|uses| uses.values()).filter_map(Value::as_u64).sum()
}

#[test]
fn a_job_goes_on_with_another_number_of_ranks() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let api = format!("{}/api/v1/runs/{RUN}", server.address);
    let last_step = |last: u64| {
        let has_ended = || (get_json(&api).ok()?["step_range"][1] == last).then_some(());
        wait_until(&format!("step {last}"), has_ended)
    };

    let four = start(&server, RUN, 4, &["0"])?;
    last_step(99)?;
    ensure!(get_json(&api)?["ranks"] == 4);
    // Another job with the same run id is refused while the first one is alive.
    let other = start(&server, RUN, 2, &["0", "40"])?;
    wait_until("a refusal", || {
        let report = get_json(&api).ok()?;
        gap(&report, "refused_batches")?
            .contains("says that run elastic has 2 ranks, but it has 4")
            .then_some(())
    })?;
    kill(other)?;
    kill(four)?;

    let two = start(&server, RUN, 2, &["80"])?;
    wait_until("20 repeated steps on two ranks", || {
        let newest = get_json(&api).ok()?["goodput"]["attempts"][1].clone();
        (newest["ranks"] == 2 && newest["repeated_steps"] == 20).then_some(())
    })?;
    ensure!(get_json(&format!("{api}/summary"))?["ranks_expected"] == 2);
    kill(two)?;

    let mut three = start(&server, RUN, 3, &["100", "150"])?;
    for rank in &mut three {
        ensure!(rank.0.wait()?.success());
    }
    let live = wait_until("the end of the run", || {
        let report = get_json(&api).ok()?;
        (report["state"] == "completed").then_some(report)
    })?;
    // The report covers the steps of the newest attempt, and says which ones it leaves out.
    ensure!(live["ranks"] == 3 && live["steps"].as_u64() > Some(40), "{live:#}");
    let gap = gap(&live, "other_worlds").unwrap_or_default();
    ensure!(gap == "100 steps have another number of ranks than 3, and are left out", "{gap}");
    let attempts = live["goodput"]["attempts"].as_array().cloned().unwrap_or_default();
    let values = |key: &str| attempts.iter().map(|attempt| attempt[key].clone()).collect::<Vec<_>>();
    ensure!(values("ranks") == [4, 2, 3], "{attempts:#?}");
    ensure!(values("steps") == [json!([0, 99]), json!([80, 99]), json!([100, 149])], "{attempts:#?}");
    let wall = live["goodput"]["wall_nanos"].as_u64().unwrap_or_default();
    let sum = sum_of_uses(&live["goodput"]);
    ensure!(2 * wall < sum && sum < 4 * wall, "{:#}", live["goodput"]);

    // Earlier steps have their own ranks.
    let earlier = get_json(&format!("{api}?steps=50..90"))?;
    ensure!(earlier["ranks"] == 4 && earlier["ledger"].as_array().map(Vec::len) == Some(4), "{earlier:#}");
    for (step, ranks) in [(60, 4), (120, 3)] {
        let shown = Waterfall::decode(&get_bytes(&format!("{api}/steps/{step}/waterfall"))?)?;
        ensure!(shown.rank.len() == ranks, "step {step}: {:?}", shown.rank);
    }

    // The files say the same.
    server.kill()?;
    let stored = report(data.path(), RUN)?;
    ensure!(stored["goodput"] == live["goodput"], "{:#}", stored["goodput"]);
    ensure!(stored["ledger"] == live["ledger"], "{:#}", stored["ledger"]);
    let folder = data.path().to_string_lossy();
    let trace = data.path().join("trace.json");
    let path = trace.to_string_lossy();
    let words = ["export", RUN, "--format", "chrome", "--steps", "60..60", "--rank", "3", "-o", &path];
    let output = paceline(&[&words[..], &["--data", &folder]].concat())?;
    ensure!(output.status.success(), "{:?}", said(&output));
    ensure!(std::fs::read_to_string(&trace)?.contains("forward"), "rank 3 is in step 60");
    Ok(())
}

#[test]
fn what_an_earlier_attempt_could_not_send_is_stored_and_told_and_does_not_change_the_next_one()
-> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let run = RunId::new(RUN)?;
    let step =
        |incarnation: u64, seq: u64| Batch { incarnation: Incarnation(incarnation), ..one_step(&run, seq) };
    server.send((0..20).map(|seq| step(1, seq)))?;
    server.send([Batch { incarnation: Incarnation(1), ..one_step_and_goodbye(&run, 20) }])?;
    server.send((30..60).map(|seq| step(2, seq)))?;
    let api = format!("{}/api/v1/runs/{RUN}", server.address);
    let attempts = |report: &Value| report["goodput"]["attempts"].as_array().map(Vec::len);
    // A report is made a moment after a batch was acknowledged.
    let has_steps = |report: &Value, last: u64| report["step_range"][1] == last;
    let before =
        wait_until("the second attempt", || get_json(&api).ok().filter(|report| has_steps(report, 59)))?;
    ensure!(attempts(&before) == Some(2) && before["state"] == "running", "{before:#}");
    // The newer process sends on meanwhile.
    for seq in 0..5 {
        server.send([step(1, 21 + seq), step(2, 60 + seq)])?;
    }
    let report = wait_until("its next steps", || get_json(&api).ok().filter(|report| has_steps(report, 64)))?;
    ensure!(attempts(&report) == Some(2) && report["state"] == "running", "{report:#}");
    let late = gap(&report, "stored_records").context("no line")?.to_owned();
    ensure!(late.starts_with("5 records of steps 21 to 25 arrived after"), "{late}");
    server.kill()?;
    let from_disk = testkit::programs::report(data.path(), RUN)?;
    ensure!(gap(&from_disk, "stored_records") == Some(&late), "{from_disk:#}");
    Ok(())
}
