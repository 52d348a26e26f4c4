//! Tests of the Code view: a verdict's line of code, and the stacks that name it.

use anyhow::ensure;
use serde_json::{Value, json};
use testkit::browser::Browser;
use testkit::feed::Feed;
use testkit::programs::Server;
use testkit::simulator::{FaultKind, Plan, Simulation};
use testkit::stacks;

const SLOW: usize = 2;

#[test]
fn the_line_of_code_leads_to_the_stacks_and_a_frame_can_be_zoomed() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let plan = Plan { late: 80_000_000, ..Plan::small(6).with_fault(SLOW, FaultKind::Input, 10_000_000) };
    let mut feed = Feed::new(stacks::sampled(Simulation::run(&plan), SLOW));
    feed.send_all_but(0, &server.address)?;
    browser.open(&format!("{}/runs/{}", server.address, feed.run))?;
    let line = "return document.querySelector('[data-testid=line-of-code]')?.innerText ?? false";
    let said = browser.wait("the line of code", line)?;
    let said = said.as_str().unwrap_or_default();
    ensure!(said.contains("samples.py:12 (decode<img") && said.contains("80.0 % of its samples"), "{said}");
    browser.click("[data-testid=line-of-code] a")?;
    let frames =
        "return [...document.querySelectorAll('[data-testid=flame] text')].map(text => text.textContent)
        .filter(text => text !== '')";
    let shown = |what: &str, first: &str, count: usize| {
        let script = format!(
            "const all = (() => {{ {frames} }})(); return all[0]?.includes('{first}') && all.length === {count} && all"
        );
        browser.wait(what, &script)
    };
    let all = shown("the flame graph", "train.py:90", 5)?;
    ensure!(all[3].as_str().is_some_and(|name| name.contains("samples.py:12")), "{all}");
    let chosen =
        "return ['rank', 'against', 'thread'].map(key => new URLSearchParams(location.search).get(key))";
    ensure!(browser.run(chosen)? == json!(["2", "0", "main"]), "{}", browser.run(chosen)?);
    let colors = "return [...document.querySelectorAll('[data-testid=flame] rect')].map(rect => rect.className.baseVal)";
    ensure!(browser.run(colors)? == json!(["same", "more-3", "more-3", "more-3", "less-3"]));
    let first = browser
        .wait("the lines", "return document.querySelector('[data-testid=code-lines] tbody')?.innerText")?;
    ensure!(
        first
            .as_str()
            .and_then(|text| text.trim().lines().next())
            .is_some_and(|row| row.contains("/job/samples.py:12")),
        "{first}"
    );

    let frame = "[data-testid=flame] > svg:nth-of-type(3)";
    browser.press(frame, "\u{e007}")?;
    shown("the frame that was chosen and its callees", "train.py:90", 4)?;
    browser.click(".flame-head button")?;
    shown("the whole stack", "train.py:90", 5)?;
    // Another rank to compare with is none: this one was sampled alone.
    browser.run(
        "const choice = document.querySelector('[data-testid=code-rank]'); choice.value = '0';
        choice.dispatchEvent(new Event('change', {bubbles: true}))",
    )?;
    browser.wait(
        "the other rank",
        "return document.querySelector('[data-testid=code-against]').value === '2'",
    )?;
    ensure!(browser.run("return window.harmed === undefined")? == Value::Bool(true));
    let complaints: Vec<_> = browser.console()?.into_iter().filter(|line| line.level == "SEVERE").collect();
    ensure!(complaints.is_empty(), "the console complains: {complaints:#?}");
    Ok(())
}

#[test]
fn without_stacks_the_view_says_when_there_will_be_some() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut feed = Feed::new(Simulation::run(&Plan::small(7)));
    feed.send_all_but(1, &server.address)?;
    browser.open(&format!("{}/runs/{}/code", server.address, feed.run))?;
    let told = "return /No rank has been sampled yet/.test(document.querySelector('[data-testid=code-status]')?.innerText)";
    browser.wait("the reason", told)?;
    browser.click("[data-testid=sample]")?;
    // The ranks do not answer, because they are simulated. The request is not an error.
    let quiet = "return document.querySelector('[data-testid=code] .error').innerText === ''";
    ensure!(browser.run(quiet)? == Value::Bool(true));
    Ok(())
}
