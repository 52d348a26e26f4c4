//! Tests of measured scaling: the same jobs on one rank and on two, with the same figure everywhere it is shown.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::browser::Browser;
use testkit::programs::{Job, Server, get_json, paceline, report, said, wait_until};

/// Runs char_lm with two sequences per rank. Every 20 steps rank 0 turns slow or healthy, so the mean and the median of
/// the steps differ. Two ranks are slow for longer than one, so the efficiency is well below 100 % on any machine.
fn train(server: &Server, ranks: &str, id: &str, slow_ms: &str) -> anyhow::Result<String> {
    let start = ["-n", ranks, "--name", "scaled", "--server", &server.address, "--"];
    let job = [
        "char_lm",
        "--steps",
        "120",
        "--batch",
        "2",
        "--dim",
        "64",
        "--layers",
        "2",
        "--bucket-cap",
        "0.1",
        "--seed",
        id,
    ];
    let trouble = ["--slow-rank", "0", "--slow-phase", "input", "--slow-ms", slow_ms, "--slow-every", "20"];
    let (code, printed, complaints) = Job::start(&[&start[..], &job, &trouble].concat())?.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    Ok(printed)
}

fn number(value: &Value, path: &str) -> anyhow::Result<f64> {
    value.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path} in {value:#}"))
}

fn is_close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-9 * expected
}

#[test]
fn every_view_shows_the_ratio_of_throughputs_as_measured_efficiency() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    train(&server, "1", "1", "40")?;
    let printed = train(&server, "2", "2", "60")?;
    let runs = wait_until("both runs to complete", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        runs.as_array()?.iter().all(|run| run["state"] == "completed").then_some(runs)
    })?;
    let by_ranks = |ranks: u64| {
        let runs = runs.as_array().into_iter().flatten();
        runs.into_iter().find(|run| run["ranks_expected"] == ranks).context("a run is missing")
    };
    let (single, double) = (by_ranks(1)?, by_ranks(2)?);
    ensure!(
        single["batch"] == double["batch"] && single["batch"] == 128.0,
        "expected 2 sequences of 64 characters: {single} {double}"
    );
    let expected = number(double, "/throughput")? / number(single, "/throughput")? / 2.0;
    let id = double["run"].as_str().context("the run has no id")?;

    let summary = get_json(&format!("{}/api/v1/runs/{id}", server.address))?;
    let measured = number(&summary, "/scaling_efficiency/measured")?;
    ensure!(is_close(measured, expected), "{measured}, but throughputs give {expected}");
    ensure!(summary["baseline"]["run"] == single["run"], "{}", summary["baseline"]);

    let scaling = get_json(&format!("{}/api/v1/runs/{id}/scaling", server.address))?;
    let point = |ranks: u64| {
        let points = scaling["points"].as_array().into_iter().flatten();
        points.into_iter().find(|point| point["ranks"] == ranks).context("a run has no point")
    };
    ensure!(is_close(number(point(2)?, "/measured")?, expected), "{:#}", scaling["points"]);
    ensure!(
        number(point(1)?, "/measured")? == 1.0,
        "the efficiency of the baseline is not 1: {:#}",
        scaling["points"]
    );
    for prediction in scaling["predictions"].as_array().into_iter().flatten() {
        ensure!(number(prediction, "/efficiency")? <= 1.0, "{prediction}");
    }

    let with_baseline =
        |run: &str| get_json(&format!("{}/api/v1/runs/{id}/scaling?baseline={run}", server.address));
    let against_itself = with_baseline(id)?;
    let measured: Vec<f64> = against_itself["points"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|point| point["measured"].as_f64())
        .collect();
    ensure!(
        measured.len() == 2 && is_close(measured[0], 1.0 / expected) && measured[1] == 1.0,
        "{measured:?}"
    );
    let refused = with_baseline("no-such-run").unwrap_err().to_string();
    ensure!(refused.contains("404"), "{refused}");

    let percent = units::percent(expected);
    ensure!(printed.contains(&format!("measured eff.     {percent}")), "{percent}: {printed}");
    let from_disk = report(data.path(), id)?;
    ensure!(is_close(number(&from_disk, "/scaling_efficiency/measured")?, expected), "{from_disk:#}");
    let data_path = data.path().to_string_lossy();
    let baseline = single["run"].as_str().context("the run has no id")?;
    let (compared, _) = said(&paceline(&["compare", baseline, id, "--data", &data_path])?);
    let row = compared.lines().find(|line| line.contains("efficiency, measured")).unwrap_or_default();
    ensure!(row.contains(&percent), "{percent}: {compared}");

    let Some(browser) = Browser::start()? else { return Ok(()) };
    browser.open(&format!("{}/runs/{id}/scaling", server.address))?;
    let cell = "return [...document.querySelectorAll('[data-testid=scaling-runs] tr.chosen td')].map(td => td.innerText)";
    browser.wait(
        "the table of runs",
        "return document.querySelector('[data-testid=scaling-runs] tr.chosen') !== null",
    )?;
    let cells = browser.run(cell)?;
    ensure!(
        cells.as_array().is_some_and(|cells| cells.iter().any(|cell| *cell == percent)),
        "{percent}: {cells}"
    );
    chooses_a_baseline(&browser, id, &percent)?;
    asks_what_if(&browser, &server.address, id, &data_path)
}

/// With `--strong`, the ranks share the batch. The efficiency is the ratio of the throughputs per rank here as well.
#[test]
fn a_run_with_the_same_total_batch_is_measured_as_strong_scaling() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let path = data.path().to_string_lossy();
    let train = |ranks: &str| -> anyhow::Result<String> {
        let start = ["-n", ranks, "--name", "strong", "--data", &path, "--"];
        let job = ["char_lm", "--strong", "--batch", "8", "--steps", "100", "--dim", "64", "--layers", "2"];
        let (code, printed, complaints) = Job::start(&[&start[..], &job].concat())?.finish()?;
        ensure!(code == 0, "{printed}{complaints}");
        Ok(printed)
    };
    train("1")?;
    let single = report(data.path(), "latest")?;
    let printed = train("2")?;
    let double = report(data.path(), "latest")?;
    ensure!(number(&single, "/batch")? == 2.0 * number(&double, "/batch")?, "{single:#} {double:#}");
    let expected = number(&double, "/throughput")? / number(&single, "/throughput")? / 2.0;
    let measured = number(&double, "/scaling_efficiency/measured")?;
    ensure!(is_close(measured, expected) && double["baseline"]["rule"] == "strong", "{double:#}");
    ensure!(printed.contains("(strong scaling: throughput per rank against"), "{printed}");
    Ok(())
}

/// Moves a slider of the what-if panel. The page, the request and the command line have one answer, which a reload keeps.
fn asks_what_if(browser: &Browser, server: &str, id: &str, data: &str) -> anyhow::Result<()> {
    let what_if = |query: &str| get_json(&format!("{server}/api/v1/runs/{id}/what-if?{query}"));
    let usual = what_if("")?;
    ensure!(number(&usual, "/step_nanos/value")? == number(&usual, "/now_nanos")?, "{usual:#}");
    // Transfers of some KiB over loopback may take as long whatever their size, or else have no latency: one of both is left.
    let slowest = what_if("bandwidth=0.25&latency=4")?;
    ensure!(number(&slowest, "/step_nanos/value")? > number(&usual, "/now_nanos")?, "{slowest:#}");
    let slower = what_if("bandwidth=0.25")?;
    ensure!(number(&slower, "/step_nanos/value")? >= number(&usual, "/now_nanos")?, "{slower:#}");
    let [low, high] = ["low", "high"].map(|end| number(&slower, &format!("/step_nanos/{end}")));
    ensure!(low? < number(&slower, "/step_nanos/value")? && number(&slower, "/step_nanos/value")? < high?);
    let refused = what_if("link=2").unwrap_err().to_string();
    ensure!(refused.contains("400"), "{refused}");

    let sentence = slower["sentence"].as_str().context("no sentence")?;
    let (printed, _) = said(&paceline(&["what-if", id, "--bandwidth", "0.25", "--data", data])?);
    ensure!(printed.starts_with(sentence), "{sentence} {printed}");
    let (_, complaint) = said(&paceline(&["what-if", id, "--link", "2", "--data", data])?);
    ensure!(complaint.contains("link is 2: it must be from 0.001 to 1"), "{complaint}");

    const LEFT: &str = "\u{e012}";
    browser.press("[data-testid=if-bandwidth]", &LEFT.repeat(4))?;
    let is_shown = format!(
        "return location.search.includes('if-bandwidth=-4') &&
         document.querySelector('[data-testid=scenario-sentence]')?.textContent === {:?}",
        units::unbroken(sentence)
    );
    browser.wait("the answer", &is_shown)?;
    browser.reload()?;
    browser.wait("the answer after a reload", &is_shown)?;
    Ok(())
}

/// Chooses this run as its own baseline, and sees the choice survive a reload.
fn chooses_a_baseline(browser: &Browser, id: &str, usual: &str) -> anyhow::Result<()> {
    browser.run(&format!(
        "const list = document.querySelector('[data-testid=choose-baseline]'); list.value = '{id}';
         list.dispatchEvent(new Event('change', {{ bubbles: true }}))"
    ))?;
    let is_baseline = format!(
        "return (document.querySelector('[data-testid=scaling-baseline]')?.innerText ?? '').endsWith('baseline {id}')"
    );
    browser.wait("this run as the baseline", &is_baseline)?;
    let row = "return document.querySelector('[data-testid=scaling-runs] tr.chosen').innerText";
    let row_text = browser.run(row)?;
    ensure!(row_text.as_str().is_some_and(|row| row.contains("100 %") && !row.contains(usual)), "{row_text}");
    browser.reload()?;
    browser.wait("the baseline after a reload", &is_baseline)?;
    Ok(())
}
