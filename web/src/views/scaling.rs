//! The Scaling view: efficiency measured over the runs of a job and predicted from its model, and the predicted effect
//! of other bucket sizes and networks.

mod pictures;
mod tables;
mod what_if;

use std::sync::Arc;

use leptos::prelude::*;
use model::scaling::{baselines, error, fit, sentence};
use wire::views::scaling::Scaling as Answer;

use self::tables::{Predictions, Runs};
use self::what_if::WhatIf;
use crate::api;
use crate::download;
use crate::polled::polled;
use crate::route::{Address, RunId};
use crate::run_choice::GroupedChoice;
use crate::theme::Theme;
use crate::xy::{Shown, Xy};

/// The time after which the answer for a live run is requested again, in milliseconds.
const AGAIN_MILLIS: f64 = 5_000.0;

/// The server's answer, or the reason why there is none. `None` before the first answer.
type Answered = Signal<Option<Result<Arc<Answer>, String>>>;
/// The run and the baseline that were asked for, and the answer.
type Fetched = ((String, Option<String>), Result<Arc<Answer>, String>);

/// What the parts of the view say, once the server has answered.
#[derive(Clone, Copy)]
struct Said {
    answered: Answered,
    answer: Signal<Option<Arc<Answer>>>,
}

impl Said {
    fn new(answered: Answered) -> Self {
        Self { answered, answer: Signal::derive(move || answered.get().and_then(Result::ok)) }
    }

    fn picture(self, read: fn(&Answer) -> Shown) -> Signal<Shown> {
        Signal::derive(move || match self.answered.get() {
            None => Err("Loading the runs of this name…".into()),
            Some(Err(error)) => Err(units::capitalized(&error)),
            Some(Ok(answer)) => read(&answer),
        })
    }

    fn words(self, read: fn(&Answer) -> String) -> Signal<String> {
        Signal::derive(move || self.answer.get().map(|answer| read(&answer)).unwrap_or_default())
    }

    /// Returns whether the answer has something; false before it has arrived.
    fn has(self, read: fn(&Answer) -> bool) -> Memo<bool> {
        Memo::new(move |_| self.answer.get().is_some_and(|answer| read(&answer)))
    }
}

#[component]
pub fn Scaling() -> impl IntoView {
    let address = expect_context::<Address>();
    let said = Said::new(fetch(Memo::new(move |_| address.param("baseline"))));
    let answer = said.answer;
    let has_predictions = said.has(|answer| !answer.predictions.is_empty());
    view! {
        <p class="lead" data-testid="scaling-sentence">{said.words(|answer| units::unbroken(&sentence(answer)))}</p>
        <Efficiency said=said has_predictions=has_predictions />
        <div class="halves">
            <section class="panel" aria-label="Runs">
                <div class="panel-head"><h2>"Runs"<small data-testid="scaling-baseline">{said.words(baseline_words)}</small></h2></div>
                <Runs answer=answer />
            </section>
            <Show when=move || has_predictions.get()>
                <section class="panel" aria-label="Predictions">
                    <div class="panel-head">
                        <h2>"Predictions"<small>{said.words(model_error)}</small></h2>
                        <span class="grow"></span>
                        <PlanLink />
                    </div>
                    <Predictions answer=answer />
                    <Assumptions answer=answer />
                </section>
            </Show>
        </div>
        <Show when=move || has_predictions.get()>
            <WhatIf answer=answer />
        </Show>
        <div class="halves">
            <ModelCharts said=said />
        </div>
    }
}

/// Efficiency against world size, and the choice of the baseline.
#[component]
fn Efficiency(said: Said, has_predictions: Memo<bool>) -> impl IntoView {
    let (address, answer) = (expect_context::<Address>(), said.answer);
    let offered = Signal::derive(move || answer.get().iter().map(|answer| baselines(answer)).collect());
    let automatic = Signal::derive(move || match answer.get().and_then(|answer| answer.baseline.clone()) {
        Some(run) if address.param("baseline").is_none() => format!("automatic: {run}"),
        _ => "automatic".into(),
    });
    view! {
        <ChartPanel
            title="Efficiency against world size"
            testid="scaling-efficiency"
            label="Scaling efficiency against world size; the tables below have its numbers"
            height=280.0
            axes=("ranks", "efficiency")
            picture=said.picture(pictures::efficiency)
        >
            <div class="beside">
                <ul class="legend">
                    <li><i class="key dot-full" aria-hidden="true"></i>"measured, against the baseline"</li>
                    <li><i class="key dot-hollow" aria-hidden="true"></i>"implied: compute time / mean step time"</li>
                    <Show when=move || has_predictions.get()>
                        <li><i class="key dashed" aria-hidden="true"></i>"predicted, with its error band"</li>
                    </Show>
                </ul>
                <GroupedChoice key="baseline" name="Baseline" nothing=automatic groups=offered />
            </div>
        </ChartPanel>
    }
}

/// The fitted model of all-reduces, and what it predicts of bucket caps.
#[component]
fn ModelCharts(said: Said) -> impl IntoView {
    let has_model = said.has(|answer| answer.comm_model.is_some());
    let has_caps = said.has(|answer| !answer.caps.is_empty());
    view! {
        <Show when=move || has_model.get()>
            <ChartPanel
                title="Latency and bandwidth"
                testid="comm-model"
                label="Transfer time against payload, with the fitted line"
                height=220.0
                axes=("payload", "transfer")
                picture=said.picture(pictures::comm_model)
            >
                <p class="lead" data-testid="fit">
                    {said.words(|answer| answer.comm_model.as_ref().map(fit).unwrap_or_default())}
                </p>
            </ChartPanel>
        </Show>
        <Show when=move || has_caps.get()>
            <ChartPanel
                title="Bucket size"
                testid="bucket-caps"
                label="Predicted step time against bucket cap"
                height=220.0
                axes=("bucket cap", "step time")
                picture=said.picture(pictures::caps)
            >
                <p class="lead" data-testid="cap-advice">{said.words(advice)}</p>
            </ChartPanel>
        </Show>
    }
}

/// A chart in a panel, with what stands above it and a button that saves it.
#[component]
fn ChartPanel(
    title: &'static str,
    testid: &'static str,
    label: &'static str,
    height: f64,
    axes: (&'static str, &'static str),
    picture: Signal<Shown>,
    children: Children,
) -> impl IntoView {
    let theme = expect_context::<Theme>();
    let save = move |_| download::png(&format!("{testid}.png"), testid, theme.inks().ground);
    view! {
        <section class="panel" aria-label=title>
            <div class="panel-head">
                <h2>{title}</h2>
                <span class="grow"></span>
                <button class="quiet" on:click=save>"PNG"</button>
            </div>
            {children()}
            <Xy label=label testid=testid height=height axes=axes picture=picture />
        </section>
    }
}

#[component]
fn PlanLink() -> impl IntoView {
    let run = expect_context::<RunId>();
    view! { <a href=move || format!("/plan?run={}", run.get()) data-testid="to-plan">"Plan a training with this model"</a> }
}

#[component]
fn Assumptions(answer: Signal<Option<Arc<Answer>>>) -> impl IntoView {
    let lines = move || {
        let lines = answer.get().map(|answer| answer.assumptions.clone());
        lines.unwrap_or_default().into_iter().map(|line| view! { <li>{line}</li> }).collect_view()
    };
    view! {
        <details class="others">
            <summary>"Assumptions of the predictions"</summary>
            <ul class="plain quiet" data-testid="assumptions">{lines}</ul>
        </details>
    }
}

/// Fetches the answer, and again every few seconds while the run is live. An error replaces no answer of the same run and
/// baseline.
fn fetch(baseline: Memo<Option<String>>) -> Answered {
    let fetched = polled(
        Some(AGAIN_MILLIS),
        Memo::new(move |_| Some(baseline.get())),
        |run, baseline: Option<String>| async move {
            let answer = api::scaling(&run, baseline.as_deref()).await;
            Some(((run, baseline), answer.map(Arc::new)))
        },
    );
    let kept = Memo::new(move |old: Option<&Option<Fetched>>| match (fetched.get(), old) {
        (Some((wanted, Err(_))), Some(Some((before, Ok(answer))))) if *before == wanted => {
            Some((wanted, Ok(answer.clone())))
        }
        (new, _) => new,
    });
    Signal::derive(move || kept.get().map(|(_, answer)| answer))
}

fn baseline_words(answer: &Answer) -> String {
    let baseline =
        answer.baseline.as_ref().map_or_else(|| "no baseline".into(), |run| format!("baseline {run}"));
    let rule = answer.rule.map_or_else(String::new, |rule| format!("{}, ", rule.name()));
    format!(" named {}, {rule}{baseline}", answer.name)
}

fn model_error(answer: &Answer) -> String {
    error(answer).map_or_else(String::new, |error| format!(" {error}"))
}

fn advice(answer: &Answer) -> String {
    answer.cap_advice.clone().unwrap_or_else(|| "No other bucket cap is predicted to be better.".into())
}
