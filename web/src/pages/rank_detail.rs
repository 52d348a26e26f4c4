//! One rank's step in numbers, and all ranks of that step as a table.

use leptos::prelude::*;
use viz::measure::Measure;
use viz::{palette, units};
use wire::live::Part;

use super::ranks::Look;
use super::run::RunId;
use crate::live::Live;
use crate::route::Tab;
use crate::table::{Column, Table};
use crate::widgets::{PartsBar, Swatch, Views as _, text};

/// The ledger of the selected rank and step, beside the median rank's.
#[component]
pub fn RankDetail(look: Look) -> impl IntoView {
    let live = expect_context::<Live>();
    let run = expect_context::<RunId>();
    let selected = Signal::derive(move || look.step.get().zip(look.rank.get()));
    // A closed step does not change: its numbers are read once, when it is here.
    let kept = Memo::new(move |_| {
        live.drawn.track();
        let (step, _) = selected.get()?;
        live.steps.with_value(|steps| Some((!steps.step.is_empty(), steps.row_of(step).is_some())))
    });
    let body = move || {
        // Read, not only tracked: a memo that nobody reads does not run, and never says that it changed.
        let _ = kept.get();
        let Some((step, rank)) = selected.get() else {
            return view! {
                <p class="quiet">
                    "Choose a cell: click it, or put the focus on the heatmap and use the arrow keys."
                </p>
            }
            .into_any();
        };
        let found = live.steps.with_value(|steps| {
            let row = steps.row_of(step)?;
            let at = row * steps.ranks + rank as usize;
            let lateness = *steps.lateness.get(at)?;
            Some((steps.ledger(row, rank as usize), steps.median_ledger(row), steps.rank_nanos[at], lateness))
        });
        match found {
            None if live.steps.with_value(|steps| steps.step.is_empty()) => {
                view! { <p class="quiet">"No steps yet."</p> }.into_any()
            }
            None => {
                view! { <p class="quiet">"This step is not among the newest ones, which this view shows. Its buckets may still be there."</p> }.into_any()
            }
            Some((ledger, median, total, lateness)) => {
                numbers(ledger, median, f64::from(total), f64::from(lateness))
            }
        }
    };
    let heading = move || {
        selected.get().map_or_else(
            || "No selection".into(),
            |(step, rank)| format!("Rank {rank}, step {}", units::count(step)),
        )
    };
    let link = move || {
        selected.get().map(|(step, rank)| {
            let href = format!("{}?step={step}&rank={rank}", Tab::Buckets.path(&run.get()));
            view! { <p class="actions"><a class="button primary" href=href>"Buckets of this step"</a></p> }
        })
    };
    view! {
        <aside class="panel detail" aria-label="Selection" data-testid="rank-detail">
            <div class="panel-head"><h2>{text(heading)}</h2></div>
            {body}
            {link}
        </aside>
    }
}

fn numbers(ledger: Option<[f32; 8]>, median: [f32; 8], total: f64, lateness: f64) -> AnyView {
    let known =
        |value: f64, write: fn(f64) -> String| if value.is_nan() { "—".into() } else { write(value) };
    let Some(ledger) = ledger.map(|ledger| ledger.map(f64::from)) else {
        return view! {
            <p>"Step time "<b>{known(total, units::nanos)}</b></p>
            <p class="quiet">"No ledger: a shadow step, or this rank's records are missing."</p>
        }
        .into_any();
    };
    let shares = ledger.map(|ns| ns / total.max(1.0));
    let rows = Part::ALL
        .map(|part| {
            let ns = ledger[part as usize];
            let against = ns - f64::from(median[part as usize]);
            // A difference that matters is a hundredth of the step.
            let more = against > total / 100.0;
            view! {
                <tr>
                    <th scope="row"><Swatch colour=palette::part(part) />{part.name()}</th>
                    <td class="number">{units::nanos(ns)}</td>
                    <td class="number">{units::percent(shares[part as usize])}</td>
                    <td class="number" class:more=more>{units::signed_nanos(against)}</td>
                </tr>
            }
        })
        .views();
    view! {
        <PartsBar shares=Signal::derive(move || shares) />
        <table class="ledger">
            <thead>
                <tr>
                    <th scope="col">"Part"</th>
                    <th scope="col" class="number">"Time"</th>
                    <th scope="col" class="number">"Share"</th>
                    <th scope="col" class="number" title="Against the median rank of this step">"vs median"</th>
                </tr>
            </thead>
            <tbody>
                {rows}
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

/// All ranks of the selected step, or of the newest one.
#[component]
pub fn StepTable(look: Look) -> impl IntoView {
    let live = expect_context::<Live>();
    // Once a second: a table that changes at every step cannot be read.
    let row = Memo::new(move |_| {
        live.now.track();
        let step = look.step.get();
        let found = live.steps.with_value(|steps| {
            let newest = steps.step.len().checked_sub(1)?;
            let row = step.map_or(Some(newest), |step| steps.row_of(step))?;
            Some((row, steps.step[row], steps.ranks))
        });
        // What is not here yet is shown as soon as it is.
        if found.is_none() {
            live.drawn.track();
        }
        found
    });
    let count = Signal::derive(move || row.get().map_or(0, |(_, _, ranks)| ranks));
    let caption = Signal::derive(move || match (row.get(), look.step.get()) {
        (Some((_, step, _)), _) => format!("All ranks of step {}", units::count(step)),
        (None, Some(step)) if live.steps.with_value(|steps| !steps.step.is_empty()) => {
            format!("Step {} is not kept here", units::count(step))
        }
        (None, _) => "All ranks of one step".into(),
    });
    let columns = std::iter::once(Column::Number("Rank"))
        .chain(Measure::ALL.map(|measure| Column::Number(measure.name())))
        .collect();
    let cell = move |(rank, column): (usize, usize)| {
        let Some(measure) = column.checked_sub(1).map(|at| Measure::ALL[at]) else { return rank.to_string() };
        let value = row.get().and_then(|(row, _, ranks)| {
            live.steps.with_value(|steps| measure.column(steps).get(row * ranks + rank).copied())
        });
        value.map_or_else(String::new, |value| measure.write(value))
    };
    let choose = move |rank: usize| {
        if let Some((_, step, _)) = row.get_untracked() {
            look.select(Some((step, rank as u32)));
        }
    };
    let chosen = move |rank: usize| look.rank.get() == Some(rank as u32);
    view! {
        <section class="panel" aria-label="All ranks of one step">
            <div class="panel-head"><h2>{caption}</h2></div>
            <Table testid="ranks-table" caption=caption columns=columns count=count
                cell=cell chosen=chosen choose=choose />
        </section>
    }
    .into_any()
}
