//! The way from the ideal step to the measured one, as a waterfall, with what would help beside each bar.

use analysis::cascade::{Bar as Piece, BarKind, Cascade, cascade};
use leptos::prelude::*;
use model::verdict::label;
use viz::palette::{self, Rgba};
use wire::live::Part;
use wire::views::what_if::{Fix, Loss, Saving};
use wire::views::{Culprit, Missing, Report, Verdict, VerdictState};

use super::what_if::WhatIfs;
use crate::live::Live;
use crate::periods::{Compared, steps};
use crate::terms::Term;
use crate::widgets::{Bar, Swatch};

/// The smallest share of the step that has a row.
const MIN_SHARE: f64 = 0.0005;

/// The panel.
#[component]
pub fn Way(compared: Compared) -> impl IntoView {
    let live = expect_context::<Live>();
    let summary =
        move || compared.now.get().and_then(|report| Some(format!(" mean step, {}", steps(&report)?)));
    let content = move || {
        let report = compared.now.get()?;
        // The verdicts of the whole report, so that a bar costs what the verdict above says.
        let verdicts = live.run.get().map(|shown| shown.report.verdicts.clone()).unwrap_or_default();
        Some(rows(&report, &verdicts))
    };
    view! {
        <section class="panel" aria-label="From the ideal step to the measured one" data-testid="losses">
            <div class="panel-head"><h2>"From the ideal step to the measured one"<small>{summary}</small></h2></div>
            {content}
            <WhatIfs />
        </section>
    }
}

fn rows(report: &Report, verdicts: &[Verdict]) -> AnyView {
    let going_on: Vec<Verdict> =
        verdicts.iter().filter(|verdict| verdict.state != VerdictState::Resolved).cloned().collect();
    let Some(Cascade { ideal_nanos, bars, measured_nanos }) = cascade(report, &going_on) else {
        let why = report.loss_ledger.reason().or(report.period_nanos.reason()).map(Missing::to_string);
        return view! { <p class="quiet">{why}</p> }.into_any();
    };
    let mut reached = ideal_nanos;
    let lines = bars
        .into_iter()
        .map(|piece| {
            let left = reached;
            reached += piece.nanos;
            (piece, left / measured_nanos, reached / measured_nanos)
        })
        .filter(|(_, from, to)| (to - from).abs() >= MIN_SHARE)
        .map(|(piece, from, to)| view! { <Line piece=piece from=from to=to verdicts=going_on.clone() /> })
        .collect_view();
    view! {
        <div class="scroll-x plain-scroll">
            <table class="way">
                <caption class="unseen">"What lengthens the step, and what would help"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Part"</th>
                        <th scope="col" class="number">"Adds"</th>
                        <th scope="col"><span class="unseen">"Bar"</span></th>
                        <th scope="col">"What would help"</th>
                    </tr>
                </thead>
                <tbody>
                    <Total name="ideal step" nanos=ideal_nanos share=ideal_nanos / measured_nanos />
                    {lines}
                    <Total name="step time" nanos=measured_nanos share=1.0 />
                </tbody>
            </table>
        </div>
    }
    .into_any()
}

/// A row whose bar begins at 0.
#[component]
fn Total(name: &'static str, nanos: f64, share: f64) -> impl IntoView {
    view! {
        <tr class="sum">
            <th scope="row"><Term name=name /></th>
            <td class="number">{units::nanos(nanos)}</td>
            <td class="bar-cell"><Bar from=0.0 to=share /></td>
            <td class="help">{units::percent(share)}" of the step"</td>
        </tr>
    }
}

/// A row whose bar begins where the previous one ends.
#[component]
fn Line(piece: Piece, from: f64, to: f64, verdicts: Vec<Verdict>) -> impl IntoView {
    let (name, color, help) = match piece.kind {
        BarKind::Verdict(at) => {
            let verdict = verdicts.get(at);
            let name =
                view! { <b>{verdict.map(|verdict| label(verdict.culprit.as_ref(), verdict.cause))}</b> }
                    .into_any();
            (name, Some(CULPRIT), verdict.map(|verdict| saves(verdict, piece.nanos)))
        }
        BarKind::Loss(loss) => {
            (view! { <Term name=loss.name() /> }.into_any(), color(loss), piece.fix.map(fix))
        }
        BarKind::Residual => (view! { <Term name="residual" /> }.into_any(), None, None),
    };
    let class = matches!(piece.kind, BarKind::Verdict(_)).then_some("culprit");
    view! {
        <tr class=class>
            <th scope="row"><Swatch color=color.unwrap_or(palette::part(Part::Other)) />{name}</th>
            <td class="number">{units::signed_nanos(piece.nanos)}</td>
            <td class="bar-cell"><Bar from=from.min(to) to=to.max(from) color=color /></td>
            <td class="help">{help}</td>
        </tr>
    }
}

/// The color of what a verdict explains. It is not part of a step.
const CULPRIT: Rgba = palette::ALARM;

/// Returns the color of a loss: that of the part of the step in which the time is lost.
fn color(loss: Loss) -> Option<Rgba> {
    match loss {
        Loss::Imbalance => Some(palette::IMBALANCE),
        Loss::ExposedWait => Some(palette::part(Part::ExposedWait)),
        Loss::ExposedTransfer => Some(palette::part(Part::ExposedTransfer)),
        Loss::Input => Some(palette::part(Part::Input)),
        Loss::Pause => Some(palette::part(Part::Pause)),
        Loss::Idle => Some(palette::part(Part::Idle)),
        Loss::Other => Some(palette::part(Part::Other)),
        // Compute is forward and backward together, which have no common color.
        Loss::ComputeDrift => None,
    }
}

/// Says what the run gains without the fault. What to do is said with the verdict.
fn saves(verdict: &Verdict, nanos: f64) -> String {
    let saved = units::nanos(nanos);
    match verdict.culprit.as_ref().map(Culprit::ranks) {
        Some([rank]) => format!("Rank {rank} like the others: saves {saved}."),
        Some([_, _, ..]) => format!("These ranks like the others: saves {saved}."),
        _ => verdict.advice.clone(),
    }
}

fn fix(saving: Saving) -> String {
    let saves = units::nanos(saving.nanos_per_step);
    match saving.fix {
        Fix::Rank(rank) => format!("Rank {rank} like the others: saves {saves}."),
        Fix::Phase(phase) => format!("Equal {} on all ranks: saves {saves}.", phase.name()),
        Fix::Bucket(bucket) => format!("Hide the transfer of bucket {bucket}: saves at most {saves}."),
    }
}
