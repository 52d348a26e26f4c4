//! What a pointer does on a chart: presses, moves and releases become gestures.

/// A position in CSS pixels, from the upper left corner of a chart's raster.
pub type Point = (f64, f64);

/// The distance in pixels below which a pressed pointer has clicked and not dragged.
const CLICK_PIXELS: f64 = 4.0;
/// The factor of a zoom by one pixel of a wheel is e to this power.
const ZOOM_A_PIXEL: f64 = 0.0025;

/// A gesture of the pointer or a key on a chart.
#[derive(Clone, Debug, PartialEq)]
pub enum Gesture {
    /// The pointer is here, and not pressed.
    Hover(Point),
    /// The pointer left.
    Leave,
    /// A click without a drag.
    Click(Point),
    /// Two clicks, after which a [`Click`](Self::Click) was reported for each.
    DoubleClick,
    /// A pressed pointer moved.
    Drag {
        /// Where it was pressed.
        from: Point,
        /// Where it is.
        to: Point,
        /// How far the view moves if it is dragged along: the last place less this one.
        moved: Point,
    },
    /// The end of a drag.
    Drop,
    /// A sideways or shifted wheel. The view moves by this much.
    Pan(Point),
    /// Ctrl + wheel, or a pinch.
    Zoom {
        /// The distance from the left edge.
        x: f64,
        /// What the length of the view is multiplied by.
        factor: f64,
    },
    /// A key press while the chart has the focus.
    Key(String),
}

/// The pointer on a chart. One is followed at a time: a second finger presses nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pointer {
    pressed: Option<Pressed>,
}

#[derive(Clone, Copy, Debug)]
struct Pressed {
    /// The browser's number of the pointer.
    id: i32,
    from: Point,
    at: Point,
    is_dragging: bool,
}

impl Pointer {
    /// Notes that a pointer was pressed.
    pub fn press(&mut self, id: i32, at: Point) {
        self.pressed = Some(Pressed { id, from: at, at, is_dragging: false });
    }

    /// Returns true if this pointer is the one that is pressed.
    #[must_use]
    pub fn is_pressed(&self, id: i32) -> bool {
        self.pressed.is_some_and(|pressed| pressed.id == id)
    }

    /// Notes where a pointer is. A pressed one that has hardly moved does nothing yet.
    pub fn move_to(&mut self, id: i32, at: Point) -> Option<Gesture> {
        let Some(pressed) = self.pressed.as_mut().filter(|pressed| pressed.id == id) else {
            return Some(Gesture::Hover(at));
        };
        let moved = (pressed.at.0 - at.0, pressed.at.1 - at.1);
        if !pressed.is_dragging && moved.0.hypot(moved.1) < CLICK_PIXELS {
            return None;
        }
        pressed.at = at;
        pressed.is_dragging = true;
        Some(Gesture::Drag { from: pressed.from, to: at, moved })
    }

    pub fn release(&mut self, id: i32, at: Point) -> Option<Gesture> {
        let pressed = self.pressed.take_if(|pressed| pressed.id == id)?;
        Some(if pressed.is_dragging { Gesture::Drop } else { Gesture::Click(at) })
    }

    /// Notes that the pointer left the chart. A drag continues outside of it.
    pub fn leave(&mut self) -> Option<Gesture> {
        if self.pressed.is_some_and(|pressed| pressed.is_dragging) {
            return None;
        }
        self.pressed = None;
        Some(Gesture::Leave)
    }

    /// Notes that the browser has taken the pointer for itself, to scroll the page.
    pub fn cancel(&mut self) -> Option<Gesture> {
        let pressed = self.pressed.take()?;
        pressed.is_dragging.then_some(Gesture::Drop)
    }
}

/// What a wheel moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wheel {
    /// The page, unless the wheel moves sideways.
    Plain,
    /// The view, because Shift is held.
    Shifted,
    /// The scale, because Ctrl or Command is held, or because it is a pinch.
    Zooming,
}

/// Returns what a wheel at the distance `x` from the left edge does; `None` if it scrolls the page.
#[must_use]
pub fn wheel(wheel: Wheel, x: f64, delta: Point) -> Option<Gesture> {
    match wheel {
        Wheel::Zooming => Some(Gesture::Zoom { x, factor: (delta.1 * ZOOM_A_PIXEL).exp() }),
        // Some browsers turn a shifted wheel sideways themselves.
        Wheel::Shifted if delta.0 == 0.0 => Some(Gesture::Pan((delta.1, 0.0))),
        _ if delta.0.abs() > delta.1.abs() => Some(Gesture::Pan((delta.0, 0.0))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pointer_that_is_not_pressed_hovers_and_leaves() {
        let mut pointer = Pointer::default();
        assert_eq!(pointer.move_to(1, (3.0, 4.0)), Some(Gesture::Hover((3.0, 4.0))));
        assert_eq!(pointer.leave(), Some(Gesture::Leave));
        assert_eq!(pointer.release(1, (3.0, 4.0)), None, "it was pressed elsewhere");
    }

    #[test]
    fn a_press_that_hardly_moves_is_a_click_where_it_ends() {
        let mut pointer = Pointer::default();
        pointer.press(1, (10.0, 10.0));
        assert_eq!(pointer.move_to(1, (12.0, 12.0)), None);
        assert_eq!(pointer.release(1, (12.0, 12.0)), Some(Gesture::Click((12.0, 12.0))));
        assert_eq!(pointer.move_to(1, (20.0, 12.0)), Some(Gesture::Hover((20.0, 12.0))));
    }

    #[test]
    fn a_drag_tells_each_move_and_goes_on_outside_of_the_chart() {
        let mut pointer = Pointer::default();
        pointer.press(1, (10.0, 10.0));
        let drag = |to, moved| Some(Gesture::Drag { from: (10.0, 10.0), to, moved });
        assert_eq!(pointer.move_to(1, (15.0, 10.0)), drag((15.0, 10.0), (-5.0, 0.0)));
        assert_eq!(pointer.leave(), None);
        assert_eq!(
            pointer.move_to(1, (14.0, 10.0)),
            drag((14.0, 10.0), (1.0, 0.0)),
            "one pixel is enough now"
        );
        assert_eq!(pointer.release(1, (14.0, 10.0)), Some(Gesture::Drop));
    }

    #[test]
    fn a_press_that_leaves_the_chart_is_forgotten() {
        let mut pointer = Pointer::default();
        pointer.press(1, (10.0, 10.0));
        assert_eq!(pointer.leave(), Some(Gesture::Leave));
        assert!(!pointer.is_pressed(1));
        assert_eq!(pointer.release(1, (10.0, 10.0)), None);
    }

    #[test]
    fn a_second_finger_neither_drags_nor_ends_the_drag_of_the_first() {
        let mut pointer = Pointer::default();
        pointer.press(1, (10.0, 10.0));
        assert_eq!(pointer.move_to(2, (90.0, 90.0)), Some(Gesture::Hover((90.0, 90.0))));
        assert_eq!(pointer.release(2, (90.0, 90.0)), None);
        assert!(pointer.is_pressed(1));
    }

    #[test]
    fn a_canceled_drag_is_dropped_and_a_canceled_press_is_no_click() {
        let mut pointer = Pointer::default();
        pointer.press(1, (10.0, 10.0));
        assert_eq!(pointer.cancel(), None);
        pointer.press(2, (10.0, 10.0));
        pointer.move_to(2, (50.0, 10.0));
        assert_eq!(pointer.cancel(), Some(Gesture::Drop));
        assert_eq!(pointer.cancel(), None);
    }

    #[test]
    fn a_plain_wheel_scrolls_the_page_and_others_move_or_zoom() {
        assert_eq!(wheel(Wheel::Plain, 5.0, (0.0, 100.0)), None);
        assert_eq!(wheel(Wheel::Plain, 5.0, (30.0, 2.0)), Some(Gesture::Pan((30.0, 0.0))));
        assert_eq!(wheel(Wheel::Shifted, 5.0, (0.0, 100.0)), Some(Gesture::Pan((100.0, 0.0))));
        assert_eq!(wheel(Wheel::Shifted, 5.0, (100.0, 0.0)), Some(Gesture::Pan((100.0, 0.0))));
        let Some(Gesture::Zoom { x: 5.0, factor }) = wheel(Wheel::Zooming, 5.0, (0.0, 400.0)) else {
            panic!("Ctrl + wheel zooms");
        };
        assert!((factor - std::f64::consts::E).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn the_moves_of_a_drag_sum_to_its_length(xs in proptest::collection::vec(-500.0..500.0f64, 1..20)) {
            let mut pointer = Pointer::default();
            pointer.press(1, (0.0, 0.0));
            let mut sum = 0.0;
            let mut end = 0.0;
            for x in xs {
                if let Some(Gesture::Drag { to, moved, .. }) = pointer.move_to(1, (x, 0.0)) {
                    sum -= moved.0;
                    end = to.0;
                }
            }
            prop_assert!((sum - end).abs() < 1e-6);
        }
    }
}
