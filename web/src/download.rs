//! Downloads of views: the chart as PNG, its numbers as CSV.

use leptos::prelude::*;
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{Blob, BlobPropertyBag, HtmlAnchorElement, HtmlCanvasElement, Url};

use crate::canvas::context;

/// Saves a CSV text.
pub fn csv(name: &str, text: &str) {
    let options = BlobPropertyBag::new();
    options.set_type("text/csv");
    let parts = js_sys::Array::of1(&JsValue::from_str(text));
    let Ok(blob) = Blob::new_with_str_sequence_and_options(&parts, &options) else { return };
    let Ok(url) = Url::create_object_url_with_blob(&blob) else { return };
    save(name, &url);
    let _ = Url::revoke_object_url(&url);
}

/// Saves the chart with this test id: its raster and the text above it, on a background of the color `ground`.
pub fn png(name: &str, testid: &str, ground: &str) {
    let found = document().query_selector(&format!("[data-testid={testid}]")).ok().flatten();
    let Some(lines) = found.and_then(|found| found.dyn_into::<HtmlCanvasElement>().ok()) else { return };
    let raster = lines.previous_element_sibling().and_then(|e| e.dyn_into::<HtmlCanvasElement>().ok());
    let picture =
        document().create_element("canvas").ok().and_then(|e| e.dyn_into::<HtmlCanvasElement>().ok());
    let (Some(raster), Some(picture)) = (raster, picture) else { return };
    picture.set_width(lines.width());
    picture.set_height(lines.height());
    let Some(context) = context(&picture) else { return };
    context.set_fill_style_str(ground);
    context.fill_rect(0.0, 0.0, f64::from(lines.width()), f64::from(lines.height()));
    let ratio = window().device_pixel_ratio();
    let (x, y) = (f64::from(raster.offset_left()) * ratio, f64::from(raster.offset_top()) * ratio);
    let drawn = context
        .draw_image_with_html_canvas_element(&raster, x, y)
        .and_then(|()| context.draw_image_with_html_canvas_element(&lines, 0.0, 0.0));
    if drawn.is_ok()
        && let Ok(url) = picture.to_data_url()
    {
        save(name, &url);
    }
}

fn save(name: &str, url: &str) {
    let Ok(Ok(link)) = document().create_element("a").map(|a| a.dyn_into::<HtmlAnchorElement>()) else {
        return;
    };
    link.set_href(url);
    link.set_download(name);
    link.click();
}
