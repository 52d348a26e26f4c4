//! The waterfall of one step: one row per rank, with lanes for compute, communication and the queue from top to bottom.

use std::sync::Arc;

use leptos::prelude::*;
use units::fixed;
use viz::raster::Frame;
use viz::raster::gantt::{Gantt, View};
use viz::span::Span;
use viz::{palette, ticks};
use wire::live::{SliceKind, Waterfall};

use super::{Loaded, StepSelection};
use crate::canvas::{Margins, Size};
use crate::keys;
use crate::pen::{Align, Pen};
use crate::plot::{Gesture, Plot, Stretch};
use crate::range::chosen;
use crate::route::Address;
use crate::widgets::{Legend, Swatch, Tip, TooltipPlace};

const MARGINS: Margins = Margins { left: 48.0, right: 12.0, top: 6.0, bottom: 24.0 };
const ROW_PIXELS: f64 = 56.0;
const HEIGHT_PIXELS: (f64, f64) = (180.0, 620.0);
/// The smallest number of ranks to which the waterfall can zoom.
const MIN_RANKS: f64 = 2.0;
/// The lowest row with all marks, in pixels. Lower rows show only the start of the bucket.
const ALL_MARKS_PIXELS: f64 = 14.0;
/// The lowest row with room for bucket numbers, in pixels.
const LABELS_FROM_PIXELS: f64 = 24.0;
/// The distance from which the pointer hits a slice, in pixels.
const REACH_PIXELS: f64 = 4.0;
/// The shortest range to which the waterfall can zoom, in nanoseconds.
const MIN_NANOS: f64 = 200.0;

/// The legend of fills.
#[component]
pub fn Kinds() -> impl IntoView {
    let shown = [
        SliceKind::Input,
        SliceKind::H2d,
        SliceKind::Forward,
        SliceKind::Backward,
        SliceKind::Optimizer,
        SliceKind::Blocked,
        SliceKind::WaitExposed,
        SliceKind::WaitHidden,
        SliceKind::TransferExposed,
        SliceKind::TransferHidden,
    ];
    let items = shown.map(|kind| {
        let paint = palette::slice(kind);
        let name = if kind == SliceKind::Blocked { "blocked, queued" } else { kind.name() };
        (paint.colour, paint.hatched, name)
    });
    view! { <Legend items=items.into() /> }
}

/// Creates the chart.
#[component]
pub fn WaterfallPlot(selection: StepSelection) -> impl IntoView {
    let stretch = expect_context::<Stretch>();
    let time = chosen(expect_context::<Address>(), "time");
    let zoomed = chosen(expect_context::<Address>(), "ranks");
    let hovered = RwSignal::new(None::<u32>);
    let place = RwSignal::new(None);

    let ranks =
        Memo::new(move |_| selection.shown.with(|shown| shown.as_ref().map_or(4, |s| s.gantt.rows())));
    let height = Signal::derive(move || {
        (ranks.get() as f64 * ROW_PIXELS).clamp(HEIGHT_PIXELS.0, HEIGHT_PIXELS.1 * stretch.get())
    });
    let view = Memo::new(move |_| {
        let span =
            selection.shown.with(|shown| shown.as_ref().map_or(1.0, |s| s.waterfall.span_nanos.max(1.0)));
        let all = Span::new(0.0, span);
        let every = Span::new(0.0, ranks.get().max(1) as f64);
        View {
            time: time.get().map_or(all, |time| time.clamp(all, MIN_NANOS)),
            rows: zoomed.get().map_or(every, |rows| rows.clamp(every, MIN_RANKS)),
        }
    });
    let zoom_rows = move |factor: f64| {
        let (rows, every) = (view.get_untracked().rows, ranks.get_untracked() as f64);
        let at = place.get_untracked().map_or(0.5, |p: TooltipPlace| {
            ((p.y - MARGINS.top) / (p.height - MARGINS.top - MARGINS.bottom)).clamp(0.0, 1.0)
        });
        let next = rows.zoom(at, factor);
        zoomed.set((next.len() < every).then(|| next.clamp(Span::new(0.0, every), MIN_RANKS)));
    };
    let zoom = move |anchor: f64, factor: f64| {
        time.set(Some(view.get_untracked().time.zoom(anchor, factor)));
    };
    let pan = move |fraction: f64| {
        if time.get_untracked().is_some() {
            time.set(Some(view.get_untracked().time.pan(fraction)));
        }
    };
    let anchor = move || {
        let place = place.get_untracked();
        place.map_or(0.5, |p: TooltipPlace| {
            ((p.x - MARGINS.left) / (p.width - MARGINS.left - MARGINS.right)).clamp(0.0, 1.0)
        })
    };
    keys::global(move |key| {
        match key {
            "w" => zoom(anchor(), 0.7),
            "s" => zoom(anchor(), 1.0 / 0.7),
            "a" => pan(-0.2),
            "d" => pan(0.2),
            "W" => zoom_rows(0.7),
            "S" => zoom_rows(1.0 / 0.7),
            "0" | "F" => {
                time.set(None);
                zoomed.set(None);
            }
            _ => return false,
        }
        true
    });

    let draw = move |frame: &mut Frame<'_>, _: Size| {
        let view = view.get();
        selection.shown.with(|shown| {
            if let Some(shown) = shown {
                shown.gantt.draw(frame, &shown.waterfall, view);
            }
        });
    };
    let overlay = move |pen: &Pen, size: Size| {
        let view = view.get();
        let Some(shown) = selection.shown.get() else {
            let why = if selection.error.with(Option::is_some) {
                "This step is unavailable."
            } else {
                "Loading…"
            };
            pen.text(size.width / 2.0, size.height / 2.0, why, Align::Middle, pen.inks.muted);
            return;
        };
        pen.axis_below(view.time, &ticks::nanos(view.time, (size.width / 90.0) as usize), false);
        let rank = |row: usize| shown.waterfall.rank.get(row).map(u32::to_string).unwrap_or_default();
        let chosen = selection.rank.get();
        let chosen = shown.waterfall.rank.iter().position(|&rank| Some(rank) == chosen);
        pen.rows_left(view.rows, chosen, rank);
        pen.clip();
        labels(pen, size, &shown, view);
        if let Some(bucket) = selection.bucket.get() {
            marks(pen, size, &shown, view, bucket);
        }
        if let Some(slice) = hovered.get().filter(|&slice| (slice as usize) < shown.waterfall.slice_row.len())
        {
            outline(pen, size, &shown, view, slice);
        }
    };
    let hit = move |x: f64, y: f64, size: Size| {
        let shown = selection.shown.get_untracked()?;
        let (at, area) = ((x, y), (size.width, size.height));
        shown.gantt.slice_at(&shown.waterfall, view.get_untracked(), at, area, REACH_PIXELS)
    };
    let on_gesture = move |gesture: Gesture, size: Size| {
        match gesture {
            Gesture::Move { x, y } => {
                hovered.set(hit(x, y, size));
                place.set(Some(MARGINS.place(x, y, size)));
            }
            Gesture::Leave => {
                hovered.set(None);
                place.set(None);
            }
            Gesture::Click { x, y } => {
                let slice = hit(x, y, size);
                selection
                    .shown
                    .with_untracked(|shown| {
                        let waterfall = &shown.as_ref()?.waterfall;
                        let at = slice? as usize;
                        let bucket = waterfall.slice_bucket[at];
                        let bucket = (bucket != u32::MAX).then(|| waterfall.bucket[bucket as usize]);
                        selection.select(bucket, Some(waterfall.rank[waterfall.slice_row[at] as usize]));
                        Some(())
                    })
                    .unwrap_or_else(|| selection.select(None, None));
            }
            Gesture::Zoom { x, factor, .. } => zoom(x / size.width, factor),
            Gesture::Pan { dx, dy } => {
                pan(dx / size.width);
                if zoomed.get_untracked().is_some() {
                    zoomed.set(Some(view.get_untracked().rows.pan(dy / size.height)));
                }
            }
            Gesture::DoubleClick => {
                time.set(None);
                zoomed.set(None);
            }
            Gesture::Key(key) => return arrow(selection, &key),
            Gesture::Drag { .. } | Gesture::Drop => return false,
        }
        true
    };
    let tip = move || {
        let shown = selection.shown.get()?;
        let slice = hovered.get()?;
        describe(&shown.waterfall, slice as usize)
    };
    let tip_place = Signal::derive(move || hovered.get().and(place.get()));
    let part_of_ranks = move || {
        let (rows, ranks) = (view.get().rows, ranks.get());
        let together = Gantt::ranks_a_row(rows, height.get());
        let part = if rows.len() < ranks as f64 {
            format!("ranks {} to {} of {ranks}", fixed(rows.start, 0), fixed(rows.end - 1.0, 0))
        } else {
            String::new()
        };
        match (together, part.is_empty()) {
            (1, _) => part,
            (_, true) => format!("each row is the slowest of every {together} ranks; Shift + W to zoom in"),
            (_, false) => format!("{part}, the slowest of every {together}"),
        }
    };
    // Keep the selected rank in view.
    Effect::new(move |_| {
        let Some(rank) = selection.rank.get() else { return };
        let row =
            selection.shown.with(|shown| shown.as_ref()?.waterfall.rank.iter().position(|&r| r == rank));
        if let Some(row) = row {
            let rows = view.get_untracked().rows;
            let revealed = rows.reveal(row as f64, row as f64 + 1.0);
            if zoomed.get_untracked().is_some() && revealed != rows {
                zoomed.set(Some(revealed));
            }
        }
    });
    let label = move || {
        selection.shown.with(|shown| {
            shown.as_ref().map_or_else(
                || "Waterfall of one step, loading".into(),
                |s| {
                    format!(
                        "Waterfall of step {} over all ranks; the tables below have its numbers",
                        s.waterfall.step
                    )
                },
            )
        })
    };
    view! {
        <p class="axis-names">
            <span aria-hidden="true">"rank ↓"</span>
            <span aria-hidden="true">"time since the first rank began →"</span>
            <span class="grow"></span>
            <span>{part_of_ranks}</span>
        </p>
        <Plot
            label=label
            testid="waterfall"
            height=Signal::derive(move || height.get() + MARGINS.top + MARGINS.bottom)
            margins=MARGINS draw=Box::new(draw) overlay=Box::new(overlay) on_gesture=Box::new(on_gesture)
        >
            <Tip place=tip_place>{tip}</Tip>
        </Plot>
    }
}

/// Moves the selection by an arrow key: left and right select the bucket, up and down the rank.
fn arrow(selection: StepSelection, key: &str) -> bool {
    let (by_bucket, by_rank) = match key {
        "ArrowLeft" => (-1, 0),
        "ArrowRight" => (1, 0),
        "ArrowUp" => (0, -1),
        "ArrowDown" => (0, 1),
        _ => return false,
    };
    let moved = |values: &[u32], chosen: Option<u32>, by: isize| {
        let last = values.len().checked_sub(1)?;
        let at = chosen.and_then(|chosen| values.iter().position(|&value| value == chosen));
        Some(values[at.map_or(0, |at| at.saturating_add_signed(by).min(last))])
    };
    selection.shown.with_untracked(|shown| {
        let Some(shown) = shown else { return false };
        let mut buckets = shown.waterfall.bucket.clone();
        buckets.sort_unstable();
        buckets.dedup();
        let bucket = moved(&buckets, selection.bucket.get_untracked(), by_bucket);
        selection.select(bucket, moved(&shown.waterfall.rank, selection.rank.get_untracked(), by_rank));
        true
    })
}

/// Describes a slice.
fn describe(waterfall: &Waterfall, at: usize) -> Option<AnyView> {
    let kind = SliceKind::ALL[usize::from(*waterfall.slice_kind.get(at)?)];
    let rank = waterfall.rank[waterfall.slice_row[at] as usize];
    let (begin, end) = (waterfall.slice_begin[at], waterfall.slice_end[at]);
    let bucket = waterfall.slice_bucket[at];
    let bucket = (bucket != u32::MAX).then(|| {
        let bucket = bucket as usize;
        let bytes = units::bytes(waterfall.bucket_bytes[bucket]);
        view! { <div>"bucket "{waterfall.bucket[bucket]}", "{bytes}</div> }
    });
    let paint = palette::slice(kind);
    Some(
        view! {
            <b><Swatch colour=paint.colour hatched=paint.hatched />{kind.name()}</b>
            <div>"rank "{rank}</div>
            {bucket}
            <div>{units::nanos(end - begin)}", from "{units::nanos(begin)}" to "{units::nanos(end)}</div>
        }
        .into_any(),
    )
}

fn slice_box(size: Size, shown: &Loaded, view: View, slice: u32) -> (f64, f64, f64, f64) {
    let at = slice as usize;
    let x = view.time.to_pixel(shown.waterfall.slice_begin[at], size.width);
    let end = view.time.to_pixel(shown.waterfall.slice_end[at], size.width);
    let (top, bottom) =
        shown.gantt.slice_pixels(&shown.waterfall, slice, view.rows, size.height.round() as usize);
    (x, top as f64, (end - x).max(1.0), bottom.saturating_sub(top) as f64)
}

fn outline(pen: &Pen, size: Size, shown: &Loaded, view: View, slice: u32) {
    let (x, y, width, height) = slice_box(size, shown, view, slice);
    pen.outline(x, y, width, height);
}

/// Writes bucket numbers in the slices that have room for them.
fn labels(pen: &Pen, size: Size, shown: &Loaded, view: View) {
    let waterfall = &shown.waterfall;
    // Lower rows have no room for numbers.
    if size.height / view.rows.len() < LABELS_FROM_PIXELS {
        return;
    }
    for slice in 0..waterfall.slice_row.len() as u32 {
        let bucket = waterfall.slice_bucket[slice as usize];
        if bucket == u32::MAX || !view.rows.contains(f64::from(waterfall.slice_row[slice as usize]) + 0.5) {
            continue;
        }
        let (x, y, width, height) = slice_box(size, shown, view, slice);
        if width >= 28.0 && height >= 12.0 && x < size.width && x + width > 0.0 {
            let text = waterfall.bucket[bucket as usize].to_string();
            let middle = (x.max(0.0) + (x + width).min(size.width)) / 2.0;
            let half = pen.text_width(&text) / 2.0 + 3.0;
            pen.rect(middle - half, y + height / 2.0 - 6.5, half * 2.0, 13.0, pen.inks.ground);
            pen.text(middle, y + height / 2.0 + 0.5, &text, Align::Middle, pen.inks.ink);
        }
    }
}

/// Marks ready, launch, start and end of one bucket on every rank, and the start of the last rank.
fn marks(pen: &Pen, size: Size, shown: &Arc<Loaded>, view: View, bucket: u32) {
    let waterfall = &shown.waterfall;
    let x = |time: f64| view.time.to_pixel(time, size.width);
    let together = Gantt::ranks_a_row(view.rows, size.height);
    let row_pixels = together as f64 * size.height / view.rows.len();
    let mut last_start = f64::NEG_INFINITY;
    for at in (0..waterfall.bucket.len()).filter(|&at| waterfall.bucket[at] == bucket) {
        last_start = last_start.max(waterfall.bucket_start[at]);
        let row = waterfall.bucket_row[at] as usize;
        // Only the rank that represents its row is marked. The last start is that of all ranks.
        if shown.gantt.standing_for(row, together) != row {
            continue;
        }
        let top = view.rows.to_pixel((row / together * together) as f64, size.height);
        let (middle, bottom) = (top + row_pixels * 0.46, top + row_pixels * 0.94);
        let ink = pen.inks.ink;
        if row_pixels < ALL_MARKS_PIXELS {
            pen.line(
                (x(waterfall.bucket_start[at]), middle),
                (x(waterfall.bucket_start[at]), bottom),
                ink,
                false,
            );
            continue;
        }
        pen.line(
            (x(waterfall.bucket_launch[at]), middle),
            (x(waterfall.bucket_launch[at]), bottom),
            ink,
            true,
        );
        pen.line(
            (x(waterfall.bucket_start[at]), middle),
            (x(waterfall.bucket_start[at]), bottom),
            ink,
            false,
        );
        pen.line((x(waterfall.bucket_end[at]), middle), (x(waterfall.bucket_end[at]), bottom), ink, false);
        pen.ring(x(waterfall.bucket_ready[at]), middle, 3.5, ink);
    }
    if last_start.is_finite() {
        pen.line((x(last_start), 0.0), (x(last_start), size.height), pen.inks.accent, true);
        let text = format!("last start of bucket {bucket}");
        let width = pen.text_width(&text) + 6.0;
        let right = x(last_start) + width > size.width;
        let (offset, align) = if right { (-5.0, Align::End) } else { (5.0, Align::Start) };
        pen.rect(x(last_start) + if right { -width - 2.0 } else { 2.0 }, -4.0, width, 14.0, pen.inks.ground);
        pen.text(x(last_start) + offset, 3.0, &text, align, pen.inks.accent);
    }
}
