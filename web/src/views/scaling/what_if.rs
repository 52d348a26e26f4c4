//! The what-if panel of the Scaling view: sliders for the network, the buckets and the number of ranks, and the step that the
//! model predicts. The address holds the positions.

use std::sync::Arc;

use leptos::prelude::*;
use model::what_if::{SLIDERS, Slider, query};
use wire::views::scaling::{Predicted, Scaling, ScenarioPrediction};

use crate::api;
use crate::route::{Address, RunId};

/// The panel.
#[component]
pub fn WhatIf(answer: Signal<Option<Arc<Scaling>>>) -> impl IntoView {
    let (address, run) = (expect_context::<Address>(), expect_context::<RunId>());
    let positions = Memo::new(move |_| SLIDERS.map(|slider| position(address, &slider)));
    let fetched = LocalResource::new(move || {
        // A new answer of the view comes from more steps.
        answer.track();
        let (run, query) = (run.get(), query(&positions.get()));
        async move { api::what_if(&run, &query).await }
    });
    let unit = move || answer.get().map(|answer| format!("{}/s", answer.sample_unit)).unwrap_or_default();
    let predicted = move || {
        Some(match fetched.get()? {
            Ok(predicted) => figures(&predicted, &unit()).into_any(),
            Err(error) => {
                view! { <p class="error" role="status">{units::capitalized(&error)}</p> }.into_any()
            }
        })
    };
    let is_changed = move || positions.get().iter().any(Option::is_some);
    let reset = move |_| address.set(SLIDERS.map(|slider| (slider.key, None)));
    view! {
        <section class="panel" aria-label="What if" data-testid="scenario">
            <div class="panel-head">
                <h2>"What if"<small>" another network, other buckets or other ranks"</small></h2>
                <span class="grow"></span>
                <button class="quiet" disabled=move || !is_changed() on:click=reset>"Reset"</button>
            </div>
            <div class="halves">
                <div class="sliders">
                    {SLIDERS.map(|slider| view! { <Input slider=slider answer=answer /> }).collect_view()}
                </div>
                <div aria-live="polite">{predicted}</div>
            </div>
        </section>
    }
}

fn position(address: Address, slider: &Slider) -> Option<i32> {
    slider.position(&address.param(slider.key)?)
}

#[component]
fn Input(slider: Slider, answer: Signal<Option<Arc<Scaling>>>) -> impl IntoView {
    let address = expect_context::<Address>();
    let unchanged = Memo::new(move |_| {
        answer.get().map_or(0, |answer| {
            let largest = answer.comm_model.iter().flat_map(|model| &model.points).map(|point| point.0).max();
            slider.unchanged(answer.ranks, largest.unwrap_or(0))
        })
    });
    let at = move || position(address, &slider).unwrap_or_else(|| unchanged.get());
    let written = move || match position(address, &slider) {
        Some(position) => slider.written(position),
        None => "as it is".into(),
    };
    let change =
        move |event: leptos::ev::Event| address.set([(slider.key, Some(event_target_value(&event)))]);
    view! {
        <label title=slider.means>
            <span>{slider.name}</span>
            <input
                type="range"
                data-testid=slider.key
                min=slider.ends.0
                max=slider.ends.1
                prop:value=move || at().to_string()
                aria-valuetext=written
                on:input=change
            />
            <output>{written}</output>
        </label>
    }
}

fn figures(predicted: &ScenarioPrediction, unit: &str) -> impl IntoView {
    let figure = |name: &'static str, figure: &Predicted, write: &dyn Fn(f64) -> String| {
        let (value, low, high) = (write(figure.value), write(figure.low), write(figure.high));
        view! {
            <div class="figure">
                <dt>{name}</dt>
                <dd>{value}</dd>
                <dd class="below">{format!("{low} to {high}")}</dd>
            </div>
        }
    };
    let throughput =
        predicted.throughput.map(|rate| figure("Throughput", &rate, &|rate| units::rate(rate, unit)));
    let assumptions =
        predicted.assumptions.iter().map(|line| view! { <li>{line.clone()}</li> }).collect_view();
    view! {
        <p class="lead" data-testid="scenario-sentence">{units::unbroken(&predicted.sentence)}</p>
        <dl class="figures">
            {figure("Step time", &predicted.step_nanos, &units::nanos)}
            {throughput}
            {figure("Efficiency", &predicted.efficiency, &units::percent)}
        </dl>
        <ul class="plain quiet">{assumptions}</ul>
    }
}
