//! The comparison view: which of two runs is faster, by how much, and which part of the step explains it.

use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;
use units::{fixed, signed};
use viz::palette;
use viz::steps::Steps;
use wire::live::Part;
use wire::views::comparison::{Change, Compared, Comparison, Unit};

use super::distribution::distribution;
use super::verdict::list;
use crate::api;
use crate::cells::{Var, act, derived, effect, flag, memo, part, text};
use crate::download;
use crate::html::{Html, shown};
use crate::live::Live;
use crate::route::Router;
use crate::theme::Theme;
use crate::xy::Xy;

/// Two runs. The first is the baseline.
#[derive(PartialEq)]
struct Both {
    comparison: Comparison,
    /// The step times of each run without shadow steps, in nanoseconds, smallest first.
    nanos: [Vec<f32>; 2],
}

/// The selection: nothing, or the result of a comparison.
type Chosen = Option<Result<Arc<Both>, String>>;

/// Creates the view.
pub fn comparison() -> AnyView {
    let router = expect_context::<Router>();
    let answered = Var::new(Chosen::None);
    let chosen = memo(move || router.param("a").zip(router.param("b")));
    effect(move || {
        answered.set(None);
        let Some(wanted) = chosen.get() else { return };
        spawn_local(async move {
            let answer = fetch(&wanted.0, &wanted.1).await.map(Arc::new);
            if chosen.try_get_untracked() == Some(Some(wanted)) {
                answered.set(Some(answer));
            }
        });
    });
    let both = derived(move || answered.get().and_then(Result::ok));
    let why = text(move || match answered.get() {
        Some(Err(error)) => error,
        Some(Ok(_)) => String::new(),
        None if chosen.get().is_none() => "Choose two runs.".into(),
        None => "Loading…".into(),
    });
    let content = text(move || {
        both.get().map_or_else(String::new, |both| answers(Html::default(), &both.comparison).done())
    });
    let times = derived(move || {
        let both = both.get().ok_or("Choose two runs.")?;
        let (runs, [a, b]) = (&both.comparison, &both.nanos);
        distribution(&[(&runs.a, a), (&runs.b, b)])
    });
    let theme = expect_context::<Theme>();
    let save_png = move |_| download::png("step-times.png", "step-times", theme.inks().ground);
    let save_csv = move |_| {
        if let Some(both) = both.get_untracked() {
            download::csv("comparison.csv", &csv(&both.comparison));
        }
    };
    view! {
        <section class="page">
            <div class="run-head">
                <h1>"Compare two runs"</h1>
                <span class="grow"></span>
                <button class="quiet" on:click=act(save_csv)>"CSV"</button>
            </div>
            <div class="versus">
                {choice("a", "Baseline")}
                <button class="icon" aria-label="Swap the two runs" title="Swap" data-testid="swap" on:click=act(move |_| swap(router))>"⇄"</button>
                {choice("b", "Compared run")}
            </div>
            <p class="quiet" role="status" class:hidden=flag(move || why.get().is_empty())>{why}</p>
            {shown("page", content)}
            <section class="panel" aria-label="Step times" class:hidden=flag(move || both.get().is_none())>
                <div class="panel-head">
                    <h2>"Step times"<small>" distribution of both runs, without shadow steps"</small></h2>
                    <span class="grow"></span>
                    <button class="quiet" on:click=act(save_png)>"PNG"</button>
                </div>
                <ul class="legend">
                    <li><i class="key line-muted" aria-hidden="true"></i>{text(move || router.param("a").unwrap_or_default())}</li>
                    <li><i class="key line-accent" aria-hidden="true"></i>{text(move || router.param("b").unwrap_or_default())}</li>
                </ul>
                <Xy label="Distribution of the step times of both runs; the table above has their medians and tails"
                    testid="step-times" height=240.0 axes=("step time", "share of steps") picture=times />
            </section>
        </section>
    }
    .into_any()
}

async fn fetch(a: &str, b: &str) -> Result<Both, String> {
    let comparison = api::comparison(a, b).await?;
    Ok(Both { comparison, nanos: [step_nanos(a).await?, step_nanos(b).await?] })
}

async fn step_nanos(run: &str) -> Result<Vec<f32>, String> {
    let mut steps = Steps::default();
    steps.apply(&api::steps(run).await?);
    Ok(steps.sorted_step_nanos())
}

fn swap(router: Router) {
    let (a, b) = (router.param("a"), router.param("b"));
    router.set([("a", b), ("b", a)]);
}

/// Creates a list from which a run is chosen.
fn choice(key: &'static str, name: &'static str) -> AnyView {
    let (live, router) = (expect_context::<Live>(), expect_context::<Router>());
    let known = memo(move || {
        let runs = live.runs.get().unwrap_or_default();
        let mut known: Vec<(String, String)> =
            runs.into_iter().map(|run| (run.run.to_string(), run.name)).collect();
        // A link may name a run before the list has loaded.
        if let Some(chosen) = router.param(key)
            && !known.iter().any(|(run, _)| *run == chosen)
        {
            known.insert(0, (chosen, String::new()));
        }
        known
    });
    let options = part(move || {
        let chosen = router.param(key);
        let options = known.get().into_iter().map(|(run, name)| {
            let label = if name.is_empty() || name == run { run.clone() } else { format!("{name} · {run}") };
            view! { <option value=run.clone() selected=chosen.as_ref() == Some(&run)>{label}</option> }
        });
        let nothing = view! { <option value="" selected=chosen.is_none()>"choose a run"</option> };
        std::iter::once(nothing.into_any())
            .chain(options.map(IntoAny::into_any))
            .collect::<Vec<_>>()
            .into_any()
    });
    let change = act(move |event: leptos::ev::Event| {
        let run = event_target_value(&event);
        router.set([(key, (!run.is_empty()).then_some(run))]);
    });
    view! {
        <label class="field">
            <span>{name}</span>
            <select data-testid=format!("compare-{key}") on:change=change>{options}</select>
        </label>
    }
    .into_any()
}

fn answers(html: Html, comparison: &Comparison) -> Html {
    let html = html
        .raw("<section class=verdict data-kind=compared>")
        .el("p class=sentence data-testid=comparison", &comparison.sentence);
    let html = html
        .raw("<ul class=caveats data-testid=caveats>")
        .each(&comparison.caveats, |html, line| html.el("li", line))
        .raw("</ul><div class=grounds>");
    let html = list(html, "Verdicts only in the baseline", "evidence", &comparison.verdicts_gone);
    let html = list(html, "New verdicts", "counter-evidence", &comparison.verdicts_new);
    let html = html.raw("</div></section><div class=halves>");
    let html = table(html, "Figures", "compared-figures", comparison, &comparison.figures, false);
    table(html, "Step ledger", "compared-ledger", comparison, &comparison.ledger, true).raw("</div>")
}

fn table(html: Html, title: &str, testid: &str, runs: &Comparison, rows: &[Compared], parts: bool) -> Html {
    let head = html
        .raw("<section class=panel><div class=panel-head>")
        .el("h2", title)
        .raw("</div><div class=\"rows whole\" tabindex=0 role=group aria-label=\"")
        .text(title)
        .raw(&format!("\"><table data-testid={testid}><thead><tr><th scope=col>Figure</th>"))
        .el("th scope=col class=\"number run-id\"", runs.a.as_str())
        .el("th scope=col class=\"number run-id\"", runs.b.as_str())
        .raw("<th scope=col class=number>Difference</th>")
        .raw("<th scope=col class=number title=\"The largest difference that chance alone usually makes\">Noise</th>")
        .raw("<th scope=col>Judgment</th></tr></thead><tbody>");
    head.each(rows.iter().enumerate(), |html, (at, row)| {
        let html = html.raw("<tr><th scope=row>");
        let html = if parts { html.swatch(palette::part(Part::ALL[at])) } else { html };
        let judged = match row.change {
            Change::Better => ("td class=better", "better"),
            Change::Worse => ("td class=worse", "worse"),
            Change::Same => ("td class=quiet", "same"),
            Change::Unknown => ("td class=quiet", "not known"),
        };
        let noise = row.noise.map_or_else(|| "—".into(), |noise| format!("± {}", units::percent(noise)));
        html.text(&row.name)
            .raw("</th>")
            .number(&written(row.unit, row.a))
            .number(&written(row.unit, row.b))
            .number(&difference(row))
            .number(&noise)
            .el(judged.0, judged.1)
            .raw("</tr>")
    })
    .raw("</tbody></table></div></section>")
}

fn written(unit: Unit, value: Option<f64>) -> String {
    let Some(value) = value else { return "—".into() };
    match unit {
        Unit::Nanos => units::nanos(value),
        Unit::Ratio => units::percent(value),
        // Jobs may count different units as samples. The caveats say so.
        Unit::PerSecond => units::rate(value, "per second"),
    }
}

/// Formats a difference: in points for shares, otherwise in percent of the first run's value.
fn difference(row: &Compared) -> String {
    let Some(difference) = row.difference else { return "—".into() };
    match row.unit {
        Unit::Ratio => format!("{} points", signed(difference * 100.0, 1)),
        _ if difference >= 9.0 => format!("× {}", fixed(difference + 1.0, 0)),
        _ => format!("{} %", signed(difference * 100.0, 1)),
    }
}

fn csv(comparison: &Comparison) -> String {
    let mut out = format!("figure,unit,{},{},difference,noise,judged", comparison.a, comparison.b);
    for row in comparison.figures.iter().chain(&comparison.ledger) {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| fixed(value, 9).to_string());
        let (unit, judged) = (format!("{:?}", row.unit), format!("{:?}", row.change));
        let [a, b, difference, noise] = [row.a, row.b, row.difference, row.noise].map(number);
        out += &format!("\n{},{unit},{a},{b},{difference},{noise},{judged}", row.name.replace(',', ""));
    }
    out
}
