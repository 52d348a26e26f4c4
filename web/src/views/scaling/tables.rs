//! The tables of the Scaling view: the runs of one name, and the predictions.

use std::sync::Arc;

use leptos::prelude::*;
use model::route::Tab;
use model::scaling::band;
use wire::views::scaling::{Scaling, ScalingPoint, ScalingPrediction};

use crate::route::{Address, RunId};
use crate::table::{Choice, Column, Table};

/// A row, with what all rows of the answer share.
#[derive(Clone, PartialEq)]
struct Run {
    point: ScalingPoint,
    is_own: bool,
    unit: String,
}

fn runs(answer: &Scaling) -> Vec<Run> {
    let run = |point: &ScalingPoint| Run {
        is_own: point.run == answer.run,
        unit: format!("{}/s", answer.sample_unit),
        point: point.clone(),
    };
    answer.points.iter().map(run).collect()
}

fn share(share: Option<f64>) -> (f64, String) {
    (share.unwrap_or(f64::NAN), share.map_or_else(|| "—".into(), units::percent))
}

/// The runs of one name. A click on one goes to its Scaling view.
#[component]
pub fn Runs(answer: Signal<Option<Arc<Scaling>>>) -> impl IntoView {
    let address = expect_context::<Address>();
    let rows = Signal::derive(move || answer.get().map(|answer| runs(&answer)).unwrap_or_default());
    let columns = vec![
        Column::text("Run", |row: &Run| row.point.run.to_string()),
        Column::number("Ranks", |row: &Run| {
            (f64::from(row.point.ranks), units::count(row.point.ranks.into()))
        }),
        Column::number("Step time", |row: &Run| (row.point.step_nanos, units::nanos(row.point.step_nanos))),
        Column::number("Throughput", |row: &Run| {
            (row.point.throughput, units::rate(row.point.throughput, &row.unit))
        }),
        Column::number("Measured", |row: &Run| share(row.point.measured))
            .meaning("The throughput per rank / that of the baseline, if the batch per rank (weak scaling) or the total batch (strong scaling) is the same"),
        Column::number("Implied", |row: &Run| share(row.point.implied))
            .meaning("Compute time / mean step time"),
    ];
    let choice = Choice::new(
        |row: &Run| row.is_own,
        move |row: Run| address.go(&Tab::Scaling.path(row.point.run.as_str())),
    );
    let key = |row: &Run| row.point.run.clone();
    view! { <Table testid="scaling-runs" caption="Runs of this name" columns=columns rows=rows key=key choice=choice /> }
}

/// The predictions by world size. A click on one goes to a training plan for that many ranks.
#[component]
pub fn Predictions(answer: Signal<Option<Arc<Scaling>>>) -> impl IntoView {
    let (address, run) = (expect_context::<Address>(), expect_context::<RunId>());
    let rows =
        Signal::derive(move || answer.get().map(|answer| answer.predictions.clone()).unwrap_or_default());
    let columns = vec![
        Column::number("Ranks", |row: &ScalingPrediction| {
            (f64::from(row.ranks), units::count(row.ranks.into()))
        }),
        Column::number("Step time", |row: &ScalingPrediction| (row.step_nanos, units::nanos(row.step_nanos))),
        Column::number("Efficiency", |row: &ScalingPrediction| share(Some(row.efficiency)))
            .meaning("The predicted step of one rank / the predicted step"),
        Column::text("Error band", band).right(),
    ];
    let choice = Choice::new(
        move |row: &ScalingPrediction| answer.get().is_some_and(|answer| answer.ranks == row.ranks),
        move |row: ScalingPrediction| {
            address.go(&format!("/plan?run={}&world={}", run.get_untracked(), row.ranks));
        },
    );
    let key = |row: &ScalingPrediction| row.ranks;
    view! {
        <Table testid="predictions" caption="Predictions by world size" columns=columns rows=rows key=key choice=choice />
    }
}
