//! The Ranks view: which rank is late, when, and in which part of the step, as a heatmap of rank x step.

mod detail;
mod differences;
mod ledger;
mod lines;
mod list;

use std::sync::Arc;

use leptos::prelude::*;
use model::pins;
use model::ranks::{self, Order};
use model::verdict;
use units::decimal;
use wire::live::tile::{Measure, Reduce};
use wire::live::{Part, StepRanks};
use wire::views::{RankDevice, Report};

use self::detail::{RankDetail, StepTable};
use self::differences::Differences;
use self::ledger::LedgerTable;
use self::lines::Lines;
use self::list::RankList;
use crate::api;
use crate::download;
use crate::heatmap::{self, Heatmap};
use crate::live::Live;
use crate::periods::fault_report;
use crate::plot::Stretch;
use crate::polled::polled;
use crate::range::Range;
use crate::route::{Address, RunId};
use crate::theme::Theme;
use crate::tiles::Tiles;
use crate::with_steps::WithSteps;

/// The time after which the devices are asked for again, in milliseconds.
const DEVICES_MILLIS: f64 = 5_000.0;

/// The selection of the view, from the address.
#[derive(Clone, Copy)]
pub struct RanksSelection {
    /// The cells of the heatmap. Its measure is the chosen one, or the one that shows the cause of the worst verdict.
    pub cells: heatmap::Selection,
    /// The chosen order of the rows of the heatmap, or the usual one.
    pub arrangement: Memo<Order>,
    /// The ranks that are kept for comparison.
    pub pinned: Memo<Vec<u32>>,
    /// The rank that the worst verdict names first.
    pub culprit: Memo<Option<u32>>,
    /// All ranks of the selected step, or of the newest one, or the reason why they are missing.
    pub ranks: Signal<Option<Result<Arc<StepRanks>, String>>>,
    /// The report over the steps since the worst fault began, or over all shown steps. Means over healthy steps as well
    /// would hide half of the fault.
    pub report: Signal<Option<Arc<Report>>>,
    /// The devices of the ranks; empty without devices. The Utilization view says why.
    pub devices: Signal<Vec<RankDevice>>,
}

impl RanksSelection {
    fn new(address: Address, live: Live, range: Range) -> Self {
        let measure = Memo::new(move |_| {
            let is_per_step = |measure: &Measure| Measure::OF_STEPS.contains(measure);
            let chosen = address.param("measure").and_then(|key| Measure::from_key(&key)).filter(is_per_step);
            let shows_cause = || {
                live.run.with(|run| {
                    run.as_ref().and_then(|run| Some(verdict::measure(run.report.verdicts.first()?.cause)))
                })
            };
            chosen.or_else(shows_cause).unwrap_or(Measure::Lateness)
        });
        let arrangement = Memo::new(move |_| {
            let chosen = address.param("order").and_then(|key| Order::from_key(&key));
            let ranks = || live.run.with(|run| run.as_ref().map_or(0, |run| run.report.ranks as usize));
            chosen.unwrap_or_else(|| Order::usual(ranks()))
        });
        let steady = live.steady(STEADY_MILLIS);
        let order = Memo::new(move |_| {
            let run = steady.get()?;
            ranks::listed(arrangement.get(), &ranks::costs(&run.report, measure.get())).map(Arc::new)
        });
        let pinned = Memo::new(move |_| pins::read(&address.param("pin").unwrap_or_default()));
        let culprit = Memo::new(move |_| live.run.with(|run| verdict::first_culprit(&run.as_ref()?.report)));
        let cells = heatmap::Selection::new(address, measure.into(), order, culprit, Reduce::Max);
        Self {
            cells,
            arrangement,
            pinned,
            culprit,
            ranks: step_ranks(cells.step, live, range),
            report: fault_report(),
            devices: devices(),
        }
    }

    /// Selects a rank in the selected step, or in the newest one.
    pub fn select_rank(&self, rank: u32) {
        self.cells.address.set([("rank", Some(rank.to_string()))]);
    }

    /// Pins a rank, or releases it.
    pub fn toggle_pin(&self, rank: u32) {
        self.cells.address.set([("pin", pins::write(&pins::toggled(self.pinned.get_untracked(), rank)))]);
    }

    /// Returns true if the user has chosen a rank to compare. The culprit is compared without that.
    pub fn is_chosen(&self) -> bool {
        self.cells.address.number("rank").is_some() || self.pinned.with(|pinned| !pinned.is_empty())
    }

    /// Returns the ranks that are compared with the others: the pinned ones and the selected one.
    pub fn compared(&self) -> Vec<u32> {
        let mut ranks = self.pinned.get();
        ranks.extend(self.cells.rank.get().filter(|rank| !ranks.contains(rank)));
        ranks
    }
}

fn devices() -> Signal<Vec<RankDevice>> {
    let devices =
        polled(Some(DEVICES_MILLIS), Some(()), |run, ()| async move { api::devices(&run).await.ok() });
    Signal::derive(move || devices.get().unwrap_or_default())
}

/// Fetches the figures of every rank in the step that the table shows: the selected one, the last selected one, or the
/// newest one.
fn step_ranks(
    step: Memo<Option<u64>>,
    live: Live,
    range: Range,
) -> Signal<Option<Result<Arc<StepRanks>, String>>> {
    // The newest step of a run that failed is one that some ranks never ran.
    let last = move || {
        live.run.with(|run| {
            let report = &run.as_ref()?.report;
            report.step_range.filter(|_| report.state.has_ended()).map(|(_, last)| last)
        })
    };
    let wanted = Memo::new(move |_| step.get().or_else(|| range.last_selected.get()).or_else(last));
    let newest = move || {
        live.steps.with_value(|steps| {
            let stored = steps.bounds();
            steps.step.get(steps.rows_in(stored).end.checked_sub(1)?).copied()
        })
    };
    polled(
        Signal::derive(move || wanted.get().is_none().then_some(NEWEST_MILLIS)),
        Memo::new(move |_| {
            let step = wanted.get();
            (!range.stored().is_empty()).then(|| (step, step.is_some_and(|step| range.has_arrived(step))))
        }),
        move |run, (step, _): (Option<u64>, bool)| {
            let step = step.or_else(newest);
            async move { Some(api::step_ranks(&run, step?).await.map(Arc::new)) }
        },
    )
}

/// The time for which the table shows the newest step, in milliseconds. A table that changes with every step cannot be read.
const NEWEST_MILLIS: f64 = 1_000.0;

/// The time for which rows keep their places in a live run, in milliseconds. Rows that change places with every report
/// cannot be followed.
const STEADY_MILLIS: f64 = 10_000.0;

/// The least and the largest height of the heatmap.
const HEIGHT_PIXELS: (f64, f64) = (320.0, 640.0);

/// The number of ranks below which every rank has a line.
const FEW: usize = 8;

/// Creates the view.
#[component]
pub fn Ranks() -> impl IntoView {
    let (address, range) = (expect_context::<Address>(), expect_context::<Range>());
    let (live, run) = (expect_context::<Live>(), expect_context::<RunId>());
    let selection = RanksSelection::new(address, live, range);
    // A link to a step shows that step once it has arrived.
    let wanted = StoredValue::new(selection.cells.step.get_untracked());
    Effect::new(move |_| {
        live.drawn.track();
        let Some(step) = wanted.get_value() else { return };
        if live.steps.with_value(|steps| steps.row_of(step)).is_some() {
            wanted.set_value(None);
            range.reveal(step);
        }
    });
    let tiles = Tiles::new(run);
    let ends = heatmap::scale(tiles, selection.cells.measure);
    let few = Memo::new(move |_| {
        live.drawn.track();
        (1..FEW).contains(&live.steps.with_value(|steps| steps.ranks))
    });
    // Few ranks have lines above the heatmap, which is then a strip.
    let stretch = expect_context::<Stretch>();
    let heights = Signal::derive(move || {
        (if few.get() { 0.0 } else { HEIGHT_PIXELS.0 }, HEIGHT_PIXELS.1 * stretch.get())
    });
    let content = move || {
        view! {
            <div class="split">
                <section class="panel grow" aria-label="Ranks over steps">
                    <Controls selection=selection tiles=tiles ends=ends />
                    <Show when=move || few.get()><Lines selection=selection all=true /></Show>
                    <Heatmap selection=selection.cells tiles=tiles ends=ends form=heatmap::Form::ALONE heights=heights />
                </section>
                <RankDetail selection=selection />
            </div>
            <RankList selection=selection />
            <div class="halves">
                <section class="panel" aria-label="Compared ranks" data-testid="compared-ranks">
                    <div class="panel-head">
                        <h2>"Compared ranks"<small>" the pinned and the selected rank against the band of the others"</small></h2>
                    </div>
                    <Lines selection=selection all=false />
                </section>
                <Differences selection=selection />
            </div>
            <StepTable selection=selection />
            <LedgerTable report=selection.report />
        }
    };
    view! { <WithSteps>{content()}</WithSteps> }.into_any()
}

#[component]
fn Controls(selection: RanksSelection, tiles: Tiles, ends: Memo<(f32, f32)>) -> impl IntoView {
    let theme = expect_context::<Theme>();
    let low = move || match (selection.cells.measure.get(), ends.get().0) {
        (Measure::Lateness, _) => "≤ 0".to_owned(),
        (_, 0.0) => "0".to_owned(),
        (_, start) => format!("≤ {}", units::nanos(f64::from(start))),
    };
    view! {
        <div class="panel-head">
            <MeasureChoice cells=selection.cells />
            <div class="segments" role="group" aria-label="Rows">
                {Order::ALL.map(|order| order_button(selection, order)).collect_view()}
            </div>
            <div class="segments" role="group" aria-label="Reduction">
                {[Reduce::Max, Reduce::Mean, Reduce::Median].map(|pool| pool_button(selection, pool)).collect_view()}
            </div>
            <div class="scale" data-testid="scale">
                <span>{low}</span>
                <i class="cividis" aria-hidden="true"></i>
                <span>"≥ "{move || units::nanos(f64::from(ends.get().1))}</span>
                <small>{move || format!("{} of each pixel", selection.cells.reduce.get().name())}</small>
            </div>
            <span class="grow"></span>
            <span class="saves">
                <button class="quiet" on:click=move |_| download::csv("ranks.csv", &csv(selection, tiles))>"CSV"</button>
                <button class="quiet" on:click=move |_| download::png("ranks.png", "heatmap", theme.inks().ground)>"PNG"</button>
            </span>
        </div>
    }
    .into_any()
}

#[component]
fn MeasureChoice(cells: heatmap::Selection) -> impl IntoView {
    let has_idle = expect_context::<Live>().has_idle();
    let option = move |measure: Measure| {
        let is_hidden = move || measure == Measure::Part(Part::Idle) && !has_idle.get();
        let is_chosen = Signal::derive(move || cells.measure.get() == measure);
        view! { <option value=measure.key() selected=is_chosen hidden=is_hidden>{measure.name()}</option> }
    };
    let choose = move |event| cells.address.set([("measure", Some(event_target_value(&event)))]);
    view! {
        <label class="field">
            <span>"Measure"</span>
            <select data-testid="measure" on:change=choose>
                {Measure::OF_STEPS.map(option).collect_view()}
            </select>
        </label>
    }
}

fn order_button(selection: RanksSelection, order: Order) -> impl IntoView {
    let choose = move |_| {
        selection.cells.address.set([("order", Some(order.key().into())), ("ranks", None)]);
    };
    view! {
        <button aria-pressed=move || (selection.arrangement.get() == order).to_string() on:click=choose>
            {order.name()}
        </button>
    }
}

fn pool_button(selection: RanksSelection, pool: Reduce) -> impl IntoView {
    let title = match pool {
        Reduce::Max => "A pixel shows the maximum of its cells: slow cells never disappear",
        Reduce::Mean => "A pixel shows the mean of its cells: single slow cells may disappear",
        Reduce::Median => "A pixel shows the median of its cells: slow cells disappear unless most are slow",
        Reduce::Min => "A pixel shows the minimum of its cells",
    };
    view! {
        <button
            aria-pressed=move || (selection.cells.reduce.get() == pool).to_string()
            title=title
            on:click=move |_| selection.cells.address.set([("pool", Some(pool.name().into()))])
        >
            {pool.name()}
        </button>
    }
}

/// Formats the loaded cells as a CSV table.
fn csv(selection: RanksSelection, tiles: Tiles) -> String {
    let measure = selection.cells.measure.get_untracked();
    let reduce = selection.cells.reduce.get_untracked().name();
    let mut out = format!("step,steps,rank,ranks,{reduce}_{}_seconds", measure.key().replace('-', "_"));
    untrack(|| {
        tiles.with(|tile| {
            let Some((tile, _)) = tile else { return };
            for (at, value) in tile.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                let (column, row) = (at / tile.rows as usize, at % tile.rows as usize);
                let step = tile.step + column as u64 * u64::from(tile.per_column);
                let row = tile.rank + row as u32 * tile.per_row;
                let rank = selection.cells.order.with(|order| {
                    order.as_ref().map_or(Some(row), |order| order.get(row as usize).copied()).unwrap_or(row)
                });
                let seconds = f64::from(*value) * 1e-9;
                out +=
                    &format!("\n{step},{},{rank},{},{}", tile.per_column, tile.per_row, decimal(seconds, 9));
            }
        });
    });
    out
}
