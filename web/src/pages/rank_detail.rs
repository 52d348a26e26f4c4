//! One step of one rank in numbers, and all ranks of that step as a table.

use leptos::prelude::*;
use viz::{measure, palette};
use wire::live::tile::Measure;
use wire::live::{Part, StepRanks};

use super::ranks::RanksSelection;
use super::run::RunId;
use crate::cells::{derived, text};
use crate::html::{Html, shown};
use crate::route::Tab;
use crate::table::{Column, Rows, table};

/// Creates the ledger of the selected rank and step, next to the median rank's.
#[component]
pub fn RankDetail(selection: RanksSelection) -> impl IntoView {
    let run = expect_context::<RunId>();
    let selected = derived(move || selection.step.get().zip(selection.rank.get()));
    let content = text(move || {
        let Some((step, rank)) = selected.get() else {
            let how = "Select a cell: click it, or focus the heatmap and use the arrow keys.";
            return say(how);
        };
        let here = selection.ranks.get().filter(|ranks| ranks.step == step);
        match (here, selection.error.get()) {
            (Some(ranks), _) if (rank as usize) < ranks.rank_nanos.len() => numbers(&ranks, rank as usize),
            (Some(_), _) => say("This run does not have that rank."),
            (None, Some(error)) => say(&error),
            (None, None) => say("Loading…"),
        }
    });
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
            {shown("", content)}
            {link}
        </aside>
    }
}

/// Returns the ledger of one rank, in the order of [`Part::ALL`]; `None` if it is unknown.
fn ledger(ranks: &StepRanks, rank: usize) -> Option<[f64; 8]> {
    let ledger: [f64; 8] = std::array::from_fn(|part| f64::from(ranks.parts[part][rank]));
    ledger.iter().all(|nanos| !nanos.is_nan()).then_some(ledger)
}

/// Returns the median of a part over ranks, with which a rank's step is compared.
fn median(ranks: &StepRanks, part: usize) -> f64 {
    f64::from(measure::exceeded_by(&ranks.parts[part], 50))
}

fn say(words: &str) -> String {
    Html::default().el("p class=quiet", words).done()
}

fn numbers(ranks: &StepRanks, rank: usize) -> String {
    let known =
        |value: f64, write: fn(f64) -> String| if value.is_nan() { "—".into() } else { write(value) };
    let (total, lateness) = (f64::from(ranks.rank_nanos[rank]), f64::from(ranks.lateness[rank]));
    let Some(ledger) = ledger(ranks, rank) else {
        let html = Html::default().raw("<p>Step time ").el("b", &known(total, units::nanos)).raw("</p>");
        return html
            .el("p class=quiet", "No ledger: a shadow step, or this rank's records are missing.")
            .done();
    };
    let html = Html::default()
        .raw("<table class=ledger><thead><tr><th scope=col>Part</th><th scope=col class=number>Time</th>")
        .raw("<th scope=col class=number>Share</th>")
        .raw("<th scope=col class=number title=\"Difference from the median rank of this step\">vs median</th></tr></thead><tbody>");
    let html = html.each(Part::ALL, |html, part| {
        let nanos = ledger[part as usize];
        let against = nanos - median(ranks, part as usize);
        // A difference counts from a hundredth of the step.
        let more = if against > total / 100.0 { "td class=\"number more\"" } else { "td class=number" };
        html.raw("<tr><th scope=row>")
            .swatch(palette::part(part))
            .text(part.name())
            .raw("</th>")
            .number(&units::nanos(nanos))
            .number(&units::percent(nanos / total.max(1.0)))
            .el(more, &units::signed_nanos(against))
            .raw("</tr>")
    });
    html.raw("<tr class=sum><th scope=row>step time</th>")
        .number(&known(total, units::nanos))
        .raw("<td></td><td></td></tr><tr><th scope=row>lateness</th>")
        .number(&known(lateness, units::signed_nanos))
        .raw("<td></td><td></td></tr></tbody></table>")
        .done()
}

/// Creates the table of all ranks of the selected step, or of the newest one.
#[component]
pub fn StepTable(selection: RanksSelection) -> impl IntoView {
    let count = derived(move || {
        selection.ranks.with(|ranks| ranks.as_ref().map_or(0, |ranks| ranks.rank_nanos.len()))
    });
    let caption = text(move || match (selection.ranks.get(), selection.error.get()) {
        (_, Some(error)) => error,
        (Some(ranks), None) => format!("All ranks of step {}", units::count(ranks.step)),
        (None, None) => "All ranks of one step".into(),
    });
    let columns = std::iter::once(Column::Number("Rank"))
        .chain(Measure::ALL.map(|measure| Column::Number(measure.name())))
        .collect();
    let cell = move |rank: usize, column: usize| {
        let Some(measure) = column.checked_sub(1).map(|at| Measure::ALL[at]) else { return rank.to_string() };
        let value = selection.ranks.with(|ranks| {
            let ranks = ranks.as_ref()?;
            match measure {
                Measure::Lateness => &ranks.lateness,
                Measure::StepTime => &ranks.rank_nanos,
                Measure::Part(part) => &ranks.parts[part as usize],
            }
            .get(rank)
            .copied()
        });
        value.map_or_else(String::new, |value| measure::write(measure, value))
    };
    let choose = move |rank: usize| {
        if let Some(ranks) = selection.ranks.get_untracked() {
            selection.select(Some((ranks.step, rank as u32)));
        }
    };
    let chosen = move |rank: usize| selection.rank.get() == Some(rank as u32);
    view! {
        <section class="panel" aria-label="All ranks of one step">
            <div class="panel-head"><h2>{caption}</h2></div>
            {table("ranks-table", caption, columns, Rows::new(count, cell).choosing(chosen, choose))}
        </section>
    }
    .into_any()
}
