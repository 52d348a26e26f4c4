//! The step times of the ticked runs in one chart.

use std::collections::BTreeMap;
use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;
use model::runs::overlay::{self, Reading, TimeAxis, Times};
use viz::palette;
use viz::steps::Steps;
use viz::ticks;
use viz::xy::Axis;

use super::listing::Listing;
use crate::api;
use crate::widgets::LineKey;
use crate::xy::{Hit, Ink, Mark, Picture, Shown, Xy};

/// The number of columns to which long runs are thinned.
const COLUMNS: usize = 1_000;
/// The number of columns from which the pointer reads.
const READINGS: usize = 240;
/// The interval at which the steps of unfinished runs are requested again, in milliseconds. An answer contains all steps.
const AGAIN_MILLIS: f64 = 10_000.0;

/// The steps of a run, or the reason why they are missing.
#[derive(Clone, PartialEq)]
struct Fetched {
    /// How many steps the run had by then.
    count: u64,
    times: Result<Arc<Times>, String>,
}

type Store = RwSignal<BTreeMap<String, Fetched>>;

/// The chart of the ticked runs.
#[component]
pub fn Overlay(listing: Listing) -> impl IntoView {
    let store = Store::new(BTreeMap::new());
    Effect::new(move |_| listing.picked.get().iter().for_each(|id| fetch_once(listing, store, id)));
    let tick = listing.live.ticks(AGAIN_MILLIS);
    Effect::new(move |_| {
        tick.track();
        for id in listing.picked.get_untracked() {
            let now = count_steps(listing, &id);
            let is_old = |run: &Fetched| run.count != now || run.times.is_err();
            if store.with_untracked(|all| all.get(&id).is_some_and(is_old)) {
                fetch(listing, store, id);
            }
        }
    });
    let picture = Memo::new(move |_| {
        let runs: Vec<Line> =
            listing.picked.get().iter().enumerate().map(|(at, id)| line(listing, store, at, id)).collect();
        picture(&runs, listing.axis.get())
    });
    let across = move || match listing.axis.get() {
        TimeAxis::Steps => "step",
        TimeAxis::Clock => "time since the first stored step began",
    };
    view! {
        <section class="panel overlay" aria-label="Ticked runs" data-testid="overlay">
            <div class="panel-head">
                <h2>"Step time of the ticked runs"<small>" over "{across}</small></h2>
                <div class="segments" role="group" aria-label="Horizontal axis">
                    {[(TimeAxis::Steps, "Steps"), (TimeAxis::Clock, "Wall clock")].map(|(axis, name)| view! {
                        <button
                            data-testid=format!("over-{}", axis.key())
                            aria-pressed=move || (listing.axis.get() == axis).to_string()
                            on:click=move |_| listing.choose_axis(axis)
                        >{name}</button>
                    }).collect_view()}
                </div>
                <small>{move || cut_steps(listing, store)}</small>
                <span class="grow"></span>
                <small class:hidden=move || listing.picked.read().len() == 2>"Tick exactly two runs to compare them."</small>
                <a class="button primary" data-testid="compare-ticked" href=move || listing.compare_href() class:hidden=move || listing.picked.read().len() != 2>
                    "Compare"
                </a>
                <button class="quiet" data-testid="untick" on:click=move |_| listing.clear_picked()>"Remove all ticks"</button>
            </div>
            <ul class="legend" data-testid="overlay-legend">
                <For each=move || listing.picked.get().into_iter().enumerate() key=Clone::clone let:entry>
                    <LegendEntry listing=listing store=store at=entry.0 id=entry.1 />
                </For>
            </ul>
            <Xy label="Step times of the ticked runs; the table has their newest means" testid="overlay-chart"
                height=180.0 axes=("later", "step time") picture=picture />
        </section>
    }
    .into_any()
}

/// Says which steps the chart cuts off, if it does.
fn cut_steps(listing: Listing, store: Store) -> String {
    let axis = listing.axis.get();
    let all = store.read();
    let points: Vec<&[(f64, f64)]> = listing
        .picked
        .read()
        .iter()
        .filter_map(|id| Some(all.get(id)?.times.as_ref().ok()?.points(axis)))
        .collect();
    match overlay::top(&points) {
        (top, true) => {
            format!("Steps longer than {} are cut off at the top.", units::nanos(ticks::ceiling(top)))
        }
        (_, false) => String::new(),
    }
}

/// A run in the legend: its line, its short name, its name and its id. A click removes its tick.
#[component]
fn LegendEntry(listing: Listing, store: Store, at: usize, id: String) -> impl IntoView {
    let (color, dashed) = palette::line(at);
    let name = {
        let id = id.clone();
        Memo::new(move |_| listing.name(&id))
    };
    let second_name = {
        let id = id.clone();
        move || if *name.read() == id { String::new() } else { id.clone() }
    };
    let missing = {
        let id = id.clone();
        move || store.read().get(&id).and_then(|run| run.times.clone().err()).map(|why| format!("({why})"))
    };
    let label = format!("Remove the tick of {id}");
    view! {
        <li>
            <LineKey color=palette::css(color) dashed=dashed />
            <b>{overlay::tag(at)}</b>" "{name}" "<small>{second_name}{missing}</small>
            <button class="icon" aria-label=label title="Remove" on:click=move |_| listing.toggle_picked(&id)>"×"</button>
        </li>
    }
}

fn count_steps(listing: Listing, id: &str) -> u64 {
    listing.run_now(id).map_or(0, |run| run.steps)
}

fn fetch_once(listing: Listing, store: Store, id: &str) {
    if store.with_untracked(|all| !all.contains_key(id)) {
        fetch(listing, store, id.to_owned());
    }
}

fn fetch(listing: Listing, store: Store, id: String) {
    let count = count_steps(listing, &id);
    spawn_local(async move {
        let times = api::steps(&id).await.map(|frame| {
            let mut steps = Steps::default();
            steps.apply(&frame);
            Arc::new(Times::new(&steps))
        });
        // The chart may be gone by now.
        let _gone = store.try_update(|all| all.insert(id, Fetched { count, times }));
    });
}

/// A run of the chart.
struct Line {
    at: usize,
    name: String,
    /// `None` until the answer has come.
    times: Option<Result<Arc<Times>, String>>,
}

impl Line {
    fn points(&self, axis: TimeAxis) -> &[(f64, f64)] {
        match &self.times {
            Some(Ok(times)) => times.points(axis),
            Some(Err(_)) | None => &[],
        }
    }
}

fn line(listing: Listing, store: Store, at: usize, id: &str) -> Line {
    let times = store.read().get(id).map(|run| run.times.clone());
    Line { at, name: format!("{} {}", overlay::tag(at), listing.name(id)), times }
}

fn picture(runs: &[Line], axis: TimeAxis) -> Shown {
    if !runs.iter().any(|run| matches!(run.times, Some(Ok(_)))) {
        let why = runs.iter().find_map(|run| run.times.as_ref()?.as_ref().err());
        return Err(
            why.map_or_else(|| "Loading steps…".into(), |why| format!("The steps cannot be loaded: {why}."))
        );
    }
    let points: Vec<&[(f64, f64)]> = runs.iter().map(|run| run.points(axis)).collect();
    let Some(ends) = overlay::ends(&points) else {
        return Err(match axis {
            TimeAxis::Steps => "The ticked runs have no stored steps.".into(),
            TimeAxis::Clock => {
                "The clocks of the ticked runs are not aligned, so their steps have no place in time.".into()
            }
        });
    };
    let (top, _) = overlay::top(&points);
    let (x, y) = (Axis::linear(ends.0, ends.1), Axis::linear(0.0, ticks::ceiling(top)));
    let mut marks: Vec<Mark> = Vec::new();
    let mut tags: Vec<Mark> = Vec::new();
    for (run, points) in runs.iter().zip(&points) {
        let (color, dashed) = palette::line(run.at);
        let ink = Ink::Data(color);
        let mut points = overlay::thin(points, ends, COLUMNS);
        points.iter_mut().for_each(|point| point.1 = point.1.min(y.span.end));
        // Tags stand at different places, so that those of runs that end together do not overlap.
        let place = points.len().saturating_sub(1 + points.len() * (run.at % 8) / 16);
        if let Some(&at) = points.get(place) {
            tags.push(Mark::Tag { at, text: overlay::tag(run.at), ink });
        }
        marks.push(Mark::Line { points, ink, dashed });
    }
    marks.extend(tags);
    let write = |value: f64| match axis {
        TimeAxis::Steps => units::count(value.max(0.0) as u64),
        TimeAxis::Clock => units::nanos(value),
    };
    let hits = overlay::readings(&points, READINGS)
        .iter()
        .flat_map(|reading| hits(runs, reading, axis, y.span.end))
        .collect();
    Ok(Arc::new(Picture { x, y, x_ticks: x.ticks(8, write), y_ticks: y.ticks(4, units::nanos), marks, hits }))
}

/// Returns a point for each run that has steps in this column. All of them say the same.
fn hits(runs: &[Line], reading: &Reading, axis: TimeAxis, top: f64) -> Vec<Hit> {
    let (from, to) = reading.from_to;
    let place = match axis {
        TimeAxis::Steps if from < to => {
            format!("steps {} to {}, longest", units::count(from as u64), units::count(to as u64))
        }
        TimeAxis::Steps => format!("step {}", units::count(from as u64)),
        TimeAxis::Clock if from < to => format!("{} to {}, longest", units::nanos(from), units::nanos(to)),
        TimeAxis::Clock => units::nanos(from),
    };
    let values = runs.iter().zip(&reading.longest);
    let said =
        values.clone().filter_map(|(run, at)| Some(format!("{}: {}", run.name, units::nanos((*at)?.1))));
    let says: Vec<String> = std::iter::once(place).chain(said).collect();
    let found =
        values.filter_map(|(_, at)| *at).map(|(x, y)| Hit { at: (x, y.min(top)), says: says.clone() });
    found.collect()
}
