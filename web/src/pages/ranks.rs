//! Rank x step, by colour: who is late, when, and at what.

use leptos::prelude::*;
use viz::measure::{self, Measure};
use viz::raster::{Frame, heatmap, heatmap::Pool};
use viz::span::Span;
use viz::{palette, ticks, units};

use super::charts::RangeButtons;
use super::rank_detail::{RankDetail, StepTable};
use crate::canvas::{Gesture, Margins, Plot, Size, Stretch};
use crate::download;
use crate::keys;
use crate::live::Live;
use crate::pen::Pen;
use crate::range::{Cursor, Range};
use crate::route::Router;
use crate::theme::Theme;
use crate::widgets::{Tip, Views as _, text};

const MARGINS: Margins = Margins { left: 48.0, right: 12.0, top: 4.0, bottom: 24.0 };
/// Few ranks get tall rows, many share what height there is.
const ROW_PIXELS: f64 = 26.0;
const HEIGHT_PIXELS: (f64, f64) = (320.0, 640.0);
/// One cannot zoom into fewer ranks than this.
const MIN_RANKS: f64 = 4.0;

/// What is looked at, from the address.
#[derive(Clone, Copy)]
pub struct Look {
    router: Router,
    /// The measure.
    pub measure: Signal<Measure>,
    /// The reduction.
    pub pool: Signal<Pool>,
    /// The selected step.
    pub step: Memo<Option<u64>>,
    /// The selected rank.
    pub rank: Memo<Option<u32>>,
}

impl Look {
    fn new(router: Router) -> Self {
        Self {
            router,
            measure: Signal::derive(move || {
                router.param("measure").and_then(|key| Measure::from_key(&key)).unwrap_or(Measure::Lateness)
            }),
            pool: Signal::derive(move || match router.param("pool").as_deref() {
                Some("mean") => Pool::Mean,
                _ => Pool::Max,
            }),
            step: Memo::new(move |_| router.number("step")),
            rank: Memo::new(move |_| router.number("rank").map(|rank| rank as u32)),
        }
    }

    /// Selects a cell, or nothing.
    pub fn select(&self, cell: Option<(u64, u32)>) {
        self.router.set([
            ("step", cell.map(|(step, _)| step.to_string())),
            ("rank", cell.map(|(_, rank)| rank.to_string())),
        ]);
    }
}

/// The view.
#[component]
pub fn Ranks() -> impl IntoView {
    let router = expect_context::<Router>();
    let range = expect_context::<Range>();
    let look = Look::new(router);
    keys::global(move |key| match key {
        "Escape" => {
            look.select(None);
            true
        }
        _ => range.key(key),
    });
    // A link to a step shows that step, once it is here.
    let live = expect_context::<Live>();
    let wanted = StoredValue::new(look.step.get_untracked());
    Effect::new(move |_| {
        live.drawn.track();
        let Some(step) = wanted.get_value() else { return };
        if live.steps.with_value(|steps| steps.row_of(step)).is_some() {
            wanted.set_value(None);
            range.reveal(step);
        }
    });
    view! {
        <div class="split">
            <section class="panel grow" aria-label="Ranks over steps">
                <Controls look=look />
                <Heatmap look=look />
            </section>
            <RankDetail look=look />
        </div>
        <StepTable look=look />
    }
}

#[component]
fn Controls(look: Look) -> impl IntoView {
    let theme = expect_context::<Theme>();
    let live = expect_context::<Live>();
    let router = look.router;
    let pools = [Pool::Max, Pool::Mean].map(|pool| {
        view! {
            <button
                aria-pressed=text(move || (look.pool.get() == pool).to_string())
                title=match pool {
                    Pool::Max => "A pixel shows the largest of its cells: nothing slow disappears",
                    Pool::Mean => "A pixel shows the mean of its cells: single slow ones may disappear",
                }
                on:click=move |_| router.set([("pool", Some(pool.name().into()))])
            >
                {pool.name()}
            </button>
        }
    });
    let save_csv = move |_| {
        let measure = look.measure.get_untracked();
        live.steps.with_value(|steps| {
            let mut out = format!("step,rank,{}_seconds", measure.key().replace('-', "_"));
            for (at, value) in measure.column(steps).iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                let (row, rank) = (at / steps.ranks, at % steps.ranks);
                out += &format!("\n{},{rank},{:.9}", steps.step[row], f64::from(*value) * 1e-9);
            }
            download::csv("ranks.csv", &out);
        });
    };
    let save_png = move |_| download::png("ranks.png", "heatmap", theme.inks().ground);
    view! {
        <div class="panel-head">
            <label class="field">
                <span>"Measure"</span>
                <select
                    data-testid="measure"
                    on:change=move |event| router.set([("measure", Some(event_target_value(&event)))])
                >
                    {Measure::ALL
                        .map(|measure| {
                            view! {
                                <option value=measure.key() selected=Signal::derive(move || look.measure.get() == measure)>
                                    {measure.name()}
                                </option>
                            }
                        })
                        .views()}
                </select>
            </label>
            <div class="segments" role="group" aria-label="Reduction">{pools}</div>
            <Scale look=look />
            <span class="grow"></span>
            <RangeButtons />
            <button class="quiet" on:click=save_csv>"CSV"</button>
            <button class="quiet" on:click=save_png>"PNG"</button>
        </div>
    }
}

/// What the colours mean.
#[component]
fn Scale(look: Look) -> impl IntoView {
    let end = scale(look);
    let low = move || if look.measure.get() == Measure::Lateness { "≤ 0".into() } else { "0".into() };
    view! {
        <div class="scale" data-testid="scale">
            <span>{text(low)}</span>
            <i class="cividis" aria-hidden="true"></i>
            <span>"≥ "{text(move || units::nanos(f64::from(end.get())))}</span>
            <small>{text(move || format!("{} of each pixel", look.pool.get().name()))}</small>
        </div>
    }
}

/// Where the colours end, from what is visible.
fn scale(look: Look) -> Memo<f32> {
    let live = expect_context::<Live>();
    let range = expect_context::<Range>();
    Memo::new(move |_| {
        let view = range.view();
        live.steps.with_value(|steps| {
            let rows = steps.rows_in(view);
            let column = look.measure.get().column(steps);
            // A hundredth of the step is not worth a colour.
            let floor = measure::exceeded_by(&steps.step_nanos[rows.clone()], 50) / 100.0;
            measure::scale_end(&column[rows.start * steps.ranks..rows.end * steps.ranks], steps.ranks, floor)
        })
    })
}

#[component]
fn Heatmap(look: Look) -> impl IntoView {
    let live = expect_context::<Live>();
    let range = expect_context::<Range>();
    let theme = expect_context::<Theme>();
    let stretch = expect_context::<Stretch>();
    let place = RwSignal::new(None);
    let end = scale(look);
    let ranks = Memo::new(move |_| {
        live.drawn.track();
        live.steps.with_value(|steps| steps.ranks)
    });
    let zoomed = RwSignal::new(None::<Span>);
    let rows = Memo::new(move |_| {
        let all = Span::new(0.0, ranks.get().max(1) as f64);
        zoomed.get().map_or(all, |span| span.clamp(all, MIN_RANKS))
    });
    let colours = palette::cividis_table();

    let draw = move |frame: &mut Frame<'_>, _: Size| {
        let steps_view = range.view();
        live.steps.with_value(|steps| {
            heatmap::draw(
                frame,
                &heatmap::Heatmap {
                    step: &steps.step,
                    values: look.measure.get().column(steps),
                    ranks: steps.ranks,
                    steps_view,
                    ranks_view: rows.get(),
                    pool: look.pool.get(),
                    scale: (0.0, end.get()),
                    colours: &colours,
                    unknown: theme.inks().unknown,
                },
            );
        });
    };
    let overlay = move |pen: &Pen, size: Size| {
        let (view, rows) = (range.view(), rows.get());
        pen.axis_below(view, &ticks::whole(view, (size.width / 90.0) as usize), true);
        pen.rows_left(rows, look.rank.get().map(|rank| rank as usize), |row| row.to_string());
        pen.clip();
        let cursor = range.cursor.get();
        if let Some(step) = cursor.step {
            pen.crosshair(view.to_pixel(step as f64 + 0.5, size.width));
        }
        if let Some(rank) = cursor.rank {
            let y = rows.to_pixel(f64::from(rank) + 0.5, size.height).round();
            pen.rect(0.0, y, size.width, 1.0, pen.inks.muted);
        }
        if let (Some(step), Some(rank)) = (look.step.get(), look.rank.get()) {
            let (x, y) =
                (view.to_pixel(step as f64, size.width), rows.to_pixel(f64::from(rank), size.height));
            let (width, height) = (size.width / view.len(), size.height / rows.len());
            pen.outline(x, y, width.max(2.0), height.max(2.0));
        }
    };
    let cell = move |x: f64, y: f64, size: Size| {
        let inside = (0.0..size.width).contains(&x) && (0.0..size.height).contains(&y);
        let view = untrack(|| range.view());
        let (step, rank) = heatmap::cell_at(view, rows.get_untracked(), x, y, size.width, size.height);
        let kept =
            live.steps.with_value(|steps| steps.row_of(step).is_some() && (rank as usize) < steps.ranks);
        (inside && kept).then_some((step, rank))
    };
    let on_gesture = move |gesture: Gesture, size: Size| match gesture {
        Gesture::Move { x, y } => {
            let over = cell(x, y, size);
            place.set(over.map(|_| MARGINS.place(x, y, size)));
            range.cursor.set(Cursor { step: over.map(|(step, _)| step), rank: over.map(|(_, rank)| rank) });
            true
        }
        Gesture::Leave => {
            place.set(None);
            range.cursor.set(Cursor::default());
            true
        }
        Gesture::Click { x, y } => {
            look.select(cell(x, y, size));
            true
        }
        Gesture::Pan { dx, dy } => {
            range.pan(dx / size.width);
            if zoomed.get_untracked().is_some() {
                zoomed.set(Some(rows.get_untracked().pan(dy / size.height)));
            }
            true
        }
        Gesture::Key(key) => arrow(look, live, range, &key),
        other => range.gesture(&other, size),
    };
    let height = Signal::derive(move || {
        let inner = (ranks.get() as f64 * ROW_PIXELS).clamp(HEIGHT_PIXELS.0, HEIGHT_PIXELS.1 * stretch.get());
        inner + MARGINS.top + MARGINS.bottom
    });
    let label = move || {
        format!("{} of every rank over steps; the table below has one step", look.measure.get().name())
    };
    let tip = move || {
        live.drawn.track();
        let cursor = range.cursor.get();
        let (step, rank) = (cursor.step?, cursor.rank?);
        let measure = look.measure.get();
        let value = live.steps.with_value(|steps| {
            let row = steps.row_of(step)?;
            measure.column(steps).get(row * steps.ranks + rank as usize).copied()
        })?;
        let unknown = value.is_nan().then_some("a shadow step, or its records are missing");
        Some(view! {
            <b>"Rank "{rank}", step "{units::count(step)}</b>
            <div>{measure.name()}" "<b>{measure.write(value)}</b>" "{unknown}</div>
        })
    };
    let zoom_ranks = move |factor: f64| {
        let next = rows.get_untracked().zoom(0.5, factor);
        let all = Span::new(0.0, ranks.get_untracked() as f64);
        zoomed.set((next.len() < all.len()).then_some(next.clamp(all, MIN_RANKS)));
    };
    keys::global(move |key| match key {
        "W" => {
            zoom_ranks(0.7);
            true
        }
        "S" => {
            zoom_ranks(1.0 / 0.7);
            true
        }
        _ => false,
    });
    view! {
        <p class="axis-names" aria-hidden="true"><span>"rank ↓"</span><span>"step →"</span></p>
        <Plot label=text(label) testid="heatmap" height=height margins=MARGINS draw=Box::new(draw) overlay=Box::new(overlay) on_gesture=Box::new(on_gesture)>
            <Tip place=place>{tip}</Tip>
        </Plot>
    }
}

/// Arrow keys move the selection, to the newest step of rank 0 where there is none.
fn arrow(look: Look, live: Live, range: Range, key: &str) -> bool {
    let (by_step, by_rank) = match key {
        "ArrowLeft" => (-1, 0),
        "ArrowRight" => (1, 0),
        "ArrowUp" => (0, -1),
        "ArrowDown" => (0, 1),
        _ => return false,
    };
    let next = live.steps.with_value(|steps| {
        let newest = steps.step.len().checked_sub(1)?;
        let selected = look.step.get_untracked().and_then(|step| steps.row_of(step));
        let (row, rank) = match (selected, look.rank.get_untracked()) {
            (Some(row), Some(rank)) => (
                row.saturating_add_signed(by_step).min(newest),
                rank.saturating_add_signed(by_rank).min(steps.ranks.saturating_sub(1) as u32),
            ),
            _ => (newest, 0),
        };
        Some((steps.step[row], rank))
    });
    if let Some((step, rank)) = next {
        look.select(Some((step, rank)));
        range.reveal(step);
    }
    true
}
