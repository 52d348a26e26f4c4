//! The list of runs.

use leptos::prelude::*;
use wasm_bindgen::JsCast as _;
use wire::views::RunSummary;

use crate::keys;
use crate::live::Live;
use crate::route::Address;
use crate::widgets::StateChip;

/// All runs, newest first.
#[component]
pub fn Runs() -> impl IntoView {
    let live = expect_context::<Live>();
    keys::global(|key| match key {
        "ArrowDown" | "j" => focus_row(true),
        "ArrowUp" | "k" => focus_row(false),
        _ => false,
    });
    let is_empty = Memo::new(move |_| live.runs.with(|runs| runs.as_ref().map(Vec::is_empty)));
    move || match is_empty.get() {
        None => {
            view! { <section class="empty" aria-busy="true"><p class="quiet">"Loading runs…"</p></section> }
                .into_any()
        }
        Some(true) => view! { <NoRuns /> }.into_any(),
        Some(false) => view! { <List /> }.into_any(),
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
                "The run appears here within a second. To record a job with the reducer that another launcher starts, set "
                <code>"PACELINE_SERVER"</code>" to this address and "<code>"PACELINE_RUN_ID"</code>" to a name."
            </p>
        </section>
    }
}

#[component]
fn List() -> impl IntoView {
    let live = expect_context::<Live>();
    let picked = RwSignal::new(Vec::<String>::new());
    let rows = move || {
        let (now, runs) = (live.now.get(), live.runs.get().unwrap_or_default());
        runs.into_iter().map(|run| view! { <Row run=run now=now picked=picked /> }).collect_view()
    };
    let href = move || {
        // The older of the two runs is the baseline. The list begins with the newest run.
        let runs = live.runs.get().unwrap_or_default();
        let picked = picked.get();
        let both =
            runs.iter().rev().map(|run| run.run.as_str()).filter(|id| picked.iter().any(|other| other == id));
        let names: Vec<String> = ["a", "b"].iter().zip(both).map(|(key, id)| format!("{key}={id}")).collect();
        format!("/compare?{}", names.join("&"))
    };
    let count = move || picked.with(Vec::len);
    let label = move || match count() {
        2 => "Compare the two runs",
        1 => "Select one more run to compare",
        _ => "Compare runs",
    };
    view! {
        <section class="page">
            <div class="run-head">
                <h1>"Runs"</h1>
                <span class="grow"></span>
                <a class="button" data-testid="compare" href=href class:primary=move || count() == 2>{label}</a>
            </div>
            <div class="scroll-x">
                <table class="runs" data-testid="runs-table">
                    <thead>
                        <tr>
                            <th scope="col"><span class="unseen">"Compare"</span></th>
                            <th scope="col">"State"</th>
                            <th scope="col">"Run"</th>
                            <th scope="col">"Started"</th>
                            <th scope="col" class="number">"Ranks"</th>
                            <th scope="col" class="number">"Steps"</th>
                            <th scope="col" class="number">"Step time"</th>
                            <th scope="col" class="number">"Throughput"</th>
                            <th scope="col" class="number">"Overlap"</th>
                            <th
                                scope="col"
                                class="number"
                                title="Implied scaling efficiency: mean over ranks of compute time / mean step time"
                            >
                                "Efficiency"<small>" implied"</small>
                            </th>
                            <th scope="col">"Worst verdict"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
        </section>
    }
}

/// Toggles the selection of a run. At most two are selected: a third replaces the first.
fn toggle(picked: &mut Vec<String>, id: String) {
    match picked.iter().position(|other| *other == id) {
        Some(at) => drop(picked.remove(at)),
        None => {
            picked.push(id);
            let excess = picked.len().saturating_sub(2);
            picked.drain(..excess);
        }
    }
}

#[component]
fn Row(run: RunSummary, now: f64, picked: RwSignal<Vec<String>>) -> impl IntoView {
    let address = expect_context::<Address>();
    let id = run.run.to_string();
    let is_picked = picked.with(|picked| picked.contains(&id));
    let unit = format!("{}/s", run.sample_unit);
    let figures = [
        ("Ranks", format!("{} / {}", run.ranks_reporting, run.ranks_expected)),
        ("Steps", units::count(run.steps)),
        ("Step time", or_dash(run.step_time_nanos.map(|ns| units::nanos(ns as f64)))),
        ("Throughput", or_dash(run.throughput.map(|rate| units::rate(rate, &unit)))),
        ("Overlap", or_dash(run.overlap_ratio.map(units::percent))),
        ("Efficiency", or_dash(run.efficiency_implied.map(units::percent))),
    ];
    let figures =
        figures.map(|(name, value)| view! { <td class="number" data-label=name>{value}</td> }).collect_view();
    let path = format!("/runs/{id}");
    let second_name = (run.name != id).then(|| id.clone());
    let worst = or_dash(run.hang.map(|hang| hang.sentence).or(run.verdict));
    let open = {
        let path = path.clone();
        // A link or a button in the row handles its own clicks.
        move |event: leptos::ev::MouseEvent| {
            if !event.default_prevented() && !event.ctrl_key() && !event.meta_key() && !is_on_link(&event) {
                address.go(&path);
            }
        }
    };
    let pick = {
        let id = id.clone();
        move |event: leptos::ev::MouseEvent| {
            event.prevent_default();
            picked.update(|picked| toggle(picked, id.clone()));
        }
    };
    view! {
        <tr data-run=id.clone() on:click=open>
            <td class="tick">
                <button
                    class="pick"
                    data-pick=id.clone()
                    aria-pressed=is_picked.to_string()
                    aria-label=format!("Compare {id}")
                    on:click=pick
                ></button>
            </td>
            <td><StateChip state=run.state /></td>
            <td class="name"><a href=path>{run.name}</a><small>{second_name}</small></td>
            <td data-label="Started" class="nowrap">
                {units::ago((now - run.started_unix_millis as f64) / 1000.0)}
            </td>
            {figures}
            <td class="worst">{worst}</td>
        </tr>
    }
}

fn is_on_link(event: &leptos::ev::MouseEvent) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    target.is_some_and(|target| target.closest("a").is_ok_and(|link| link.is_some()))
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "—".into())
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
