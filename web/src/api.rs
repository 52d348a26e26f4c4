//! What is asked for by HTTP: everything that is not pushed.

use leptos::prelude::window;
use wasm_bindgen::JsCast as _;
use wasm_bindgen_futures::JsFuture;
use wire::live::Waterfall;
use wire::views::ApiError;

/// The waterfall of one step, or why there is none.
pub async fn waterfall(run: &str, step: Option<u64>) -> Result<Waterfall, String> {
    let step = step.map_or_else(|| "latest".into(), |step| step.to_string());
    let bytes = get(&format!("/api/v1/runs/{run}/steps/{step}/waterfall")).await?;
    let waterfall = Waterfall::decode(&bytes).map_err(|error| error.to_string())?;
    if waterfall.is_consistent() { Ok(waterfall) } else { Err("the server sent a broken waterfall".into()) }
}

/// Where the trace of a run, or of one of its steps, is downloaded.
pub fn perfetto_url(run: &str, step: Option<u64>) -> String {
    let steps = step.map_or_else(String::new, |step| format!("&steps={step}..{}", step + 1));
    format!("/api/v1/runs/{run}/export?format=perfetto{steps}")
}

async fn get(url: &str) -> Result<Vec<u8>, String> {
    let no_answer = |_| "the server does not answer".to_owned();
    let response: web_sys::Response = JsFuture::from(window().fetch_with_str(url))
        .await
        .map_err(no_answer)?
        .dyn_into()
        .map_err(|_| "fetch gave no response".to_owned())?;
    let body = JsFuture::from(response.array_buffer().map_err(no_answer)?).await.map_err(no_answer)?;
    let bytes = js_sys::Uint8Array::new(&body).to_vec();
    if response.ok() {
        return Ok(bytes);
    }
    Err(match serde_json::from_slice::<ApiError>(&bytes) {
        Ok(error) => error.error,
        Err(_) => format!("the server answered {}", response.status()),
    })
}
