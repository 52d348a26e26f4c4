//! Takes the screenshots of the documentation, of a real run: `cargo xtask screenshots`.

use std::path::Path;

use anyhow::{Context as _, ensure};
use testkit::browser::Browser;
use testkit::layout::draw;
use testkit::programs::{Job, Server};

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
/// The number of frames after which the page shows all that it has received.
const FRAMES: u32 = 40;
/// The largest size of a screenshot in bytes. The screenshots of the README are loaded with it.
const MAX_BYTES: usize = 450_000;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).context("usage: screenshots FOLDER")?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let browser = Browser::start()?.context("screenshots need chromedriver")?;
    real_run(&browser, folder)
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
    browser.open(&format!("{run}/utilization"))?;
    says(browser, "strip-processor-use", "median")?;
    take(browser, &folder.join("utilization.png"))?;
    browser.open(&format!("{run}/scaling"))?;
    says(browser, "scaling-runs", "char_lm")?;
    let height = browser.run("return document.querySelector('main').scrollHeight + 64")?;
    browser.viewport(1440, height.as_u64().unwrap_or(1_400).min(2_000) as u32)?;
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

#[allow(clippy::print_stdout, reason = "the output of the program")]
fn take(browser: &Browser, path: &Path) -> anyhow::Result<()> {
    draw(browser, FRAMES)?;
    let picture = browser.screenshot()?;
    println!("{}: {} bytes", path.display(), picture.len());
    ensure!(picture.len() <= MAX_BYTES, "{} would have {} bytes", path.display(), picture.len());
    std::fs::write(path, &picture).with_context(|| format!("cannot write {}", path.display()))
}
