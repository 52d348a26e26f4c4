//! One step of one rank in numbers, and all ranks of that step as a table.

use std::sync::Arc;

use leptos::prelude::*;
use model::route::Tab;
use viz::{measure, palette};
use wire::live::tile::Measure;
use wire::live::{Part, StepRanks};

use super::RanksSelection;
use crate::live::Live;
use crate::route::{Address, RunId};
use crate::table::{Choice, Column, Table};
use crate::widgets::Swatch;

/// The ledger of the selected rank and step, next to the median rank's.
#[component]
pub fn RankDetail(selection: RanksSelection) -> impl IntoView {
    let (run, address) = (expect_context::<RunId>(), expect_context::<Address>());
    // Without a selected step, the table below shows the newest one, and so does this.
    let shown = move || selection.ranks.with(|ranks| Some(ranks.as_ref()?.as_ref().ok()?.step));
    let selected = move || selection.cells.step.get().or_else(shown).zip(selection.cells.rank.get());
    let content = move || {
        let say = |words: String| view! { <p class="quiet">{words}</p> }.into_any();
        let Some((step, rank)) = selected() else {
            return say("Select a cell: click it, or focus the heatmap and use the arrow keys.".into());
        };
        match selection.ranks.get() {
            Some(Err(error)) => say(error),
            Some(Ok(ranks)) if ranks.step == step && (rank as usize) < ranks.rank_nanos.len() => {
                view! { <Numbers ranks=ranks rank=rank as usize /> }.into_any()
            }
            Some(Ok(ranks)) if ranks.step == step => say("This run does not have that rank.".into()),
            Some(Ok(_)) | None => say("Loading…".into()),
        }
    };
    let heading = move || {
        selected().map_or_else(
            || "No selection".into(),
            |(step, rank)| format!("Rank {rank}, step {}", units::count(step)),
        )
    };
    let link = move || {
        selected().map(|(step, rank)| {
            let href = address.keeping(&format!("{}?step={step}&rank={rank}", Tab::Buckets.path(&run.get())));
            view! { <p class="actions"><a class="button primary" href=href>"Buckets of this step"</a></p> }
        })
    };
    view! {
        <aside class="panel detail" aria-label="Selection" data-testid="rank-detail">
            <div class="panel-head"><h2>{heading}</h2></div>
            {content}
            {link}
        </aside>
    }
}

/// Returns the ledger of one rank, in the order of [`Part::ALL`]; `None` if it is unknown.
fn ledger(ranks: &StepRanks, rank: usize) -> Option<[f64; Part::COUNT]> {
    let ledger: [f64; Part::COUNT] = std::array::from_fn(|part| f64::from(ranks.parts[part][rank]));
    ledger.iter().all(|nanos| !nanos.is_nan()).then_some(ledger)
}

/// Returns the median of a part over ranks, with which a rank's step is compared.
fn median(ranks: &StepRanks, part: usize) -> f64 {
    f64::from(measure::exceeded_by(&ranks.parts[part], 50))
}

fn known(value: f64, write: fn(f64) -> String) -> String {
    if value.is_nan() { "—".into() } else { write(value) }
}

#[component]
fn Numbers(ranks: Arc<StepRanks>, rank: usize) -> impl IntoView {
    let (total, lateness) = (f64::from(ranks.rank_nanos[rank]), f64::from(ranks.lateness[rank]));
    let Some(ledger) = ledger(&ranks, rank) else {
        return view! {
            <p>"Step time "<b>{known(total, units::nanos)}</b></p>
            <p class="quiet">"No ledger: the step was not observed in full, or this rank's records are missing."</p>
        }
        .into_any();
    };
    let parts = Part::stacked(ledger[Part::Idle as usize] > 0.0)
        .map(|part| {
            let nanos = ledger[part as usize];
            let difference = nanos - median(&ranks, part as usize);
            // A difference counts from a hundredth of the step.
            let is_more = difference > total / 100.0;
            view! {
                <tr>
                    <th scope="row"><Swatch color=palette::part(part) />{part.name()}</th>
                    <td class="number">{units::nanos(nanos)}</td>
                    <td class="number">{units::percent(nanos / total.max(1.0))}</td>
                    <td class="number" class:more=is_more>{units::signed_nanos(difference)}</td>
                </tr>
            }
        })
        .collect_view();
    view! {
        <table class="ledger">
            <thead>
                <tr>
                    <th scope="col">"Part"</th>
                    <th scope="col" class="number">"Time"</th>
                    <th scope="col" class="number">"Share"</th>
                    <th scope="col" class="number" title="Difference from the median rank of this step">"vs median"</th>
                </tr>
            </thead>
            <tbody>
                {parts}
                <tr class="sum">
                    <th scope="row">"step time"</th>
                    <td class="number">{known(total, units::nanos)}</td>
                    <td></td>
                    <td></td>
                </tr>
                <tr>
                    <th scope="row">"lateness"</th>
                    <td class="number">{known(lateness, units::signed_nanos)}</td>
                    <td></td>
                    <td></td>
                </tr>
            </tbody>
        </table>
    }
    .into_any()
}

/// One rank of a step.
#[derive(Clone, PartialEq)]
struct Row {
    rank: u32,
    step: u64,
    /// The figure of each measure, in nanoseconds, in the order of [`Measure::OF_STEPS`]; NaN if unknown.
    figures: Vec<f32>,
}

fn rows(ranks: &StepRanks) -> Vec<Row> {
    let figure = |measure: Measure, rank: usize| match measure {
        Measure::Lateness => ranks.lateness[rank],
        Measure::StepTime => ranks.rank_nanos[rank],
        Measure::LocalWork => local_work(ranks, rank),
        Measure::Part(part) => ranks.parts[part as usize][rank],
        // No figure of a step.
        Measure::Usage(_) => f32::NAN,
    };
    let row = |rank: usize| Row {
        rank: rank as u32,
        step: ranks.step,
        figures: Measure::OF_STEPS.map(|measure| figure(measure, rank)).into(),
    };
    (0..ranks.rank_nanos.len()).map(row).collect()
}

fn local_work(ranks: &StepRanks, rank: usize) -> f32 {
    let communication =
        [Part::ExposedWait, Part::ExposedTransfer].map(|part| ranks.parts[part as usize][rank]);
    ranks.rank_nanos[rank] - communication.iter().sum::<f32>()
}

/// The table of all ranks of the selected step, or of the newest one.
#[component]
pub fn StepTable(selection: RanksSelection) -> impl IntoView {
    let ranks = move || selection.ranks.get();
    let caption = Signal::derive(move || match ranks() {
        Some(Err(error)) => error,
        Some(Ok(ranks)) => format!("All ranks of step {}", units::count(ranks.step)),
        None => "All ranks of one step".into(),
    });
    let shown =
        Signal::derive(move || ranks().and_then(Result::ok).map(|ranks| rows(&ranks)).unwrap_or_default());
    let has_idle = expect_context::<Live>().has_idle();
    let table = move || {
        let choice = Choice::new(
            move |row: &Row| selection.cells.rank.get() == Some(row.rank),
            move |row: Row| selection.cells.select(Some((row.step, row.rank))),
        );
        view! {
            <Table testid="ranks-table" caption=caption columns=columns(has_idle.get()) rows=shown key=|row: &Row| row.rank worst_first=1 choice=choice />
        }
    };
    view! {
        <section class="panel" aria-label="All ranks of one step">
            <div class="panel-head"><h2>{caption}</h2></div>
            {table}
        </section>
    }
}

fn columns(has_idle: bool) -> Vec<Column<Row>> {
    let mut columns = vec![Column::number("Rank", |row: &Row| (f64::from(row.rank), row.rank.to_string()))];
    let measures = Measure::OF_STEPS.into_iter().enumerate();
    columns.extend(measures.filter(|(_, measure)| has_idle || *measure != Measure::Part(Part::Idle)).map(
        |(at, measure)| {
            Column::number(measure.name(), move |row: &Row| {
                (f64::from(row.figures[at]), measure::write(measure, row.figures[at]))
            })
        },
    ));
    columns
}
