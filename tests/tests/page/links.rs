//! Links to a selection in a run outlive the run and the server.

use testkit::browser::Browser;
use testkit::feed::Feed;
use testkit::programs::Server;
use testkit::simulator::{FaultKind, Plan, Simulation};

use super::views::{plan, quiet, says};

/// What the page shows of the selection that the link names.
const SELECTION: &str = "const text = id => document.querySelector(`[data-testid=${id}]`)?.innerText ?? '';
    return /Rank 2, step 150/.test(text('rank-detail')) && /lateness/.test(text('rank-detail'))
        && document.querySelector('[data-testid=first-step]').value === '100'
        && document.querySelector('[data-testid=last-selected-step]').value === '179'
        && [text('rank-detail'), document.querySelector('[data-testid=measure]').value]";

const ENDED: &str = "return document.querySelector('.chip[data-state=completed]') !== null";

#[test]
fn a_link_shows_the_same_after_the_end_of_the_run_a_reload_and_a_restart() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut feed = Feed::new(Simulation::run(&plan(4, 240, (2, 120))));
    // The last round has the ends of the ranks.
    feed.send_all_but(1, &server.address)?;
    let query = "rank=2&step=150&steps=100..179&measure=input&pin=1";
    browser.open(&format!("{}/runs/{}/ranks?{query}", server.address, feed.run))?;
    let live = browser.wait("the selection in a live run", SELECTION)?;
    feed.send_all_but(0, &server.address)?;
    browser.wait("the end of the run", ENDED)?;
    assert_eq!(browser.wait("the selection at the end", SELECTION)?, live);
    browser.reload()?;
    assert_eq!(browser.wait("the selection after a reload", SELECTION)?, live);
    let listen = server.listen().to_owned();
    server.kill()?;
    browser.text("stale-notice")?;
    let _server = Server::start_at(data.path(), &listen)?;
    browser.wait("the server", "return document.querySelector('[data-testid=stale-notice]') === null")?;
    browser.console()?;
    browser.reload()?;
    assert_eq!(browser.wait("the selection after a restart", SELECTION)?, live);
    says(&browser, "covers", "figures of steps 100 to 179")?;
    quiet(&browser)
}

/// Returns a script that waits for the band of a fault of rank 2 that is over.
fn band_of_rank_2() -> String {
    let band = "[data-testid=marks] .mark[data-kind=resolved]";
    let says = "/^Rank 2 · input, resolved, steps (9.|10.) to (19.|20.)\\./";
    format!("return [...document.querySelectorAll('{band}')].some(band => {says}.test(band.ariaLabel))")
}

#[test]
fn the_band_of_a_past_fault_stays_live_after_a_restart_and_after_the_end() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    // A report covers 512 steps.
    let plan = Plan { steps: 900, ..Plan::small(7) }.with_fault_in(100..200, 2, FaultKind::Input, 15_000_000);
    let mut feed = Feed::new(Simulation::run(&plan));
    let half = feed.len() / 2;
    feed.send_all_but(half, &server.address)?;
    browser.open(&format!("{}/runs/{}", server.address, feed.run))?;
    let band = band_of_rank_2();
    browser.wait("the band of the fault", &band)?;
    feed.send_all_but(1, &server.address)?;
    let is_healthy =
        "return document.querySelector('[data-testid=verdict]')?.innerText.includes('slows the job')";
    browser.wait("a report without the fault", is_healthy)?;
    browser.wait("the band of the past fault", &band)?;
    let listen = server.listen().to_owned();
    server.kill()?;
    browser.text("stale-notice")?;
    let server = Server::start_at(data.path(), &listen)?;
    browser.console()?;
    browser.reload()?;
    browser.wait("a report without the fault after a restart", is_healthy)?;
    browser.wait("the band of the past fault after a restart", &band)?;
    feed.send_all_but(0, &server.address)?;
    browser.wait("the end of the run", ENDED)?;
    browser.wait("the band of the past fault after the end", &band)?;
    server.kill()?;
    browser.text("stale-notice")?;
    let _server = Server::start_at(data.path(), &listen)?;
    browser.console()?;
    browser.reload()?;
    browser.wait("the band of the past fault, read from disk", &band)?;
    quiet(&browser)
}
