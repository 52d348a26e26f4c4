//! Import of traces on the page: chosen, dropped, canceled, and refused. The traces are of a simulated job.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;
use testkit::axe;
use testkit::browser::Browser;
use testkit::kineto::{RANGE, Traced};

use super::key::{ENTER, TAB};
use super::views::{Page, check, quiet, says};

/// A job of four ranks and three steps, of which rank 2 sleeps 40 ms twice in each.
const JOB: Traced = Traced { ranks: 4, steps: 3, kernels: 1, sleeps: Some((2, 40_000)) };

/// A folder with the traces of the job.
struct Traces {
    folder: PathBuf,
    _outer: TempDir,
}

impl Traces {
    fn write() -> anyhow::Result<Self> {
        let outer = tempfile::tempdir()?;
        let folder = outer.path().join("llama tuned");
        std::fs::create_dir(&folder)?;
        for (rank, trace) in JOB.traces().into_iter().enumerate() {
            std::fs::write(folder.join(format!("resnet-{rank}.json")), trace)?;
        }
        Ok(Self { folder, _outer: outer })
    }

    fn add(&self, name: &str, text: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.folder.join(name), text)?)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    fn all(&self) -> anyhow::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.folder)?.map(|entry| Ok(text(&entry?.path())));
        names.collect()
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Chooses files as a person does in the browser's dialog.
fn choose(browser: &Browser, paths: &[String]) -> anyhow::Result<()> {
    browser.press("[data-testid=import-files]", &paths.join("\n"))
}

fn is(browser: &Browser, script: &str) -> anyhow::Result<bool> {
    Ok(browser.run(&format!("return {script}"))? == Value::Bool(true))
}

#[test]
fn chosen_files_become_a_run_and_the_page_says_what_was_found() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let (browser, traces) = (&page.browser, Traces::write()?);
    traces.add("notes.json", "{\"a\": 1}")?;
    page.open_list_unloaded()?;
    says(browser, "empty", "Import traces")?;
    let reached = "document.activeElement?.dataset.testid === 'import-files'";
    for _ in 0..20 {
        browser.type_keys(TAB)?;
        if is(browser, reached)? {
            break;
        }
    }
    ensure!(is(browser, reached)?, "the Tab key does not reach the choice of files");
    choose(browser, &traces.all()?)?;
    says(browser, "import-title", "The traces are imported")?;
    says(browser, "import-text", "Skipped notes.json: it has no list of events")?;
    says(browser, "import-text", "Imported 4 of 4 ranks\\s+rank 0 +steps 4 to 6, 24 kernels")?;
    // The run has the name that its files have in common.
    says(browser, "runs-table", "resnet")?;
    for dark in [false, true] {
        browser.prefer_dark(dark)?;
        check(browser, axe::source()?.as_deref().ok(), &format!("an import, dark: {dark}"))?;
    }
    browser.press("[data-testid=import-run]", ENTER)?;
    says(browser, "verdict", "Rank 2")?;
    what_ran(browser)?;
    quiet(browser)
}

/// The Code view begins with the rank that the verdict names, against one that none names.
fn what_ran(browser: &Browser) -> anyhow::Result<()> {
    browser.click("[data-testid=tab-code]")?;
    says(browser, "traced-summary", "on rank 2 and .* on rank 0")?;
    says(browser, "traces-table", &format!("Calls\\s+{RANGE}\\s+range\\s+\\+80.0 ms"))?;
    check(browser, axe::source()?.as_deref().ok(), "what ran on two ranks")?;
    browser.run(
        "const choice = document.querySelector('[data-testid=traced-rank]'); choice.value = 'none';
        choice.dispatchEvent(new Event('change', {bubbles: true}))",
    )?;
    says(browser, "traced-summary", "in the mean over ranks. Kernels take")?;
    says(browser, "traced-table", "gemm\\s+kernel\\s+20")?;
    check(browser, axe::source()?.as_deref().ok(), "what ran on all ranks")
}

#[test]
fn a_dropped_folder_becomes_a_run_of_its_name() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let (browser, traces) = (&page.browser, Traces::write()?);
    traces.add("README.md", "not a trace, and not sent")?;
    page.small_run()?;
    page.open_list("", "1 run")?;
    let folder = text(&traces.folder);
    browser.drag(&[&folder], false)?;
    browser.wait("the place to drop", "return document.body.classList.contains('dropping')")?;
    browser.drag(&[&folder], true)?;
    says(browser, "import-title", "The traces are imported")?;
    ensure!(!is(browser, "document.body.classList.contains('dropping')")?, "the place to drop stays");
    ensure!(!browser.text("import-text")?.contains("README"), "{}", browser.text("import-text")?);
    says(browser, "count", "2 runs")?;
    says(browser, "runs-table", "llama tuned")?;
    browser.click("[data-testid=import-action]")?;
    browser
        .wait("no panel", "return document.querySelector('[data-testid=import]').offsetParent === null")?;
    quiet(browser)
}

#[test]
fn an_import_in_progress_counts_its_bytes_and_can_be_canceled() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let (browser, traces) = (&page.browser, Traces::write()?);
    let large = JOB.traces().into_iter().next().context("the job has ranks")? + &" ".repeat(16 << 20);
    traces.add("large.json", &large)?;
    page.small_run()?;
    page.open_list("", "1 run")?;
    browser.throttle(Some(500e3))?;
    browser.drag(&[&traces.path("large.json")], true)?;
    says(browser, "import-title", "Importing large.json")?;
    says(browser, "import-text", "^[1-9][0-9.]* [KM]iB of 16.\\d+ MiB sent")?;
    ensure!(is(browser, "document.querySelector('[data-testid=import-files]').disabled")?);
    browser.drag(&[&traces.path("resnet-0.json")], true)?;
    says(browser, "toasts", "An import is in progress")?;
    // It continues while another view is open.
    browser.click("table.runs td.name a")?;
    says(browser, "verdict", "Rank 2")?;
    browser.click(".brand")?;
    says(browser, "import-text", "MiB sent")?;
    browser.click("[data-testid=import-action]")?;
    says(browser, "import-title", "The import is canceled")?;
    browser.throttle(None)?;
    choose(browser, &[0, 1, 2, 3].map(|rank| traces.path(&format!("resnet-{rank}.json"))))?;
    says(browser, "import-title", "The traces are imported")?;
    says(browser, "count", "2 runs")?;
    Ok(())
}

#[test]
fn a_refused_or_broken_import_says_why_and_another_one_succeeds() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let (browser, traces) = (&page.browser, Traces::write()?);
    traces.add("passwd", "root:x:0:0")?;
    page.open_list_unloaded()?;
    says(browser, "empty", "Import traces")?;
    browser.drag(&[&traces.path("passwd")], true)?;
    says(browser, "import-title", "The import failed")?;
    says(browser, "import-text", "The file cannot be imported: passwd: it does not begin with")?;
    let empty = tempfile::tempdir()?;
    browser.drag(&[&text(empty.path())], true)?;
    says(browser, "import-text", "has no file whose name says that it may be a trace")?;
    browser.block(&["*/api/v1/imports*"])?;
    browser.drag(&[&text(&traces.folder)], true)?;
    says(browser, "import-text", "The connection to the server broke")?;
    browser.block(&[])?;
    browser.drag(&[&text(&traces.folder)], true)?;
    says(browser, "import-title", "The traces are imported")?;
    says(browser, "count", "1 run")?;
    Ok(())
}
