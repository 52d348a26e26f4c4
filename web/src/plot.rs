//! A chart: a raster canvas, a canvas of text and lines above it, and the gestures on both. It does not know what it shows.
//!
//! The closures that draw run in effects. They run again when a signal that they read has changed: at most once per
//! animation frame for data (see [`crate::live`]) and for the pointer (browsers align its events).

mod input;

use std::cell::RefCell;

use leptos::html;
use leptos::prelude::*;
use leptos_use::{use_resize_observer, use_window_size};
use model::pointer::Gesture;
use viz::raster::Frame;
use wasm_bindgen::Clamped;
use web_sys::{HtmlCanvasElement, ImageData};

use self::input::Input;
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

/// A closure that draws the raster. It is boxed, like the other closures, so that charts are compiled once and not once
/// per view.
pub type Draw = Box<dyn Fn(&mut Frame<'_>, Size)>;
/// A closure that draws text and lines.
pub type Overlay = Box<dyn Fn(&Pen, Size)>;
/// A closure that acts on a gesture and returns true if it used the gesture.
pub type OnGesture = Box<dyn Fn(Gesture, Size) -> bool>;

#[component]
pub fn Plot(
    /// The name of the chart for screen readers.
    #[prop(into)]
    label: Signal<String>,
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
    let size = followed_size(outer, margins);
    draw_raster(raster, size, draw);
    draw_lines(lines, size, margins, overlay);
    let act = move |gesture| size.get_untracked().is_some_and(|size| on_gesture(gesture, size));
    let input = StoredValue::new_local(Input::new(margins, Box::new(act)));
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
                on:pointerdown=move |event| input.with_value(|input| input.press(&event))
                on:pointermove=move |event| input.with_value(|input| input.move_to(&event))
                on:pointerup=move |event| input.with_value(|input| input.release(&event))
                on:pointerleave=move |_| input.with_value(Input::leave)
                on:pointercancel=move |_| input.with_value(Input::cancel)
                on:wheel=move |event| input.with_value(|input| input.turn(&event))
                on:dblclick=move |_| input.with_value(Input::click_twice)
                on:keydown=move |event| input.with_value(|input| input.type_key(&event))
            ></canvas>
            {children.map(|children| children())}
        </div>
    }
    .into_any()
}

/// Returns the size of the raster in an element; `None` while the element has none.
fn followed_size(outer: NodeRef<html::Div>, margins: Margins) -> RwSignal<Option<Size>> {
    let size = RwSignal::new(None);
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
    size
}

fn draw_raster(canvas: NodeRef<html::Canvas>, size: RwSignal<Option<Size>>, draw: Draw) {
    let buffer = RefCell::new(Vec::new());
    Effect::new(move |_| {
        if let (Some(size), Some(canvas)) = (size.get(), canvas.get()) {
            paint(&canvas, size, &mut buffer.borrow_mut(), &draw);
        }
    });
}

fn draw_lines(
    canvas: NodeRef<html::Canvas>,
    size: RwSignal<Option<Size>>,
    margins: Margins,
    overlay: Overlay,
) {
    Effect::new(move |_| {
        if let (Some(size), Some(canvas)) = (size.get(), canvas.get())
            && let Some(pen) = Pen::begin(&canvas, size, margins)
        {
            overlay(&pen, size);
            pen.end();
        }
    });
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
