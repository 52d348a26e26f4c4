//! What a person does with the list of runs: search, filter, sort, tick and compare.

use anyhow::ensure;
use serde_json::Value;
use testkit::browser::Browser;

use super::views::{Page, quiet, says};

/// Waits until the list shows these runs, in this order.
fn lists(browser: &Browser, runs: &[&str]) -> anyhow::Result<()> {
    let script = format!(
        "const shown = [...document.querySelectorAll('[data-testid=runs-table] [data-pick]')].map(e => e.dataset.pick);
         return JSON.stringify(shown) === '{}'",
        serde_json::to_string(runs)?
    );
    browser.wait(&format!("the runs {runs:?}"), &script).map(drop)
}

#[test]
fn a_run_is_found_by_words_by_its_number_of_ranks_and_by_its_label() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let (four, eight) = (page.small_run()?, page.other_run()?);
    page.open_list("", "2 runs")?;
    browser.press("[data-testid=search]", "input 240")?;
    lists(browser, &[&four])?;
    browser.wait("the words in the address", "return /[?&]q=input/.test(location.search)")?;
    browser.reload()?;
    lists(browser, &[&four])?;
    page.open_list("?ranks=8", "1")?;
    lists(browser, &[&eight])?;
    browser.click("[data-testid=clear]")?;
    says(browser, "count", "2 runs")?;
    // A simulated run has its seed as a label, and as a part of its id.
    let label = format!("seed={}", eight.trim_start_matches("simulated-"));
    browser.run(&format!(
        "const list = document.querySelector('[data-testid=filter-label]');
         list.value = '{label}';
         list.dispatchEvent(new Event('change', {{ bubbles: true }}));"
    ))?;
    lists(browser, &[&eight])?;
    browser.reload()?;
    lists(browser, &[&eight])?;
    quiet(browser)
}

#[test]
fn the_list_is_sorted_by_a_heading_and_the_link_keeps_the_order() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let (four, eight) = (page.small_run()?, page.other_run()?);
    page.open_list("", "2 runs")?;
    let by_ranks = "[...document.querySelectorAll('[data-testid=runs-table] thead button')].find(b => /^Ranks/.test(b.innerText))";
    browser.run(&format!("{by_ranks}.click()"))?;
    lists(browser, &[&eight, &four])?;
    browser.run(&format!("{by_ranks}.click()"))?;
    lists(browser, &[&four, &eight])?;
    browser.reload()?;
    lists(browser, &[&four, &eight])?;
    quiet(browser)
}

#[test]
fn ticked_runs_share_a_chart_and_exactly_two_are_compared() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let (four, eight) = (page.small_run()?, page.other_run()?);
    page.open_list("", "2 runs")?;
    browser.click(&format!("[data-pick={four}]"))?;
    says(browser, "overlay-legend", four.as_str())?;
    let is_hidden =
        "return document.querySelector('[data-testid=compare-ticked]').classList.contains('hidden')";
    ensure!(browser.run(is_hidden)? == Value::Bool(true), "one run alone can be compared");
    browser.click(&format!("[data-pick={eight}]"))?;
    says(browser, "overlay-legend", &eight)?;
    browser.wait("two runs to compare", &is_hidden.replace("return ", "return !"))?;
    browser.click("[data-testid=over-clock]")?;
    browser.wait("the axis in the address", "return /over=clock/.test(location.search)")?;
    browser.reload()?;
    says(browser, "overlay-legend", &format!("{four}[^]*{eight}"))?;
    browser.click("[data-testid=untick]")?;
    browser.wait("no chart", "return document.querySelector('[data-testid=overlay]') === null")?;
    quiet(browser)
}
