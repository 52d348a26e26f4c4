//! What is slowing the job, in a sentence, with its cost and its evidence. The first thing on the page.

use leptos::prelude::*;
use viz::units;
use wire::views::{Confidence, Culprit, Report, Verdict};

use super::run::RunId;
use crate::live::Live;
use crate::route::Tab;
use crate::widgets::Views as _;

/// What is said where no verdict is.
#[derive(Clone, Debug, PartialEq)]
enum Finding {
    /// No step is complete yet.
    Waiting,
    /// The run does not move.
    Hung(String),
    /// Something costs time.
    Against(Box<Verdict>),
    /// Steps were looked at and nothing was found.
    Nothing(String),
}

fn finding(report: &Report) -> Finding {
    if let Some(hang) = &report.hang {
        return Finding::Hung(hang.sentence.clone());
    }
    match report.verdicts.first() {
        Some(worst) => Finding::Against(Box::new(worst.clone())),
        None if report.steps == 0 => Finding::Waiting,
        None => Finding::Nothing(match report.missing.get("verdicts").or(report.missing.get("verdict")) {
            Some(reason) => format!("Insufficient evidence: {reason}"),
            None => format!("Nothing stands out in {} steps.", units::count(report.steps)),
        }),
    }
}

/// The worst verdict in full, the others as a list.
#[component]
pub fn Verdicts() -> impl IntoView {
    let live = expect_context::<Live>();
    let found = Memo::new(move |_| live.run.with(|run| run.as_ref().map(|run| finding(&run.report))));
    let others = Memo::new(move |_| {
        live.run.with(|run| {
            run.as_ref().map(|run| run.report.verdicts.iter().skip(1).cloned().collect::<Vec<_>>())
        })
    });
    let more = move || {
        let others = others.get().filter(|others| !others.is_empty())?;
        Some(view! {
            <details class="others">
                <summary>
                    {format!("{} more finding{}", others.len(), if others.len() == 1 { "" } else { "s" })}
                </summary>
                <ul>
                    {others
                        .into_iter()
                        .map(|verdict| {
                            let cost = units::nanos(verdict.cost_ns_per_step as f64);
                            let share = units::percent(verdict.cost_share);
                            view! {
                                <li>{verdict.sentence.clone()}" "<small>{cost}" per step, "{share}", "{confidence(verdict.confidence)}</small></li>
                            }
                        })
                        .views()}
                </ul>
            </details>
        })
    };
    let body = move || match found.get() {
        None => plain("waiting", "Looking at the run…", ""),
        Some(Finding::Waiting) => plain(
            "waiting",
            "Waiting for the first complete step.",
            "A verdict needs a few steps that every rank has finished.",
        ),
        Some(Finding::Hung(sentence)) => plain("hung", &sentence, "No step has completed since."),
        Some(Finding::Nothing(sentence)) => plain(
            "nothing",
            &sentence,
            "No rank, cause or bucket costs a share of the step that can be told from noise.",
        ),
        Some(Finding::Against(verdict)) => view! { <Against verdict=*verdict /> }.into_any(),
    };
    view! { <section class="verdict-area" aria-label="Verdict">{body} {more}</section> }
}

fn plain(class: &'static str, sentence: &str, below: &'static str) -> AnyView {
    let sentence = sentence.to_owned();
    view! {
        <div class="verdict" data-kind=class>
            <p class="sentence" data-testid="verdict">{sentence}</p>
            <p class="quiet">{below}</p>
        </div>
    }
    .into_any()
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::InsufficientEvidence => "insufficient evidence",
        Confidence::Medium => "medium confidence",
        Confidence::High => "high confidence",
    }
}

#[component]
fn Against(verdict: Verdict) -> impl IntoView {
    let run = expect_context::<RunId>().get();
    let kind =
        if verdict.confidence == Confidence::InsufficientEvidence { "insufficient" } else { "against" };
    let example = verdict.example_step.map(|step| {
        let rank = match verdict.culprit {
            Some(Culprit::Rank(rank)) => format!("&rank={rank}"),
            _ => String::new(),
        };
        let ranks = format!("{}?step={step}{rank}", Tab::Ranks.path(&run));
        let buckets = format!("{}?step={step}{rank}", Tab::Buckets.path(&run));
        view! {
            <p class="actions">
                <a class="button primary" href=buckets data-testid="example-step">
                    {format!("See step {}", units::count(step))}
                </a>
                <a class="button" href=ranks>"Compare ranks"</a>
            </p>
        }
    });
    let list = |title: &'static str, class: &'static str, items: Vec<String>| {
        (!items.is_empty()).then(|| {
            view! {
                <div class=class>
                    <h2>{title}</h2>
                    <ul>{items.into_iter().map(|item| view! { <li>{item}</li> }).views()}</ul>
                </div>
            }
        })
    };
    view! {
        <div class="verdict" data-kind=kind>
            <p class="sentence" data-testid="verdict">{verdict.sentence}</p>
            <dl class="costs">
                <div>
                    <dt>"Cost"</dt>
                    <dd>{units::nanos(verdict.cost_ns_per_step as f64)}<small>" per step"</small></dd>
                </div>
                <div>
                    <dt>"Share"</dt>
                    <dd>{units::percent(verdict.cost_share)}<small>" of step time"</small></dd>
                </div>
                <div>
                    <dt>"Lost"</dt>
                    <dd>{units::significant(verdict.gpu_hours_per_day)}<small>" GPU-hours per day"</small></dd>
                </div>
                <div>
                    <dt>"Confidence"</dt>
                    <dd data-testid="confidence">{confidence(verdict.confidence).split(' ').next()}
                        <small>{if kind == "insufficient" { " evidence" } else { "" }}</small></dd>
                </div>
                <div>
                    <dt>"Cause"</dt>
                    <dd>{verdict.cause.name().replace('_', " ")}</dd>
                </div>
            </dl>
            <div class="grounds">
                {list("Evidence", "for", verdict.evidence)}
                {list("Counter-evidence", "against", verdict.counter_evidence)}
            </div>
            {example}
        </div>
    }
}
