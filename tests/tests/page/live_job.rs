//! Tests of the dashboard in a real Chromium with a real job: from the empty list to the end of a run.

use std::path::Path;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use testkit::browser::Browser;
use testkit::programs::{Job, Server, get_json, report, wait_until};

use super::key::{DOWN, RIGHT};
use super::views::drawn;

/// The options of a job whose rank 2 is 30 ms late with its input from the first step on.
const STRAGGLER: [&str; 6] = ["--slow-rank", "2", "--slow-phase", "input", "--slow-ms", "30"];

fn start_job(server: &Server, name: &str, steps: &str) -> anyhow::Result<Job> {
    let mut arguments = vec!["-n", "4", "--name", name, "--server", &server.address];
    arguments.extend(["--", "char_lm", "--steps", steps]);
    arguments.extend(STRAGGLER);
    Job::start(&arguments)
}

/// Returns the number that an element shows, without its unit and the spaces between thousands.
fn number(text: &str) -> anyhow::Result<f64> {
    let digits: String = text.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.parse().with_context(|| format!("no number in {text:?}"))
}

fn last_step(browser: &Browser) -> anyhow::Result<u64> {
    browser.wait("a last step", &format!("{LAST_STEP} return last")).map(|step| step.as_u64().unwrap_or(0))
}

/// A script that sets `last` to the last step that the page shows, or null.
const LAST_STEP: &str = "const shown = document.querySelector('[data-testid=last-step]')?.innerText ?? '';
    const last = /[0-9]/.test(shown) ? Number(shown.replace(/[^0-9]/g, '')) : null;";

/// Waits until the page shows a step after `step` without user action.
fn wait_for_step_after(browser: &Browser, step: u64) -> anyhow::Result<()> {
    let script = format!("{LAST_STEP} return last !== null && last > {step}");
    browser.wait(&format!("a step after {step}"), &script).map(drop)
}

fn connection(browser: &Browser, states: &str) -> anyhow::Result<()> {
    let script = format!(
        "return /^({states})$/.test(document.querySelector('[data-testid=connection]')?.dataset.state)"
    );
    browser.wait(&format!("the connection to be {states}"), &script).map(drop)
}

/// Marks the document. A reload removes the mark.
fn mark(browser: &Browser) -> anyhow::Result<()> {
    browser.run("window.mark = true").map(drop)
}

fn ensure_not_reloaded(browser: &Browser) -> anyhow::Result<()> {
    ensure!(browser.run("return window.mark === true")? == Value::Bool(true), "the page was reloaded");
    Ok(())
}

/// Waits until a chart's raster has several colors. An empty chart has one.
fn wait_for_colors(browser: &Browser, chart: &str) -> anyhow::Result<()> {
    let script = format!(
        "const canvas = document.querySelector('[data-testid={chart}]')?.parentElement.querySelector('canvas.raster');
         if (!canvas || !canvas.width) return null;
         const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
         const pixels = new Uint32Array(data.buffer);
         const painted = pixels.reduce((n, pixel) => n + (pixel >>> 24 > 0), 0);
         return new Set(pixels).size >= 4 && painted > pixels.length / 10"
    );
    browser.wait(&format!("colors in {chart}"), &script).map(drop)
}

/// Returns an error if anything is wider than the window.
fn ensure_fits(browser: &Browser, what: &str) -> anyhow::Result<()> {
    let script = "const root = document.documentElement;
        return [innerWidth, root.scrollWidth, [...document.querySelectorAll('main *, header *')]
            .filter(e => e.getBoundingClientRect().right > innerWidth + 0.5 && !e.closest('.rows, .scroll-x, .tip, .unseen'))
            .slice(0, 5).map(e => e.outerHTML.slice(0, 120))]";
    let found = browser.run(script)?;
    ensure!(found[1].as_f64() <= found[0].as_f64(), "{what} is wider than the window: {found:#}");
    Ok(())
}

/// Returns an error if the console has an error or a warning. `but` is the only allowed text.
fn ensure_quiet(browser: &Browser, but: &[&str]) -> anyhow::Result<()> {
    let errors: Vec<_> = browser
        .console()?
        .into_iter()
        .filter(|line| line.level == "SEVERE" || line.level == "WARNING")
        // Caused by this test, which reads pixels.
        .filter(|line| !line.message.contains("getImageData"))
        .filter(|line| !but.iter().any(|allowed| line.message.contains(allowed)))
        .collect();
    ensure!(errors.is_empty(), "the console complains: {errors:#?}");
    Ok(())
}

/// A browser at the page of a running job whose rank 2 is late.
struct Live {
    browser: Browser,
    server: Server,
    job: Job,
    run: String,
    data: TempDir,
}

impl Live {
    /// Returns `None`, after a message, if there is no browser.
    fn start() -> anyhow::Result<Option<Self>> {
        let Some(browser) = Browser::start()? else { return Ok(None) };
        let data = tempfile::tempdir()?;
        let server = Server::start(data.path())?;
        let job = start_job(&server, "straggler", "1000000")?;
        let run = wait_until("steps of the run", || {
            let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
            let has_steps = runs[0]["last_step"].as_u64()? >= WARM;
            runs[0]["run"].as_str().filter(|_| has_steps).map(str::to_owned)
        })?;
        let live = Self { browser, server, job, run, data };
        live.open("")?;
        Ok(Some(live))
    }

    /// Opens a view of the run.
    fn open(&self, view: &str) -> anyhow::Result<()> {
        self.browser.open(&format!("{}/runs/{}{view}", self.server.address, self.run))?;
        connection(&self.browser, "live")?;
        mark(&self.browser)
    }
}

/// The number of steps with which tests begin.
const WARM: u64 = 30;

#[test]
fn a_new_run_appears_in_the_empty_list_and_one_click_opens_it() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    browser.open(&server.address)?;
    mark(&browser)?;
    assert!(browser.text("empty")?.contains("paceline run"), "the empty list does not say what to do");
    let _job = start_job(&server, "straggler", "1000000")?;
    appears_and_opens(&browser)?;
    names_the_straggler(&browser)?;
    ensure_not_reloaded(&browser)?;
    ensure_quiet(&browser, &[])
}

#[test]
fn a_rank_and_a_step_chosen_by_keys_survive_a_reload() -> anyhow::Result<()> {
    let Some(live) = Live::start()? else { return Ok(()) };
    ranks(&live.browser)?;
    ensure_quiet(&live.browser, &[])
}

#[test]
fn the_waterfall_stays_at_a_step_or_follows_the_run() -> anyhow::Result<()> {
    let Some(live) = Live::start()? else { return Ok(()) };
    live.open(&format!("?step={}", WARM / 2))?;
    buckets(&live.browser)?;
    ensure_quiet(&live.browser, &[])
}

#[test]
fn a_paused_page_does_not_change_and_then_catches_up() -> anyhow::Result<()> {
    let Some(live) = Live::start()? else { return Ok(()) };
    pause(&live.browser, &live.server)?;
    ensure_not_reloaded(&live.browser)?;
    ensure_quiet(&live.browser, &[])
}

#[test]
fn the_page_survives_a_restart_of_the_server() -> anyhow::Result<()> {
    let Some(Live { browser, server, job: _job, data, .. }) = Live::start()? else { return Ok(()) };
    names_the_straggler(&browser)?;
    let _server = survives_the_server(&browser, server, data.path())?;
    ensure_not_reloaded(&browser)
}

#[test]
fn a_live_run_fits_a_phone_and_follows_the_color_scheme() -> anyhow::Result<()> {
    let Some(live) = Live::start()? else { return Ok(()) };
    small_and_dark(&live.browser)?;
    ensure_not_reloaded(&live.browser)?;
    ensure_quiet(&live.browser, &[])
}

#[test]
fn a_killed_rank_is_named_in_the_list() -> anyhow::Result<()> {
    let Some(live) = Live::start()? else { return Ok(()) };
    live.browser.click(".brand")?;
    a_killed_rank(&live.browser, &live.job)?;
    ensure_quiet(&live.browser, &[])
}

#[test]
fn a_completed_run_shows_the_figures_of_its_report() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    browser.open(&server.address)?;
    let (code, printed, complaints) = start_job(&server, "short", "60")?.finish()?;
    assert_eq!(code, 0, "{printed}{complaints}");
    a_completed_run(&browser, data.path())?;
    ensure_quiet(&browser, &[])
}

#[test]
fn unknown_runs_and_pages_are_named() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    browser.open(&format!("{}/runs/never-was", server.address))?;
    assert!(browser.text("no-such-run")?.contains("never-was"));
    browser.open(&format!("{}/nowhere", server.address))?;
    browser.text("not-found")?;
    // Chromium itself reports the 404 of an unknown page.
    ensure_quiet(&browser, &["404"])
}

/// Checks that a new run appears in the list, that one click opens it, and that it updates.
fn appears_and_opens(browser: &Browser) -> anyhow::Result<()> {
    assert!(browser.text("runs-table")?.contains("straggler"));
    browser.click("[data-testid=runs-table] .name a")?;
    connection(browser, "live")?;
    let first = last_step(browser)?;
    wait_for_step_after(browser, first)?;
    wait_for_step_after(browser, first + 3)
}

fn names_the_straggler(browser: &Browser) -> anyhow::Result<()> {
    browser.wait(
        "a verdict on rank 2",
        "return /rank 2/i.test(document.querySelector('[data-testid=verdict]')?.innerText)",
    )?;
    let cause = browser.text("cause")?;
    assert!(cause.contains("input"), "the cause is {cause:?}");
    browser.click("[data-testid=grounds]")?;
    assert!(!browser.text("evidence")?.trim().is_empty());
    assert!(browser.text("advice")?.contains("input"), "the advice is about something else");
    drawn(browser, "culprit")?;
    let cost = browser.text("cost")?;
    assert!(number(&cost)? > 0.0, "the cost is {cost:?}");
    wait_for_colors(browser, "chart-ledger")
}

/// Checks that the heatmap shows the straggler, and that a cell selected by keys is in the address and survives a
/// reload.
fn ranks(browser: &Browser) -> anyhow::Result<()> {
    browser.click("[data-testid=tab-ranks]")?;
    wait_for_colors(browser, "heatmap")?;
    // Lateness makes the straggler's row brighter than all other rows in the middle of the chart.
    browser.wait(
        "a bright row of rank 2",
        "const canvas = document.querySelector('[data-testid=heatmap]').parentElement.querySelector('canvas.raster');
         const context = canvas.getContext('2d');
         const light = [0, 1, 2, 3].map(rank => {
             const y = Math.floor((rank + 0.5) * canvas.height / 4);
             const data = context.getImageData(0, y, canvas.width, 1).data;
             let sum = 0;
             for (let at = 0; at < data.length; at += 4) sum += data[at] + data[at + 1];
             return sum / canvas.width;
         });
         return light.every((value, rank) => rank === 2 || light[2] > 2 * value)",
    )?;
    let canvas = "[data-testid=heatmap]";
    browser.press(canvas, RIGHT)?;
    browser.press(canvas, DOWN)?;
    browser.press(canvas, DOWN)?;
    let step = browser.wait(
        "rank 2 in the address",
        "const query = new URLSearchParams(location.search); return query.get('rank') === '2' && query.get('step')",
    )?;
    let step = step.as_str().context("the address has no step")?.to_owned();
    let detail = selection(browser, &step)?;
    assert!(detail.contains("input"), "the selection has no input time: {detail}");
    browser.reload()?;
    assert_eq!(selection(browser, &step)?, detail, "a reload changed the selection");
    // The visible range survives a reload too.
    browser.press(canvas, "w")?;
    let zoomed = "const steps = new URLSearchParams(location.search).get('steps'); return steps";
    let visible = browser.wait("the visible steps in the address", zoomed)?;
    browser.reload()?;
    selection(browser, &step)?;
    assert_eq!(browser.run(zoomed)?, visible, "a reload changed the visible steps");
    let follows = "return document.querySelector('[aria-label=\"Visible steps\"] button').ariaPressed";
    assert_eq!(browser.run(follows)?, "false", "the view follows the newest steps");
    let rows = browser.wait(
        "one row per rank",
        "const rows = document.querySelectorAll('[data-testid=ranks-table] tbody th').length; return rows >= 4 && rows",
    )?;
    assert_eq!(rows, 4);
    Ok(())
}

/// Returns the numbers of rank 2 in this step.
fn selection(browser: &Browser, step: &str) -> anyhow::Result<String> {
    let detail = browser.wait(
        "the numbers of the selection",
        &format!(
            "const text = document.querySelector('[data-testid=rank-detail]')?.innerText ?? '';
             return /rank 2/i.test(text) && text.replace(/[^0-9a-z]/gi, '').includes('step{step}')
                 && /lateness/.test(text) && text"
        ),
    )?;
    Ok(detail.as_str().unwrap_or_default().to_owned())
}

fn buckets(browser: &Browser) -> anyhow::Result<()> {
    browser.click("[data-testid=tab-buckets]")?;
    wait_for_colors(browser, "waterfall")?;
    browser.wait(
        "buckets in the table",
        "return document.querySelectorAll('[data-testid=buckets-table] tbody th').length > 1",
    )?;
    let step = "const step = Number(document.querySelector('[data-testid=step]')?.value);";
    let pressed = "document.querySelector('[data-testid=follow]').ariaPressed";
    let chosen = "const step = new URLSearchParams(location.search).get('step'); return step";
    let chosen = browser.run(chosen)?;
    assert_eq!(
        browser.run("return document.querySelector('[data-testid=step]').value")?,
        chosen,
        "the selection changed"
    );
    assert_eq!(browser.run(&format!("return {pressed}"))?, "false", "the view left the selected step");
    browser.click("[data-testid=follow]")?;
    browser.wait("the view to follow", &format!("return {pressed} === 'true'"))?;
    let shown = browser.wait("a step", &format!("{step} return step > 0 && step"))?;
    browser.wait("the newest step to change", &format!("{step} return step > {shown} + 2"))?;
    // The view stops when asked to, while the run continues.
    browser.click("[data-testid=follow]")?;
    let kept = browser.wait(
        "the step in the address",
        "const step = new URLSearchParams(location.search).get('step'); return step && Number(step)",
    )?;
    let kept = kept.as_u64().context("no number")?;
    wait_for_step_after(browser, kept + 10)?;
    assert_eq!(browser.run(&format!("{step} return step"))?, kept, "the view left the selected step");
    Ok(())
}

/// Checks that a paused page does not change while the run continues, and that a resumed page catches up.
fn pause(browser: &Browser, server: &Server) -> anyhow::Result<()> {
    browser.click("[data-testid=tab-overview]")?;
    connection(browser, "live")?;
    browser.click("[data-testid=pause]")?;
    connection(browser, "paused")?;
    let frozen = last_step(browser)?;
    let at = "const at = (new URLSearchParams(location.search).get('steps') ?? '').split('..')[1] ?? null;";
    let shared = browser.wait("the steps in the address", &format!("{at} return at && Number(at)"))?;
    assert_eq!(shared, frozen, "the address does not have the shown step");
    wait_until("the run to continue", || {
        let runs = get_json(&format!("{}/api/v1/runs", server.address)).ok()?;
        (runs[0]["last_step"].as_u64()? > frozen + 5).then_some(())
    })?;
    assert_eq!(last_step(browser)?, frozen, "a paused page changed");
    browser.click("[data-testid=pause]")?;
    connection(browser, "live")?;
    browser.wait("the address to follow the newest step", &format!("{at} return at === null"))?;
    let step = last_step(browser)?;
    wait_for_step_after(browser, step)
}

/// Checks that the page reports a stopped server and keeps its contents, and that it continues once the server is back.
fn survives_the_server(browser: &Browser, server: Server, data: &Path) -> anyhow::Result<Server> {
    let listen = server.listen().to_owned();
    server.kill()?;
    connection(browser, "stale|lost")?;
    assert!(browser.text("stale-notice")?.contains("resumes automatically"));
    let step = last_step(browser)?;
    assert!(browser.text("verdict")?.contains("ank 2"), "the verdict disappeared");
    let server = Server::start_at(data, &listen)?;
    connection(browser, "live")?;
    wait_for_step_after(browser, step + 3)?;
    let notice = "return !document.querySelector('[data-testid=stale-notice]')";
    browser.wait("the notice to go", notice)?;
    // Chromium reports connections that a stopped server refuses, and a chart may ask before the page knows that the
    // server is gone, or before the new server has read the run back.
    ensure_quiet(browser, &["WebSocket connection to ", "ERR_CONNECTION_REFUSED", "/heatmap?"])?;
    Ok(server)
}

fn small_and_dark(browser: &Browser) -> anyhow::Result<()> {
    browser.viewport(400, 800)?;
    for tab in ["overview", "ranks", "buckets"] {
        browser.click(&format!("[data-testid=tab-{tab}]"))?;
        let chart = match tab {
            "overview" => "chart-ledger",
            "ranks" => "heatmap",
            _ => "waterfall",
        };
        wait_for_colors(browser, chart)?;
        ensure_fits(browser, tab)?;
    }
    browser.click(".brand")?;
    browser.text("runs-table")?;
    ensure_fits(browser, "the list of runs")?;
    browser.viewport(1440, 900)?;
    browser.prefer_dark(true)?;
    let luminance = "const light = css => css.match(/[0-9.]+/g).slice(0, 3)
            .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
        const style = getComputedStyle(document.body);
        const [ground, ink] = [light(style.backgroundColor), light(style.color)];";
    browser.wait(
        "a dark page with light text",
        &format!("{luminance} return ground < 0.05 && (ink + 0.05) / (ground + 0.05) > 7"),
    )?;
    browser.prefer_dark(false)?;
    browser
        .wait("a light page with dark text", &format!("{luminance} return ground > 0.8 && ink < 0.05"))
        .map(drop)
}

/// Kills a rank, and checks that the page shows the run as failed.
fn a_killed_rank(browser: &Browser, job: &Job) -> anyhow::Result<()> {
    let victim = job.rank_pids()?.get(1).copied().context("there is no rank 1")?;
    kill_process(Pid::from_raw(victim as i32).context("a pid is positive")?, Signal::KILL)?;
    browser
        .wait(
            "a failed run in the list with the failed rank",
            "const row = document.querySelector('[data-testid=runs-table] tr:has([data-state=failed])'); \
             return !!row && /Rank 1 was killed by signal 9/.test(row.innerText)",
        )
        .map(drop)
}

/// Checks that the page shows the run as completed, with the figures of the report.
fn a_completed_run(browser: &Browser, data: &Path) -> anyhow::Result<()> {
    browser.wait(
        "a completed run in the list",
        "return !!document.querySelector('[data-testid=runs-table] [data-state=completed]')",
    )?;
    browser.click("[data-testid=runs-table] tr:has([data-state=completed]) .name a")?;
    browser.wait(
        "the run to be completed",
        "return !!document.querySelector('.run-head [data-state=completed]')",
    )?;
    assert_eq!(last_step(browser)?, 59);
    let report = report(data, "latest")?;
    let mean = report["period_nanos"].as_f64().context("the report has a step time")?;
    let shown = browser.wait(
        "the step time",
        "const text = document.querySelector('[data-testid=step-time]')?.innerText ?? ''; return /[0-9]/.test(text) && text",
    )?;
    let shown = shown.as_str().unwrap_or_default().to_owned();
    ensure!(shown.ends_with("ms"), "the step time is {shown:?}, but should be in milliseconds");
    let difference = (number(&shown)? * 1e6 - mean).abs() / mean;
    ensure!(difference < 0.01, "the page shows {shown:?}, but the report has {mean} ns");
    Ok(())
}
