//! The pictures of the documentation, taken of a real run: `cargo xtask screenshots`.

use std::path::Path;

use anyhow::{Context as _, ensure};
use paceline_tests::browser::Browser;
use paceline_tests::programs::{Job, Server};

/// Rank 2 gets its input 30 ms late from step 120 on, so that the pictures show before and after.
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
/// The pictures are taken when this step is over.
const LAST: u64 = 300;
/// The step whose cells and buckets are shown.
const STEP: u64 = 260;
/// A picture is not larger than this: it is loaded with the README.
const MOST_BYTES: usize = 300_000;

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).context("usage: screenshots FOLDER")?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let browser = Browser::start()?.context("screenshots need chromedriver")?;
    let mut arguments = vec!["-n", "4", "--name", "char_lm", "--server", &server.address, "--"];
    arguments.extend(JOB);
    let _job = Job::start(&arguments)?;
    browser.open(&server.address)?;
    browser.text("runs-table")?;
    browser.click("[data-testid=runs-table] .name a")?;
    browser.wait(
        "enough steps, and the verdict",
        &format!(
            "const text = id => document.querySelector(`[data-testid=${{id}}]`)?.innerText ?? '';
             return Number(text('last-step').replace(/[^0-9]/g, '')) > {LAST} && /rank 2/i.test(text('verdict'))"
        ),
    )?;
    // As high as the ledger: a chart that is cut off shows little.
    let bottom = browser
        .run("return document.querySelector('[data-testid=chart-ledger]').getBoundingClientRect().bottom")?;
    browser.viewport(1440, bottom.as_f64().context("the ledger has a place")? as u32 + 16)?;
    take(&browser, &folder.join("overview.png"))?;
    browser.viewport(1440, 900)?;

    let run = browser.run("return location.pathname")?;
    let run = format!("{}{}", server.address, run.as_str().context("a page has a path")?);
    browser.open(&format!("{run}/ranks?rank=2&step={STEP}"))?;
    browser.wait(
        "the selected cell",
        "return /lateness/.test(document.querySelector('[data-testid=rank-detail]')?.innerText)",
    )?;
    take(&browser, &folder.join("ranks.png"))?;

    browser.open(&format!("{run}/buckets?rank=2&step={STEP}&bucket=0"))?;
    browser.wait(
        "the waterfall",
        "return /ranks/.test(document.querySelector('[data-testid=waterfall-facts]')?.innerText)",
    )?;
    take(&browser, &folder.join("buckets.png"))
}

#[allow(clippy::print_stdout, reason = "a program that says what it wrote")]
fn take(browser: &Browser, path: &Path) -> anyhow::Result<()> {
    // Drawn and at rest: no frame is pending.
    browser.wait(
        "an idle frame",
        "if (window.framesDrawn === undefined) {
             window.framesDrawn = 0;
             const count = () => { window.framesDrawn += 1; requestAnimationFrame(count); };
             requestAnimationFrame(count);
         }
         return window.framesDrawn > 30",
    )?;
    let picture = browser.screenshot()?;
    ensure!(picture.len() <= MOST_BYTES, "{} would have {} bytes", path.display(), picture.len());
    std::fs::write(path, &picture).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}: {} bytes", path.display(), picture.len());
    Ok(())
}
