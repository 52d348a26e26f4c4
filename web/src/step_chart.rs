//! Charts whose horizontal axis is the steps of a run. What the pointer and keys do on them is decided here, and nowhere else:
//!
//! | on a chart | what happens |
//! |---|---|
//! | hover | the crosshair of every chart moves to the step |
//! | click | the step opens in the Buckets view; in a heatmap, the cell is selected |
//! | drag | the visible steps move; in the bar of the whole run, steps are selected |
//! | sideways wheel, Shift + wheel | the visible steps move |
//! | Ctrl + wheel, pinch | the visible steps are zoomed around the pointer |
//! | double click | the newest steps are followed again |
//! | ← →, Enter in a focused chart | the crosshair moves, its step opens; in a heatmap, the selected cell moves |
//! | W S A D F L [ ] on the page of a run | see [`StepCharts::bind_keys`] |
//!
//! [`model::step_chart`] turns a gesture into an action, and [`StepCharts`] carries it out. A view draws its chart in a
//! [`StepChart`]; a chart of points ([`crate::xy`]) passes its gestures to a [`StepInput`]. The axis of the waterfall is the
//! time within one step, and [`crate::views::buckets`] has what its pointer and keys do.

use leptos::prelude::*;
use model::brush::Brush;
use model::pointer::Gesture;
use model::route::Tab;
use model::step_chart::{Action, Chart, Marked, moved_by_key};
use viz::span::Span;
use viz::ticks;

use crate::canvas::{Margins, Size};
use crate::keys;
use crate::pen::Pen;
use crate::plot::{Draw, Overlay, Plot};
use crate::range::Range;
use crate::route::{Address, RunId};
use crate::widgets::Tip;

/// The room for a label below the axis of steps, in pixels.
const LABEL_PIXELS: f64 = 90.0;

/// Where the pointer is, in every chart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Crosshair {
    pub step: Option<u64>,
    /// The rank, in heatmaps.
    pub rank: Option<u32>,
}

/// What all charts over the steps of a run share.
#[derive(Clone, Copy)]
pub struct StepCharts {
    range: Range,
    address: Address,
    run: RunId,
    pub crosshair: RwSignal<Crosshair>,
}

impl StepCharts {
    /// Creates charts without a crosshair. Call once per page of a run.
    pub fn new(range: Range, address: Address, run: RunId) -> Self {
        Self { range, address, run, crosshair: RwSignal::default() }
    }

    /// Binds the keys that change the visible steps anywhere on the page of a run. In the Buckets view, the waterfall has W, S,
    /// A, D and F for the time within the step.
    pub fn bind_keys(self, tab: Memo<Tab>) {
        let range = self.range;
        keys::global(move |key| {
            match key {
                "l" => range.follow(),
                "[" => range.shift(-1.0),
                "]" => range.shift(1.0),
                _ if tab.get_untracked() == Tab::Buckets => return false,
                "f" => range.follow(),
                "F" => range.select_all(),
                _ => {
                    let visible = untrack(|| range.visible());
                    let Some(moved) = moved_by_key(key, visible, self.crosshair.get_untracked().step) else {
                        return false;
                    };
                    range.select(moved);
                }
            }
            true
        });
    }

    /// Opens a step in the Buckets view.
    pub fn open(self, step: u64) {
        self.address.go_to_step(&self.run.get_untracked(), step);
    }

    /// Draws the crosshair on a chart that shows these steps.
    pub fn draw_crosshair(self, pen: &Pen, size: Size, shown: Span) {
        if let Some(step) = self.crosshair.get().step {
            pen.crosshair(shown.to_pixel(step as f64 + 0.5, size.width));
        }
    }

    fn act(self, action: Action) {
        match action {
            Action::Point(step) => self.crosshair.set(Crosshair { step, rank: None }),
            Action::Open(step) => self.open(step),
            Action::Select(steps) => self.range.select(steps),
            Action::Follow => self.range.follow(),
        }
    }
}

/// Draws the axis of steps below a chart that shows these steps.
pub fn draw_step_axis(pen: &Pen, size: Size, shown: Span) {
    pen.step_axis(shown, &ticks::whole(shown, (size.width / LABEL_PIXELS) as usize));
}

/// Which steps a chart shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    #[default]
    Visible,
    /// All of the run, with the visible ones marked.
    WholeRun,
}

/// The rows of a heatmap, which has a rank in each.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Returns the rank at a share of the height; `None` if no row is there.
    pub rank_at: Callback<f64, Option<u32>>,
    /// Selects a cell, or none if the click was beside the cells.
    pub select: Callback<Option<(u64, u32)>>,
    /// Moves the visible rows by a share of the height.
    pub pan: Callback<f64>,
    /// Moves the selected cell. Returns true if the key was an arrow.
    pub press: Callback<String, bool>,
}

/// The pointer and keys on one chart over steps.
#[derive(Clone, Copy)]
pub struct StepInput {
    charts: StepCharts,
    extent: Extent,
    rows: Option<Rows>,
    /// The drag in progress.
    brush: StoredValue<Brush>,
}

impl StepInput {
    /// Creates the input of a chart. `rows` are those of a heatmap.
    pub fn new(extent: Extent, rows: Option<Rows>) -> Self {
        Self {
            charts: expect_context::<StepCharts>(),
            extent,
            rows,
            brush: StoredValue::new(Brush::default()),
        }
    }

    /// Acts on a gesture. `shown` are the steps from the left edge to the right one, and `near` is the step of the point that
    /// the pointer is near, in a chart of points. Returns true if the gesture was used.
    pub fn take(self, gesture: &Gesture, size: Size, shown: Span, near: Option<u64>) -> bool {
        let charts = self.charts;
        let chart = untrack(|| Chart {
            shown,
            stored: charts.range.stored(),
            width: size.width,
            marked: (self.extent == Extent::WholeRun)
                .then(|| Marked { visible: charts.range.visible(), selected: charts.range.selected() }),
            near,
            pointed: charts.crosshair.get().step,
        });
        if let Some(rows) = self.rows
            && let Some(is_used) = self.take_in_rows(rows, gesture, size, &chart)
        {
            return is_used;
        }
        let action = self.brush.try_update_value(|brush| chart.action(gesture, brush)).flatten();
        if let Some(action) = action {
            charts.act(action);
        }
        action.is_some()
    }

    /// Acts on a gesture that is different in a heatmap; `None` if it is not.
    fn take_in_rows(self, rows: Rows, gesture: &Gesture, size: Size, chart: &Chart) -> Option<bool> {
        let cell = |(x, y): (f64, f64)| chart.step_at(x).zip(rows.rank_at.run(y / size.height));
        match gesture {
            Gesture::Hover(at) => {
                let (step, rank) = cell(*at).unzip();
                self.charts.crosshair.set(Crosshair { step, rank });
                Some(true)
            }
            Gesture::Click(at) => {
                rows.select.run(cell(*at));
                Some(true)
            }
            Gesture::Pan(moved) | Gesture::Drag { moved, .. } => {
                rows.pan.run(moved.1 / size.height);
                None
            }
            Gesture::Key(key) => Some(rows.press.run(key.clone())),
            _ => None,
        }
    }
}

/// A chart over steps.
#[component]
pub fn StepChart(
    /// The name of the chart for screen readers.
    #[prop(into)]
    label: Signal<String>,
    testid: &'static str,
    /// The height in CSS pixels.
    #[prop(into)]
    height: Signal<f64>,
    margins: Margins,
    #[prop(optional)] extent: Extent,
    /// The rows of a heatmap.
    #[prop(optional)]
    rows: Option<Rows>,
    draw: Draw,
    overlay: Overlay,
    /// As in [`Plot`].
    #[prop(optional)]
    decorative: bool,
    /// True if the tooltip is as tall as the chart and stays at its top.
    #[prop(optional)]
    is_tip_tall: bool,
    /// The content of the tooltip.
    #[prop(optional)]
    children: Option<Children>,
) -> impl IntoView {
    let charts = expect_context::<StepCharts>();
    let input = StepInput::new(extent, rows);
    let place = RwSignal::new(None);
    let on_gesture = move |gesture: Gesture, size: Size| {
        let shown = untrack(|| match extent {
            Extent::Visible => charts.range.visible(),
            Extent::WholeRun => charts.range.stored(),
        });
        let is_used = input.take(&gesture, size, shown, None);
        match gesture {
            Gesture::Hover((x, y)) => {
                let y = if is_tip_tall { -margins.top } else { y };
                let is_pointed = charts.crosshair.get_untracked().step.is_some();
                place.set(is_pointed.then(|| margins.place(x, y, size)));
            }
            Gesture::Leave => place.set(None),
            _ => {}
        }
        is_used
    };
    view! {
        <Plot
            label=label
            testid=testid
            height=height
            margins=margins
            draw=draw
            overlay=overlay
            on_gesture=Box::new(on_gesture)
            decorative=decorative
        >
            {children.map(|children| view! { <Tip place=place>{children()}</Tip> })}
        </Plot>
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use wasm_bindgen_test::wasm_bindgen_test;

    use super::*;
    use crate::fixture::show_steps;
    use crate::mounted::mount_in_run;

    const SIZE: Size = Size { width: 100.0, height: 50.0, ratio: 1.0 };

    /// What the rows of a heatmap were told.
    #[derive(Clone, Copy)]
    struct Told {
        selected: RwSignal<Option<Option<(u64, u32)>>>,
        panned: RwSignal<f64>,
    }

    fn rows(told: Told) -> Rows {
        Rows {
            rank_at: Callback::new(|share: f64| (share < 0.5).then_some(3)),
            select: Callback::new(move |cell| told.selected.set(Some(cell))),
            pan: Callback::new(move |share| told.panned.set(share)),
            press: Callback::new(|key: String| key == "ArrowUp"),
        }
    }

    #[wasm_bindgen_test]
    async fn a_heatmap_selects_cells_and_shares_all_else_with_other_charts() {
        let made = Arc::new(OnceLock::new());
        let out = made.clone();
        let (page, live) = mount_in_run(move || {
            let told = Told { selected: RwSignal::new(None), panned: RwSignal::new(0.0) };
            let line = StepInput::new(Extent::Visible, None);
            let _ = out.set((
                line,
                StepInput::new(Extent::Visible, Some(rows(told))),
                told,
                expect_context::<Range>(),
            ));
        });
        show_steps(live, 200, 8);
        page.settle().await;
        let &(line, heatmap, told, range) = made.get().expect("the component was mounted");
        let shown = Span::new(100.0, 200.0);
        let pointed = || line.charts.crosshair.get_untracked();
        let take = |input: StepInput, gesture: Gesture| input.take(&gesture, SIZE, shown, None);

        assert!(take(line, Gesture::Hover((20.0, 10.0))));
        assert_eq!(pointed(), Crosshair { step: Some(120), rank: None });
        assert!(take(heatmap, Gesture::Hover((30.0, 10.0))));
        assert_eq!(pointed(), Crosshair { step: Some(130), rank: Some(3) });
        take(heatmap, Gesture::Hover((30.0, 40.0)));
        assert_eq!(pointed(), Crosshair::default(), "no row is there");

        take(heatmap, Gesture::Click((30.0, 10.0)));
        assert_eq!(told.selected.get_untracked(), Some(Some((130, 3))));
        take(heatmap, Gesture::Click((30.0, 40.0)));
        assert_eq!(told.selected.get_untracked(), Some(None));
        assert!(take(heatmap, Gesture::Key("ArrowUp".into())) && !take(line, Gesture::Key("ArrowUp".into())));

        let drag = Gesture::Drag { from: (50.0, 30.0), to: (40.0, 25.0), moved: (-10.0, 5.0) };
        take(heatmap, drag);
        assert_eq!(told.panned.get_untracked(), 0.1);
        assert_eq!(untrack(|| range.selected()), Some(Span::new(90.0, 190.0)));
        take(line, Gesture::DoubleClick);
        assert!(untrack(|| range.follows()));
    }
}
