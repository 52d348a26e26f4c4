//! The list of runs.

use leptos::prelude::*;
use viz::units;
use wasm_bindgen::JsCast as _;
use wire::views::RunSummary;

use crate::cells::{Kept, Memo, Var, act, derived, flag, memo, text};
use crate::keys;
use crate::live::Live;
use crate::route::Router;
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
    let ids = memo(move || {
        live.runs.with(|runs| {
            runs.as_ref().map(|runs| runs.iter().map(|run| run.run.to_string()).collect::<Vec<_>>())
        })
    });
    move || {
        match ids.with(|ids| ids.as_ref().map(Vec::is_empty)) {
        None => view! { <section class="empty" aria-busy="true"><p class="quiet">"Looking for runs…"</p></section> }
            .into_any(),
        Some(true) => view! { <NoRuns /> }.into_any(),
        Some(false) => view! { <List ids=ids /> }.into_any(),
    }
    }
}

#[component]
fn NoRuns() -> impl IntoView {
    view! {
        <section class="empty" data-testid="empty">
            <h1>"No runs yet"</h1>
            <p>"Start a training job under Paceline, in another terminal:"</p>
            <pre><code>"paceline run -n 4 -- char_lm"</code></pre>
            <p class="quiet">
                "It appears here within a second. So does a job with the reducer in it that another launcher starts with "
                <code>"PACELINE_SERVER"</code>" set to this address and "<code>"PACELINE_RUN_ID"</code>" to a name."
            </p>
        </section>
    }
}

#[component]
fn List(ids: Memo<Option<Vec<String>>>) -> impl IntoView {
    let picked = Picked(Var::new(Vec::new()));
    provide_context(picked);
    // The older of the two is what the newer one is held against.
    let href = text(move || {
        let ids = ids.get().unwrap_or_default();
        let picked = picked.0.get();
        let mut both: Vec<&String> = ids.iter().filter(|id| picked.contains(id)).collect();
        both.reverse();
        let names = ["a", "b"].iter().zip(both).map(|(key, id)| format!("{key}={id}")).collect::<Vec<_>>();
        format!("/compare?{}", names.join("&"))
    });
    let label = text(move || match picked.0.with(Vec::len) {
        2 => "Compare the two".into(),
        1 => "Choose one more to compare".into(),
        _ => "Compare runs".into(),
    });
    view! {
        <section class="page">
            <div class="run-head">
                <h1>"Runs"</h1>
                <span class="grow"></span>
                <a class="button" data-testid="compare" href=href class:primary=flag(move || picked.0.with(Vec::len) == 2)>{label}</a>
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
                            <th scope="col" class="number" title="Implied scaling efficiency: mean over ranks of useful compute / step time">
                                "Efficiency"<small>" implied"</small>
                            </th>
                            <th scope="col">"Worst verdict"</th>
                        </tr>
                    </thead>
                    <tbody>
                        <For each=move || ids.get().unwrap_or_default() key=String::clone let:id>
                            <Row id=id />
                        </For>
                    </tbody>
                </table>
            </div>
        </section>
    }
}

/// Runs that are ticked to be compared: two at most, the first gives way.
#[derive(Clone, Copy)]
struct Picked(Var<Vec<String>>);

impl Picked {
    fn toggle(self, id: &str) {
        self.0.update(|picked| match picked.iter().position(|other| other == id) {
            Some(at) => drop(picked.remove(at)),
            None => {
                picked.push(id.to_owned());
                let excess = picked.len().saturating_sub(2);
                picked.drain(..excess);
            }
        });
    }
}

#[component]
fn Row(id: String) -> impl IntoView {
    let live = expect_context::<Live>();
    let router = expect_context::<Router>();
    let href = format!("/runs/{id}");
    let picked = expect_context::<Picked>();
    let own = Kept::new(id.clone());
    let is_picked = flag(move || own.with(|id| picked.0.with(|picked| picked.contains(id))));
    let tick = act(move |_: leptos::ev::Event| own.with(|id| picked.toggle(id)));
    let tick_label = format!("Compare {id}");
    let run = memo(move || {
        live.runs.with(|runs| runs.iter().flatten().find(|run| run.run.as_str() == id).cloned())
    });
    let with = move |read: fn(&RunSummary) -> String| {
        text(move || run.with(|run| run.as_ref().map(read).unwrap_or_default()))
    };
    let started = text(move || {
        let now = live.now.get();
        let ago = |run: &RunSummary| units::ago((now - run.started_unix_millis as f64) / 1000.0);
        run.with(|run| run.as_ref().map(ago).unwrap_or_default())
    });
    let state = derived(move || {
        run.with(|run| run.as_ref().map_or(wire::views::RunState::Starting, |run| run.state))
    });
    let open = {
        let href = href.clone();
        move |event: leptos::ev::MouseEvent| {
            // The link inside does it itself.
            if !event.default_prevented() && !event.ctrl_key() && !event.meta_key() && !on_link(&event) {
                router.go(&href);
            }
        }
    };
    view! {
        <tr on:click=open>
            <td class="tick"><label><input type="checkbox" aria-label=tick_label prop:checked=is_picked on:change=tick /></label></td>
            <td><StateChip state=state /></td>
            <td class="name">
                <a href=href>{with(|run| run.name.clone())}</a>
                <small>{with(|run| if run.name == run.run.as_str() { String::new() } else { run.run.to_string() })}</small>
            </td>
            <td data-label="Started" class="nowrap">{started}</td>
            <td data-label="Ranks" class="number">{with(|run| format!("{} / {}", run.ranks_reporting, run.ranks_expected))}</td>
            <td data-label="Steps" class="number">{with(|run| units::count(run.steps))}</td>
            <td data-label="Step time" class="number">{with(|run| or_dash(run.step_time_nanos.map(|ns| units::nanos(ns as f64))))}</td>
            <td data-label="Throughput" class="number">
                {with(|run| or_dash(run.throughput.map(|rate| units::rate(rate, &format!("{}/s", run.sample_unit)))))}
            </td>
            <td data-label="Overlap" class="number">{with(|run| or_dash(run.overlap_ratio.map(units::percent)))}</td>
            <td data-label="Efficiency" class="number">{with(|run| or_dash(run.efficiency_implied.map(units::percent)))}</td>
            <td class="worst">
                {with(|run| {
                    let hang = run.hang.as_ref().map(|hang| hang.sentence.clone());
                    or_dash(hang.or_else(|| run.verdict.clone()))
                })}
            </td>
        </tr>
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "—".into())
}

fn on_link(event: &web_sys::MouseEvent) -> bool {
    event
        .target()
        .and_then(|target| target.dyn_into::<web_sys::Element>().ok())
        .is_some_and(|target| target.closest("a, label").is_ok_and(|link| link.is_some()))
}

/// Moves the focus to the next or previous run; Enter then opens it, since it is a link.
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
