//! What works on every view: commands, links, messages, charts that lead to a step, and a page that is printed or does not
//! load.

use anyhow::ensure;
use testkit::browser::Browser;
use testkit::feed::Feed;
use testkit::simulator::Simulation;

use super::key::{CONTROL_K, DOWN, ENTER};
use super::views::{Page, plan, quiet, says};

/// Opens the list of commands, types `words`, and carries out the first command, which must be `first`.
fn command(browser: &Browser, words: &str, first: &str) -> anyhow::Result<()> {
    browser.type_keys(CONTROL_K)?;
    browser.wait("the commands", "return document.querySelector('dialog.commands[open]') !== null")?;
    browser.type_keys(words)?;
    let found =
        format!("return document.querySelector('#command-list [role=option] span')?.innerText === '{first}'");
    browser.wait(&format!("{first} to be the first command"), &found)?;
    browser.type_keys(ENTER)?;
    browser.wait("the list to close", "return document.querySelector('dialog[open]') === null").map(drop)
}

/// Waits until the address matches a pattern.
fn address(browser: &Browser, pattern: &str) -> anyhow::Result<()> {
    let script = format!("return /{pattern}/.test(location.pathname + location.search)");
    browser.wait(&format!("the address to match /{pattern}/"), &script).map(drop)
}

#[test]
fn commands_find_steps_buckets_hosts_views_runs_and_actions() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let (run, other) = (page.small_run()?, page.other_run()?);
    page.open(&run, 0, "?steps=100..179")?;
    says(browser, "verdict", "Rank 2")?;
    command(browser, "step 150", "Step 150")?;
    address(browser, "buckets[?].*step=150")?;
    says(browser, "waterfall-facts", "ranks")?;
    command(browser, "bucket 1", "Bucket 1")?;
    address(browser, "buckets[?].*bucket=1")?;
    command(browser, "host0", "Host host0")?;
    address(browser, "ranks[?].*order=host")?;
    command(browser, "health", "Health")?;
    // Within the run, the selected steps stay.
    address(browser, "health[?].*steps=100[.][.]179")?;
    command(browser, "show all", "Show all steps")?;
    address(browser, "steps=0[.][.]239")?;
    command(browser, "light or", "Light or dark")?;
    browser.wait("the other theme", "return document.documentElement.dataset.theme === 'dark'")?;
    command(browser, &other, &format!("simulated · {other}"))?;
    address(browser, &format!("^/runs/{other}$").replace('/', "[/]"))?;
    quiet(browser)
}

#[test]
fn the_link_is_copied_and_notifications_are_asked_for() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    browser.grant(&["clipboardReadWrite", "clipboardSanitizedWrite", "notifications"])?;
    page.open(&run, 1, "?rank=2&step=150")?;
    browser.click("[data-testid=copy-link]")?;
    says(browser, "toasts", "Link copied")?;
    let copied = browser.run_async(
        "const done = arguments[arguments.length - 1];
         navigator.clipboard.readText().then(text => done(text === location.href), error => done(`${error}`))",
    )?;
    ensure!(copied == true, "the clipboard has another text: {copied}");
    command(browser, "notify", "Notify me of verdicts")?;
    says(browser, "toasts", "You are notified of verdicts while this page is open")?;
    quiet(browser)
}

#[test]
fn a_verdict_that_appears_is_told_and_is_in_the_title() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    // Every step is a batch of its own, and the fault begins in the second half.
    let plan = testkit::simulator::Plan { singly_from: 0, ..plan(4, 160, (2, 80)) };
    let mut feed = Feed::new(Simulation::run(&plan));
    feed.send_all_but(90, page.server_address())?;
    page.open_run(&feed.run, "")?;
    says(browser, "verdict", "Nothing slows the job")?;
    let title = format!("return document.title === '{} · Paceline'", feed.run);
    browser.wait("a title without an alarm", &title)?;
    feed.send_all_but(0, page.server_address())?;
    says(browser, "toasts", "rank 2 waits? for its input")?;
    browser.wait("the title to name the fault", "return document.title.startsWith('(!) Rank 2: input')")?;
    browser.click("[data-testid=toasts] li:has(span) button")?;
    quiet(browser)
}

#[test]
fn a_click_in_any_chart_goes_to_its_step() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    for (view, chart) in [
        (0, "timeline-strip"),
        (0, "culprit"),
        (0, "chart-ledger"),
        (0, "chart-step-time"),
        (0, "chart-throughput"),
        (1, "rank-lines"),
    ] {
        page.open(&run, view, "")?;
        says(browser, "covers", "figures of steps")?;
        let there = format!("return document.querySelector('[data-testid={chart}]')?.clientWidth > 200");
        browser.wait(chart, &there)?;
        // A chart of points reacts near a point, which follows its data. The click is repeated until there are data.
        let clicked = format!(
            "if (location.pathname.endsWith('/buckets')) return new URLSearchParams(location.search).get('step');
             const chart = document.querySelector('[data-testid={chart}]');
             chart.scrollIntoView({{ block: 'center' }});
             const box = chart.getBoundingClientRect();
             for (const kind of ['pointermove', 'pointerdown', 'pointerup'])
                 chart.dispatchEvent(new PointerEvent(kind, {{ clientX: box.left + box.width / 2,
                     clientY: box.bottom - 40, button: 0, pointerId: 1, bubbles: true }}));
             return null"
        );
        let step = browser.wait(&format!("a click in {chart} to open a step"), &clicked)?;
        let step: u64 = step.as_str().unwrap_or_default().parse()?;
        ensure!((60..200).contains(&step), "{chart}: the middle is step {step}");
        says(browser, "waterfall-facts", "ranks")?;
    }
    quiet(browser)
}

#[test]
fn a_page_that_cannot_load_says_what_to_do() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    browser.block(&["*.wasm"])?;
    page.open_list_unloaded()?;
    browser.wait(
        "the frame to explain itself",
        "return /could not be loaded[^]*Reload[^]*paceline report/.test(document.getElementById('frame')?.innerText ?? '')",
    )?;
    browser.block(&[])?;
    browser.reload()?;
    says(browser, "empty", "No runs yet")
}

#[test]
fn a_printed_page_has_its_figures_and_no_controls() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 0, "")?;
    says(browser, "verdict", "Rank 2")?;
    browser.print_media(true)?;
    let printed = browser.run(
        "const shown = css => [...document.querySelectorAll(css)].filter(e => e.checkVisibility()).length;
         return [shown('.verdict .sentence'), shown('.figures dd'), shown('.bar button'), shown('.tabs'),
             shown('[data-testid=export]')]",
    )?;
    browser.print_media(false)?;
    let count = |at: usize| printed[at].as_u64().unwrap_or(99);
    ensure!(count(0) == 1 && count(1) > 4, "figures are missing in print: {printed}");
    ensure!(count(2) + count(3) + count(4) == 0, "controls are printed: {printed}");
    quiet(browser)
}

#[test]
fn a_rank_is_found_and_explained_with_the_keyboard_alone() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open_list("", "1 run")?;
    browser.run("document.activeElement.blur()")?;
    browser.type_keys(DOWN)?;
    browser.type_keys(ENTER)?;
    address(browser, &format!("^[/]runs[/]{run}$"))?;
    says(browser, "verdict", "Rank 2")?;
    // The evidence unfolds, and the example step opens.
    browser.press("[data-testid=grounds]", ENTER)?;
    browser.wait("the evidence", "return document.querySelector('.evidence li')?.checkVisibility()")?;
    browser.press("[data-testid=example-step]", ENTER)?;
    address(browser, "buckets[?].*rank=2")?;
    says(browser, "waits", "rank 2")?;
    // The list of ranks is sorted and a rank chosen and pinned by key.
    browser.run("document.activeElement.blur()")?;
    browser.type_keys("2")?;
    address(browser, "[/]ranks")?;
    browser.press("[data-testid=rank-list] tbody tr:nth-child(2) th button", ENTER)?;
    address(browser, "rank=2")?;
    browser.press("[data-testid=pin]", ENTER)?;
    address(browser, "pin=2")?;
    says(browser, "differences", "rank 2 against the others")?;
    quiet(browser)
}
