//! The list of runs.

use leptos::prelude::*;
use wasm_bindgen::JsCast as _;
use wire::views::RunSummary;

use crate::cells::{Var, act, flag, memo, part, text};
use crate::html::{Html, shown};
use crate::keys;
use crate::live::Live;
use crate::route::Router;
use crate::widgets::state_chip;

/// Creates the list of all runs, newest first.
pub fn runs() -> AnyView {
    let live = expect_context::<Live>();
    keys::global(|key| match key {
        "ArrowDown" | "j" => focus_row(true),
        "ArrowUp" | "k" => focus_row(false),
        _ => false,
    });
    let how_many = memo(move || live.runs.with(|runs| runs.as_ref().map(|runs| runs.is_empty())));
    part(move || match how_many.get() {
        None => {
            view! { <section class="empty" aria-busy="true"><p class="quiet">"Loading runs…"</p></section> }
                .into_any()
        }
        Some(true) => no_runs(),
        Some(false) => list(live),
    })
}

fn no_runs() -> AnyView {
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
    .into_any()
}

const HEAD: &str = "<table class=runs data-testid=runs-table><thead><tr>\
    <th scope=col><span class=unseen>Compare</span></th><th scope=col>State</th><th scope=col>Run</th>\
    <th scope=col>Started</th><th scope=col class=number>Ranks</th><th scope=col class=number>Steps</th>\
    <th scope=col class=number>Step time</th><th scope=col class=number>Throughput</th>\
    <th scope=col class=number>Overlap</th><th scope=col class=number \
    title=\"Implied scaling efficiency: mean over ranks of compute time / mean step time\">Efficiency<small> implied\
    </small></th><th scope=col>Worst verdict</th></tr></thead><tbody>";

fn list(live: Live) -> AnyView {
    let router = expect_context::<Router>();
    let picked = Var::new(Vec::<String>::new());
    let content = text(move || {
        let (now, picked) = (live.now.get(), picked.get());
        let rows = live.runs.get().unwrap_or_default();
        Html::default()
            .raw(HEAD)
            .each(&rows, |html, run| row(html, run, now, &picked))
            .raw("</tbody></table>")
            .done()
    });
    let href = text(move || {
        // The older of the two runs is the baseline. The list begins with the newest run.
        let runs = live.runs.get().unwrap_or_default();
        let picked = picked.get();
        let both =
            runs.iter().rev().map(|run| run.run.as_str()).filter(|id| picked.iter().any(|other| other == id));
        let names: Vec<String> = ["a", "b"].iter().zip(both).map(|(key, id)| format!("{key}={id}")).collect();
        format!("/compare?{}", names.join("&"))
    });
    let label = text(move || match picked.with(Vec::len) {
        2 => "Compare the two runs".into(),
        1 => "Select one more run to compare".into(),
        _ => "Compare runs".into(),
    });
    let click = act(move |event: leptos::ev::MouseEvent| {
        if event.default_prevented() || event.ctrl_key() || event.meta_key() {
            return;
        }
        let Some(target) = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok())
        else {
            return;
        };
        let within = |css: &str| target.closest(css).ok().flatten();
        if let Some(id) = within("[data-pick]").and_then(|button| button.get_attribute("data-pick")) {
            picked.update(|picked| toggle(picked, id));
        } else if within("a").is_none()
            && let Some(id) = within("tr[data-run]").and_then(|row| row.get_attribute("data-run"))
        {
            router.go(&format!("/runs/{id}"));
        }
    });
    view! {
        <section class="page">
            <div class="run-head">
                <h1>"Runs"</h1>
                <span class="grow"></span>
                <a class="button" data-testid="compare" href=href class:primary=flag(move || picked.with(Vec::len) == 2)>{label}</a>
            </div>
            <div class="scroll-x" on:click=click>{shown("", content)}</div>
        </section>
    }
    .into_any()
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

fn row(html: Html, run: &RunSummary, now: f64, picked: &[String]) -> Html {
    let id = run.run.as_str();
    let is_picked = picked.iter().any(|other| other == id);
    let figures = [
        ("Ranks", format!("{} / {}", run.ranks_reporting, run.ranks_expected)),
        ("Steps", units::count(run.steps)),
        ("Step time", or_dash(run.step_time_nanos.map(|ns| units::nanos(ns as f64)))),
        (
            "Throughput",
            or_dash(run.throughput.map(|rate| units::rate(rate, &format!("{}/s", run.sample_unit)))),
        ),
        ("Overlap", or_dash(run.overlap_ratio.map(units::percent))),
        ("Efficiency", or_dash(run.efficiency_implied.map(units::percent))),
    ];
    let hang = run.hang.as_ref().map(|hang| hang.sentence.clone());
    // A run id is safe in an attribute (wire::ids::RunId).
    html.raw(&format!(
        "<tr data-run={id}><td class=tick><button class=pick data-pick={id} aria-pressed={is_picked} "
    ))
    .raw(&format!("aria-label=\"Compare {id}\"></button></td><td>"))
    .raw(&state_chip(run.state))
    .raw("</td><td class=name>")
    .link(&format!("/runs/{id}"), &run.name)
    .el("small", if run.name == id { "" } else { id })
    .raw("</td>")
    .el("td data-label=Started class=nowrap", &units::ago((now - run.started_unix_millis as f64) / 1000.0))
    .each(figures, |html, (name, value)| html.el(&format!("td class=number data-label=\"{name}\""), &value))
    .el("td class=worst", &or_dash(hang.or_else(|| run.verdict.clone())))
    .raw("</tr>")
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
