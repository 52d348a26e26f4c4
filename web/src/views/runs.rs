//! The list of runs.

mod filters;
mod listing;
mod overlay;
mod row;
mod table;

use leptos::prelude::*;
use wasm_bindgen::JsCast as _;

use self::filters::Filters;
use self::listing::Listing;
use self::overlay::Overlay;
use self::table::RunTable;
use crate::access::Unauthorized;
use crate::imports::controls::{ImportButton, ImportPanel, take_drops};
use crate::keys;
use crate::live::Live;
use crate::route::Address;

/// All runs: those that need attention first, then the newest.
#[component]
pub fn Runs() -> impl IntoView {
    let live = expect_context::<Live>();
    keys::global(|key| match key {
        "ArrowDown" | "j" => focus_row(true),
        "ArrowUp" | "k" => focus_row(false),
        "/" => focus_search(),
        _ => false,
    });
    take_drops();
    let is_empty = Memo::new(move |_| live.runs.with(|runs| runs.as_ref().map(Vec::is_empty)));
    let list = move || match is_empty.get() {
        None => {
            view! { <section class="empty" aria-busy="true"><p class="quiet">"Loading runs…"</p></section> }
                .into_any()
        }
        Some(true) => view! { <NoRuns /> }.into_any(),
        Some(false) => view! { <List /> }.into_any(),
    };
    view! {
        <div class="page">
            <ImportPanel />
            <Unauthorized />
            {list}
        </div>
    }
}

#[component]
fn NoRuns() -> impl IntoView {
    view! {
        <section class="empty" data-testid="empty">
            <h1>"No runs yet"</h1>
            <p>"Start a training job with Paceline in another terminal:"</p>
            <pre><code>"paceline run -n 4 -- char_lm"</code></pre>
            <p class="quiet">
                "The run appears here within a second. To record a job that another launcher starts, set "
                <code>"PACELINE_SERVER"</code>" to this address and "<code>"PACELINE_RUN_ID"</code>" to a name."
            </p>
            <p>"Or look at a job that PyTorch's profiler traced: drop the traces of its ranks here, or choose them."</p>
            <p><ImportButton /></p>
        </section>
    }
}

#[component]
fn List() -> impl IntoView {
    let listing = Listing::new(expect_context::<Address>(), expect_context::<Live>());
    let count = move || {
        let (shown, all) = (listing.lines.with(|lines| lines.runs), listing.total.get());
        let runs = if all == 1 { "run" } else { "runs" };
        if shown == all {
            format!("{} {runs}", units::count(all as u64))
        } else {
            format!("{} of {} {runs}", units::count(shown as u64), units::count(all as u64))
        }
    };
    let nothing = Memo::new(move |_| listing.lines.with(|lines| lines.runs == 0));
    let is_picked = Memo::new(move |_| listing.picked.with(|picked| !picked.is_empty()));
    view! {
        <section class="page">
            <div class="run-head">
                <h1>"Runs"</h1>
                <span class="quiet" role="status" data-testid="count">{count}</span>
                <span class="grow"></span>
                <ImportButton />
                <CompareLink listing=listing />
            </div>
            <Filters listing=listing />
            <Show when=move || nothing.get()>
                <div class="no-match" data-testid="no-match">
                    <p>"No run matches these filters."</p>
                    <button on:click=move |_| listing.clear_filters()>"Clear the filters"</button>
                </div>
            </Show>
            <RunTable listing=listing />
            <Show when=move || is_picked.get()>
                <Overlay listing=listing />
            </Show>
        </section>
    }
}

/// A link to the comparison of the ticked runs, if there are two.
#[component]
fn CompareLink(listing: Listing) -> impl IntoView {
    let label = move || match listing.picked.with(Vec::len) {
        2 => "Compare the two runs",
        1 => "Tick one more run to compare",
        0 => "Compare runs",
        _ => "Tick two runs to compare",
    };
    let is_ready = move || listing.picked.with(Vec::len) == 2;
    view! {
        <a class="button" data-testid="compare" href=move || listing.compare_href() class:primary=is_ready>
            {label}
        </a>
    }
}

/// Moves the focus to the next or previous run. Enter opens it, because it is a link.
fn focus_row(down: bool) -> bool {
    let Ok(links) = document().query_selector_all("table.runs td.name a") else { return false };
    let links: Vec<web_sys::HtmlElement> =
        (0..links.length()).filter_map(|at| links.get(at)?.dyn_into().ok()).collect();
    let focused = document().active_element();
    let at = links.iter().position(|link| focused.as_ref() == Some(link.as_ref()));
    let next = match (at, down) {
        (None, _) => 0,
        (Some(at), true) => at + 1,
        (Some(at), false) => at.saturating_sub(1),
    };
    links.get(next).is_some_and(|link| link.focus().is_ok())
}

fn focus_search() -> bool {
    let field = document().query_selector("[data-testid=search]").ok().flatten();
    let field = field.and_then(|field| field.dyn_into::<web_sys::HtmlInputElement>().ok());
    field.is_some_and(|field| {
        field.select();
        field.focus().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;
    use wire::views::{Cause, Culprit, RunState, RunSummary, VerdictState, WorstVerdict};

    use super::*;
    use crate::fixture::summary;
    use crate::mounted::{Mounted, mount_in_run};

    async fn page(runs: Vec<RunSummary>) -> (Mounted, Live) {
        let (page, live) = mount_in_run(|| view! { <Runs /> });
        live.runs.set(Some(runs));
        page.settle().await;
        (page, live)
    }

    fn two() -> Vec<RunSummary> {
        vec![
            summary("gpt-7", "gpt", RunState::Completed, 50_000_000),
            summary("digits-1", "digits", RunState::Running, 20_000_000),
        ]
    }

    #[wasm_bindgen_test]
    async fn without_runs_the_page_says_how_to_start_one() {
        let (page, _) = page(Vec::new()).await;
        assert!(page.text("[data-testid=empty]").contains("paceline run -n 4"));
    }

    #[wasm_bindgen_test]
    async fn a_running_run_comes_before_a_completed_one() {
        let (page, _) = page(two()).await;
        assert_eq!(page.texts("td.name a"), ["digits", "gpt"]);
        assert_eq!(page.text("[data-testid=count]"), "2 runs");
    }

    #[wasm_bindgen_test]
    async fn the_chip_of_a_verdict_names_rank_cause_and_cost() {
        let worst = WorstVerdict {
            culprit: Some(Culprit::Rank(1)),
            cause: Cause::Input,
            state: VerdictState::Active,
            cost_share: 0.28,
        };
        let slow =
            RunSummary { worst: Some(worst), ..summary("gpt-7", "gpt", RunState::Running, 50_000_000) };
        let (page, _) = page(vec![slow]).await;
        assert_eq!(page.text(".fault"), "Rank 1 · input · −28 %");
    }

    #[wasm_bindgen_test]
    async fn a_row_stays_the_same_element_while_its_run_goes_on() {
        let (page, live) = page(two()).await;
        let row = page.find("[data-run=digits-1]");
        let mut runs = two();
        runs[1].steps = 1_234;
        live.runs.set(Some(runs));
        page.settle().await;
        assert_eq!(page.find("[data-run=digits-1]"), row);
        assert_eq!(page.text("[data-run=digits-1] [data-label=Steps]"), "1,234");
    }
}
