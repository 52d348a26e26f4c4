//! What happened when, above the bar's chart: a band for each verdict, and a mark for each event. They are buttons, so
//! that they can be read, focused and clicked.

use leptos::prelude::*;
use model::bands;
use model::verdict::state;
use viz::span::Span;
use wire::views::{RankEventKind, VerdictState};

use super::strip::MARGINS;
use crate::dates::time_of_day;
use crate::live::Live;
use crate::range::Range;
use crate::widgets::pixels;

/// The largest number of lanes of bands.
const LANES: usize = 3;
/// The height of a lane, in pixels.
const LANE_PIXELS: f64 = 20.0;

/// A band or a mark.
#[derive(Clone, Debug, PartialEq)]
struct Placed {
    /// The kind for the style sheet: the state of a verdict, or `event`.
    kind: &'static str,
    text: String,
    /// What a screen reader and the tooltip say.
    says: String,
    /// The first and the last step.
    steps: (u64, u64),
    lane: usize,
}

/// The bands and marks.
#[component]
pub fn Marks() -> impl IntoView {
    let (live, range) = (expect_context::<Live>(), expect_context::<Range>());
    let placed = Memo::new(move |_| placed(live));
    let lanes = move || placed.with(|placed| placed.iter().map(|mark| mark.lane + 1).max().unwrap_or(1));
    let place = move |steps: (u64, u64)| {
        let stored = range.stored();
        let share = |step: f64| (stored.to_pixel(step, 100.0)).clamp(0.0, 100.0);
        let (left, right) = (share(steps.0 as f64), share(steps.1 as f64 + 1.0));
        (format!("{left:.3}%"), format!("{:.3}%", right - left))
    };
    // Near the right edge, the text of an event is on the left of its step.
    let is_late = move |steps: (u64, u64)| range.stored().to_pixel(steps.0 as f64, 1.0) > 0.9;
    let button = move |mark: Placed| {
        let Placed { kind, text, says, steps, lane } = mark;
        view! {
            <button
                class="mark"
                data-kind=kind
                class:late=move || is_late(steps)
                title=says.clone()
                aria-label=says
                style:left=move || place(steps).0
                style:width=move || place(steps).1
                style:top=pixels(lane as f64 * LANE_PIXELS)
                on:click=move |_| range.select(Span::new(steps.0 as f64, steps.1 as f64 + 1.0))
            >
                <span>{text}</span>
            </button>
        }
    };
    view! {
        <div
            class="marks"
            data-testid="marks"
            style:height=move || pixels(lanes() as f64 * LANE_PIXELS)
            style:margin-left=pixels(MARGINS.left)
            style:margin-right=pixels(MARGINS.right)
        >
            <For each=move || placed.get() key=|mark| format!("{mark:?}") children=button />
        </div>
    }
}

fn placed(live: Live) -> Vec<Placed> {
    let Some(shown) = live.newest.get() else { return Vec::new() };
    live.drawn.track();
    let newest = live.steps.with_value(|steps| steps.step.last().copied()).unwrap_or(0);
    // A band that grows with every step would be a new button with every step.
    let newest = newest / 8 * 8;
    let mut marks: Vec<Placed> = bands::place(&shown.report.past_faults, &shown.report.verdicts, newest)
        .into_iter()
        .map(|band| {
            let (first, last) = (units::count(band.steps.0), units::count(band.steps.1));
            let (state, text) = (state(band.state), band.label);
            let span = match band.state {
                VerdictState::Active => format!("since step {first}"),
                _ => format!("steps {first} to {last}"),
            };
            let says = format!("{text}, {state}, {span}. Select these steps.");
            Placed { kind: state, text, says, steps: band.steps, lane: 0 }
        })
        .collect();
    let spans: Vec<Span> =
        marks.iter().map(|mark| Span::new(mark.steps.0 as f64, mark.steps.1 as f64 + 1.0)).collect();
    for (mark, lane) in marks.iter_mut().zip(bands::lanes(&spans, LANES)) {
        mark.lane = lane;
    }
    // What happened to ranks has a lane of its own below the bands.
    let below = marks.iter().map(|mark| mark.lane + 1).max().unwrap_or(0);
    marks.extend(events(live, newest).into_iter().map(|event| Placed { lane: below, ..event }));
    marks
}

/// Returns the marks of restarts, of ranks that fell silent, and of the failure.
fn events(live: Live, newest: u64) -> Vec<Placed> {
    let Some(shown) = live.newest.get() else { return Vec::new() };
    let mark = |step: u64, text: String, says: String| Placed {
        kind: "event",
        text,
        says,
        steps: (step, step),
        lane: 0,
    };
    let step_at = |unix_millis: u64| {
        live.steps.with_value(|steps| {
            let row = steps.ended_unix_nanos.partition_point(|&nanos| nanos / 1_000_000 < unix_millis);
            steps.step.get(row).or(steps.step.last()).copied().unwrap_or(0)
        })
    };
    let happened = shown.report.events.iter().map(|event| {
        let time = time_of_day(event.unix_millis as f64);
        let rank = event.rank;
        let (text, says) = match event.kind {
            RankEventKind::Restarted => {
                (format!("↻ rank {rank}"), format!("Rank {rank} restarted at {time}."))
            }
            RankEventKind::Silent => {
                (format!("… rank {rank}"), format!("Rank {rank} has been silent since {time}."))
            }
            RankEventKind::Xid { code } => (
                format!("⚡ rank {rank}: Xid {code}"),
                format!("The GPU of rank {rank} reported the critical error Xid {code} at {time}."),
            ),
            RankEventKind::MemoryErrors { count } => (
                format!("⚡ rank {rank}: memory"),
                format!("The GPU of rank {rank} could not correct {} at {time}.", errors(count, "memory")),
            ),
            RankEventKind::OutOfMemory { count } => (
                format!("⚡ rank {rank}: out of memory"),
                format!("PyTorch raised {} on rank {rank} at {time}.", errors(count, "out-of-memory")),
            ),
        };
        mark(step_at(event.unix_millis), text, says)
    });
    let failed = shown.report.failure.as_ref().map(|failure| {
        let step = failure.last_step.map_or(newest, |step| step.0);
        let who = match failure.alike {
            0 => format!("✕ rank {}", failure.rank),
            others => format!("✕ {} ranks", others + 1),
        };
        mark(step, who, failure.sentence.clone())
    });
    happened.chain(failed).collect()
}

fn errors(count: u64, kind: &str) -> String {
    match count {
        1 => format!("1 {kind} error"),
        more => format!("{} {kind} errors", units::count(more)),
    }
}
