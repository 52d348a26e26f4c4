//! A chart: a raster canvas, a canvas of text and lines above it, and the gestures on both.
//!
//! The closures that draw run in effects. They run again when a signal that they read has changed: at most once per
//! animation frame for data (see [`crate::live`]) and for the pointer (browsers align its events).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use leptos::ev;
use leptos::html;
use leptos::prelude::*;
use leptos_use::{use_resize_observer, use_window_size};
use viz::raster::Frame;
use wasm_bindgen::{Clamped, JsCast as _, prelude::*};
use web_sys::{HtmlCanvasElement, ImageData};

use crate::canvas::{Margins, Size, context};
use crate::pen::Pen;
use crate::widgets::pixels;

/// The height of a usual screen, in CSS pixels. Higher screens get higher charts, up to [`TALLEST`] times.
const USUAL_HEIGHT: f64 = 900.0;
const TALLEST: f64 = 2.2;

/// The factor by which charts are higher on this screen than on a usual one.
#[derive(Clone, Copy)]
pub struct Stretch(Signal<f64>);

impl Stretch {
    /// Follows the height of the window. Call once.
    pub fn start() -> Self {
        let height = use_window_size().height;
        Self(Signal::derive(move || (height.get() / USUAL_HEIGHT).clamp(1.0, TALLEST)))
    }

    /// Returns the factor.
    pub fn get(&self) -> f64 {
        self.0.get()
    }
}

/// A gesture of the pointer or a key. Positions are CSS pixels from the raster's upper left corner.
#[derive(Clone, Debug, PartialEq)]
pub enum Gesture {
    /// The pointer moved to this position.
    Move { x: f64, y: f64 },
    /// The pointer left.
    Leave,
    /// A click without a drag.
    Click { x: f64, y: f64 },
    /// Ctrl + wheel, or a pinch.
    Zoom { x: f64, y: f64, factor: f64 },
    /// A drag from the point where the pointer was pressed to where it is now. If the chart does not use it, a [`Pan`]
    /// follows.
    ///
    /// [`Pan`]: Self::Pan
    Drag { from: (f64, f64), to: (f64, f64) },
    /// The end of a drag.
    Drop,
    /// A drag, or a sideways or shifted wheel. The view moves by this much.
    Pan { dx: f64, dy: f64 },
    /// A double click.
    DoubleClick,
    /// A key press while the chart has the focus.
    Key(String),
}

/// A closure that draws the raster. It is boxed, like the other closures, so that charts are compiled once and not once
/// per view.
pub type Draw = Box<dyn Fn(&mut Frame<'_>, Size)>;
/// A closure that draws text and lines.
pub type Overlay = Box<dyn Fn(&Pen, Size)>;
/// A closure that acts on a gesture and returns true if it used the gesture.
pub type OnGesture = Box<dyn Fn(Gesture, Size) -> bool>;

/// The distance in pixels below which a pressed pointer has clicked and not dragged.
const CLICK_PIXELS: f64 = 4.0;

/// A chart.
#[component]
pub fn Plot(
    /// The name of the chart for screen readers.
    #[prop(into)]
    label: Signal<String>,
    /// The test id.
    testid: &'static str,
    /// The height in CSS pixels.
    #[prop(into)]
    height: Signal<f64>,
    margins: Margins,
    /// Draws the raster, in device pixels.
    draw: Draw,
    /// Draws text and lines, in CSS pixels from the raster's upper left corner.
    overlay: Overlay,
    /// Returns true if the gesture was used. The browser then ignores it.
    on_gesture: OnGesture,
    /// True if the chart needs neither focus nor a screen reader, because a control next to it has the same content.
    #[prop(optional)]
    decorative: bool,
    /// A tooltip.
    #[prop(optional)]
    children: Option<Children>,
) -> impl IntoView {
    let outer = NodeRef::<html::Div>::new();
    let raster = NodeRef::<html::Canvas>::new();
    let lines = NodeRef::<html::Canvas>::new();
    let size = RwSignal::new(None::<Size>);

    use_resize_observer(outer, move |entries, _| {
        let Some(bounds) = entries.last().map(web_sys::ResizeObserverEntry::content_rect) else { return };
        let next = Size {
            width: (bounds.width() - margins.left - margins.right).max(1.0),
            height: (bounds.height() - margins.top - margins.bottom).max(1.0),
            ratio: window().device_pixel_ratio(),
        };
        if bounds.width() > 0.0 && size.get_untracked() != Some(next) {
            size.set(Some(next));
        }
    });
    let buffer = RefCell::new(Vec::new());
    Effect::new(move |_| {
        if let (Some(size), Some(canvas)) = (size.get(), raster.get()) {
            paint(&canvas, size, &mut buffer.borrow_mut(), &draw);
        }
    });
    Effect::new(move |_| {
        if let (Some(size), Some(canvas)) = (size.get(), lines.get())
            && let Some(pen) = Pen::begin(&canvas, size, margins)
        {
            overlay(&pen, size);
            pen.end();
        }
    });

    let pointer = Rc::new(Cell::new(None::<Down>));
    let on_gesture =
        Rc::new(move |gesture| size.get_untracked().is_some_and(|size| on_gesture(gesture, size)));
    let origin = move |event: &web_sys::MouseEvent| {
        let element: HtmlCanvasElement = event.current_target().unwrap_throw().unchecked_into();
        let bounds = element.get_bounding_client_rect();
        (bounds.left() + margins.left, bounds.top() + margins.top)
    };
    let at = move |event: &web_sys::MouseEvent| from_origin(event, origin(event));

    let down = {
        let pointer = pointer.clone();
        move |event: ev::PointerEvent| {
            if event.button() == 0 {
                let origin = origin(&event);
                let (x, y) = from_origin(&event, origin);
                let id = event.pointer_id();
                pointer.set(Some(Down { origin, from: (x, y), x, y, id, dragging: false }));
            }
        }
    };
    let moved = {
        let (pointer, on_gesture) = (pointer.clone(), on_gesture.clone());
        move |event: ev::PointerEvent| match pointer.get() {
            Some(down) if event.pointer_id() == down.id => {
                let (x, y) = from_origin(&event, down.origin);
                let (dx, dy) = (down.x - x, down.y - y);
                if down.dragging || dx.hypot(dy) >= CLICK_PIXELS {
                    let element: HtmlCanvasElement = event.current_target().unwrap_throw().unchecked_into();
                    let _ = element.set_pointer_capture(down.id);
                    pointer.set(Some(Down { x, y, dragging: true, ..down }));
                    if !on_gesture(Gesture::Drag { from: down.from, to: (x, y) }) {
                        on_gesture(Gesture::Pan { dx, dy });
                    }
                }
            }
            _ => {
                let (x, y) = at(&event);
                on_gesture(Gesture::Move { x, y });
            }
        }
    };
    let up = {
        let (pointer, on_gesture) = (pointer.clone(), on_gesture.clone());
        move |event: ev::PointerEvent| {
            let Some(down) = pointer.take() else { return };
            let (x, y) = from_origin(&event, down.origin);
            on_gesture(if down.dragging { Gesture::Drop } else { Gesture::Click { x, y } });
        }
    };
    let leave = {
        let (pointer, on_gesture) = (pointer.clone(), on_gesture.clone());
        move |_| {
            if !pointer.get().is_some_and(|down| down.dragging) {
                pointer.set(None);
                on_gesture(Gesture::Leave);
            }
        }
    };
    let wheel = {
        let on_gesture = on_gesture.clone();
        move |event: ev::WheelEvent| {
            let (x, y) = at(&event);
            let gesture = if event.ctrl_key() || event.meta_key() {
                Gesture::Zoom { x, y, factor: (event.delta_y() * 0.0025).exp() }
            } else if event.shift_key() && event.delta_x() == 0.0 {
                Gesture::Pan { dx: event.delta_y(), dy: 0.0 }
            } else if event.delta_x().abs() > event.delta_y().abs() {
                Gesture::Pan { dx: event.delta_x(), dy: 0.0 }
            } else {
                // A plain wheel scrolls the page.
                return;
            };
            if on_gesture(gesture) {
                event.prevent_default();
            }
        }
    };
    let twice = {
        let on_gesture = on_gesture.clone();
        move |_| {
            on_gesture(Gesture::DoubleClick);
        }
    };
    let key = move |event: ev::KeyboardEvent| {
        if !(event.ctrl_key() || event.meta_key() || event.alt_key()) && on_gesture(Gesture::Key(event.key()))
        {
            event.prevent_default();
        }
    };

    view! {
        <div class="plot" node_ref=outer style:height=move || pixels(height.get())>
            <canvas
                class="raster"
                node_ref=raster
                aria-hidden="true"
                style:left=pixels(margins.left)
                style:top=pixels(margins.top)
                style:width=format!("calc(100% - {})", pixels(margins.left + margins.right))
                style:height=format!("calc(100% - {})", pixels(margins.top + margins.bottom))
            ></canvas>
            <canvas
                class="lines"
                node_ref=lines
                role="img"
                tabindex=if decorative { "-1" } else { "0" }
                aria-hidden=decorative.then_some("true")
                data-testid=testid
                aria-label=label
                on:pointerdown=down
                on:pointermove=moved
                on:pointerup=up
                on:pointerleave=leave
                on:wheel=wheel
                on:dblclick=twice
                on:keydown=key
            ></canvas>
            {children.map(|children| children())}
        </div>
    }
    .into_any()
}

/// A pressed pointer: its last position, and whether it has dragged.
#[derive(Clone, Copy)]
struct Down {
    /// Where the raster's upper left corner was in the window. Asking for it on every move would make the browser lay out
    /// the page twice per frame.
    origin: (f64, f64),
    /// Where it was pressed.
    from: (f64, f64),
    x: f64,
    y: f64,
    id: i32,
    dragging: bool,
}

/// Returns the position of an event, seen from a point of the window.
fn from_origin(event: &web_sys::MouseEvent, (left, top): (f64, f64)) -> (f64, f64) {
    (f64::from(event.client_x()) - left, f64::from(event.client_y()) - top)
}

fn paint(
    canvas: &HtmlCanvasElement,
    size: Size,
    pixels: &mut Vec<u32>,
    draw: &impl Fn(&mut Frame<'_>, Size),
) {
    let width = ((size.width * size.ratio).round() as usize).max(1);
    let height = ((size.height * size.ratio).round() as usize).max(1);
    if canvas.width() as usize != width || canvas.height() as usize != height {
        canvas.set_width(width as u32);
        canvas.set_height(height as u32);
    }
    pixels.resize(width * height, 0);
    draw(&mut Frame::new(pixels, width, height), size);
    let Some(context) = context(canvas) else { return };
    let bytes = Clamped(bytemuck::cast_slice::<u32, u8>(pixels));
    if let Ok(image) = ImageData::new_with_u8_clamped_array_and_sh(bytes, width as u32, height as u32) {
        let _ = context.put_image_data(&image, 0.0, 0.0);
    }
}
