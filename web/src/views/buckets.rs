//! The Buckets view: one step over all ranks on one clock, and its buckets in numbers.

mod controls;
mod groups;
mod latency;
mod load;
mod measured;
mod minimap;
mod parameters;
mod selected;
mod table;
mod waits;
mod waterfall;
mod zoom;

use std::sync::Arc;

use leptos::prelude::*;
use model::buckets::rows::{self, Rows, Why};
use model::pins;
use viz::raster::gantt::Gantt;
use viz::span::Span;
use wire::live::Waterfall;

use self::controls::{Controls, RowControls};
use self::groups::Groups;
use self::latency::Latencies;
use self::load::Fetched;
use self::measured::Measured;
use self::parameters::Parameters;
use self::selected::SelectedBucket;
use self::table::BucketTable;
use self::waits::WaitSentence;
use self::waterfall::{Kinds, WaterfallPlot};
use crate::keys;
use crate::live::Live;
use crate::range::Range;
use crate::route::Address;
use crate::with_steps::WithSteps;

/// The drawn ranks of a waterfall.
#[derive(Debug)]
struct Drawn {
    /// The columns of these ranks.
    waterfall: Waterfall,
    /// The drawing order of the slices.
    gantt: Gantt,
    /// The reason why each rank is drawn.
    why: Vec<Why>,
}

impl Drawn {
    fn new(all: &Waterfall, choice: Rows, pinned: &[u32]) -> Self {
        let (rows, why): (Vec<usize>, Vec<Why>) = rows::chosen(all, choice, pinned).into_iter().unzip();
        let waterfall = rows::only(all, &rows);
        Self { gantt: Gantt::new(&waterfall), waterfall, why }
    }

    /// Returns the label of a row.
    fn name(&self, row: usize) -> String {
        let word = self.why.get(row).map_or("", |why| why.word());
        let rank = self.waterfall.rank.get(row).map(u32::to_string).unwrap_or_default();
        if word.is_empty() { rank } else { format!("{word} {rank}") }
    }
}

#[derive(Clone, Copy)]
struct StepSelection {
    address: Address,
    range: Range,
    /// The selected step; `None` follows the newest.
    step: Memo<Option<u64>>,
    /// The selected bucket.
    bucket: Memo<Option<u32>>,
    /// The selected rank.
    rank: Memo<Option<u32>>,
    /// The pinned ranks.
    pinned: Memo<Vec<u32>>,
    /// Which ranks are drawn.
    rows: Memo<Rows>,
    /// The waterfall of all ranks. It stays until the next one has loaded.
    shown: Memo<Option<Arc<Waterfall>>>,
    /// The drawn ranks of it.
    drawn: Memo<Option<Arc<Drawn>>>,
    /// The measured time, in nanoseconds since the step's origin.
    measured: RwSignal<Option<Span>>,
    /// The reason why the requested step cannot be shown.
    error: Memo<Option<String>>,
}

impl StepSelection {
    fn new(address: Address, range: Range) -> Self {
        let step = Memo::new(move |_| address.number("step").or(range.last_selected.get()));
        let Fetched { shown, error } = load::fetch(step, range);
        let rank = Memo::new(move |_| address.number("rank").map(|rank| rank as u32));
        let pinned = Memo::new(move |_| pins::read(&address.param("pin").unwrap_or_default()));
        let ranks = Memo::new(move |_| shown.with(|shown| shown.as_ref().map_or(0, |all| all.rank.len())));
        let rows = Memo::new(move |_| {
            let chosen = address.param("rows").and_then(|key| Rows::from_key(&key));
            chosen.unwrap_or_else(|| Rows::usual(ranks.get()))
        });
        let draw = move |_: Option<&_>| {
            let all = shown.get()?;
            let mut pinned = pinned.get();
            pinned.extend(rank.get());
            Some(Arc::new(Drawn::new(&all, rows.get(), &pinned)))
        };
        Self {
            address,
            range,
            step,
            bucket: Memo::new(move |_| address.number("bucket").map(|bucket| bucket as u32)),
            rank,
            pinned,
            rows,
            shown,
            drawn: Memo::new_with_compare(draw, |_, _| true),
            measured: RwSignal::new(None),
            error,
        }
    }

    fn shown_step(&self) -> Option<u64> {
        self.shown.with(|shown| shown.as_ref().map(|all| all.step))
    }

    fn select(&self, bucket: Option<u32>, rank: Option<u32>) {
        self.address.set([
            ("bucket", bucket.map(|bucket| bucket.to_string())),
            ("rank", rank.map(|rank| rank.to_string())),
        ]);
    }

    /// Pins the selected rank, or releases it.
    fn toggle_pin(&self) {
        if let Some(rank) = self.rank.get_untracked() {
            let pinned = pins::toggled(self.pinned.get_untracked(), rank);
            self.address.set([("pin", pins::write(&pinned))]);
        }
    }

    /// Goes to a step, or follows the newest one.
    fn go_to(&self, step: Option<u64>) {
        if step.is_none() {
            self.range.follow();
        }
        self.address.set([("step", step.map(|step| step.to_string()))]);
    }

    /// Follows the newest step, or stays at the one that is shown.
    fn toggle_follow(&self) {
        let stays_at = untrack(|| self.shown_step());
        self.go_to(if self.step.get_untracked().is_none() { stays_at } else { None });
    }

    /// Goes to the step before or after the one shown.
    fn neighbor(&self, live: Live, offset: isize) {
        let shown = self.step.get_untracked().or_else(|| untrack(|| self.shown_step()));
        let next = live.steps.with_value(|steps| {
            let at = steps.step.partition_point(|&step| step < shown.unwrap_or(u64::MAX));
            let row = at.saturating_add_signed(offset).min(steps.step.len().checked_sub(1)?);
            Some(steps.step[row])
        });
        if next.is_some() {
            self.go_to(next);
        }
    }
}

/// Creates the view.
#[component]
pub fn Buckets() -> impl IntoView {
    let (address, live) = (expect_context::<Address>(), expect_context::<Live>());
    let selection = StepSelection::new(address, expect_context::<Range>());
    keys::global(move |key| {
        match key {
            "," => selection.neighbor(live, -1),
            "." => selection.neighbor(live, 1),
            "f" => selection.toggle_follow(),
            "p" => selection.toggle_pin(),
            "Escape" => {
                selection.select(None, None);
                selection.measured.set(None);
            }
            _ => return false,
        }
        true
    });
    let content = move || {
        view! {
            <section class="panel" aria-label="Waterfall">
                <Controls selection=selection />
                <WaitSentence selection=selection />
                <RowControls selection=selection />
                <Kinds />
                <p class="quiet marks" class:hidden=move || selection.bucket.get().is_none()>
                    "On the selected bucket: ○ ready, dashed line launch, lines start and end; arrows lead from the last rank to those that wait."
                </p>
                <WaterfallPlot selection=selection />
                <Measured selection=selection />
            </section>
            <BucketTable selection=selection />
            <Latencies selection=selection />
            <Parameters selection=selection />
            <SelectedBucket selection=selection />
            <Groups />
        }
    };
    view! { <WithSteps>{content()}</WithSteps> }.into_any()
}
