//! The time from the sending of a step to the frame that shows it, at world sizes that this machine cannot train.
//!
//! The job is simulated: batches have the content of real ones and are sent to a real server over HTTP. What is measured
//! begins when the first batch of the step is sent, so the time that an agent keeps a record (at most 100 ms) comes on top.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use serde_json::{Value, json};
use testkit::browser::Browser;
use testkit::feed::Feed;
use testkit::programs::Server;
use testkit::simulator::{Plan, Simulation};

use crate::latency::{self, GOAL_MILLIS, WATCH};
use crate::{joined, spread};

/// The number of steps that are sent one by one.
const STEPS: u64 = 120;
/// The interval between two steps.
const EVERY: Duration = Duration::from_millis(1_000);
/// The longest wait for the last step.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn measure(browser: &Browser, ranks: usize) -> anyhow::Result<Value> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let earlier = 60;
    let plan = Plan {
        ranks,
        ranks_per_host: 8,
        steps: earlier + STEPS,
        tick: 2_000_000_000,
        singly_from: earlier,
        ..Plan::small(ranks as u64)
    };
    let mut feed = Feed::new(Simulation::run(&plan));
    feed.send_all_but(STEPS as usize, &server.address)?;
    browser.open(&format!("{}/runs/{}", server.address, feed.run))?;
    let shown =
        "return Number(document.querySelector('[data-testid=last-step]')?.innerText.replace(/[^0-9]/g, ''))";
    browser.wait("steps", &format!("{shown} > 0"))?;
    browser.run(WATCH)?;
    let mut sent = Vec::new();
    let began = Instant::now();
    for step in earlier..earlier + STEPS {
        let due = began + EVERY * (step - earlier) as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        sent.push((step, SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1e3));
        feed.send_paced(1, Duration::ZERO, &server.address)?;
    }
    // A step may be closed only by the step after it, so the last one may never be shown.
    let awaited = earlier + STEPS - 2;
    let deadline = Instant::now() + PATIENCE;
    while browser.run(shown)?.as_f64().is_none_or(|step| step < awaited as f64) {
        ensure!(Instant::now() < deadline, "step {awaited} was never shown");
        std::thread::sleep(Duration::from_millis(50));
    }
    let seen = latency::seen(browser)?;
    let drawn = |step: u64| seen.iter().find(|(shown, _)| *shown >= step).map(|(_, drawn)| *drawn);
    let millis: Vec<f64> = sent.iter().filter_map(|&(step, at)| Some(drawn(step)? - at)).collect();
    ensure!(millis.len() as u64 >= STEPS - 2, "only {} of {STEPS} steps were shown", millis.len());
    let share_within_goal =
        millis.iter().filter(|value| **value < GOAL_MILLIS).count() as f64 / millis.len() as f64;
    let head = json!({
        "what": "gradient_to_pixel", "ranks": ranks, "simulated": true, "within_250_ms": share_within_goal,
        "from": "the first batch of the step was sent",
    });
    Ok(joined(head, spread("millis", millis)))
}
