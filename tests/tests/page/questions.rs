//! What a person asks of the page, and does to get an answer: select steps, find something by name, look up a term,
//! compare ranks.

use testkit::browser::Browser;

use super::key::{CONTROL_K, ENTER, ESCAPE, RIGHT};
use super::views::{Page, quiet, says};

/// Drags with the pointer from one share of an element's width to another.
pub fn drag(browser: &Browser, testid: &str, from: f64, to: f64) -> anyhow::Result<()> {
    let script = format!(
        "const chart = document.querySelector('[data-testid={testid}]');
         const box = chart.getBoundingClientRect();
         const send = (kind, share) => chart.dispatchEvent(new PointerEvent(kind, {{
             clientX: box.left + 56 + (box.width - 72) * share, clientY: box.top + box.height / 3,
             button: 0, pointerId: 1, bubbles: true
         }}));
         send('pointerdown', {from}); send('pointermove', ({from} + {to}) / 2); send('pointermove', {to});
         send('pointerup', {to})"
    );
    browser.run(&script).map(drop)
}

#[test]
fn a_brushed_range_gives_every_figure_for_those_steps() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 0, "")?;
    says(browser, "verdict", "Rank 2")?;
    // The verdict may be there before the last steps.
    let whole = "return [...document.querySelectorAll('input')].some(input => input.value === '239')";
    browser.wait("all steps in the strip", whole)?;
    says(browser, "goodput", "exposed wait")?;
    // The fault begins in the middle of the run.
    drag(browser, "timeline-strip", 0.0, 0.4)?;
    says(browser, "verdict", "Nothing slows the job")?;
    let steps = "return /^0[.][.]9[0-9]$/.test(new URLSearchParams(location.search).get('steps'))";
    browser.wait("the range in the address", steps)?;
    says(browser, "goodput", "figure of the whole run")?;
    // A verdict's band selects its steps.
    browser.click("[data-testid=marks] [data-kind=active]")?;
    says(browser, "verdict", "Rank 2")?;
    says(browser, "covers", "figures of steps 1[0-9]+ to 2[0-9]+")?;
    quiet(browser)
}

#[test]
fn a_rank_is_found_by_typing_its_number() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 0, "")?;
    says(browser, "verdict", "Rank 2")?;
    browser.type_keys(CONTROL_K)?;
    browser
        .wait("the list of commands", "return document.querySelector('dialog.commands[open]') !== null")?;
    browser.type_keys("rank 2")?;
    says(browser, "commands", "Rank 2")?;
    browser.type_keys(ENTER)?;
    let there = "return location.pathname.endsWith('/ranks') && new URLSearchParams(location.search).get('rank') === '2'";
    browser.wait("the rank's page", there)?;
    browser.wait("the list to close", "return document.querySelector('dialog[open]') === null")?;
    quiet(browser)
}

#[test]
fn a_term_opens_its_definition_by_key() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 0, "")?;
    says(browser, "overlap", "%")?;
    browser.press(".figure:nth-child(4) button.term", ENTER)?;
    says(browser, "definition", "hidden communication . communication")?;
    browser.type_keys(ESCAPE)?;
    browser.wait("the definition to close", "return document.querySelector('dialog[open]') === null")?;
    // The definition opens a second time.
    browser.click(".figure:nth-child(1) button.term")?;
    says(browser, "definition", "one observed step to the next")?;
    quiet(browser)
}

#[test]
fn the_slow_rank_is_first_in_the_list_and_its_input_differs() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 1, "")?;
    let first = "return document.querySelector('[data-testid=rank-list] tbody th')?.innerText === '2'";
    browser.wait("rank 2 to be first", first)?;
    browser.click("[data-testid=rank-list] tbody th button")?;
    says(browser, "differences", "rank 2 against the others[^]*input[^]*[+][0-9.]+ ms")?;
    browser.click("[data-testid=pin]")?;
    browser
        .wait("the pin in the address", "return new URLSearchParams(location.search).get('pin') === '2'")?;
    says(browser, "pin", "Unpin rank 2")?;
    quiet(browser)
}

#[test]
fn the_worst_ranks_of_a_large_run_have_tall_rows() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.large_run()?;
    // In a run of many ranks, the worst ones are what the heatmap begins with.
    page.open(&run, 1, "")?;
    let rows = "return document.querySelector('[data-testid=rank-list] tbody th')?.innerText === '613'";
    browser.wait("rank 613 to be first", rows)?;
    // The first row of the heatmap is the slow rank: an arrow key selects it.
    browser.press("[data-testid=heatmap]", RIGHT)?;
    let selected = "return new URLSearchParams(location.search).get('rank') === '613'";
    browser.wait("rank 613 to be selected", selected)?;
    // Any other rank is found by its number.
    browser.click("[data-testid=rank-list-filter]")?;
    browser.type_keys("rank 97")?;
    let found = "return [...document.querySelectorAll('[data-testid=rank-list] tbody th')].map(e => e.innerText).join() === '97'";
    browser.wait("rank 97 alone", found)?;
    // Among all ranks the row of the slow one is hard to see, so it also has one of its own.
    browser.click("[aria-label=Rows] button:last-child")?;
    says(browser, "selected-row", "Rank 613 over steps")?;
    // The hosts and the kinds of devices are lists too.
    browser.click("[data-testid=list-rows] button:nth-child(2)")?;
    says(browser, "host-list", "^[^]*host[0-9]+[^]*613")?;
    browser.click("[data-testid=list-rows] button:last-child")?;
    says(browser, "device-list", "no device reported[^]*1,024[^]*613")?;
    quiet(browser)
}
