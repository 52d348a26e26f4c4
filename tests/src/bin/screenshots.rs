//! Takes the screenshots of the documentation: `cargo xtask screenshots`. Those of the README show a real run. The
//! dashboard in all states and screen sizes is shown with simulated runs as well.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use testkit::browser::Browser;
use testkit::devices::{self, Heartbeats};
use testkit::feed::Feed;
use testkit::programs::{Job, Server};
use testkit::simulator::{Fault, FaultKind, Plan, Simulation};
use wire::device::throttle;

/// The arguments of the job. The input of rank 2 is 30 ms late from step 120 on, so that screenshots show the time
/// before and after.
const JOB: [&str; 12] = [
    "char_lm",
    "--steps",
    "100000",
    "--slow-rank",
    "2",
    "--slow-phase",
    "input",
    "--slow-ms",
    "30",
    "--slow-from",
    "120",
    "--log-every=1000",
];
/// The last step before the screenshots are taken.
const LAST: u64 = 300;
/// The step whose cells and buckets are shown.
const STEP: u64 = 260;
/// The largest size of a screenshot in bytes. The screenshots of the README are loaded with it.
const MAX_BYTES: usize = 450_000;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).context("usage: screenshots FOLDER")?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder.join("states"))?;
    let browser = Browser::start()?.context("screenshots need chromedriver")?;
    real_run(&browser, folder)?;
    states(&browser, &folder.join("states"))
}

/// Takes the screenshots of the README.
fn real_run(browser: &Browser, folder: &Path) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut arguments = vec!["-n", "4", "--name", "char_lm", "--server", &server.address, "--"];
    arguments.extend(JOB);
    let job = Job::start(&arguments)?;
    browser.open(&server.address)?;
    browser.text("runs-table")?;
    browser.click("[data-testid=runs-table] .name a")?;
    browser.wait(
        "enough steps and the verdict",
        &format!(
            "const text = id => document.querySelector(`[data-testid=${{id}}]`)?.innerText ?? '';
             return Number(text('last-step').replace(/[^0-9]/g, '')) > {LAST} && /rank 2/i.test(text('verdict'))"
        ),
    )?;
    // As high as the ledger, because a chart that is cut off shows little.
    let bottom = browser
        .run("return document.querySelector('[data-testid=chart-ledger]').getBoundingClientRect().bottom")?;
    browser.viewport(1440, bottom.as_f64().context("the ledger has no position")? as u32 + 16)?;
    take(browser, &folder.join("overview.png"))?;
    browser.viewport(1440, 900)?;

    let run = browser.run("return location.pathname")?;
    let run = format!("{}{}", server.address, run.as_str().context("the page has no path")?);
    browser.open(&format!("{run}/ranks?rank=2&step={STEP}"))?;
    says(browser, "rank-detail", "lateness")?;
    take(browser, &folder.join("ranks.png"))?;
    browser.open(&format!("{run}/buckets?rank=2&step={STEP}&bucket=0"))?;
    says(browser, "waterfall-facts", "ranks")?;
    take(browser, &folder.join("buckets.png"))?;
    browser.open(&format!("{run}/scaling"))?;
    says(browser, "scaling-runs", "char_lm")?;
    browser.viewport(1440, 1760)?;
    take(browser, &folder.join("scaling.png"))?;
    drop(job);
    Ok(())
}

fn says(browser: &Browser, testid: &str, pattern: &str) -> anyhow::Result<()> {
    let script = format!(
        "return /{pattern}/i.test(document.querySelector('[data-testid={testid}]')?.innerText ?? '')"
    );
    browser.wait(&format!("{testid} to match {pattern}"), &script).map(drop)
}

fn feed(server: &Server, ranks: usize, steps: u64, live: u64) -> anyhow::Result<Feed> {
    let fault =
        Fault { rank: ranks * 3 / 5, kind: FaultKind::Input, nanos: 12_000_000, from: steps / 2, to: steps };
    let plan = Plan {
        ranks,
        ranks_per_host: 8,
        steps,
        tick: 1_000_000_000,
        singly_from: steps - live,
        faults: vec![fault],
        ..Plan::small(ranks as u64)
    };
    let mut feed = Feed::new(Simulation::run(&plan));
    feed.send_all_but(live as usize, &server.address)?;
    Ok(feed)
}

/// Takes a screenshot of every state: without data, live, paused, rewound, and without a server; with two ranks and
/// with a thousand; light and dark; on a phone, a laptop and a large screen.
fn states(browser: &Browser, folder: &Path) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let shot = |name: &str, size: (u32, u32), dark: bool| {
        browser.viewport(size.0, size.1)?;
        browser.prefer_dark(dark)?;
        take(browser, &folder.join(format!("{name}.png")))
    };
    browser.open(&server.address)?;
    browser.text("empty")?;
    shot("empty-light-1440", LAPTOP, false)?;
    shot("empty-dark-400", PHONE, true)?;

    let small = feed(&server, 2, 240, 0)?.run;
    let mut many = feed(&server, 1_024, 300, 40)?;
    let open = |run: &str, view: &str, testid: &str, pattern: &str| {
        browser.open(&format!("{}/runs/{run}{view}", server.address))?;
        says(browser, testid, pattern)
    };
    many.send_paced(4, Duration::from_millis(50), &server.address)?;
    open(&many.run, "", "verdict", "rank")?;
    shot("1024-overview-live-dark-1440", LAPTOP, true)?;
    open(&many.run, "/ranks", "level", "ranks")?;
    shot("1024-ranks-live-light-1440", LAPTOP, false)?;
    // Selects smooth data, because noise in every pixel would make the file large.
    open(&many.run, "/ranks?measure=input&rank=614", "level", "steps|ranks|^$")?;
    shot("1024-ranks-live-dark-3840", LARGE, true)?;
    open(&many.run, "/buckets", "waterfall-facts", "1024")?;
    shot("1024-buckets-light-1440", LAPTOP, false)?;
    open(&small, "", "verdict", "rank 1")?;
    shot("2-overview-light-3840", LARGE, false)?;
    shot("2-overview-dark-400", PHONE, true)?;
    open(&small, "/ranks?rank=1&step=200", "rank-detail", "lateness")?;
    shot("2-ranks-light-400", PHONE, false)?;
    open(&small, "/buckets?step=200&bucket=1", "waterfall-facts", "2 ranks")?;
    shot("2-buckets-dark-1440", LAPTOP, true)?;
    open(&small, "/health", "health", "Clock")?;
    shot("2-health-light-1440", LAPTOP, false)?;
    open(&small, "/devices", "no-devices", "doctor")?;
    shot("2-no-devices-light-1440", LAPTOP, false)?;
    devices_of_a_job(browser, &server)?;
    browser.click("[data-testid=bursts] summary")?;
    shot("4-devices-light-1440", LAPTOP, false)?;
    shot("4-devices-dark-400", PHONE, true)?;
    open(&small, "?steps=0..110", "verdict", "nothing stands out")?;
    shot("2-before-the-fault-light-1440", LAPTOP, false)?;
    browser.open(&format!("{}/compare?a={small}&b={}", server.address, many.run))?;
    says(browser, "comparison", "step")?;
    shot("compare-dark-1440", LAPTOP, true)?;
    open(&many.run, "", "verdict", "rank")?;
    browser.click("[data-testid=pause]")?;
    shot("1024-paused-light-1440", LAPTOP, false)?;
    browser.click("[data-testid=pause]")?;
    says(browser, "connection", "live")?;
    server.kill()?;
    browser.text("stale-notice")?;
    shot("1024-stale-dark-1440", LAPTOP, true)
}

/// Feeds a job on four GPUs. One of them is too warm, and two have answered a burst.
fn devices_of_a_job(browser: &Browser, server: &Server) -> anyhow::Result<()> {
    let plan = Plan { tick: 1_000_000_000, ..Plan::small(4).with_fault(2, FaultKind::Compute, 10_000_000) };
    let simulation = devices::sampled(Simulation::run(&plan), 2, throttle::THERMAL, 1_350);
    let mut beats = Heartbeats::after(&simulation);
    let mut feed = Feed::new(simulation);
    feed.send_all_but(1, &server.address)?;
    browser.open(&format!("{}/runs/{}/devices", server.address, feed.run))?;
    says(browser, "bursts", "Record")?;
    browser.click("[data-testid=bursts] button")?;
    says(browser, "bursts", "rank 0, 1, 2, 3")?;
    for (rank, nanos) in [(0, 9_000_000), (2, 12_000_000)] {
        let asked = beats.send(rank, Vec::new(), &server.address)?.context("the rank is not asked")?;
        let kernel = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64";
        beats.send(rank, vec![devices::burst(asked, kernel, nanos)], &server.address)?;
    }
    says(browser, "bursts", "60.0 %[^]*80.0 %")
}

const PHONE: (u32, u32) = (400, 1_200);
const LAPTOP: (u32, u32) = (1_440, 900);
const LARGE: (u32, u32) = (3_840, 2_160);

#[allow(clippy::print_stdout, reason = "the output of the program")]
fn take(browser: &Browser, path: &Path) -> anyhow::Result<()> {
    // Waits until the page is drawn and no frame is pending.
    browser.wait(
        "an idle frame",
        "if (window.framesFrom !== innerWidth) {
             window.framesFrom = innerWidth;
             window.framesDrawn = 0;
             const count = () => { window.framesDrawn += 1; requestAnimationFrame(count); };
             requestAnimationFrame(count);
         }
         return window.framesDrawn > 40",
    )?;
    let picture = browser.screenshot()?;
    println!("{}: {} bytes", path.display(), picture.len());
    ensure!(picture.len() <= MAX_BYTES, "{} would have {} bytes", path.display(), picture.len());
    std::fs::write(path, &picture).with_context(|| format!("cannot write {}", path.display()))
}
