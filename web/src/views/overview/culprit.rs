//! The culprit against the median of all ranks over steps, with the onset of the fault.

use std::sync::Arc;

use leptos::prelude::*;
use model::verdict::measure;
use viz::span::Span;
use viz::ticks;
use viz::xy::Axis;
use wire::live::tile::{Measure, Reduce, Tile};
use wire::views::Verdict;

use crate::api::{self, Cells, Ranks};
use crate::live::Live;
use crate::polled::polled;
use crate::range::Range;
use crate::xy::{Hit, Ink, Mark, Picture, Shown, Xy};

/// The number of points of a line.
const POINTS: u32 = 240;
/// The time between requests during a live run, in milliseconds.
const AGAIN_MILLIS: f64 = 2_000.0;

/// What the chart shows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wanted {
    rank: u32,
    measure: Measure,
    /// How the culprit's steps that share a point are reduced. A mean would hide what happens in one of them.
    reduce: Reduce,
    steps: (u64, u64),
    onset: Option<u64>,
}

/// The culprit's and the median rank's cells.
type Lines = (Wanted, Tile, Tile);

/// The chart; nothing if the verdict names no rank.
#[component]
pub fn Culprit(verdict: Memo<Option<Verdict>>) -> impl IntoView {
    let (live, range) = (expect_context::<Live>(), expect_context::<Range>());
    let has_steps = Memo::new(move |_| !range.stored().is_empty());
    let wanted = Memo::new(move |_| {
        let _ = has_steps.get();
        let (rank, measure, reduce, onset) = verdict.with(|verdict| {
            let verdict = verdict.as_ref()?;
            let rank = *verdict.culprit.as_ref()?.ranks().first()?;
            let reduce = if verdict.recurrence.is_some() { Reduce::Max } else { Reduce::Mean };
            Some((rank, measure(verdict.cause), reduce, verdict.onset.map(|onset| onset.step)))
        })?;
        let steps = range.selected_ends().or_else(|| {
            let stored = live.steps.with_value(|steps| steps.bounds());
            (!stored.is_empty()).then(|| model::range::ends(stored))
        })?;
        Some(Wanted { rank, measure, reduce, steps, onset })
    });
    let lines = polled(Some(AGAIN_MILLIS), wanted, fetch);
    let picture = Signal::derive(move || {
        let picture = lines.with(|lines| lines.as_ref().map(picture));
        picture.unwrap_or_else(|| Err("Loading the culprit's steps…".into()))
    });
    let name = Memo::new(move |_| wanted.get().map(|wanted| (wanted.rank, wanted.measure, wanted.reduce)));
    let heading = Signal::derive(move || {
        name.get().map_or_else(String::new, |(rank, measure, _)| {
            format!("{} of rank {rank} and of the median rank", units::capitalized(measure.name()))
        })
    });
    let rank = move || {
        let pooled = |reduce| if reduce == Reduce::Max { " (longest of neighboring steps)" } else { "" };
        name.get().map(|(rank, _, reduce)| format!("rank {rank}{}", pooled(reduce)))
    };
    view! {
        <div class="verdict-chart" class:hidden=move || name.get().is_none()>
            <ul class="legend">
                <li><i class="key line-alarm" aria-hidden="true"></i>{rank}</li>
                <li><i class="key line-muted" aria-hidden="true"></i>"median of all ranks"</li>
                <li class="quiet">{heading}</li>
            </ul>
            <Xy
                label=heading
                testid="culprit"
                height=170.0
                axes=("step", "time")
                picture=picture
                is_over_steps=true
            />
        </div>
    }
}

async fn fetch(run: String, wanted: Wanted) -> Option<Lines> {
    let Wanted { rank, measure, reduce, steps, .. } = wanted;
    let cells = |reduce, ranks| Cells { measure, reduce, steps, ranks, most: (POINTS, 1) };
    let culprit = api::tile(&run, cells(reduce, Ranks::Between(rank, rank))).await.ok()?;
    let median = api::tile(&run, cells(Reduce::Median, Ranks::Between(0, u32::MAX))).await.ok()?;
    Some((wanted, culprit, median))
}

fn points(tile: &Tile) -> Vec<(f64, f64)> {
    let rows = tile.rows.max(1) as usize;
    let middle = f64::from(tile.per_column) / 2.0;
    let point = |(column, &value): (usize, &f32)| {
        let step = tile.step as f64 + column as f64 * f64::from(tile.per_column) + middle;
        (!value.is_nan()).then_some((step, f64::from(value)))
    };
    tile.values.iter().step_by(rows).enumerate().filter_map(point).collect()
}

fn picture((wanted, culprit, median): &Lines) -> Shown {
    let (culprit, median) = (points(culprit), points(median));
    if culprit.is_empty() {
        return Err("No observed step of this rank is in memory.".into());
    }
    let (first, last) = (wanted.steps.0 as f64, wanted.steps.1 as f64 + 1.0);
    let all = || culprit.iter().chain(&median).map(|point| point.1);
    let (low, high) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
    let (x, y) = (Axis::linear(first, last), Axis::linear(low, ticks::ceiling(high * 1.05)));
    let hits = culprit.iter().map(|&(step, nanos)| {
        let near = median.partition_point(|point| point.0 < step).min(median.len().saturating_sub(1));
        let mut says = vec![
            format!("Step {}", units::count(step as u64)),
            format!("rank {}: {}", wanted.rank, units::nanos(nanos)),
        ];
        says.extend(median.get(near).map(|point| format!("median: {}", units::nanos(point.1))));
        Hit { at: (step, nanos), says }
    });
    let mut marks = vec![
        Mark::Line { points: median.clone(), ink: Ink::Muted, dashed: false },
        Mark::Line { points: culprit.clone(), ink: Ink::Alarm, dashed: false },
    ];
    let onset = wanted.onset.filter(|&step| (step as f64) >= first && (step as f64) < last);
    marks.extend(
        onset
            .map(|step| Mark::Rule { x: step as f64, text: format!("began at step {}", units::count(step)) }),
    );
    Ok(Arc::new(Picture {
        x,
        y,
        x_ticks: ticks::whole(Span::new(first, last), 6),
        y_ticks: y.ticks(4, units::nanos),
        hits: hits.collect(),
        marks,
    }))
}
