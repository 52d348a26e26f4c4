//! The time from a gradient of a real job to the frame that shows its step.

use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::browser::Browser;
use testkit::programs::{Job, Server};
use wire::live::{StepColumns, Waterfall};

use crate::{joined, spread};

/// The number of ranks of the job. One rank leaves a core to browser and server on a machine with two cores.
const RANKS: &str = "1";
/// The duration of the measurement.
const WATCHED: Duration = Duration::from_secs(60);
/// The goal for 99 of 100 steps.
pub const GOAL_MILLIS: f64 = 250.0;

/// Records the step that the page shows, in the first task after the frame that drew it. The text changes in the same
/// frame as the charts, because both follow one signal that the page sets once per animation frame.
pub const WATCH: &str = "window.seen = [];
    const element = document.querySelector('[data-testid=last-step]');
    const after = new MessageChannel();
    after.port1.onmessage = event => window.seen.push([event.data, performance.timeOrigin + performance.now()]);
    new MutationObserver(() => after.port2.postMessage(Number(element.innerText.replace(/[^0-9]/g, ''))))
        .observe(element, { childList: true, characterData: true, subtree: true });";

/// Measures the latency. Returns one line per kind of time.
pub fn measure(browser: &Browser) -> anyhow::Result<Vec<Value>> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let _job = Job::start(&[
        "-n",
        RANKS,
        "--name",
        "latency",
        "--server",
        &server.address,
        "--",
        "char_lm",
        "--steps",
        "1000000",
    ])?;
    browser.open(&server.address)?;
    browser.wait("a run", "return document.querySelector('[data-testid=runs-table] .name a') !== null")?;
    browser.click("[data-testid=runs-table] .name a")?;
    browser
        .wait("steps", "return Number(document.querySelector('[data-testid=last-step]')?.innerText) > 20")?;
    browser.run(WATCH)?;
    std::thread::sleep(WATCHED);
    let seen = seen(browser)?;
    let path = browser.run("return location.pathname")?;
    let run = path.as_str().and_then(|path| path.rsplit('/').next()).context("the page has no path")?;
    ensure!(seen.len() > 100, "only {} steps were seen", seen.len());
    lines(&server, run, &seen)
}

/// Returns what [`WATCH`] has recorded: each shown step, and when it was drawn, in milliseconds since the Unix epoch.
pub fn seen(browser: &Browser) -> anyhow::Result<Vec<(u64, f64)>> {
    let seen = browser.run("return window.seen")?;
    let seen = seen.as_array().context("the page recorded no list")?;
    Ok(seen.iter().filter_map(|pair| Some((pair[0].as_u64()?, pair[1].as_f64()?))).collect())
}

fn lines(server: &Server, run: &str, seen: &[(u64, f64)]) -> anyhow::Result<Vec<Value>> {
    let url = |path: &str| format!("{}/api/v1/runs/{run}/{path}", server.address);
    let steps = StepColumns::decode(&get(&url("steps"))?)?;
    // The step that was shown at the beginning was drawn earlier.
    let first = seen[0].0 + 1;
    let (mut step_end, mut reduced, mut gradients) = (Vec::new(), Vec::new(), Vec::new());
    for (step, ended) in steps.step.iter().zip(&steps.ended_unix_nanos) {
        let Some(&(_, drawn)) = seen.iter().find(|(shown, _)| shown >= step).filter(|_| *step >= first)
        else {
            continue;
        };
        step_end.push(drawn - *ended as f64 / 1e6);
        let Ok(bytes) = get(&url(&format!("steps/{step}/waterfall"))) else { continue };
        let waterfall = Waterfall::decode(&bytes)?;
        let millis = |nanos: f64| drawn - (waterfall.origin_unix_nanos as f64 / 1e6 + nanos / 1e6);
        gradients.extend(waterfall.bucket_ready.iter().map(|ready| millis(*ready)));
        reduced.extend(waterfall.bucket_end.iter().copied().reduce(f64::max).map(millis));
    }
    let line = |origin: &str, values: Vec<f64>| {
        let share_within_goal =
            values.iter().filter(|value| **value < GOAL_MILLIS).count() as f64 / values.len().max(1) as f64;
        let head = json!({ "what": "gradient_to_pixel", "from": origin, "ranks": RANKS, "within_250_ms": share_within_goal });
        joined(head, spread("millis", values))
    };
    Ok(vec![
        line("the end of the step on its last rank", step_end),
        line("the end of the step's last all-reduce", reduced),
        line("each bucket's last gradient (includes the rest of the step)", gradients),
    ])
}

fn get(url: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    ureq::get(url).call()?.body_mut().as_reader().read_to_end(&mut bytes)?;
    Ok(bytes)
}
