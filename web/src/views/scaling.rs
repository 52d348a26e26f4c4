//! The Scaling view: efficiency measured over the runs of a job and predicted from its model, and the predicted effect
//! of other bucket sizes.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use leptos::prelude::*;
use leptos::task::spawn_local;
use units::signed;
use viz::xy::Axis;
use viz::{palette, ticks};
use wire::live::Part;
use wire::views::Missing;
use wire::views::scaling::{Scaling as Answer, ScalingPoint, ScalingPrediction};

use self::plan::Plan;
use crate::api;
use crate::download;
use crate::live::Live;
use crate::route::RunId;
use crate::theme::Theme;
use crate::xy::{Hit, Ink, Mark, Picture, Shown, Xy};

/// The interval at which the answer for a live run is requested again.
const AGAIN: Duration = Duration::from_secs(5);

/// The server's answer, or the reason why there is none.
pub type Answered = RwSignal<Option<Result<Arc<Answer>, String>>>;

/// The view.
#[component]
pub fn Scaling() -> impl IntoView {
    let answered: Answered = RwSignal::new(None);
    fetch(answered, expect_context::<Live>(), expect_context::<RunId>());
    let of = move |read: fn(&Answer) -> Shown| {
        Signal::derive(move || match answered.get() {
            None => Err("Loading the runs of this name…".into()),
            Some(Err(error)) => Err(error),
            Some(Ok(answer)) => read(&answer),
        })
    };
    let words = move |read: fn(&Answer) -> String| {
        move || answered.get().and_then(Result::ok).map(|answer| read(&answer)).unwrap_or_default()
    };
    let answer = move || answered.get().and_then(Result::ok);
    let assumptions = move || {
        let lines = answer().map(|answer| answer.assumptions.clone()).unwrap_or_default();
        lines.into_iter().map(|line| view! { <li>{line}</li> }).collect_view()
    };
    view! {
        <section class="panel" aria-label="Efficiency against world size">
            <div class="panel-head">
                <h2>
                    "Efficiency against world size"
                    <small>{words(|answer| format!(" runs named {}", answer.name))}</small>
                </h2>
                <Png testid="scaling-efficiency" />
            </div>
            <ul class="legend">
                <li><i class="key dot-full" aria-hidden="true"></i>"measured, against the baseline"</li>
                <li><i class="key dot-hollow" aria-hidden="true"></i>"implied: compute time / mean step time"</li>
                <li><i class="key dashed" aria-hidden="true"></i>"predicted, with its error band"</li>
            </ul>
            <Xy
                label="Scaling efficiency against world size; the tables below have its numbers"
                testid="scaling-efficiency"
                height=280.0
                axes=("ranks", "efficiency")
                picture=of(efficiency)
            />
            <p class="quiet below">{words(|answer| missing(answer).unwrap_or_default())}</p>
            <ul class="plain quiet" data-testid="assumptions">{assumptions}</ul>
        </section>
        <div class="halves">
            <section class="panel" aria-label="Runs">
                <div class="panel-head"><h2>"Runs"<small>{words(baseline)}</small></h2></div>
                <div class="rows" tabindex="0" role="group" aria-label="Runs of this name">
                    {move || answer().map(|answer| view! { <Runs answer=answer /> })}
                </div>
            </section>
            <section class="panel" aria-label="Predictions">
                <div class="panel-head"><h2>"Predictions"<small>{words(error)}</small></h2></div>
                <div class="rows" tabindex="0" role="group" aria-label="Predictions by world size">
                    {move || answer().map(|answer| view! { <Predictions answer=answer /> })}
                </div>
            </section>
        </div>
        <div class="halves">
            <section class="panel" aria-label="Latency and bandwidth">
                <div class="panel-head"><h2>"Latency and bandwidth"</h2><Png testid="comm-model" /></div>
                <p class="lead" data-testid="fit">{words(fit)}</p>
                <Xy
                    label="Transfer time against payload, with the fitted line"
                    testid="comm-model"
                    height=220.0
                    axes=("payload", "transfer")
                    picture=of(model)
                />
            </section>
            <section class="panel" aria-label="Bucket size">
                <div class="panel-head"><h2>"Bucket size"</h2><Png testid="bucket-caps" /></div>
                <p class="lead" data-testid="cap-advice">{words(advice)}</p>
                <Xy
                    label="Predicted step time against bucket cap"
                    testid="bucket-caps"
                    height=220.0
                    axes=("bucket cap", "step time")
                    picture=of(caps)
                />
            </section>
        </div>
        <Plan answered=answered />
    }
}

/// A button that saves the chart with this test id.
#[component]
fn Png(testid: &'static str) -> impl IntoView {
    let theme = expect_context::<Theme>();
    let save = move |_| download::png(&format!("{testid}.png"), testid, theme.inks().ground);
    view! {
        <span class="grow"></span>
        <button class="quiet" on:click=save>"PNG"</button>
    }
}

fn fetch(answered: Answered, live: Live, run: RunId) {
    let ask = move || {
        spawn_local(async move {
            let answer = api::scaling(&run.get_untracked()).await.map(Arc::new);
            // The view may be gone, and an error must not replace an earlier answer.
            let better = answer.is_ok() || !matches!(answered.try_get_untracked(), Some(Some(Ok(_))));
            if better && answered.try_get_untracked().is_some_and(|old| old.as_ref() != Some(&answer)) {
                answered.set(Some(answer));
            }
        });
    };
    Effect::new(move |_| {
        // Another run has another answer.
        let _ = run.get();
        ask();
    });
    let again = set_interval_with_handle(
        move || {
            if matches!(live.link.get_untracked(), crate::socket::Link::Live) && !document().hidden() {
                ask();
            }
        },
        AGAIN,
    );
    on_cleanup(move || {
        if let Ok(handle) = again {
            handle.clear();
        }
    });
}

/// Returns the reason why there are no predictions.
fn missing(answer: &Answer) -> Option<String> {
    answer.missing.as_ref().map(Missing::to_string)
}

fn ranks_axis(answer: &Answer) -> Axis {
    let of_points = answer.points.iter().map(|point| point.ranks);
    let known =
        of_points.chain(answer.predictions.iter().map(|prediction| prediction.ranks)).chain([answer.ranks]);
    let (least, most) = known.fold((u32::MAX, 1), |(least, most), ranks| (least.min(ranks), most.max(ranks)));
    Axis::log(f64::from(least) * 0.84, f64::from(most.max(least.saturating_mul(2))) * 1.19, 2.0)
}

fn efficiency(answer: &Answer) -> Shown {
    if answer.points.is_empty() && answer.predictions.is_empty() {
        let why = missing(answer);
        return Err(why.unwrap_or_else(|| "No run of this name has a throughput yet.".into()));
    }
    let of = |read: fn(&ScalingPoint) -> Option<f64>| -> Vec<(f64, f64)> {
        answer.points.iter().filter_map(|point| Some((f64::from(point.ranks), read(point)?))).collect()
    };
    let predicted = |read: fn(&ScalingPrediction) -> f64| -> Vec<(f64, f64)> {
        answer.predictions.iter().map(|prediction| (f64::from(prediction.ranks), read(prediction))).collect()
    };
    let (measured, implied) = (of(|point| point.measured), of(|point| point.implied));
    let band = answer
        .predictions
        .iter()
        .map(|p| (f64::from(p.ranks), p.efficiency_low, p.efficiency_high))
        .collect();
    let most = measured.iter().chain(&implied).map(|point| point.1).fold(1.0, f64::max);
    let (x, y) = (ranks_axis(answer), Axis::linear(0.0, most * 1.06));
    Ok(Arc::new(Picture {
        x,
        y,
        x_ticks: x.ticks(12, |ranks| units::count(ranks.round() as u64)),
        y_ticks: y.ticks(5, units::percent),
        marks: vec![
            Mark::Band { points: band, ink: Ink::Muted },
            Mark::Line { points: predicted(|p| p.efficiency), ink: Ink::Muted, dashed: true },
            Mark::Rule { x: f64::from(answer.ranks), text: "this run".into() },
            Mark::Dots { points: implied, ink: Ink::Strong, hollow: true },
            Mark::Dots { points: measured, ink: Ink::Accent, hollow: false },
        ],
        hits: efficiency_hits(answer),
    }))
}

fn efficiency_hits(answer: &Answer) -> Vec<Hit> {
    let of_point = |point: &ScalingPoint| {
        let mut says = vec![format!("{}: {}", units::ranks(point.ranks), point.run)];
        says.extend(point.measured.map(|e| format!("measured {}", units::percent(e))));
        says.extend(point.implied.map(|e| format!("implied {}", units::percent(e))));
        Some(Hit { at: (f64::from(point.ranks), point.measured.or(point.implied)?), says })
    };
    let of_prediction = |p: &ScalingPrediction| Hit {
        at: (f64::from(p.ranks), p.efficiency),
        says: vec![
            format!("{}, predicted", units::ranks(p.ranks)),
            format!(
                "{} ({} to {})",
                units::percent(p.efficiency),
                units::percent(p.efficiency_low),
                units::percent(p.efficiency_high)
            ),
            format!("step {}", units::nanos(p.step_nanos)),
        ],
    };
    let mut hits: Vec<Hit> = answer.predictions.iter().map(of_prediction).collect();
    hits.extend(answer.points.iter().filter_map(of_point));
    hits.sort_by(|a, b| a.at.0.total_cmp(&b.at.0));
    hits
}

fn model(answer: &Answer) -> Shown {
    let Some(model) = &answer.comm_model else {
        return Err("No latency-bandwidth model: too few bucket sizes.".into());
    };
    let points: Vec<(f64, f64)> =
        model.points.iter().map(|&(bytes, seconds)| (bytes as f64, seconds * 1e9)).collect();
    let (least, most) = points
        .iter()
        .fold((f64::MAX, 1.0f64), |(least, most), point| (least.min(point.0), most.max(point.0)));
    let top = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let line = |bytes: f64| (bytes, (model.alpha_seconds + model.beta_seconds_per_byte * bytes) * 1e9);
    let (x, y) = (Axis::linear(0.0, most * 1.08), Axis::linear(0.0, ticks::ceiling(top * 1.1)));
    let residual = units::nanos(model.residual_seconds * 1e9);
    let hit = |&(bytes, nanos): &(f64, f64)| Hit {
        at: (bytes, nanos),
        says: vec![
            units::bytes(bytes as u64),
            format!("measured {}", units::nanos(nanos)),
            format!("fitted {}, residual {residual}", units::nanos(line(bytes).1)),
        ],
    };
    // There are no measurements below the smallest payload.
    let fitted = vec![line(least.min(most)), line(most)];
    let extended = vec![line(0.0), line(least.min(most))];
    Ok(Arc::new(Picture {
        x,
        y,
        x_ticks: x.ticks(6, |bytes| units::bytes(bytes as u64)),
        y_ticks: y.ticks(4, units::nanos),
        hits: points.iter().map(hit).collect(),
        marks: vec![
            Mark::Line { points: extended, ink: Ink::Muted, dashed: true },
            Mark::Line { points: fitted, ink: Ink::Muted, dashed: false },
            Mark::Dots { points, ink: Ink::Data(palette::part(Part::ExposedTransfer)), hollow: false },
        ],
    }))
}

fn fit(answer: &Answer) -> String {
    answer.comm_model.as_ref().map_or_else(String::new, |model| {
        format!(
            "Latency {}, bandwidth {}; half of the points are within {} of the line.",
            units::nanos(model.alpha_seconds * 1e9),
            if model.beta_seconds_per_byte > 0.0 {
                units::rate(1.0 / model.beta_seconds_per_byte, "B/s")
            } else {
                "unlimited".into()
            },
            units::nanos(model.residual_seconds * 1e9)
        )
    })
}

fn caps(answer: &Answer) -> Shown {
    let (Some(first), Some(last)) = (answer.caps.first(), answer.caps.last()) else {
        let why = missing(answer);
        return Err(why.unwrap_or_else(|| "No predictions without a latency-bandwidth model.".into()));
    };
    let points: Vec<(f64, f64)> =
        answer.caps.iter().map(|cap| (cap.cap_bytes as f64, cap.step_nanos)).collect();
    let (least, most) = points
        .iter()
        .fold((f64::MAX, 0.0f64), |(least, most), point| (least.min(point.1), most.max(point.1)));
    let x = Axis::log(first.cap_bytes as f64 * 0.9, last.cap_bytes as f64 * 1.1, 2.0);
    // The axis does not begin at 0, because differences of a few percent matter here. Its labels show this.
    let room = ((most - least) * 0.15).max(least * 0.005);
    let y = Axis::linear((least - room).max(0.0), most + room);
    let hits = answer.caps.iter().map(|cap| Hit {
        at: (cap.cap_bytes as f64, cap.step_nanos),
        says: vec![
            format!("cap {}", units::bytes(cap.cap_bytes)),
            format!("step {}", units::nanos(cap.step_nanos)),
            format!("exposed transfer {}", units::nanos(cap.exposed_nanos)),
        ],
    });
    Ok(Arc::new(Picture {
        x,
        y,
        x_ticks: x.ticks(6, |bytes| units::bytes(bytes.round() as u64)),
        y_ticks: y.ticks(4, units::nanos),
        hits: hits.collect(),
        marks: vec![
            Mark::Line { points: points.clone(), ink: Ink::Muted, dashed: true },
            Mark::Dots { points, ink: Ink::Strong, hollow: true },
        ],
    }))
}

fn advice(answer: &Answer) -> String {
    if answer.caps.is_empty() {
        return String::new();
    }
    answer.cap_advice.clone().unwrap_or_else(|| "No other bucket cap is predicted to be better.".into())
}

fn baseline(answer: &Answer) -> String {
    answer.baseline.as_ref().map_or_else(|| " no baseline".into(), |run| format!(" baseline: {run}"))
}

fn error(answer: &Answer) -> String {
    answer.model_error.map_or_else(String::new, |error| {
        format!(" at this run's world size, the model is off by {} %", signed(error * 100.0, 1))
    })
}

/// The headings of a table.
#[component]
fn Headings<const N: usize>(names: [&'static str; N]) -> impl IntoView {
    let names = names.map(|name| view! { <th scope="col" class="number">{name}</th> }).collect_view();
    view! { <thead><tr>{names}</tr></thead> }
}

#[component]
fn Runs(answer: Arc<Answer>) -> impl IntoView {
    if answer.points.is_empty() {
        return view! { <p class="quiet">"No run of this name has a throughput yet."</p> }.into_any();
    }
    let ratio = |share: Option<f64>| share.map_or_else(|| "—".into(), units::percent);
    let row = |point: &ScalingPoint| {
        view! {
            <tr class:chosen=point.run == answer.run>
                <th scope="row" class="number">
                    <a href=format!("/runs/{}", point.run)>{point.run.to_string()}</a>
                </th>
                <td class="number">{units::count(point.ranks.into())}</td>
                <td class="number">{units::nanos(point.step_nanos)}</td>
                <td class="number">{units::rate(point.throughput, &format!("{}/s", answer.sample_unit))}</td>
                <td class="number">{ratio(point.measured)}</td>
                <td class="number">{ratio(point.implied)}</td>
            </tr>
        }
    };
    view! {
        <table data-testid="scaling-runs">
            <Headings names=["Run", "Ranks", "Step time", "Throughput", "Measured", "Implied"] />
            <tbody>{answer.points.iter().map(row).collect_view()}</tbody>
        </table>
    }
    .into_any()
}

#[component]
fn Predictions(answer: Arc<Answer>) -> impl IntoView {
    if answer.predictions.is_empty() {
        let why = missing(&answer).unwrap_or_else(|| "No model to predict from.".into());
        return view! { <p class="quiet">{why}</p> }.into_any();
    }
    let row = |p: &ScalingPrediction| {
        let band = format!("{} to {}", units::percent(p.efficiency_low), units::percent(p.efficiency_high));
        view! {
            <tr class:chosen=p.ranks == answer.ranks>
                <th scope="row" class="number">{units::count(p.ranks.into())}</th>
                <td class="number">{units::nanos(p.step_nanos)}</td>
                <td class="number">{units::percent(p.efficiency)}</td>
                <td class="number">{band}</td>
            </tr>
        }
    };
    view! {
        <table data-testid="predictions">
            <Headings names=["Ranks", "Step time", "Efficiency", "Error band"] />
            <tbody>{answer.predictions.iter().map(row).collect_view()}</tbody>
        </table>
    }
    .into_any()
}
