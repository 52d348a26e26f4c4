//! Tests of the pace at which ranks are told to send batches.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use testkit::hostile;
use testkit::programs::{Server, get_json, post, wait_until};

use crate::limits::watch;

/// A rank that sends batches by hand.
struct Sender {
    server: Server,
    sent: u64,
}

impl Sender {
    /// Sends a batch with a step. Returns the time between batches that the answer asks for, in milliseconds.
    fn send(&mut self) -> anyhow::Result<Option<u64>> {
        let batch = hostile::steps("paced", 1, self.sent, self.sent..self.sent + 1, 1);
        self.sent += 1;
        let answer = post(&self.server.address, &batch)?;
        ensure!(answer.status() == 200, "the server answered {}", answer.status());
        let interval = answer.headers().get("paceline-batch-interval");
        interval.map(|interval| interval.to_str()?.parse().context("it is a number")).transpose()
    }

    /// Sends batches until the answer asks for `millis` between them. Returns how long that took.
    fn wait_for_interval(&mut self, millis: u64) -> anyhow::Result<Duration> {
        let began = Instant::now();
        wait_until(&format!("a batch every {millis} ms"), || {
            std::thread::sleep(Duration::from_millis(50));
            (self.send().ok()? == Some(millis)).then(|| began.elapsed())
        })
    }
}

#[test]
fn ranks_send_fewer_batches_once_no_one_views_their_run() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let mut rank = Sender { server: Server::start(data.path())?, sent: 0 };
    ensure!(rank.send()?.is_none(), "the server does not know the run before its first batch");
    ensure!(rank.send()? == Some(100), "a new run counts as viewed");
    let began = rank.wait_for_interval(500)?;
    ensure!(began > Duration::from_secs(8), "a new run counts as viewed for 10 s, not {began:?}");

    // Neither the list of runs nor the metrics are about one run.
    get_json(&format!("{}/api/v1/runs", rank.server.address))?;
    ureq::get(format!("{}/metrics", rank.server.address)).call()?;
    get_json(&format!("{}/api/v1/runs/another/summary", rank.server.address))
        .expect_err("there is no such run");
    ensure!(rank.send()? == Some(500));

    get_json(&format!("{}/api/v1/runs/paced/summary", rank.server.address))?;
    ensure!(rank.send()? == Some(100), "the run is viewed");
    let viewed = rank.wait_for_interval(500)?;
    ensure!(viewed > Duration::from_secs(4), "a request counts for 5 s, not {viewed:?}");

    let stream = watch(rank.server.listen(), "paced")?;
    rank.wait_for_interval(100)?;
    // Longer than one request counts.
    let end = Instant::now() + Duration::from_secs(7);
    while Instant::now() < end {
        ensure!(rank.send()? == Some(100), "a page shows the run");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(stream);
    rank.wait_for_interval(500)?;
    Ok(())
}
