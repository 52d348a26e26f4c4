//! Takes a picture of every view in every state, light and dark, on a phone, a laptop and a large screen: `cargo xtask
//! screens`. The pictures are to be looked at, and are not kept. A page that is wider than its window is an error.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testkit::browser::Browser;
use testkit::devices;
use testkit::feed::Feed;
use testkit::layout::{draw, overflow};
use testkit::programs::{Job, Server, get_json, wait_until};
use testkit::simulator::{Fault, FaultKind, Plan, Simulation};
use testkit::stacks;
use wire::device::throttle;

/// The number of frames after which the page shows all that it has received.
const FRAMES: u32 = 30;
/// How often in a row the height of a page must be the same for the page to be complete.
const SETTLED: u32 = 3;
const WIDTHS: [u32; 3] = [400, 1_440, 3_840];
/// The height of the window while a page loads, and the largest height of a picture.
const HEIGHTS: (u32, u32) = (900, 8_000);
/// The views of a run, with the element that shows that the view is complete.
const VIEWS: [(&str, &str, &str); 7] = [
    ("overview", "", "verdict"),
    ("ranks", "/ranks", "rank-list"),
    ("buckets", "/buckets", "waterfall-facts"),
    ("scaling", "/scaling", "scaling-runs"),
    ("utilization", "/utilization", "usage-answer|no-usage"),
    ("code", "/code", "flame|code-status"),
    ("health", "/health", "trust"),
];

/// The pictures that are taken.
struct Screens {
    browser: Browser,
    folder: PathBuf,
    too_wide: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).context("usage: screens FOLDER")?);
    std::fs::create_dir_all(&folder)?;
    let browser = Browser::start()?.context("screens need chromedriver")?;
    let mut screens = Screens { browser, folder, too_wide: Vec::new() };
    simulated(&mut screens)?;
    real(&mut screens)?;
    ensure!(screens.too_wide.is_empty(), "wider than the window:\n{}", screens.too_wide.join("\n"));
    Ok(())
}

impl Screens {
    /// Opens `url` in every width and color scheme, and takes a picture when one of the elements `testids` has a text.
    fn take(&mut self, name: &str, url: &str, testids: &str) -> anyhow::Result<()> {
        for (width, dark) in forms() {
            self.resize(width, dark)?;
            self.browser.open(url)?;
            self.shown(name, testids)?;
            self.picture(name, width, dark)?;
        }
        Ok(())
    }

    /// Takes pictures of the page as it is, without loading it.
    fn take_open(&mut self, name: &str) -> anyhow::Result<()> {
        for (width, dark) in forms() {
            self.resize(width, dark)?;
            self.picture(name, width, dark)?;
        }
        Ok(())
    }

    fn resize(&self, width: u32, dark: bool) -> anyhow::Result<()> {
        self.browser.viewport(width, HEIGHTS.0)?;
        self.browser.prefer_dark(dark)
    }

    fn shown(&self, name: &str, testids: &str) -> anyhow::Result<()> {
        let any: Vec<String> = testids.split('|').map(|id| format!("[data-testid={id}]")).collect();
        // The text content, because an SVG element has no inner text.
        let script = format!(
            "return [...document.querySelectorAll('{}')].some(element => element.textContent !== '')",
            any.join(",")
        );
        self.browser.wait(&format!("{name} to show {testids}"), &script).map(drop)
    }

    #[allow(clippy::print_stdout, reason = "the output of the program")]
    fn picture(&mut self, name: &str, width: u32, dark: bool) -> anyhow::Result<()> {
        draw(&self.browser, FRAMES)?;
        let name = format!("{name}-{}-{width}", if dark { "dark" } else { "light" });
        if let Some(wide) = overflow(&self.browser)? {
            self.too_wide.push(format!("{name}: {wide}"));
        }
        let most = self.grow(width)?;
        ensure!(most <= HEIGHTS.1, "{name} is {most} pixels high, more than a picture of {}", HEIGHTS.1);
        std::fs::write(self.folder.join(format!("{name}.png")), self.browser.screenshot()?)?;
        println!("{name}");
        Ok(())
    }

    /// Makes the window as high as the page, until the page is no longer higher: charts and tables below the window's
    /// edge load once they are near it. Returns the height.
    fn grow(&self, width: u32) -> anyhow::Result<u32> {
        let (mut height, mut unchanged) = (HEIGHTS.0, 0);
        let drawn = "const then = window.framesDrawn; return new Promise(done => { const wait = () =>
            window.framesDrawn > then + 15 ? done(true) : requestAnimationFrame(wait); wait(); })";
        while unchanged < SETTLED && height <= HEIGHTS.1 {
            self.browser.run(drawn)?;
            let now = self.browser.run("return document.documentElement.scrollHeight")?.as_u64().unwrap_or(0);
            let now = (now as u32).max(HEIGHTS.0);
            unchanged = if now == height { unchanged + 1 } else { 0 };
            height = now;
            self.browser.viewport(width, height)?;
        }
        Ok(height)
    }

    fn views(&mut self, name: &str, server: &Server, run: &str, views: &[&str]) -> anyhow::Result<()> {
        for (view, path, testids) in VIEWS.into_iter().filter(|(view, ..)| views.contains(view)) {
            let url = format!("{}/runs/{run}{path}", server.address);
            self.take(&format!("{name}-{view}"), &url, testids)?;
        }
        Ok(())
    }
}

/// Returns every width, light and dark.
fn forms() -> impl Iterator<Item = (u32, bool)> {
    WIDTHS.into_iter().flat_map(|width| [(width, false), (width, true)])
}

/// Returns a job of `ranks` ranks in which one rank has late input between two steps.
fn job(ranks: usize, steps: u64, (from, to): (u64, u64)) -> Plan {
    let fault = Fault { rank: ranks * 3 / 5, kind: FaultKind::Input, nanos: 12_000_000, from, to };
    Plan {
        ranks,
        ranks_per_host: 8,
        steps,
        tick: 1_000_000_000,
        faults: if from < to { vec![fault] } else { Vec::new() },
        ..Plan::small(ranks as u64 * 10_000 + steps)
    }
}

fn send(server: &Server, simulation: Simulation) -> anyhow::Result<String> {
    let mut feed = Feed::new(simulation);
    feed.send_all_but(0, &server.address)?;
    Ok(feed.run)
}

/// Simulated runs: slow on 2, 8 and 1,024 ranks, recovered, and healthy.
fn simulated(screens: &mut Screens) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    screens.take("empty-runs", &server.address, "empty")?;
    let two = send(&server, Simulation::run(&job(2, 240, (120, 240))))?;
    let eight = devices::sampled(Simulation::run(&job(8, 241, (120, 241))), 4, throttle::THERMAL, 1_350);
    let eight = stacks::sampled(eight, 4);
    let eight = send(&server, eight)?;
    let recovered = send(&server, Simulation::run(&job(4, 400, (100, 200))))?;
    let healthy = send(&server, Simulation::run(&job(4, 242, (0, 0))))?;
    let all: Vec<&str> = VIEWS.map(|(view, ..)| view).to_vec();
    screens.views("slow-2", &server, &two, &all)?;
    screens.views("slow-8", &server, &eight, &all)?;
    screens.views("recovered", &server, &recovered, &["overview", "ranks"])?;
    screens.views("healthy", &server, &healthy, &["overview", "ranks", "health"])?;
    let selected = format!("{}/runs/{eight}/ranks?rank=4&step=200&pin=1,2", server.address);
    screens.take("selected-8-ranks", &selected, "rank-detail")?;
    let bucket = format!("{}/runs/{eight}/buckets?rank=4&step=200&bucket=1", server.address);
    screens.take("selected-8-buckets", &bucket, "waterfall-facts")?;
    screens.take(
        "compare",
        &format!("{}/compare?a={healthy}&b={recovered}", server.address),
        "comparison",
    )?;
    screens.take("plan", &format!("{}/plan", server.address), "plan")?;
    let many = Simulation::run(&Plan { singly_from: 260, ..job(1_024, 300, (150, 300)) });
    let mut many = Feed::new(devices::sampled(many, 614, throttle::THERMAL, 1_350));
    many.send_all_but(40, &server.address)?;
    let run = many.run.clone();
    std::thread::scope(|scope| {
        // The run stays live while the pictures are taken.
        let feeding = scope.spawn(|| many.send_paced(40, Duration::from_millis(1_500), &server.address));
        screens.views("live-1024", &server, &run, &all)?;
        feeding.join().expect("the feed does not panic")
    })?;
    screens.take("runs", &server.address, "runs-table")?;
    let overlay = format!("{}/?pick={two},{eight}", server.address);
    screens.take("runs-overlay", &overlay, "runs-table")?;
    let live = format!("{}/runs/{}", server.address, run);
    screens.browser.open(&live)?;
    screens.shown("the live run", "verdict")?;
    screens.browser.click("[data-testid=pause]")?;
    screens.take_open("paused-1024")?;
    screens.browser.click("[data-testid=pause]")?;
    server.kill()?;
    screens.browser.text("stale-notice")?;
    screens.take_open("stale-1024")
}

/// Jobs of real processes: one with a rank that hangs, and one with a rank that was killed.
fn real(screens: &mut Screens) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let start = |name: &str| -> anyhow::Result<(Job, Pid)> {
        let arguments = ["-n", "3", "--name", name, "--server", &server.address, "--", "char_lm"];
        let mut job = Job::start(&[&arguments[..], &["--steps", "100000"]].concat())?;
        job.wait_for("step     50/")?;
        let rank = *job.rank_pids()?.get(1).context("the job has no rank 1")?;
        Ok((job, Pid::from_raw(rank as i32).context("a pid is positive")?))
    };
    let runs = || get_json(&format!("{}/api/v1/runs", server.address)).ok();
    let (failing, rank) = start("failed")?;
    kill_process(rank, Signal::KILL)?;
    failing.finish()?;
    let failed = wait_until("the failure", || {
        let runs = runs()?;
        let failed = runs.as_array()?.iter().find(|run| run["state"] == "failed")?;
        failed["run"].as_str().map(str::to_owned)
    })?;
    screens.views("failed", &server, &failed, &["overview", "ranks", "buckets", "health"])?;
    let (_hanging, rank) = start("hung")?;
    kill_process(rank, Signal::STOP)?;
    let hung = wait_until("the hang", || {
        let runs = runs()?;
        let hung = runs.as_array()?.iter().find(|run| !run["hang"].is_null())?;
        hung["run"].as_str().map(str::to_owned)
    })?;
    screens.views("hung", &server, &hung, &["overview", "ranks", "buckets", "health"])?;
    screens.take("runs-troubled", &server.address, "runs-table")
}
