//! Tests of every view in a real Chromium, with simulated runs that were sent to a real server over HTTP. `live_job.rs`
//! tests the parts that need a job of real processes.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;
use testkit::axe;
use testkit::browser::Browser;
use testkit::devices;
use testkit::feed::Feed;
use testkit::layout::overflow;
use testkit::layouts;
use testkit::programs::{Server, get_json, wait_until};
use testkit::simulator::{Fault, FaultKind, Plan, Simulation};
use wire::device::throttle;
use wire::request::RecordingRequest;

use super::key::{ENTER, ESCAPE, LEFT, TAB};

/// The slow rank of the large run, and the first step in which it is slow.
const SLOW: (usize, u64) = (613, 20);
const LARGE: (usize, u64) = (1_024, 64);

/// Returns the plan of a job in which one rank has late input from some step on.
pub fn plan(ranks: usize, steps: u64, (slow, from): (usize, u64)) -> Plan {
    let fault = Fault { rank: slow % ranks, kind: FaultKind::Input, nanos: 12_000_000, from, to: steps };
    Plan { ranks, ranks_per_host: 8, steps, tick: 1_000_000_000, faults: vec![fault], ..Plan::small(steps) }
}

/// Sends the simulation, waits until its last step is analyzed, and returns the run's id.
fn send(server: &Server, simulation: Simulation) -> anyhow::Result<String> {
    let last = simulation.steps.len() - 1;
    let mut feed = Feed::new(simulation);
    feed.send_all_but(0, &server.address)?;
    let summary = format!("{}/api/v1/runs/{}/summary", server.address, feed.run);
    let is_analyzed = || (get_json(&summary).ok()?["last_step"] == last).then_some(());
    wait_until("the last step", is_analyzed)?;
    Ok(feed.run)
}

/// Simulates a job with devices. One of them has answered a burst.
fn with_devices(plan: &Plan) -> Simulation {
    let mut simulation = devices::sampled(Simulation::run(plan), 2, throttle::THERMAL, 1_350);
    let burst = devices::burst(RecordingRequest { number: 1, millis: 1_000 }, "gemm", 9_000_000);
    simulation.batches[0].batch.notes.push(burst);
    simulation
}

/// A browser and a server without runs.
pub struct Page {
    pub browser: Browser,
    server: Server,
    _data: TempDir,
}

impl Page {
    /// Returns `None`, after a message, if there is no browser.
    pub fn start() -> anyhow::Result<Option<Self>> {
        let Some(browser) = Browser::start()? else { return Ok(None) };
        let data = tempfile::tempdir()?;
        Ok(Some(Self { browser, server: Server::start(data.path())?, _data: data }))
    }

    /// Opens the list of runs with this query, and waits until the count of runs matches `pattern`.
    pub fn open_list(&self, query: &str, pattern: &str) -> anyhow::Result<()> {
        self.browser.open(&format!("{}/{query}", self.server.address))?;
        says(&self.browser, "count", pattern)
    }

    pub fn server_address(&self) -> &str {
        &self.server.address
    }

    /// Opens the list of runs without waiting for it.
    pub fn open_list_unloaded(&self) -> anyhow::Result<()> {
        self.browser.open(&self.server.address)
    }

    /// Opens a path below a run without waiting for it.
    pub fn open_run(&self, run: &str, path: &str) -> anyhow::Result<()> {
        self.browser.open(&format!("{}/runs/{run}{path}", self.server.address))
    }

    /// Sends a run of 4 ranks and returns its id. Rank 2 is late from step 120 on.
    pub fn small_run(&self) -> anyhow::Result<String> {
        send(&self.server, with_devices(&plan(4, 240, (2, 120))))
    }

    /// Sends a run of 2 ranks with 12 buckets.
    pub fn run_of_many_buckets(&self) -> anyhow::Result<String> {
        let plan = Plan { buckets: 12, ..plan(2, 60, (1, 20)) };
        send(&self.server, Simulation::run(&plan))
    }

    /// Sends a run of 4 ranks whose buckets have recorded parameters. Rank 3 has another one in bucket 0.
    pub fn run_with_layouts(&self) -> anyhow::Result<String> {
        send(&self.server, layouts::recorded(Simulation::run(&plan(4, 60, (2, 20))), 3))
    }

    /// Sends another run of the same name, on 8 ranks.
    pub fn other_run(&self) -> anyhow::Result<String> {
        send(&self.server, Simulation::run(&plan(8, 200, (5, 0))))
    }

    /// Sends another run of the same name, on 1,024 ranks.
    pub fn large_run(&self) -> anyhow::Result<String> {
        send(&self.server, Simulation::run(&plan(LARGE.0, LARGE.1, SLOW)))
    }

    /// Sends the same run with devices. That of the slow rank has a lower clock.
    pub fn large_run_with_devices(&self) -> anyhow::Result<String> {
        let simulation = Simulation::run(&plan(LARGE.0, LARGE.1, SLOW));
        send(&self.server, devices::sampled(simulation, SLOW.0, throttle::THERMAL, 1_350))
    }

    /// Opens a view, by its index in [`VIEWS`], and waits until it is complete.
    pub fn open(&self, run: &str, view: usize, query: &str) -> anyhow::Result<()> {
        let (path, testid, pattern) = VIEWS[view];
        self.browser.open(&format!("{}/runs/{run}{path}{query}", self.server.address))?;
        let testid = testid.split('|').next_back().unwrap_or(testid);
        says(&self.browser, testid, pattern)
    }
}

/// Waits until the text of the element matches `pattern`.
pub fn says(browser: &Browser, testid: &str, pattern: &str) -> anyhow::Result<()> {
    let script = format!(
        "return /{pattern}/i.test(document.querySelector('[data-testid={testid}]')?.innerText ?? '')"
    );
    browser.wait(&format!("{testid} to match /{pattern}/"), &script).map(drop)
}

/// Returns an error if anything is wider than the window, except inside scrolling elements.
fn fits(browser: &Browser, what: &str) -> anyhow::Result<()> {
    let wide = overflow(browser)?;
    ensure!(wide.is_none(), "{what} is wider than the window: {}", wide.unwrap_or_default());
    Ok(())
}

/// The views: path, an element, and the pattern of its text when the view is complete.
const VIEWS: [(&str, &str, &str); 6] = [
    ("", "verdict", "Rank"),
    ("/ranks", "level|scale", "."),
    ("/buckets", "waterfall-facts", "ranks"),
    ("/scaling", "scaling-runs", "simulated"),
    ("/utilization", "bursts", "60.0 %"),
    ("/health", "health", "Clock bound"),
];

#[test]
fn a_slow_rank_among_a_thousand_stays_visible() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.large_run()?;
    page.open(&run, 1, "?order=all")?;
    says(browser, "level", "max of .* 2 ranks")?;
    // The slow rank is one row of a thousand, and it is the brightest row.
    let bright = "const canvas = document.querySelector('[data-testid=heatmap]').parentElement.querySelector('canvas.raster');
        const {width, height} = canvas;
        const data = canvas.getContext('2d').getImageData(0, 0, width, height).data;
        let best = -1, most = 0;
        for (let y = 0; y < height; y++) {
            let sum = 0;
            for (let x = Math.floor(width / 2); x < width; x++) sum += data[4 * (y * width + x)];
            if (sum > most) { most = sum; best = y; }
        }
        return most > 0 && best / height * 1024";
    let rank = browser.wait("a bright row", bright)?.as_f64().context("the row is not a number")?;
    ensure!(
        (rank - SLOW.0 as f64).abs() < 4.0,
        "the brightest row is that of rank {rank}, not of {}",
        SLOW.0
    );
    // A click on a cell of several ranks selects the rank with the largest value.
    // The page may be inserting new cells, in which case the click goes to the old ones: click until one counts.
    let click = format!(
        "if (/Rank 613[^]*lateness/.test(document.querySelector('[data-testid=rank-detail]')?.innerText ?? '')) return true;
         const canvas = document.querySelector('[data-testid=heatmap]');
         const raster = canvas.parentElement.querySelector('canvas.raster').getBoundingClientRect();
         const at = {{ clientX: raster.left + raster.width * 0.9, bubbles: true, pointerId: 1, button: 0,
             clientY: Math.ceil(raster.top + {} / 1024 * raster.height) }};
         canvas.dispatchEvent(new PointerEvent('pointerdown', at));
         canvas.dispatchEvent(new PointerEvent('pointerup', at));
         return false",
        SLOW.0 & !1
    );
    browser.wait("the click to select a rank", &click)?;
    says(browser, "rank-detail", "Rank 613[^]*input[^]*lateness")?;
    // Zoomed in, each rank has its own row.
    browser.run("document.activeElement.blur()")?;
    for _ in 0..3 {
        browser.type_keys("W")?;
    }
    browser.wait("single ranks", "return document.querySelector('[data-testid=level]').innerText === ''")?;

    page.open(&run, 2, "")?;
    says(browser, "waterfall-facts", "1,024 ranks")?;
    browser.click("[data-testid=rows-all]")?;
    browser.wait(
        "the waterfall to explain its rows",
        "return /slowest of every [0-9]+ ranks/.test(document.querySelector('main').innerText)",
    )?;
    quiet(browser)
}

#[test]
fn a_selected_range_has_figures_of_its_own() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    // The fault begins at step 120.
    browser.open(&format!("{}/runs/{run}?steps=20..109", page.server.address))?;
    says(browser, "covers", "figures of steps 20 to 109")?;
    says(browser, "verdict", "Nothing slows the job")?;
    browser.run("document.activeElement.blur()")?;
    browser.type_keys("f")?;
    says(browser, "verdict", "Rank 2")?;
    says(browser, "covers", "figures of steps 2 to 2[0-9]+")?;
    let title = format!("return document.title === '(!) Rank 2: input · {run} · Paceline'");
    browser.wait("the title to name the fault", &title)?;
    quiet(browser)
}

#[test]
fn a_heading_sorts_its_table_by_click_and_by_key() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 1, "")?;
    // Rank 2 waits for its input, so it has the largest share of input.
    let ranks = |expected: &str| {
        let script = format!(
            "const rows = document.querySelectorAll('[data-testid=ledger-table] tbody th');
             return [...rows].map(row => row.innerText).join() === '{expected}'"
        );
        browser.wait(&format!("the ranks {expected}"), &script).map(drop)
    };
    let first = "return document.querySelector('[data-testid=ledger-table] tbody th').innerText";
    browser.wait("rank 2, whose local work takes longest, to come first", &format!("{first} === '2'"))?;
    let by_rank = "[data-testid=ledger-table] th:nth-child(1) button";
    browser.click(by_rank)?;
    ranks("3,2,1,0")?;
    browser.press(by_rank, "\u{e007}")?;
    ranks("0,1,2,3")?;
    let heading = "[data-testid=ledger-table] th:nth-child(4) button";
    browser.click(heading)?;
    let sorted = "return document.querySelector('[data-testid=ledger-table] th[aria-sort]')?.ariaSort";
    browser.wait("the table to be sorted", &format!("{sorted} === 'descending'"))?;
    browser.wait("rank 2 to come first", &format!("{first} === '2'"))?;
    browser.press(heading, "\u{e007}")?;
    browser.wait("the other direction", &format!("{sorted} === 'ascending'"))?;
    let last = "return [...document.querySelectorAll('[data-testid=ledger-table] tbody th')].pop().innerText";
    browser.wait("rank 2 to come last", &format!("{last} === '2'"))?;
    browser.press(heading, "\u{e007}")?;
    browser.wait(
        "the table in its own order",
        "return !document.querySelector('[data-testid=ledger-table] th[aria-sort]')",
    )?;
    browser.wait("rank 2 to come first again", &format!("{first} === '2'"))?;
    quiet(browser)
}

/// Returns an error if the console has an error or a warning, except about pixels that this test reads.
pub fn quiet(browser: &Browser) -> anyhow::Result<()> {
    let lines = browser.console()?.into_iter();
    let errors: Vec<_> =
        lines.filter(|line| line.level != "INFO" && !line.message.contains("getImageData")).collect();
    ensure!(errors.is_empty(), "the console complains: {errors:#?}");
    Ok(())
}

/// Waits until the chart has some text and lines.
pub fn drawn(browser: &Browser, chart: &str) -> anyhow::Result<()> {
    let script = format!(
        "const canvas = document.querySelector('[data-testid={chart}]');
         if (!canvas?.width) return false;
         const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
         let painted = 0;
         for (let at = 3; at < data.length; at += 4) painted += data[at] > 0;
         return painted > 1500"
    );
    browser.wait(&format!("{chart} to be drawn"), &script).map(drop)
}

#[test]
fn the_overview_says_who_is_late_since_when_and_what_would_help() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 0, "")?;
    says(browser, "verdict", "Rank 2")?;
    says(browser, "verdict-state", "from step 1[0-9]+ until the run ended")?;
    says(browser, "losses", "Ideal step[^]*Rank 2 · input[^]*Step time[^]*100 %")?;
    browser.click("[data-testid=what-if] summary")?;
    says(browser, "what-if", "rank 2[^]*%")?;
    quiet(browser)
}

#[test]
fn a_lowered_clock_among_a_thousand_is_named_and_seen() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.large_run_with_devices()?;
    page.open_run(&run, "/utilization")?;
    says(browser, "strip-sm-clock", "median 1,980 MHz, from 1,350 MHz .rank 613. to 1,980 MHz")?;
    says(browser, "strip-device-busy", "97.0 % on all ranks")?;
    // Sixteen ranks share a row of pixels, and the lowest clock among them is seen.
    let dark = "const canvas = document.querySelector('[data-testid=strip-sm-clock] [data-testid=strip]').parentElement.querySelector('canvas.raster');
        const {width, height} = canvas;
        const {data} = canvas.getContext('2d').getImageData(Math.floor(width / 2), 0, 1, height);
        const at = [...Array(height).keys()].filter((y) => data[4 * y] < 60);
        return at.length > 0 && at.length < height / 20 && Math.abs(at[0] / height - 613 / 1024) < 0.03";
    browser.wait("the dark row of rank 613", dark)?;
    fits(browser, "the Utilization view of 1,024 ranks")
}

#[test]
fn every_view_has_a_key_and_the_focus_is_visible() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 0, "")?;
    let path = |part: &str| format!("return location.pathname.endsWith('{part}')");
    browser.run("document.activeElement.blur()")?;
    for (key, part) in [
        ("2", "/ranks"),
        ("3", "/buckets"),
        ("4", "/scaling"),
        ("5", "/utilization"),
        ("6", "/code"),
        ("7", "/health"),
        ("1", "-240"),
    ] {
        browser.type_keys(key)?;
        browser.wait(part, &path(part))?;
    }
    browser.type_keys("?")?;
    browser.wait("the list of keys", "return document.querySelector('dialog[open]') !== null")?;
    for _ in 0..4 {
        browser.type_keys(TAB)?;
        let trapped = "return document.activeElement.closest('dialog') !== null || document.activeElement === document.body";
        ensure!(browser.run(trapped)? == Value::Bool(true), "the focus left the dialog");
    }
    ensure!(browser.run("return location.pathname")?.as_str().is_some_and(|path| path.ends_with("-240")));
    browser.type_keys(ESCAPE)?;
    browser.wait("the list to close", "return document.querySelector('dialog[open]') === null")?;
    // Tab reaches every control, and the focus is visible.
    browser.run("document.activeElement.blur()")?;
    for _ in 0..12 {
        browser.type_keys(TAB)?;
        let seen = "const e = document.activeElement; const style = getComputedStyle(e);
            return [e.outerHTML.slice(0, 100), e === document.body || style.outlineStyle !== 'none']";
        let found = browser.run(seen)?;
        ensure!(found[1] == Value::Bool(true), "the focus is not visible on {found}");
    }
    quiet(browser)
}

#[test]
fn keys_move_the_visible_steps_and_the_crosshair_of_a_chart_and_open_its_step() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open_run(&run, "?steps=100..159")?;
    drawn(browser, "chart-ledger")?;
    browser.run("document.activeElement.blur()")?;
    browser.type_keys("d")?;
    browser.wait("a fifth of them later", "return location.search.includes('steps=112..171')")?;
    browser.run("document.querySelector('[data-testid=chart-ledger]').focus()")?;
    // The crosshair begins at the newest visible step.
    browser.type_keys(LEFT)?;
    browser.type_keys(LEFT)?;
    browser.type_keys(ENTER)?;
    browser
        .wait("the step before it", "return document.querySelector('[data-testid=step]')?.value === '170'")?;
    quiet(browser)
}

#[test]
fn a_page_that_ends_before_a_fault_knows_nothing_of_it() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 0, "")?;
    browser.run(
        "for (const [field, step] of [['first-step', '20'], ['last-selected-step', '100']]) {
             const input = document.querySelector(`[data-testid=${field}]`);
             input.value = step;
             input.dispatchEvent(new Event('change', { bubbles: true }));
         }",
    )?;
    says(browser, "verdict", "Nothing slows the job")?;
    let steps = "const steps = new URLSearchParams(location.search).get('steps');";
    browser.wait("the steps in the address", &format!("{steps} return steps === '20..100'"))?;
    browser.run("document.activeElement.blur()")?;
    browser.type_keys("[")?;
    browser.wait("the previous step", &format!("{steps} return steps === '19..99'"))?;
    let shown = "return document.querySelector('[data-testid=last-selected-step]').value";
    assert_eq!(browser.run(shown)?, "99", "the bar does not show the step");
    browser.type_keys("l")?;
    says(browser, "verdict", "Rank 2")?;
    browser.wait("a plain address", &format!("{steps} return steps === null"))?;
    quiet(browser)
}

#[test]
fn every_offered_file_has_the_steps_in_view() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 0, "")?;
    browser.run("document.activeElement.blur()")?;
    browser.type_keys("e")?;
    says(browser, "export-dialog", "Steps 1[0-9]+ to 2[0-9]+[^]*Parquet[^]*Markdown")?;
    for (format, begins) in [
        ("perfetto", "0a"),
        ("chrome", "7b"),
        ("parquet", "50415231"),
        ("csv", "73746570"),
        ("html", "3c21444f4354595045"),
        ("markdown", "2320"),
    ] {
        let script = format!(
            "const done = arguments[arguments.length - 1];
             const link = document.querySelector('[data-testid=export-{format}]');
             fetch(link.href).then(async answer => {{
                 const bytes = new Uint8Array(await answer.arrayBuffer()).slice(0, 12);
                 const hex = [...bytes].map(byte => byte.toString(16).padStart(2, '0')).join('');
                 done([link.hasAttribute('download') && answer.status, hex,
                     answer.headers.get('content-disposition')]);
             }})"
        );
        let found = browser.run_async(&script)?;
        let is_there = found[0] == 200 && found[1].as_str().is_some_and(|hex| hex.starts_with(begins));
        ensure!(
            is_there && found[2].as_str().is_some_and(|name| name.contains("attachment")),
            "{format}: {found}"
        );
    }
    browser.type_keys(ESCAPE)?;
    browser.wait("the dialog to close", "return document.querySelector('dialog[open]') === null")?;
    quiet(browser)
}

#[test]
fn a_copied_link_shows_the_same_selection() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    let query = "?measure=input&pool=mean&rank=2&step=150&steps=100..179&ranks=0..3&pin=1";
    page.open(&run, 1, query)?;
    // The scale is only waited for: it follows the tiles, and a finer one may still be loading.
    let state = "const text = id => document.querySelector(`[data-testid=${id}]`)?.innerText ?? '';
        const detail = text('rank-detail');
        return /Rank 2, step 150/.test(detail) && /lateness/.test(detail) && /ms/.test(text('scale'))
            && document.querySelector('[data-testid=last-selected-step]').value === '179' && [detail,
            document.querySelector('[data-testid=measure]').value, document.querySelector('[data-testid=last-selected-step]').value,
            document.querySelector('[aria-label=Reduction] [aria-pressed=true]').innerText,
            document.querySelector('[aria-label=\"Visible steps\"] button').ariaPressed]";
    let first = browser.wait("the selection", state)?;
    assert_eq!(
        (&first[1], &first[2], &first[3], &first[4]),
        (&"input".into(), &"179".into(), &"mean".into(), &"false".into())
    );
    let link = browser.run("return location.href")?;
    browser.fresh_tab()?;
    browser.viewport(1440, 900)?;
    browser.open(link.as_str().context("the address is not a string")?)?;
    assert_eq!(browser.wait("the selection again", state)?, first);
    // The selection is preserved between views.
    browser.click("[data-testid=tab-buckets]")?;
    browser.wait("the same step", "return document.querySelector('[data-testid=step]')?.value === '150'")?;
    quiet(browser)
}

#[test]
fn scaling_says_how_a_run_scales_before_its_tables() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let (run, other) = (page.small_run()?, page.other_run()?);
    page.open(&run, 3, "")?;
    says(browser, "scaling-runs", &format!("{run}[^]*{other}"))?;
    says(browser, "scaling-sentence", "baseline[^]*There are no predictions: .*buckets")?;
    drawn(browser, "scaling-efficiency")?;
    quiet(browser)
}

#[test]
fn a_training_plan_follows_its_form() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    browser.open(&format!("{}/plan", page.server.address))?;
    says(browser, "plan", "On 1,024 ranks, the training would take 2.74 days")?;
    says(browser, "plan-source", "is an assumption")?;
    drawn(browser, "plan-days")?;
    enter(browser, "world", "64")?;
    says(browser, "plan", "On 64 ranks")?;
    browser.wait("the form in the address", "return /world=64/.test(location.search)")?;
    enter(browser, "params", "many")?;
    says(browser, "plan-error", "Parameters must be a number above 0")?;
    enter(browser, "params", "7e9")?;
    says(browser, "plan", "On 64 ranks")?;
    // A row chooses its number of ranks.
    browser.run("document.querySelector('[data-testid=plans] tbody tr:not(.spacer) button').click()")?;
    says(browser, "plan", "On 8 ranks")?;
    enter(browser, "choose-run", &run)?;
    says(browser, "plan-source", "because this run has no prediction")?;
    browser.reload()?;
    says(browser, "plan", "On 8 ranks")?;
    quiet(browser)
}

/// Sets the value of a field or a list, as a user does.
fn enter(browser: &Browser, testid: &str, value: &str) -> anyhow::Result<()> {
    browser.run(&format!(
        "const field = document.querySelector('[data-testid={testid}]'); field.value = '{value}';
         field.dispatchEvent(new Event('change', {{ bubbles: true }}))"
    ))?;
    Ok(())
}

#[test]
fn two_runs_are_chosen_in_the_list_and_compared() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let (run, other) = (page.small_run()?, page.other_run()?);
    browser.open(&page.server.address)?;
    says(browser, "runs-table", &other)?;
    for run in [&run, &other] {
        browser.click(&format!("[data-pick={run}]"))?;
    }
    says(browser, "compare", "Compare the two")?;
    browser.click("[data-testid=compare]")?;
    says(browser, "comparison", "step")?;
    says(browser, "caveats", "world sizes differ")?;
    says(browser, "compared-figures", "step time, median[^]*ms[^]*throughput")?;
    says(browser, "compared-ledger", "exposed wait")?;
    drawn(browser, "step-times")?;
    let both = format!("return location.search === '?a={run}&b={other}'");
    ensure!(browser.run(&both)? == Value::Bool(true), "the older run is not the baseline");
    browser.click("[data-testid=swap]")?;
    browser.wait("the two swapped", &format!("return location.search === '?a={other}&b={run}'"))?;
    quiet(browser)
}

#[test]
fn a_bucket_shows_its_bandwidth_and_latency() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 2, "?bucket=1")?;
    says(browser, "buckets-table", "GB.s")?;
    drawn(browser, "latency")?;
    quiet(browser)
}

#[test]
fn health_lists_the_missing_figures() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let run = page.small_run()?;
    page.open(&run, 5, "")?;
    says(browser, "health", "4 of 4")?;
    says(browser, "missing", "own overhead")?;
    quiet(browser)
}

/// Checks that no view has a violation of WCAG 2.2 AA that axe-core calls serious or critical, and that no view is
/// wider than a phone.
#[test]
fn every_view_is_accessible_in_light_and_dark_and_fits_a_phone() -> anyhow::Result<()> {
    let Some(page) = Page::start()? else { return Ok(()) };
    let browser = &page.browser;
    let (run, other) = (page.small_run()?, page.other_run()?);
    let axe = axe::source()?;
    if let Err(why) = &axe {
        testkit::browser::skip(&format!("the rules of axe-core: {why}"));
    }
    for dark in [false, true] {
        browser.prefer_dark(dark)?;
        for view in 0..VIEWS.len() {
            page.open(&run, view, "?rank=2&bucket=1&step=150")?;
            check(browser, axe.as_deref().ok(), &format!("view {view}, dark: {dark}"))?;
        }
        browser.click("[data-testid=export]")?;
        says(browser, "export-dialog", "Parquet")?;
        check(browser, axe.as_deref().ok(), &format!("export, dark: {dark}"))?;
        browser.open(&page.server.address)?;
        says(browser, "runs-table", &other)?;
        check(browser, axe.as_deref().ok(), &format!("runs, dark: {dark}"))?;
        browser.open(&format!("{}/compare?a={run}&b={other}", page.server.address))?;
        says(browser, "comparison", "step")?;
        check(browser, axe.as_deref().ok(), &format!("comparison, dark: {dark}"))?;
        browser.open(&format!("{}/plan?run={run}", page.server.address))?;
        says(browser, "plan", "ranks")?;
        check(browser, axe.as_deref().ok(), &format!("plan, dark: {dark}"))?;
    }
    Ok(())
}

pub fn check(browser: &Browser, axe: Option<&str>, what: &str) -> anyhow::Result<()> {
    if let Some(axe) = axe {
        let script = format!(
            "{axe};
             const done = arguments[arguments.length - 1];
             axe.run({{ runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa'] }}).then(found => done(found.violations
                 .filter(v => ['serious', 'critical'].includes(v.impact))
                 .map(v => [v.id, v.help, v.nodes.slice(0, 4).map(n => n.html.slice(0, 160) + ' ' + n.failureSummary)])))"
        );
        let found = browser.run_async(&script)?;
        ensure!(found.as_array().is_some_and(Vec::is_empty), "{what}: {found:#}");
    }
    browser.viewport(400, 800)?;
    let fits = fits(browser, what);
    browser.viewport(1440, 900)?;
    fits
}
