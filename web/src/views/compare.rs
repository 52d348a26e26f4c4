//! The comparison view: which of two runs is faster, by how much, and which part of the step explains it.

mod distribution;

use std::sync::Arc;

use leptos::prelude::*;
use units::{decimal, fixed};
use viz::palette;
use viz::steps::Steps;
use wire::live::Part;
use wire::views::comparison::{Change, Compared, Comparison, Unit};

use self::distribution::distribution;
use crate::api;
use crate::download;
use crate::route::Address;
use crate::run_choice::RunChoice;
use crate::terms::Term;
use crate::theme::Theme;
use crate::traced::Differences;
use crate::widgets::{List, Swatch};
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

#[component]
pub fn Compare() -> impl IntoView {
    let address = expect_context::<Address>();
    let chosen = Memo::new(move |_| address.param("a").zip(address.param("b")));
    let fetched = LocalResource::new(move || {
        let chosen = chosen.get();
        async move {
            let runs = chosen?;
            let answer = fetch(&runs.0, &runs.1).await.map(Arc::new);
            Some((runs, answer))
        }
    });
    // The answer for other runs stays until the next one arrives.
    let answered = move || -> Chosen {
        let (runs, answer) = fetched.get().flatten()?;
        (Some(runs) == chosen.get()).then_some(answer)
    };
    let both = Signal::derive(move || answered().and_then(Result::ok));
    let why = Signal::derive(move || match answered() {
        Some(Err(error)) => error,
        Some(Ok(_)) => String::new(),
        None if chosen.get().is_none() => "Choose two runs.".into(),
        None => "Loading…".into(),
    });
    let sentence = move || both.get().map(|both| view! { <Sentence comparison=both.comparison.clone() /> });
    let tables = move || both.get().map(|both| view! { <Tables comparison=both.comparison.clone() /> });
    let times = Signal::derive(move || {
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
                <button class="quiet" on:click=save_csv>"CSV"</button>
            </div>
            <div class="versus">
                <RunChoice key="a" name="Baseline" nothing="choose a run" />
                <button class="icon" aria-label="Swap the two runs" title="Swap" data-testid="swap" on:click=move |_| swap(address)>"⇄"</button>
                <RunChoice key="b" name="Compared run" nothing="choose a run" />
            </div>
            <p class="quiet" role="status" class:hidden=move || why.get().is_empty()>{why}</p>
            {sentence}
            <section class="panel" aria-label="Step times" class:hidden=move || both.get().is_none()>
                <div class="panel-head">
                    <h2>"Step times"<small>" distribution of both runs, without shadow steps"</small></h2>
                    <span class="grow"></span>
                    <button class="quiet" on:click=save_png>"PNG"</button>
                </div>
                <ul class="legend">
                    <li><i class="key line-muted" aria-hidden="true"></i>{move || address.param("a").unwrap_or_default()}</li>
                    <li><i class="key line-accent" aria-hidden="true"></i>{move || address.param("b").unwrap_or_default()}</li>
                </ul>
                <Xy label="Distribution of the step times of both runs; the table below has their medians and tails"
                    testid="step-times" height=240.0 axes=("step time", "share of steps") picture=times />
            </section>
            <div class="page">{tables}</div>
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

fn swap(address: Address) {
    let (a, b) = (address.param("a"), address.param("b"));
    address.set([("a", b), ("b", a)]);
}

#[component]
fn Sentence(comparison: Comparison) -> impl IntoView {
    let caveats =
        comparison.caveats.iter().map(|line| view! { <li>{units::capitalized(line)}"."</li> }).collect_view();
    view! {
        <section class="verdict" data-kind="compared">
            <p class="sentence" data-testid="comparison">{comparison.sentence.clone()}</p>
            <ul class="caveats" data-testid="caveats">{caveats}</ul>
            <div class="grounds">
                <List
                    title="Verdicts only in the baseline"
                    class="evidence"
                    lines=comparison.verdicts_gone.clone()
                />
                <List title="New verdicts" class="counter-evidence" lines=comparison.verdicts_new.clone() />
                <List
                    title="Memory that grows only in the baseline"
                    class="evidence"
                    lines=comparison.memory_gone.clone()
                />
                <List
                    title="Memory that grows only in the compared run"
                    class="counter-evidence"
                    lines=comparison.memory_new.clone()
                />
            </div>
        </section>
    }
}

#[component]
fn Tables(comparison: Comparison) -> impl IntoView {
    view! {
        <div class="halves">
            <Rows title="Figures" testid="compared-figures" runs=&comparison rows=&comparison.figures />
            <Rows title="Step ledger" testid="compared-ledger" runs=&comparison rows=&comparison.ledger parts=true />
        </div>
        {(!comparison.traced.is_empty()).then(|| view! { <Traced comparison=&comparison /> })}
    }
}

/// What takes longer in one of two imported runs, by name.
#[component]
fn Traced<'a>(comparison: &'a Comparison) -> impl IntoView + use<> {
    let left_out = match comparison.traced_left_out {
        0 => String::new(),
        more => format!(". {} more differ less", units::count(more)),
    };
    view! {
        <section class="panel" aria-label="Operators and kernels">
            <div class="panel-head">
                <h2>"Operators and kernels"<small>" mean per step and rank"{left_out}</small></h2>
            </div>
            <Differences rows=comparison.traced.clone() sides=["Compared run", "Baseline"] />
        </section>
    }
}

/// A table of compared figures; `parts` if the rows are the parts of a step.
#[component]
fn Rows<'a>(
    title: &'static str,
    testid: &'static str,
    runs: &'a Comparison,
    rows: &'a [Compared],
    #[prop(optional)] parts: bool,
) -> impl IntoView + use<> {
    let line = |row: &Compared| {
        let (class, judged) = match row.change {
            Change::Better => ("better", "better"),
            Change::Worse => ("worse", "worse"),
            Change::Same => ("quiet", "same"),
            Change::Unknown => ("quiet", "unknown"),
        };
        let noise = row.noise.map_or_else(|| "—".into(), |noise| format!("± {}", units::percent(noise)));
        let part = Part::ALL.into_iter().find(|part| parts && part.name() == row.name);
        let swatch = part.map(|part| view! { <Swatch color=palette::part(part) /> });
        view! {
            <tr>
                <th scope="row">{swatch}{row.name.clone()}</th>
                <td class="number">{written(row.unit, row.a)}</td>
                <td class="number">{written(row.unit, row.b)}</td>
                <td class="number">{difference(row)}</td>
                <td class="number">{noise}</td>
                <td class=class>{judged}</td>
            </tr>
        }
    };
    view! {
        <section class="panel">
            <div class="panel-head"><h2>{title}</h2></div>
            <div class="rows whole" tabindex="0" role="group" aria-label=title>
                <table data-testid=testid>
                    <thead>
                        <tr>
                            <th scope="col">{if parts { "Part" } else { "Figure" }}</th>
                            <th scope="col" class="number run-id">{runs.a.to_string()}</th>
                            <th scope="col" class="number run-id">{runs.b.to_string()}</th>
                            <th scope="col" class="number">"Difference"</th>
                            <th scope="col" class="number"><Term name="noise" /></th>
                            <th scope="col"><Term name="change" /></th>
                        </tr>
                    </thead>
                    <tbody>{rows.iter().map(line).collect_view()}</tbody>
                </table>
            </div>
        </section>
    }
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
        Unit::Ratio => units::points(difference),
        _ if difference >= 9.0 => format!("× {}", fixed(difference + 1.0, 0)),
        _ => units::signed_percent(difference),
    }
}

fn csv(comparison: &Comparison) -> String {
    let mut out = format!("figure,unit,{},{},difference,noise,judged", comparison.a, comparison.b);
    for row in comparison.figures.iter().chain(&comparison.ledger) {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| decimal(value, 9));
        let (unit, judged) = (format!("{:?}", row.unit), format!("{:?}", row.change));
        let [a, b, difference, noise] = [row.a, row.b, row.difference, row.noise].map(number);
        out += &format!("\n{},{unit},{a},{b},{difference},{noise},{judged}", row.name.replace(',', ""));
    }
    out
}
