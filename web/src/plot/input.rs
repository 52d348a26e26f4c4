//! The browser's events on a chart, as gestures.

use std::cell::Cell;

use model::pointer::{Gesture, Point, Pointer, Wheel, wheel};
use wasm_bindgen::{JsCast as _, UnwrapThrowExt as _};
use web_sys::{HtmlCanvasElement, KeyboardEvent, MouseEvent, PointerEvent, WheelEvent};

use crate::canvas::Margins;

/// What receives the events of a chart's canvas.
pub struct Input {
    margins: Margins,
    pointer: Cell<Pointer>,
    /// Where the raster's upper left corner was in the window when the pointer was pressed. Asking for it on every move
    /// would make the browser lay out the page twice per frame.
    pressed_corner: Cell<Point>,
    act: Box<dyn Fn(Gesture) -> bool>,
}

impl Input {
    /// Creates the input of a chart. `act` returns true if the chart used the gesture.
    pub fn new(margins: Margins, act: Box<dyn Fn(Gesture) -> bool>) -> Self {
        Self { margins, pointer: Cell::default(), pressed_corner: Cell::default(), act }
    }

    /// Only the main button presses.
    pub fn press(&self, event: &PointerEvent) {
        if event.button() == 0 {
            let corner = self.corner(event);
            self.pressed_corner.set(corner);
            self.change(|pointer| {
                pointer.press(event.pointer_id(), seen_from(event, corner));
                None
            });
        }
    }

    /// A drag is captured, so that it continues outside of the chart.
    pub fn move_to(&self, event: &PointerEvent) {
        let id = event.pointer_id();
        let is_pressed = self.pointer.get().is_pressed(id);
        let corner = if is_pressed { self.pressed_corner.get() } else { self.corner(event) };
        self.change(|pointer| {
            let gesture = pointer.move_to(id, seen_from(event, corner));
            if matches!(gesture, Some(Gesture::Drag { .. })) {
                // An error means that the pointer is gone.
                let _gone = canvas(event).set_pointer_capture(id);
            }
            gesture
        });
    }

    /// Ends a click or a drag.
    pub fn release(&self, event: &PointerEvent) {
        let at = seen_from(event, self.pressed_corner.get());
        self.change(|pointer| pointer.release(event.pointer_id(), at));
    }

    /// The pointer is outside now.
    pub fn leave(&self) {
        self.change(Pointer::leave);
    }

    /// The browser scrolls the page with this pointer.
    pub fn cancel(&self) {
        self.change(Pointer::cancel);
    }

    /// A wheel that the chart does not use scrolls the page.
    pub fn turn(&self, event: &WheelEvent) {
        let kind = match event {
            event if event.ctrl_key() || event.meta_key() => Wheel::Zooming,
            event if event.shift_key() => Wheel::Shifted,
            _ => Wheel::Plain,
        };
        let (x, _) = seen_from(event, self.corner(event));
        if wheel(kind, x, (event.delta_x(), event.delta_y())).is_some_and(&self.act) {
            event.prevent_default();
        }
    }

    /// Both clicks have been reported before.
    pub fn click_twice(&self) {
        (self.act)(Gesture::DoubleClick);
    }

    /// A key that the chart does not use is for the page.
    pub fn type_key(&self, event: &KeyboardEvent) {
        let is_command = event.ctrl_key() || event.meta_key() || event.alt_key();
        if !is_command && (self.act)(Gesture::Key(event.key())) {
            event.prevent_default();
        }
    }

    fn change(&self, change: impl FnOnce(&mut Pointer) -> Option<Gesture>) {
        let mut pointer = self.pointer.get();
        let gesture = change(&mut pointer);
        self.pointer.set(pointer);
        if let Some(gesture) = gesture {
            (self.act)(gesture);
        }
    }

    /// Returns the raster's upper left corner in the window.
    fn corner(&self, event: &MouseEvent) -> Point {
        let bounds = canvas(event).get_bounding_client_rect();
        (bounds.left() + self.margins.left, bounds.top() + self.margins.top)
    }
}

fn canvas(event: &MouseEvent) -> HtmlCanvasElement {
    event.current_target().unwrap_throw().unchecked_into()
}

/// Returns the position of an event, seen from a point of the window.
fn seen_from(event: &MouseEvent, (left, top): Point) -> Point {
    (f64::from(event.client_x()) - left, f64::from(event.client_y()) - top)
}
