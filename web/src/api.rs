//! HTTP requests: everything that the server does not push.

use leptos::prelude::window;
use serde::de::DeserializeOwned;
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;
use wire::live::tile::{Measure, Reduce, Tile};
use wire::live::{StepColumns, StepRanks, Waterfall, view};
use wire::views::Report;
use wire::views::comparison::Comparison;
use wire::views::scaling::Scaling;

/// Fetches the waterfall of one step; of the newest if `step` is `None`.
pub async fn waterfall(run: &str, step: Option<u64>) -> Result<Waterfall, String> {
    let step = step.map_or_else(|| "latest".into(), |step| step.to_string());
    let bytes = get(&format!("/api/v1/runs/{run}/steps/{step}/waterfall")).await?;
    let waterfall = Waterfall::decode(&bytes).map_err(|error| error.to_string())?;
    consistent(waterfall.is_consistent()).map(|()| waterfall)
}

/// Fetches one step, rank by rank.
pub async fn step_ranks(run: &str, step: u64) -> Result<StepRanks, String> {
    let bytes = get(&format!("/api/v1/runs/{run}/steps/{step}/ranks")).await?;
    let ranks = StepRanks::decode(&bytes).map_err(|error| error.to_string())?;
    consistent(ranks.is_consistent()).map(|()| ranks)
}

/// Fetches all stored steps, each summarized over all ranks.
pub async fn steps(run: &str) -> Result<StepColumns, String> {
    let bytes = get(&format!("/api/v1/runs/{run}/steps")).await?;
    StepColumns::decode(&bytes).map_err(|error| error.to_string())
}

/// A request for cells of the heatmap. Ranges include both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cells {
    /// The figure.
    pub measure: Measure,
    /// The reduction of cells.
    pub reduce: Reduce,
    /// The first and the last step.
    pub steps: (u64, u64),
    /// The first and the last rank.
    pub ranks: (u32, u32),
    /// The largest number of columns and rows.
    pub most: (u32, u32),
}

/// Fetches a tile of the heatmap.
pub async fn tile(run: &str, cells: Cells) -> Result<Tile, String> {
    let Cells { measure, reduce, steps, ranks, most } = cells;
    let url = format!(
        "/api/v1/runs/{run}/heatmap?measure={}&reduce={}&from={}&to={}&rank_from={}&rank_to={}&columns={}&rows={}",
        measure.key(),
        reduce.name(),
        steps.0,
        steps.1,
        ranks.0,
        ranks.1,
        most.0,
        most.1
    );
    let tile = Tile::decode(&get(&url).await?).map_err(|error| error.to_string())?;
    consistent(tile.is_consistent()).map(|()| tile)
}

/// Fetches the report of a run: the current one, or the one from when the step `at` was the newest.
pub async fn report(run: &str, at: Option<u64>) -> Result<Report, String> {
    shown(&report_url(run, "frame", at)).await
}

/// Fetches the scaling of the jobs with a run's name.
pub async fn scaling(run: &str) -> Result<Scaling, String> {
    shown(&format!("/api/v1/runs/{run}/scaling?form=frame")).await
}

/// Fetches the comparison of two runs.
pub async fn comparison(a: &str, b: &str) -> Result<Comparison, String> {
    shown(&format!("/api/v1/compare?a={a}&b={b}&form=frame")).await
}

/// Returns the URL that downloads steps of a run. `steps` includes both ends; `None` means the newest steps.
pub fn export_url(run: &str, format: &str, steps: Option<(u64, u64)>) -> String {
    let steps = steps.map_or_else(String::new, |(first, last)| format!("&steps={first}..{last}"));
    format!("/api/v1/runs/{run}/export?format={format}{steps}")
}

/// Returns the URL that downloads the report as a file.
pub fn report_url(run: &str, form: &str, at: Option<u64>) -> String {
    let at = at.map_or_else(String::new, |at| format!("&at={at}"));
    format!("/api/v1/runs/{run}?form={form}{at}")
}

async fn shown<T: DeserializeOwned>(url: &str) -> Result<T, String> {
    view::decode(&get(url).await?).map_err(|error| error.to_string())
}

/// Returns the URL of a part of a run's page that the server renders.
pub fn part_url(run: &str, part: &str, at: Option<u64>) -> String {
    let at = at.map_or_else(String::new, |at| format!("?at={at}"));
    format!("/parts/runs/{run}/{part}{at}")
}

/// Fetches markup that the server renders, for [`crate::html`].
pub async fn markup(url: &str) -> Result<String, String> {
    let bytes = get(url).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn consistent(is: bool) -> Result<(), String> {
    if is { Ok(()) } else { Err("the server sent inconsistent columns".into()) }
}

async fn get(url: &str) -> Result<Vec<u8>, String> {
    let no_answer = |_| "the server does not answer".to_owned();
    let response: web_sys::Response = JsFuture::from(window().fetch_with_str(url))
        .await
        .map_err(no_answer)?
        .dyn_into()
        .map_err(|_| "fetch returned no response".to_owned())?;
    let body = JsFuture::from(response.array_buffer().map_err(no_answer)?).await.map_err(no_answer)?;
    let bytes = js_sys::Uint8Array::new(&body).to_vec();
    if response.ok() {
        return Ok(bytes);
    }
    // Error messages are the only JSON that the dashboard reads. The browser's own parser reads them.
    let text = String::from_utf8_lossy(&bytes);
    let said = js_sys::JSON::parse(&text)
        .and_then(|error| js_sys::Reflect::get(&error, &JsValue::from_str("error")))
        .ok()
        .and_then(|error| error.as_string());
    Err(said.unwrap_or_else(|| format!("the server answered {}", response.status())))
}
