//! The waterfall of one step: one row per drawn rank, with lanes for compute, communication and the queue from top to
//! bottom.

mod marks;

use leptos::prelude::*;
use model::pointer::Gesture;
use units::fixed;
use viz::palette;
use viz::raster::Frame;
use viz::raster::gantt::Gantt;
use viz::span::Span;
use wire::ids::Bucket;
use wire::live::{Part, SliceKind, Waterfall};

use super::StepSelection;
use super::minimap::Minimap;
use super::zoom::{MARGINS, Zoom};
use crate::canvas::Size;
use crate::keys;
use crate::live::Live;
use crate::pen::{Align, Pen};
use crate::plot::{Plot, Stretch};
use crate::route::Address;
use crate::widgets::{Legend, Swatch, Tip};

const ROW_PIXELS: f64 = 56.0;
const HEIGHT_PIXELS: (f64, f64) = (180.0, 620.0);
/// The distance from which the pointer hits a slice, in pixels.
const REACH_PIXELS: f64 = 4.0;

/// The legend of fills.
#[component]
pub fn Kinds() -> impl IntoView {
    let shown = [
        SliceKind::Input,
        SliceKind::H2d,
        SliceKind::Forward,
        SliceKind::Backward,
        SliceKind::Optimizer,
        SliceKind::Checkpoint,
        SliceKind::Blocked,
        SliceKind::WaitExposed,
        SliceKind::WaitHidden,
        SliceKind::TransferExposed,
        SliceKind::TransferHidden,
    ];
    let items = shown.map(|kind| {
        let paint = palette::slice(kind);
        let name = match kind {
            SliceKind::Blocked => "blocked, queued",
            // All pauses look alike. The tip of a slice says which one it is.
            SliceKind::Checkpoint => Part::Pause.name(),
            _ => kind.name(),
        };
        (paint.color, paint.pattern, name)
    });
    view! { <Legend items=items.into() /> }
}

/// Creates the chart.
#[component]
pub fn WaterfallPlot(selection: StepSelection) -> impl IntoView {
    let stretch = expect_context::<Stretch>();
    let (live, zoom) = (expect_context::<Live>(), Zoom::new(selection, expect_context::<Address>()));
    let hovered = RwSignal::new(None::<u32>);
    let height = Signal::derive(move || {
        (zoom.ranks.get() as f64 * ROW_PIXELS).clamp(HEIGHT_PIXELS.0, HEIGHT_PIXELS.1 * stretch.get())
    });
    keys::global(move |key| {
        if key == "m" {
            selection.measured.set(Some(zoom.view.get_untracked().time));
            return true;
        }
        zoom.key(key)
    });
    let draw = move |frame: &mut Frame<'_>, _: Size| {
        let view = zoom.view.get();
        selection.drawn.with(|drawn| {
            if let Some(drawn) = drawn {
                drawn.gantt.draw(frame, &drawn.waterfall, view);
            }
        });
    };
    let tip = move || {
        let drawn = selection.drawn.get()?;
        let label = |bucket| live.run.with(|run| Some(run.as_ref()?.report.parameters(bucket)?.label()));
        describe(&drawn.waterfall, hovered.get()? as usize, label)
    };
    let tip_place = Signal::derive(move || hovered.get().and(zoom.place.get()));
    // Keep the selected rank in view.
    Effect::new(move |_| {
        let row = selection.drawn.with(|drawn| row_of(&drawn.as_ref()?.waterfall, selection.rank.get()?));
        if let Some(row) = row {
            zoom.reveal_row(row);
        }
    });
    let label = move || {
        selection.shown_step().map_or_else(
            || "Waterfall of one step, loading".into(),
            |step| format!("Waterfall of step {step}; the tables below have its numbers"),
        )
    };
    view! {
        <p class="axis-names">
            <span aria-hidden="true">"rank ↓"</span>
            <span aria-hidden="true">"time since the first rank began →"</span>
            <span class="grow"></span>
            <span>{move || part_of_ranks(zoom, height.get())}</span>
        </p>
        <Minimap selection=selection zoom=zoom />
        <Plot
            label=label
            testid="waterfall"
            height=Signal::derive(move || height.get() + MARGINS.top + MARGINS.bottom)
            margins=MARGINS
            draw=Box::new(draw)
            overlay=Box::new(move |pen, size| overlay(pen, size, selection, zoom, hovered))
            on_gesture=Box::new(move |gesture, size| handle_gesture(&gesture, size, selection, zoom, hovered))
        >
            <Tip place=tip_place>{tip}</Tip>
        </Plot>
    }
}

fn row_of(waterfall: &Waterfall, rank: u32) -> Option<usize> {
    waterfall.rank.iter().position(|&drawn| drawn == rank)
}

fn part_of_ranks(zoom: Zoom, height: f64) -> String {
    let (rows, ranks) = (zoom.view.get().rows, zoom.ranks.get());
    let together = Gantt::ranks_a_row(rows, height);
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
}

fn overlay(pen: &Pen, size: Size, selection: StepSelection, zoom: Zoom, hovered: RwSignal<Option<u32>>) {
    let view = zoom.view.get();
    let Some((all, drawn)) = selection.shown.get().zip(selection.drawn.get()) else {
        let failed = selection.error.with(Option::is_some);
        let why = if failed { "This step is unavailable." } else { "Loading…" };
        pen.text(size.width / 2.0, size.height / 2.0, why, Align::Middle, pen.inks.muted);
        return;
    };
    let chosen = selection.rank.get().and_then(|rank| row_of(&drawn.waterfall, rank));
    pen.rows_left(view.rows, chosen, |row| drawn.name(row));
    pen.clip();
    marks::labels(pen, size, &drawn, view);
    if let Some(bucket) = selection.bucket.get() {
        marks::marks(pen, size, &all, &drawn, view, bucket);
    }
    if let Some(measured) = selection.measured.get() {
        let [from, to] = [measured.start, measured.end].map(|time| view.time.to_pixel(time, size.width));
        pen.area(&[(from, 0.0), (to, 0.0), (to, size.height), (from, size.height)], pen.inks.accent, 0.15);
        for end in [from, to] {
            pen.rect(end, 0.0, 1.0, size.height, pen.inks.accent);
        }
    }
    let slices = drawn.waterfall.slice_row.len();
    if let Some(slice) = hovered.get().filter(|&slice| (slice as usize) < slices) {
        marks::outline(pen, size, &drawn, view, slice);
    }
}

fn handle_gesture(
    gesture: &Gesture,
    size: Size,
    selection: StepSelection,
    zoom: Zoom,
    hovered: RwSignal<Option<u32>>,
) -> bool {
    let view = zoom.view.get_untracked();
    let hit = |x: f64, y: f64| {
        let drawn = selection.drawn.get_untracked()?;
        drawn.gantt.slice_at(&drawn.waterfall, view, (x, y), (size.width, size.height), REACH_PIXELS)
    };
    match *gesture {
        Gesture::Hover((x, y)) => {
            hovered.set(hit(x, y));
            zoom.place.set(Some(MARGINS.place(x, y, size)));
        }
        Gesture::Leave => {
            hovered.set(None);
            zoom.place.set(None);
        }
        Gesture::Click((x, y)) => select(selection, hit(x, y)),
        Gesture::Zoom { x, factor } => zoom.zoom_time(x / size.width, factor),
        Gesture::Drag { from, to, .. } => {
            let ends = [from.0.min(to.0), from.0.max(to.0)];
            let [start, end] = ends.map(|x| view.time.to_value(x.clamp(0.0, size.width), size.width));
            selection.measured.set(Some(Span::new(start, end)));
        }
        Gesture::Drop => {}
        Gesture::Pan((dx, dy)) => zoom.pan(dx / size.width, dy / size.height),
        Gesture::DoubleClick => zoom.show_all(),
        Gesture::Key(ref key) => return arrow(selection, key),
    }
    true
}

/// Selects the bucket and the rank of a drawn slice; nothing if there is none.
fn select(selection: StepSelection, slice: Option<u32>) {
    let found = selection.drawn.with_untracked(|drawn| {
        let (waterfall, at) = (&drawn.as_ref()?.waterfall, slice? as usize);
        let bucket = waterfall.slice_bucket[at];
        let bucket = (bucket != u32::MAX).then(|| waterfall.bucket[bucket as usize]);
        Some((bucket, waterfall.rank[waterfall.slice_row[at] as usize]))
    });
    match found {
        Some((bucket, rank)) => selection.select(bucket, Some(rank)),
        None => selection.select(None, None),
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
    let moved = |values: &[u32], chosen: Option<u32>, offset: isize| {
        let last = values.len().checked_sub(1)?;
        let at = chosen.and_then(|chosen| values.iter().position(|&value| value == chosen));
        Some(values[at.map_or(0, |at| at.saturating_add_signed(offset).min(last))])
    };
    selection.drawn.with_untracked(|drawn| {
        let Some(drawn) = drawn else { return false };
        let mut buckets = drawn.waterfall.bucket.clone();
        buckets.sort_unstable();
        buckets.dedup();
        let bucket = moved(&buckets, selection.bucket.get_untracked(), by_bucket);
        selection.select(bucket, moved(&drawn.waterfall.rank, selection.rank.get_untracked(), by_rank));
        true
    })
}

/// Describes a slice. `label` returns the label of a bucket's parameters, if they are known.
fn describe(waterfall: &Waterfall, at: usize, label: impl Fn(Bucket) -> Option<String>) -> Option<AnyView> {
    let kind = SliceKind::ALL[usize::from(*waterfall.slice_kind.get(at)?)];
    let rank = waterfall.rank[waterfall.slice_row[at] as usize];
    let (begin, end) = (waterfall.slice_begin[at], waterfall.slice_end[at]);
    let bucket = waterfall.slice_bucket[at];
    let bucket = (bucket != u32::MAX).then(|| {
        let bucket = bucket as usize;
        let bytes = units::payload(waterfall.bucket_bytes[bucket]);
        let number = waterfall.bucket[bucket];
        let label = label(Bucket(number)).map(|label| format!(": {label}"));
        view! { <div>"bucket "{number}{label}", "{bytes}</div> }
    });
    let paint = palette::slice(kind);
    Some(
        view! {
            <b><Swatch color=paint.color pattern=paint.pattern />{kind.name()}</b>
            <div>"rank "{rank}</div>
            {bucket}
            <div>{units::nanos(end - begin)}", from "{units::nanos(begin)}" to "{units::nanos(end)}</div>
        }
        .into_any(),
    )
}
