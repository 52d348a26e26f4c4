//! The measures of devices and hosts over steps: a strip for each, with a row per rank.

use leptos::prelude::*;
use leptos_use::signal_throttled;
use model::utilization::{Measures, spread, written};
use units::capitalized;
use wire::live::tile::{Measure, Reduce};
use wire::usage::{Usage, UsageUnit};
use wire::views::RecentUsage;

use crate::api::{self, Cells, Ranks};
use crate::heatmap::{self, Form, Heatmap, Selection};
use crate::polled::polled;
use crate::range::Range;
use crate::route::{Address, RunId};
use crate::tiles::Tiles;
use crate::with_steps::WithSteps;

/// The least and the largest height of the rows of a strip together, in pixels.
const HEIGHTS: (f64, f64) = (16.0, 96.0);
/// The largest number of rows that a text is made from.
const MAX_ROWS: u32 = 4_096;
/// The time between requests for a text during a live run, in milliseconds.
const AGAIN_MILLIS: f64 = 2_000.0;
/// The shortest time between two requests, in milliseconds. A drag changes the range in every frame.
const AT_MOST_EVERY_MILLIS: f64 = 400.0;

/// The strips of all measures.
#[component]
pub fn Strips(usage: Memo<Vec<RecentUsage>>, culprit: Memo<Option<u32>>) -> impl IntoView {
    let measures = Memo::new(move |_| usage.with(|usage| Measures::new(usage)));
    let list = move |usages: fn(&Measures) -> &Vec<Usage>| {
        let shown = move || measures.with(|measures| usages(measures).clone());
        view! {
            <For each=shown key=|usage| *usage let(usage)>
                <Strip usage=usage culprit=culprit />
            </For>
        }
    };
    let more = move || measures.with(|measures| measures.more.len());
    let is_open = RwSignal::new(false);
    let zero = move || {
        let names: Vec<&str> = measures.with(|all| all.zero.iter().map(|usage| usage.name()).collect());
        (!names.is_empty()).then(|| format!("0 on all ranks so far: {}.", names.join(", ")))
    };
    let content = move || {
        view! {
            <section class="panel" aria-label="Utilization over steps" data-testid="strips">
                <div class="panel-head">
                    <h2>"Over steps"<small>" a row per rank, sampled once per second; figures of the shown steps"</small></h2>
                </div>
                {list(|measures| &measures.main)}
                <p>
                    <button
                        class="quiet"
                        class:hidden=move || more() == 0
                        aria-expanded=move || is_open.get().to_string()
                        data-testid="more-strips"
                        on:click=move |_| is_open.update(|open| *open = !*open)
                    >
                        {move || if is_open.get() { "Fewer measures".to_owned() } else { format!("{} more measures", more()) }}
                    </button>
                </p>
                <Show when=move || is_open.get()>{list(|measures| &measures.more)}</Show>
                <p class="quiet">{zero}</p>
            </section>
        }
    };
    view! { <WithSteps>{content()}</WithSteps> }
}

#[component]
fn Strip(usage: Usage, culprit: Memo<Option<u32>>) -> impl IntoView {
    let measure = Signal::stored(Measure::Usage(usage));
    // An idle device among a thousand busy ones must not disappear in a pixel.
    let worst = if usage.is_worse_if_low() { Reduce::Min } else { Reduce::Max };
    let in_order = Memo::new(|_| None);
    let selection = Selection::new(expect_context::<Address>(), measure, in_order, culprit, worst);
    let tiles = Tiles::new(expect_context::<RunId>());
    let ends = heatmap::scale(tiles, measure);
    let spread = fetched_spread(usage);
    let end = move |read: fn((f32, f32)) -> f32| written(usage, read(ends.get()));
    view! {
        <section class="strip" aria-label=usage.name() data-testid=format!("strip-{}", Measure::Usage(usage).key())>
            <div class="strip-head">
                <h3>{capitalized(usage.name())}</h3>
                <span>{move || spread.get()}</span>
                <span class="grow"></span>
                <span class="scale">
                    <span>{move || end(|ends| ends.0)}</span>
                    <i class="cividis" aria-hidden="true"></i>
                    <span>{move || end(|ends| ends.1)}</span>
                </span>
            </div>
            <Heatmap selection=selection tiles=tiles ends=ends form=Form::STRIP heights=Signal::stored(HEIGHTS) />
        </section>
    }
    .into_any()
}

/// Fetches the mean of each rank over the shown steps, and says how the ranks differ.
fn fetched_spread(usage: Usage) -> Signal<Option<String>> {
    let range = expect_context::<Range>();
    let wanted = Memo::new(move |_| range.visible_ends());
    let wanted: Signal<Option<(u64, u64)>> = signal_throttled(wanted, AT_MOST_EVERY_MILLIS);
    polled(Some(AGAIN_MILLIS), wanted, move |run, steps| async move {
        let cells = Cells {
            measure: Measure::Usage(usage),
            reduce: if usage.unit() == UsageUnit::Count { Reduce::Max } else { Reduce::Mean },
            steps,
            ranks: Ranks::Between(0, u32::MAX),
            most: (1, MAX_ROWS),
        };
        spread(usage, &api::tile(&run, cells).await.ok()?)
    })
}
