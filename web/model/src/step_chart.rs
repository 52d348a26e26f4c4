//! What a gesture on a chart over steps does. One rule holds for all of them; the dashboard's `step_chart` carries it out.

use viz::span::Span;

use crate::brush::Brush;
use crate::pointer::Gesture;

/// The distance from which the pointer holds an end of the selected steps in the bar of the whole run, in pixels.
const REACH_PIXELS: f64 = 7.0;

/// What a gesture does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Moves the crosshair of every chart to a step, or removes it.
    Point(Option<u64>),
    Open(u64),
    /// Selects steps, which every chart then shows.
    Select(Span),
    /// Follows the newest steps.
    Follow,
}

/// A chart as it is at the time of a gesture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chart {
    /// The steps from the left edge to the right one.
    pub shown: Span,
    pub stored: Span,
    /// The width, in the unit of gestures.
    pub width: f64,
    /// The selection that the chart marks, if it shows the whole run and not the visible steps.
    pub marked: Option<Marked>,
    /// The step of the point that the pointer is near, in a chart that has points.
    pub near: Option<u64>,
    /// The step of the crosshair.
    pub pointed: Option<u64>,
}

/// What a chart of the whole run marks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marked {
    pub visible: Span,
    /// The selected steps; `None` while the newest steps are followed.
    pub selected: Option<Span>,
}

impl Chart {
    /// Returns what a gesture does; `None` if it does nothing. `brush` is the drag in progress on this chart.
    pub fn action(&self, gesture: &Gesture, brush: &mut Brush) -> Option<Action> {
        match *gesture {
            Gesture::Hover((x, _)) => Some(Action::Point(self.near.or(self.step_at(x)))),
            Gesture::Leave => Some(Action::Point(None)),
            Gesture::Click((x, _)) => self.near.or(self.nearest_step(x)).map(Action::Open),
            Gesture::DoubleClick => Some(Action::Follow),
            Gesture::Drag { from, to, moved } => match self.marked {
                Some(Marked { selected, .. }) => {
                    let step = |x: f64| self.shown.to_value(x, self.width);
                    let reach = REACH_PIXELS / self.width * self.shown.len();
                    let ends = (step(from.0), step(to.0));
                    Some(Action::Select(brush.drag(selected, ends, reach, self.stored)))
                }
                None => self.pan(moved.0),
            },
            Gesture::Drop => {
                brush.release();
                None
            }
            Gesture::Pan(moved) => self.pan(moved.0),
            Gesture::Zoom { x, factor } => {
                // In the bar of the whole run, the steps under the pointer may not be among those that are zoomed.
                let step = self.shown.to_value(x, self.width);
                let anchor = self.moving().to_pixel(step, 1.0).clamp(0.0, 1.0);
                Some(Action::Select(self.moving().zoom(anchor, factor)))
            }
            Gesture::Key(ref key) => self.key(key),
        }
    }

    /// Returns the stored step at the distance `x` from the left edge, if one is there.
    #[must_use]
    pub fn step_at(&self, x: f64) -> Option<u64> {
        let step = self.shown.to_value(x, self.width).floor();
        ((0.0..self.width).contains(&x) && self.stored.contains(step)).then_some(step as u64)
    }

    /// Returns the stored step that is nearest to the distance `x` from the left edge; `None` without steps.
    fn nearest_step(&self, x: f64) -> Option<u64> {
        let step = self.shown.to_value(x.clamp(0.0, self.width), self.width).floor();
        let nearest = step.min(self.stored.end - 1.0).max(self.stored.start);
        (!self.stored.is_empty()).then_some(nearest as u64)
    }

    /// Moves by so many pixels. Where all steps are visible, there is nothing to move.
    fn pan(&self, pixels: f64) -> Option<Action> {
        let moving = self.moving();
        (moving.len() < self.stored.len()).then(|| Action::Select(moving.pan(pixels / self.width)))
    }

    /// Returns the steps that a wheel moves and zooms.
    fn moving(&self) -> Span {
        self.marked.map_or(self.shown, |marked| marked.visible)
    }

    /// Arrow keys move the crosshair, from the newest step that the chart shows. Enter opens its step.
    fn key(&self, key: &str) -> Option<Action> {
        let change = match key {
            "ArrowLeft" => -1.0,
            "ArrowRight" => 1.0,
            "Enter" => return self.pointed.map(Action::Open),
            _ => return None,
        };
        let (first, last) = (
            self.shown.start.max(self.stored.start).floor(),
            self.shown.end.min(self.stored.end).ceil() - 1.0,
        );
        let step = self.pointed.map_or(last, |step| (step as f64 + change).min(last).max(first));
        (first <= last).then_some(Action::Point(Some(step as u64)))
    }
}

/// Returns the steps that a key makes visible, from the visible ones; `None` if it is no key that moves or zooms.
/// `pointed` is the step of the crosshair, which keeps its place when zooming.
#[must_use]
pub fn moved_by_key(key: &str, visible: Span, pointed: Option<u64>) -> Option<Span> {
    let anchor = pointed.map_or(0.5, |step| visible.to_pixel(step as f64 + 0.5, 1.0)).clamp(0.0, 1.0);
    match key {
        "w" => Some(visible.zoom(anchor, 0.7)),
        "s" => Some(visible.zoom(anchor, 1.0 / 0.7)),
        "a" => Some(visible.pan(-0.2)),
        "d" => Some(visible.pan(0.2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: Span = Span { start: 0.0, end: 1_000.0 };
    /// A pixel is a step.
    const VISIBLE: Chart = Chart {
        shown: Span { start: 100.0, end: 200.0 },
        stored: STORED,
        width: 100.0,
        marked: None,
        near: None,
        pointed: None,
    };
    /// A pixel is a step.
    const WHOLE: Chart = Chart {
        shown: STORED,
        width: 1_000.0,
        marked: Some(Marked { visible: VISIBLE.shown, selected: Some(VISIBLE.shown) }),
        ..VISIBLE
    };

    fn action(chart: Chart, gesture: &Gesture) -> Option<Action> {
        chart.action(gesture, &mut Brush::default())
    }

    fn key(name: &str) -> Gesture {
        Gesture::Key(name.into())
    }

    #[test]
    fn the_crosshair_is_at_the_step_under_the_pointer_and_nowhere_beside_stored_steps() {
        let at = |chart: Chart, x: f64| action(chart, &Gesture::Hover((x, 5.0)));
        assert_eq!(at(VISIBLE, 20.9), Some(Action::Point(Some(120))));
        assert_eq!(at(VISIBLE, -3.0), Some(Action::Point(None)), "in the margin");
        let at_end = Chart { shown: Span::new(950.0, 1_050.0), ..VISIBLE };
        assert_eq!(at(at_end, 60.0), Some(Action::Point(None)), "the newest step is 999");
        assert_eq!(at(Chart { near: Some(7), ..VISIBLE }, 20.9), Some(Action::Point(Some(7))));
        assert_eq!(action(VISIBLE, &Gesture::Leave), Some(Action::Point(None)));
    }

    #[test]
    fn a_click_opens_the_nearest_stored_step() {
        let at = |chart: Chart, x: f64| action(chart, &Gesture::Click((x, 5.0)));
        assert_eq!(at(VISIBLE, 20.0), Some(Action::Open(120)));
        let at_end = Chart { shown: Span::new(950.0, 1_050.0), ..VISIBLE };
        assert_eq!(at(at_end, 90.0), Some(Action::Open(999)));
        assert_eq!(at(Chart { near: Some(7), ..VISIBLE }, 20.0), Some(Action::Open(7)));
        assert_eq!(at(Chart { stored: Span::new(0.0, 0.0), ..VISIBLE }, 20.0), None, "there are no steps");
    }

    #[test]
    fn a_drag_moves_the_visible_steps_and_selects_steps_in_the_whole_run() {
        let drag = Gesture::Drag { from: (50.0, 0.0), to: (40.0, 0.0), moved: (10.0, 0.0) };
        assert_eq!(action(VISIBLE, &drag), Some(Action::Select(Span::new(110.0, 210.0))));
        assert_eq!(action(WHOLE, &drag), Some(Action::Select(Span::new(40.0, 50.0))));
        let mut brush = Brush::default();
        let drag = |to: f64| Gesture::Drag { from: (150.0, 0.0), to: (to, 0.0), moved: (0.0, 0.0) };
        assert_eq!(WHOLE.action(&drag(160.0), &mut brush), Some(Action::Select(Span::new(110.0, 210.0))));
        assert_eq!(WHOLE.action(&drag(170.0), &mut brush), Some(Action::Select(Span::new(120.0, 220.0))));
        assert_eq!(WHOLE.action(&Gesture::Drop, &mut brush), None);
    }

    #[test]
    fn a_wheel_moves_and_zooms_the_visible_steps_in_every_chart() {
        let select = |start, end| Some(Action::Select(Span::new(start, end)));
        assert_eq!(action(VISIBLE, &Gesture::Pan((10.0, 0.0))), select(110.0, 210.0));
        assert_eq!(action(WHOLE, &Gesture::Pan((100.0, 0.0))), select(110.0, 210.0));
        assert_eq!(action(VISIBLE, &Gesture::Zoom { x: 100.0, factor: 0.5 }), select(150.0, 200.0));
        assert_eq!(action(WHOLE, &Gesture::Zoom { x: 150.0, factor: 0.5 }), select(125.0, 175.0));
        assert_eq!(action(WHOLE, &Gesture::Zoom { x: 900.0, factor: 0.5 }), select(150.0, 200.0));
        assert_eq!(action(VISIBLE, &Gesture::DoubleClick), Some(Action::Follow));
        let all = Chart { shown: Span::new(0.0, 1_100.0), ..VISIBLE };
        assert_eq!(action(all, &Gesture::Pan((10.0, 0.0))), None, "all steps are visible");
    }

    #[test]
    fn arrow_keys_move_the_crosshair_within_the_chart_and_enter_opens_its_step() {
        let pressed = |pointed, name| action(Chart { pointed, ..VISIBLE }, &key(name));
        assert_eq!(pressed(None, "ArrowLeft"), Some(Action::Point(Some(199))));
        assert_eq!(pressed(Some(150), "ArrowLeft"), Some(Action::Point(Some(149))));
        assert_eq!(pressed(Some(199), "ArrowRight"), Some(Action::Point(Some(199))));
        assert_eq!(
            pressed(Some(3), "ArrowLeft"),
            Some(Action::Point(Some(100))),
            "it was outside of the chart"
        );
        assert_eq!(pressed(Some(150), "Enter"), Some(Action::Open(150)));
        assert_eq!([pressed(None, "Enter"), pressed(None, "x")], [None, None]);
        let empty = Chart { stored: Span::new(0.0, 0.0), ..VISIBLE };
        assert_eq!(action(empty, &key("ArrowLeft")), None);
    }

    #[test]
    fn keys_zoom_around_the_crosshair_and_move() {
        let visible = VISIBLE.shown;
        let Some(zoomed) = moved_by_key("w", visible, Some(150)) else { panic!("W zooms") };
        assert!((zoomed.to_pixel(150.5, 1.0) - 0.505).abs() < 1e-9);
        assert_eq!(moved_by_key("a", visible, None), Some(Span::new(80.0, 180.0)));
        assert_eq!(moved_by_key("d", visible, None), Some(Span::new(120.0, 220.0)));
        assert!(moved_by_key("s", visible, None).is_some_and(|wider| wider.len() > visible.len()));
        assert_eq!(moved_by_key("x", visible, None), None);
    }
}
