//! The measure of single ranks over steps: of every rank if there are few, or of the compared ranks against the band of
//! all ranks.

use std::sync::Arc;

use leptos::prelude::*;
use leptos_use::signal_throttled;
use viz::palette;
use viz::span::Span;
use viz::xy::Axis;
use viz::{measure, ticks};
use wire::live::tile::{Measure, Reduce, Tile};

use super::RanksSelection;
use crate::api::{self, Cells, Ranks};
use crate::live::Live;
use crate::polled::polled;
use crate::range::Range;
use crate::theme::Theme;
use crate::widgets::LineKey;
use crate::xy::{Hit, Ink, Mark, Picture, Shown, Xy};

/// The number of points of a line.
const POINTS: u32 = 160;
/// The largest number of rows from which the band is made.
const BAND_ROWS: u32 = 256;
/// The largest number of lines.
const MAX_LINES: usize = 8;
/// The time between requests during a live run, in milliseconds.
const AGAIN_MILLIS: f64 = 2_000.0;
/// The shortest time between two requests, in milliseconds. A drag changes the range in every frame, and so does a live
/// run, which never rests.
const AT_MOST_EVERY_MILLIS: f64 = 400.0;
/// The same for the chart with the band of all ranks, which is not next to the heatmap and costs more.
const BAND_AT_MOST_EVERY_MILLIS: f64 = 1_000.0;

/// The color of a line, and true if it is dashed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stroke {
    ink: Ink,
    dashed: bool,
}

/// What the chart shows.
#[derive(Clone, Debug, PartialEq)]
struct Wanted {
    ranks: Vec<u32>,
    /// How each rank's line is drawn.
    strokes: Vec<Stroke>,
    measure: Measure,
    /// The reduction of steps that share a point, as in the heatmap.
    reduce: Reduce,
    steps: (u64, u64),
    /// As in the heatmap below.
    visible: Span,
    /// True if the band of all ranks is drawn.
    has_band: bool,
}

/// The compared ranks' cells, and those of all ranks.
struct Found {
    wanted: Wanted,
    lines: Tile,
    all: Option<Tile>,
}

/// The chart. `all` shows every rank, without a band.
#[component]
pub fn Lines(selection: RanksSelection, all: bool) -> impl IntoView {
    let (live, range) = (expect_context::<Live>(), expect_context::<Range>());
    let theme = expect_context::<Theme>();
    let wanted = Memo::new(move |_| {
        let mut ranks = if all {
            live.steps.with_value(|steps| (0..steps.ranks as u32).collect())
        } else {
            selection.compared()
        };
        ranks.sort_unstable();
        ranks.truncate(MAX_LINES);
        let steps = range.visible_ends()?;
        let measure = selection.cells.measure.get();
        let reduce = selection.cells.reduce.get();
        let strokes = strokes(&ranks, selection.culprit.get(), live.steps.with_value(|steps| steps.ranks));
        let visible = range.visible();
        (!ranks.is_empty()).then_some(Wanted {
            ranks,
            strokes,
            measure,
            reduce,
            steps,
            visible,
            has_band: !all,
        })
    });
    let seldom: Signal<Option<Wanted>> =
        signal_throttled(wanted, if all { AT_MOST_EVERY_MILLIS } else { BAND_AT_MOST_EVERY_MILLIS });
    let found = polled(Some(AGAIN_MILLIS), seldom, fetch);
    // A drag changes `wanted` in every frame. The picture changes when newer cells arrive.
    let shown = Memo::new(move |_| {
        wanted.with(|wanted| wanted.as_ref().map(|wanted| (wanted.ranks.clone(), wanted.strokes.clone())))
    });
    let picture = Memo::new(move |_| {
        if shown.with(Option::is_none) {
            return Err("Select or pin a rank, in the list or in the chart.".into());
        }
        found.with(|found| found.as_deref().map(picture)).unwrap_or_else(|| Err("Loading…".into()))
    });
    let legend = move || {
        let (ranks, strokes) = shown.get().unwrap_or_default();
        let entry = |(rank, stroke): (u32, Stroke)| {
            let color = stroke.ink.css(&theme.inks());
            view! { <li><LineKey color=color dashed=stroke.dashed />"rank "{rank}</li> }
        };
        ranks.into_iter().zip(strokes).map(entry).collect_view()
    };
    let label = move || format!("{} of single ranks over steps", selection.cells.measure.get().name());
    view! {
        <ul class="legend">{legend}</ul>
        <Xy
            label=Signal::derive(label)
            testid=if all { "rank-lines" } else { "compared-lines" }
            height=220.0
            axes=("step", "time")
            picture=picture
            is_over_steps=true
        />
    }
}

/// Returns how each rank's line is drawn. The culprit has a color of its own. In a small job, a rank has the same color in
/// every chart.
fn strokes(ranks: &[u32], culprit: Option<u32>, all: usize) -> Vec<Stroke> {
    let usual = |at: usize| {
        let (color, dashed) = palette::line(at);
        Stroke { ink: Ink::Data(color), dashed }
    };
    let stroke = |(at, &rank): (usize, &u32)| match rank {
        rank if Some(rank) == culprit => Stroke { ink: Ink::Alarm, dashed: false },
        rank if all <= MAX_LINES => usual(rank as usize),
        _ => usual(at),
    };
    ranks.iter().enumerate().map(stroke).collect()
}

async fn fetch(run: String, wanted: Wanted) -> Option<Arc<Found>> {
    let Wanted { ranks, measure, reduce, steps, has_band, .. } = wanted.clone();
    let most = (POINTS, ranks.len() as u32);
    let listed = Cells { measure, reduce, steps, ranks: Ranks::Listed(ranks), most };
    let lines = api::tile(&run, listed).await.ok()?;
    let all = if has_band {
        let ranks = Ranks::Between(0, u32::MAX);
        let cells = Cells { measure, reduce: Reduce::Mean, steps, ranks, most: (POINTS, BAND_ROWS) };
        Some(api::tile(&run, cells).await.ok()?)
    } else {
        None
    };
    Some(Arc::new(Found { wanted, lines, all }))
}

/// Moves a tick to the middle of its step, as on the axis of the heatmap.
fn centered(tick: ticks::Tick) -> ticks::Tick {
    ticks::Tick { value: tick.value + 0.5, ..tick }
}

/// Returns the step in the middle of a column.
fn step_of(tile: &Tile, column: usize) -> f64 {
    tile.step as f64 + (column as f64 + 0.5) * f64::from(tile.per_column)
}

fn line(tile: &Tile, row: usize) -> Vec<(f64, f64)> {
    let cells = tile.values.iter().skip(row).step_by(tile.rows.max(1) as usize).enumerate();
    let known = cells.filter(|(_, value)| !value.is_nan());
    known.map(|(column, &value)| (step_of(tile, column), f64::from(value))).collect()
}

/// Returns the range in which 80 % of the ranks lie: step, 10th and 90th percentile.
fn band(tile: &Tile) -> Vec<(f64, f64, f64)> {
    let columns = tile.values.chunks(tile.rows.max(1) as usize).enumerate();
    let known = columns.filter(|(_, column)| column.iter().any(|value| !value.is_nan()));
    known
        .map(|(at, column)| {
            let [low, high] = [90, 10].map(|percent| f64::from(measure::exceeded_by(column, percent)));
            (step_of(tile, at), low, high)
        })
        .collect()
}

fn picture(found: &Found) -> Shown {
    let lines: Vec<Vec<(f64, f64)>> =
        (0..found.wanted.ranks.len()).map(|row| line(&found.lines, row)).collect();
    let band = found.all.as_ref().map(band).unwrap_or_default();
    let values = || lines.iter().flatten().map(|point| point.1).chain(band.iter().flat_map(|b| [b.1, b.2]));
    if values().next().is_none() {
        return Err("No observed step of these ranks is in memory.".into());
    }
    let (low, high) = (values().fold(0.0, f64::min), values().fold(0.0, f64::max));
    let visible = found.wanted.visible;
    let (x, y) = (Axis::linear(visible.start, visible.end), Axis::linear(low, ticks::ceiling(high * 1.05)));
    let mut hits: Vec<Hit> = lines
        .iter()
        .zip(&found.wanted.ranks)
        .flat_map(|(line, rank)| {
            line.iter().map(move |&(step, nanos)| Hit {
                at: (step, nanos),
                says: vec![format!("Rank {rank}, step {}", units::count(step as u64)), units::nanos(nanos)],
            })
        })
        .collect();
    hits.sort_by(|a, b| a.at.0.total_cmp(&b.at.0));
    let mut marks = vec![Mark::Band { points: band, ink: Ink::Muted }];
    let stroked = lines.into_iter().zip(&found.wanted.strokes);
    marks.extend(stroked.map(|(points, &Stroke { ink, dashed })| Mark::Line { points, ink, dashed }));
    Ok(Arc::new(Picture {
        x,
        y,
        x_ticks: ticks::whole(visible, 8).into_iter().map(centered).collect(),
        y_ticks: y.ticks(4, units::nanos),
        hits,
        marks,
    }))
}
