//! A rank x step heatmap, drawn from tiles, with the shared crosshair and the selected cell.

mod selected_row;

use std::ops;
use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;
use viz::raster::{Frame, heatmap};
use viz::span::Span;
use viz::{measure, palette};
use wire::live::tile::{Measure, Reduce, Tile};

use self::selected_row::SelectedRow;
use crate::api;
use crate::canvas::{Margins, Size};
use crate::keys;
use crate::live::Live;
use crate::pen::Pen;
use crate::plot::{Draw, Overlay};
use crate::range::{Range, span_in_address};
use crate::route::{Address, RunId};
use crate::step_chart::{Rows, StepChart, StepCharts, draw_step_axis};
use crate::theme::Theme;
use crate::tiles::{Cell, Shown, Tiles, View};

/// The smallest number of ranks to which the heatmap can zoom.
const MIN_RANKS: f64 = 4.0;

/// The room around the heatmap, as wide as that of the lines above it, so that steps are below each other.
const MARGINS: Margins = Margins { left: 64.0, right: 16.0, top: 4.0, bottom: 24.0 };
const STRIP_MARGINS: Margins = Margins { top: 2.0, bottom: 2.0, ..MARGINS };

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// The name for tests.
    pub testid: &'static str,
    /// The height of a row for few ranks. Many ranks share the available height.
    pub row_pixels: f64,
    /// True for a strip among others: it has no axis of its own.
    pub is_strip: bool,
}

impl Form {
    /// The only heatmap of a view.
    pub const ALONE: Self = Self { testid: "heatmap", row_pixels: 26.0, is_strip: false };
    /// One of many heatmaps above each other.
    pub const STRIP: Self = Self { testid: "strip", row_pixels: 16.0, is_strip: true };

    fn margins(self) -> Margins {
        if self.is_strip { STRIP_MARGINS } else { MARGINS }
    }
}

/// What a heatmap shows, and the selected cell.
#[derive(Clone, Copy)]
pub struct Selection {
    /// The address, which has the selected cell.
    pub address: Address,
    pub measure: Signal<Measure>,
    /// The rank of each row; `None` if row n is rank n.
    pub order: Memo<Option<Arc<Vec<u32>>>>,
    /// The reduction.
    pub reduce: Signal<Reduce>,
    /// The selected step.
    pub step: Memo<Option<u64>>,
    /// The selected rank.
    pub rank: Memo<Option<u32>>,
}

impl Selection {
    /// Reads the selected cell and the reduction from the address. Without them, the rank `usual` is selected, and cells are
    /// reduced by `reduce`.
    pub fn new(
        address: Address,
        measure: Signal<Measure>,
        order: Memo<Option<Arc<Vec<u32>>>>,
        usual: Memo<Option<u32>>,
        reduce: Reduce,
    ) -> Self {
        Self {
            address,
            measure,
            order,
            reduce: Signal::derive(move || {
                address.param("pool").and_then(|name| Reduce::from_name(&name)).unwrap_or(reduce)
            }),
            step: Memo::new(move |_| address.number("step")),
            rank: selected_rank(address, usual),
        }
    }

    pub fn select(&self, cell: Option<(u64, u32)>) {
        self.address.set([
            ("step", cell.map(|(step, _)| step.to_string())),
            ("rank", Some(cell.map_or_else(|| "none".to_owned(), |(_, rank)| rank.to_string()))),
        ]);
    }
}

/// Reads the selected rank from the address. Without one there, the rank `usual` is selected.
pub fn selected_rank(address: Address, usual: Memo<Option<u32>>) -> Memo<Option<u32>> {
    Memo::new(move |_| match address.param("rank").as_deref() {
        None => usual.get(),
        // `none` if the user has cleared the selection.
        Some(rank) => rank.parse().ok(),
    })
}

/// Returns both ends of the color scale for the visible cells.
pub fn scale(tiles: Tiles, shown: Signal<Measure>) -> Memo<(f32, f32)> {
    let (live, range) = (expect_context::<Live>(), expect_context::<Range>());
    Memo::new(move |_| {
        let view = range.visible();
        // Differences below a hundredth of the step are not worth a color.
        let floor = match shown.get() {
            Measure::Usage(_) => 0.0,
            _ => live
                .steps
                .with_value(|steps| measure::exceeded_by(&steps.step_nanos[steps.rows_in(view)], 50) / 100.0),
        };
        tiles.with(|tile| {
            let Some((tile, ends)) = tile else { return (0.0, floor.max(1.0)) };
            let columns = columns_in(tile, view);
            let start = ends.scale_start(shown.get(), columns.clone());
            (start, ends.scale_end(shown.get(), columns, floor).max(start + 1.0))
        })
    })
}

fn columns_in(tile: &Tile, view: Span) -> ops::Range<usize> {
    let column = |step: f64| {
        let column = (step - tile.step as f64) / f64::from(tile.per_column);
        column.clamp(0.0, tile.columns() as f64) as usize
    };
    column(view.start)..column(view.end.ceil()).max(column(view.start))
}

/// The state of the heatmap.
#[derive(Clone, Copy)]
struct Map {
    selection: Selection,
    form: Form,
    live: Live,
    range: Range,
    charts: StepCharts,
    tiles: Tiles,
    /// The number of rows.
    ranks: Memo<usize>,
    /// The visible rows, if not all are.
    zoomed: RwSignal<Option<Span>>,
    /// The visible rows.
    rows: Memo<Span>,
}

/// The height below which a row is hard to see, in pixels.
const SEEN_PIXELS: f64 = 12.0;

/// Creates the heatmap.
#[component]
pub fn Heatmap(
    selection: Selection,
    tiles: Tiles,
    /// The values of the first and the last color.
    ends: Memo<(f32, f32)>,
    form: Form,
    /// The least and the largest height of the rows together, in pixels.
    heights: Signal<(f64, f64)>,
) -> impl IntoView {
    let live = expect_context::<Live>();
    let margins = form.margins();
    let ranks = Memo::new(move |_| {
        live.drawn.track();
        let listed = selection.order.with(|order| order.as_ref().map(|order| order.len()));
        listed.unwrap_or_else(|| live.steps.with_value(|steps| steps.ranks))
    });
    let zoomed = span_in_address(expect_context::<Address>(), "ranks");
    let map = Map {
        selection,
        form,
        live,
        range: expect_context::<Range>(),
        charts: expect_context::<StepCharts>(),
        tiles,
        ranks,
        zoomed,
        rows: Memo::new(move |_| {
            let all = Span::new(0.0, ranks.get().max(1) as f64);
            zoomed.get().map_or(all, |span| span.clamp(all, MIN_RANKS))
        }),
    };
    keys::global(move |key| {
        match key {
            "W" => map.zoom_ranks(0.7),
            "S" => map.zoom_ranks(1.0 / 0.7),
            "Escape" => selection.select(None),
            _ => return false,
        }
        true
    });
    let height = Signal::derive(move || {
        let (least, most) = heights.get();
        (ranks.get() as f64 * form.row_pixels).clamp(least, most) + margins.top + margins.bottom
    });
    let label = move || {
        format!("{} of every rank over steps; the table below lists one step", selection.measure.get().name())
    };
    let rows = map.input(expect_context::<RunId>());
    view! {
        <p class="axis-names" class:hidden=form.is_strip aria-hidden="true">
            <span>"rank ↓"</span>
            <span>"step →"</span>
            <span class="grow"></span>
            <span data-testid="level">{move || map.level()}</span>
        </p>
        <Show when=move || map.hides_selected(height.get())>
            <SelectedRow selection=selection ends=ends />
        </Show>
        <StepChart label=label testid=form.testid height=height margins=margins rows=rows
            draw=map.draw(ends) overlay=map.overlay()>
            {move || map.describe()}
        </StepChart>
    }
    .into_any()
}

impl Map {
    /// Returns true if the selected rank's row is too low to be seen, or not there.
    fn hides_selected(self, height: f64) -> bool {
        let margins = self.form.margins();
        let is_low = (height - margins.top - margins.bottom) / self.rows.get().len() < SEEN_PIXELS;
        self.selection.rank.get().is_some_and(|rank| is_low || self.row_of(rank).is_none())
    }

    fn draw(self, ends: Memo<(f32, f32)>) -> Draw {
        let theme = expect_context::<Theme>();
        let colors = palette::cividis_table();
        Box::new(move |frame: &mut Frame<'_>, _: Size| {
            let (steps_view, ranks_view) = (self.range.visible(), self.rows.get());
            self.tiles.ensure(View {
                selection: Shown {
                    measure: self.selection.measure.get(),
                    reduce: self.selection.reduce.get(),
                    order: self.selection.order.get(),
                },
                steps: steps_view,
                ranks: ranks_view,
                stored: self.range.stored(),
                all_ranks: self.ranks.get(),
                pixels: (frame.width() as f64, frame.height() as f64),
            });
            let map = heatmap::Heatmap {
                steps_view,
                ranks_view,
                covered: None,
                reduce: self.selection.reduce.get(),
                scale: ends.get(),
                colors: &colors,
                unknown: theme.inks().unknown,
            };
            self.tiles.draw(frame, &map);
        })
    }

    fn overlay(self) -> Overlay {
        Box::new(move |pen: &Pen, size: Size| {
            let (view, rows, selection) = (self.range.visible(), self.rows.get(), self.selection);
            if !self.form.is_strip {
                draw_step_axis(pen, size, view);
            }
            let chosen = selection.rank.get().and_then(|rank| self.row_of(rank));
            pen.rows_left(rows, chosen, |row| self.rank_at(row).to_string());
            pen.clip();
            self.charts.draw_crosshair(pen, size, view);
            if let Some(row) = self.charts.crosshair.get().rank.and_then(|rank| self.row_of(rank)) {
                let y = rows.to_pixel(row as f64 + 0.5, size.height).round();
                pen.rect(0.0, y, size.width, 1.0, pen.inks.muted);
            }
            if let (Some(step), Some(row)) = (selection.step.get(), chosen) {
                let x = view.to_pixel(step as f64, size.width);
                let y = rows.to_pixel(row as f64, size.height);
                let (width, height) = (size.width / view.len(), size.height / rows.len());
                pen.outline(x, y, width.max(2.0), height.max(2.0));
            }
        })
    }

    /// Returns what the pointer and keys do apart from those of all charts over steps.
    fn input(self, run: RunId) -> Rows {
        Rows {
            rank_at: Callback::new(move |share: f64| {
                let row = self.rows.get_untracked().to_value(share, 1.0).max(0.0) as usize;
                let is_row = (0.0..1.0).contains(&share) && row < self.ranks.get_untracked();
                is_row.then(|| untrack(|| self.rank_at(row)))
            }),
            select: Callback::new(move |cell| self.select(cell, run)),
            pan: Callback::new(move |share: f64| {
                if self.zoomed.get_untracked().is_some() {
                    self.zoomed.set(Some(self.rows.get_untracked().pan(share)));
                }
            }),
            press: Callback::new(move |key: String| self.press(&key)),
        }
    }

    fn rank_at(self, row: usize) -> u32 {
        self.selection.order.with(|order| match order {
            Some(order) => order.get(row).copied().unwrap_or(0),
            None => row as u32,
        })
    }

    fn row_of(self, rank: u32) -> Option<usize> {
        self.selection.order.with(|order| match order {
            Some(order) => order.iter().position(|&other| other == rank),
            None => Some(rank as usize),
        })
    }

    /// Selects a cell. If the cell covers several steps or ranks, the server is asked for the largest value among them,
    /// which is then selected.
    fn select(self, at: Option<(u64, u32)>, run: RunId) {
        self.selection.select(at);
        let Some((step, rank)) = at else { return };
        let cell = untrack(|| self.tiles.cell(step, self.row_of(rank)? as u32));
        let Some(cell) = cell.filter(|cell| !cell.is_single()) else { return };
        let selection = self.selection;
        spawn_local(async move {
            let Ok(tile) = api::tile(&run.get_untracked(), cell.singly()).await else { return };
            let largest = tile.values.iter().enumerate().filter(|(_, value)| !value.is_nan());
            let Some((at, _)) = largest.max_by(|a, b| a.1.total_cmp(b.1)) else { return };
            let row = cell.rows.0 as usize + at % tile.rows as usize * tile.per_row as usize;
            let Some(rank) = untrack(|| self.ranks.try_get().map(|_| self.rank_at(row))) else { return };
            let found = (tile.step + (at / tile.rows as usize) as u64 * u64::from(tile.per_column), rank);
            // Another cell may have been selected by now.
            if selection.step.try_get_untracked() == Some(Some(step)) {
                selection.select(Some(found));
            }
        });
    }

    fn zoom_ranks(self, factor: f64) {
        let all = Span::new(0.0, self.ranks.get_untracked() as f64);
        let at = self.charts.crosshair.get_untracked().rank;
        let rows = self.rows.get_untracked();
        let row = at.and_then(|rank| untrack(|| self.row_of(rank)));
        let anchor = row.map_or(0.5, |row| rows.to_pixel(row as f64 + 0.5, 1.0));
        let next = rows.zoom(anchor, factor);
        self.zoomed.set((next.len() < all.len()).then_some(next.clamp(all, MIN_RANKS)));
    }

    /// Describes the cells, if one covers several steps or ranks.
    fn level(self) -> String {
        if let Some(error) = self.tiles.error.get() {
            return error;
        }
        let reduce = self.selection.reduce.get().name();
        self.tiles.with(|tile| match tile {
            Some((tile, _)) if tile.per_column > 1 || tile.per_row > 1 => {
                let counted = |count: u32, noun: &str| {
                    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
                };
                format!(
                    "a cell is the {reduce} of {} × {}",
                    counted(tile.per_column, "step"),
                    counted(tile.per_row, "rank")
                )
            }
            _ => String::new(),
        })
    }

    fn describe(self) -> Option<AnyView> {
        let pointed = self.charts.crosshair.get();
        let row = self.row_of(pointed.rank?)?;
        let Cell { shown, steps, rows, value } = self.tiles.cell(pointed.step?, row as u32)?;
        let (figure, reduce) = (shown.measure, shown.reduce);
        let span = |(first, last): (u64, u64)| {
            if first == last {
                units::count(first)
            } else {
                format!("{} to {}", units::count(first), units::count(last))
            }
        };
        let ranks = (self.rank_at(rows.0 as usize).into(), self.rank_at(rows.1 as usize).into());
        let title = format!("Rank {}, step {}", span(ranks), span(steps));
        let pooled = if steps.0 == steps.1 && rows.0 == rows.1 { "" } else { reduce.name() };
        let unknown = match (value.is_nan(), figure) {
            (false, _) => "",
            (true, Measure::StepTime) => "its records are missing",
            (true, Measure::Usage(_)) => "no sample at that time",
            (true, _) => "not observed in full, or its records are missing",
        };
        let value = measure::write(figure, value);
        Some(
            view! {
                <b>{title}</b>
                <div>{figure.name()}" "{pooled}" "<b>{value}</b>" "{unknown}</div>
            }
            .into_any(),
        )
    }

    /// Moves the selection by an arrow key. Without a selection, selects the newest step of the first row.
    fn press(self, key: &str) -> bool {
        let (by_step, by_row) = match key {
            "ArrowLeft" => (-1, 0),
            "ArrowRight" => (1, 0),
            "ArrowUp" => (0, -1),
            "ArrowDown" => (0, 1),
            _ => return false,
        };
        let (selection, stored) = (self.selection, untrack(|| self.range.stored()));
        let row = selection.rank.get_untracked().and_then(|rank| untrack(|| self.row_of(rank)));
        let last_row = self.ranks.get_untracked().saturating_sub(1);
        let next = self.live.steps.with_value(|steps| {
            let newest = steps.rows_in(stored).end.checked_sub(1)?;
            let selected = selection.step.get_untracked().and_then(|step| steps.row_of(step));
            let (at, row) = match (selected, row) {
                (Some(at), Some(row)) => (
                    at.saturating_add_signed(by_step).min(newest),
                    row.saturating_add_signed(by_row).min(last_row),
                ),
                _ => (newest, 0),
            };
            Some((steps.step[at], row))
        });
        if let Some((step, row)) = next {
            selection.select(Some((step, untrack(|| self.rank_at(row)))));
            self.range.reveal(step);
        }
        true
    }
}
