//! What a person does with the waterfall of a step: see who waits for whom, measure a range, keep ranks in view, find a
//! step and a bucket.

use anyhow::ensure;
use testkit::browser::Browser;
use testkit::feed::Feed;
use testkit::simulator::{Plan, Simulation};

use super::questions::drag;
use super::views::{Page, plan, quiet, says};

/// The index of the Buckets view.
const BUCKETS: usize = 2;

fn wait_for_parameter(browser: &Browser, key: &str, value: &str) -> anyhow::Result<()> {
    let script = format!("return new URLSearchParams(location.search).get('{key}') === '{value}'");
    browser.wait(&format!("{key}={value} in the address"), &script).map(drop)
}

#[test]
fn the_sentence_names_the_last_rank_and_shows_it() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, BUCKETS, "?step=150")?;
    says(browser, "waits", "Rank 2 starts bucket [0-9]+ last. 3 ranks wait for it, 1[0-9.]+ ms on average")?;
    browser.click("[data-testid=show-waits]")?;
    wait_for_parameter(browser, "rank", "2")?;
    says(browser, "bucket-detail", "last to start")?;
    // Before the fault, waits are short.
    page.open(&run, BUCKETS, "?step=50")?;
    says(
        browser,
        "waits",
        "[0-9.]+ (µs|ns) on average|No rank waits|waits [0-9.]+ (µs|ns)|[12].[0-9]+ ms on average",
    )?;
    quiet(browser)
}

#[test]
fn the_waterfall_follows_a_run_to_its_last_step() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    // Every step is a batch of its own. Bursts of steps end at any moment between two fetches of the page.
    let plan = Plan { singly_from: 0, ..plan(4, 160, (2, 80)) };
    let mut feed = Feed::new(Simulation::run(&plan));
    for left in [100, 93, 81, 70, 62, 51, 40] {
        feed.send_all_but(left, page.server_address())?;
        if left == 100 {
            page.open(&feed.run, BUCKETS, "")?;
        }
        let last = 160 - left - 1;
        let shown = format!("return document.querySelector('[data-testid=step]')?.value === '{last}'");
        browser.wait(&format!("the waterfall of step {last}"), &shown)?;
    }
    quiet(browser)
}

#[test]
fn a_link_to_a_step_that_has_not_arrived_shows_it_once_it_has() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let mut feed = Feed::new(Simulation::run(&Plan { singly_from: 0, ..plan(4, 160, (2, 80)) }));
    for (view, step, left) in [("buckets", 100, 90), ("ranks", 140, 50)] {
        feed.send_all_but(left, page.server_address())?;
        browser.open(&format!("{}/runs/{}/{view}?step={step}&rank=1", page.server_address(), feed.run))?;
        let says = |what: &str| format!("return /{what}/.test(document.querySelector('main').innerText)");
        let not_yet = format!("step {step} of run [^ ]* has not arrived");
        browser.wait("the reason", &says(&not_yet))?;
        feed.send_all_but(left - 40, page.server_address())?;
        let not_shown = format!("return !/{not_yet}/.test(document.querySelector('main').innerText)");
        browser.wait("the step", &not_shown)?;
    }
    Ok(())
}

#[test]
fn a_dragged_range_has_totals_until_it_is_cleared() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, BUCKETS, "?step=150")?;
    drag(browser, "waterfall", 0.1, 0.6)?;
    says(browser, "measured", "mean of 4 ranks[^]*(forward|backward) [0-9.]+ ms")?;
    browser.type_keys("\u{e00c}")?;
    let cleared = "return document.querySelector('[data-testid=measured]') === null";
    browser.wait("the range to be cleared", cleared)?;
    // By keyboard, what is visible is measured.
    browser.type_keys("m")?;
    says(browser, "measured", "from 0 ns[^]*input [0-9.]+ (ms|µs)")?;
    quiet(browser)
}

#[test]
fn many_ranks_fold_and_a_pinned_one_stays_in_view() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.large_run()?;
    page.open(&run, BUCKETS, "?step=40&rank=7")?;
    says(browser, "waits", "Rank 613 starts bucket")?;
    says(browser, "folded", "1,020 other ranks are folded")?;
    browser.click("[data-testid=pin]")?;
    wait_for_parameter(browser, "pin", "7")?;
    browser.type_keys("\u{e00c}")?;
    says(browser, "folded", "1,020 other ranks are folded")?;
    browser.click("[data-testid=rows-all]")?;
    wait_for_parameter(browser, "rows", "all")?;
    says(browser, "folded", "^$")?;
    quiet(browser)
}

#[test]
fn the_worst_and_a_typical_step_are_one_click_away() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, BUCKETS, "?steps=0..239")?;
    let step = "const step = Number(new URLSearchParams(location.search).get('step'));";
    browser.click("[data-testid=worst-step]")?;
    browser.wait("a step with the fault", &format!("{step} return step >= 120"))?;
    let worst = browser.run("return document.querySelector('[data-testid=waterfall-facts]').innerText")?;
    browser.click("[data-testid=typical-step]")?;
    browser.wait(
        "another step",
        &format!("return document.querySelector('[data-testid=waterfall-facts]').innerText !== {worst}"),
    )?;
    quiet(browser)
}

#[test]
fn a_bucket_is_found_by_its_number() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.run_of_many_buckets()?;
    page.open(&run, BUCKETS, "")?;
    let rows = "const rows = [...document.querySelectorAll('[data-testid=buckets-table] tbody th')].map(th => th.innerText);";
    browser.wait("all buckets", &format!("{rows} return rows.length > 8"))?;
    let drawn =
        "return document.querySelectorAll('[data-testid=buckets-table] svg.distribution rect').length > 2";
    browser.wait("distributions", drawn)?;
    browser.click("[data-testid=buckets-table-filter]")?;
    browser.type_keys("bucket 1")?;
    browser.wait("one bucket", &format!("{rows} return rows.length === 1 && rows[0] === '1'"))?;
    quiet(browser)
}

#[test]
fn the_visible_part_is_chosen_in_the_miniature() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, BUCKETS, "?step=150")?;
    drag(browser, "minimap", 0.5, 0.75)?;
    let time = "return /^[0-9]+[.][.][0-9]+$/.test(new URLSearchParams(location.search).get('time'))";
    browser.wait("the visible time in the address", time)?;
    browser.type_keys("0")?;
    browser.wait("the whole step", "return !new URLSearchParams(location.search).get('time')")?;
    quiet(browser)
}

#[test]
fn a_selected_bucket_lists_its_parameters() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.run_with_layouts()?;
    page.open(&run, BUCKETS, "?bucket=1")?;
    says(browser, "parameters-words", "^12 parameters of float32, from block1.weight to block1.11.bias.$")?;
    says(browser, "parameters-table", "block1.weight\\s+1\\s+[0-9,]+\\s+[0-9.]+ [KM]i?B\\s+5[0-9.]* %")?;
    says(browser, "layouts", "Net: 1 bucket at first; [0-9]+ buckets since step 1 .rebuilt..")?;
    says(
        browser,
        "layouts",
        "without a gradient on rank 0 in the last pass that was looked at: block[0-9]+.11.bias",
    )?;
    says(browser, "layouts", "rank 3 has other parameters in a bucket than rank 0")?;
    says(browser, "buckets-table", "block1.weight … .12 parameters.")?;
    page.open(&run, BUCKETS, "?bucket=0")?;
    says(browser, "parameters-words", "from block0<img src=x onerror='window.harmed = true'>.weight to")?;
    ensure!(browser.run("return window.harmed === undefined")? == true, "a name became markup");
    quiet(browser)
}

#[test]
fn without_layouts_the_view_says_why_no_parameters_are_known() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let run = page.small_run()?;
    page.open(&run, BUCKETS, "?bucket=1")?;
    says(&page.browser, "parameters-words", "This job's buckets have no recorded parameters")?;
    quiet(&page.browser)
}
