//! HTTP requests: everything that the server does not push.

use gloo_net::http::{Request, Response};
use serde::de::DeserializeOwned;
use wire::live::tile::{Measure, Reduce, Tile};
use wire::live::{StepColumns, StepRanks, Waterfall, view};
use wire::request::RecordingRequest;
use wire::traces::TraceSummary;
use wire::views::captures::{Capture, RankTrace, TraceComparison};
use wire::views::comparison::Comparison;
use wire::views::scaling::{Scaling, ScenarioPrediction};
use wire::views::{
    Access, ApiError, ModuleLayouts, RankBurst, RankDevice, RankStacks, RecentUsage, Report, RunSummary,
};

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

/// The rows of a request for cells.
#[derive(Clone, Debug, PartialEq)]
pub enum Ranks {
    /// All ranks from the first to the last.
    Between(u32, u32),
    /// These ranks, one row each.
    Listed(Vec<u32>),
}

/// A request for cells of the heatmap. Ranges include both ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Cells {
    /// The figure.
    pub measure: Measure,
    /// The reduction of cells.
    pub reduce: Reduce,
    /// The first and the last step.
    pub steps: (u64, u64),
    /// The rows, from top to bottom.
    pub ranks: Ranks,
    /// The largest number of columns and rows.
    pub most: (u32, u32),
}

/// Fetches a tile of the heatmap.
pub async fn tile(run: &str, cells: Cells) -> Result<Tile, String> {
    let Cells { measure, reduce, steps, ranks, most } = cells;
    let ranks = match ranks {
        Ranks::Between(first, last) => format!("rank_from={first}&rank_to={last}"),
        Ranks::Listed(ranks) => {
            format!("ranks={}", ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
        }
    };
    let url = format!(
        "/api/v1/runs/{run}/heatmap?measure={}&reduce={}&from={}&to={}&{ranks}&columns={}&rows={}",
        measure.key(),
        reduce.name(),
        steps.0,
        steps.1,
        most.0,
        most.1
    );
    let tile = Tile::decode(&get(&url).await?).map_err(|error| error.to_string())?;
    consistent(tile.is_consistent()).map(|()| tile)
}

/// Fetches the report of a run over `steps`, both ends included; over the newest steps if `None`.
pub async fn report(run: &str, steps: Option<(u64, u64)>) -> Result<Report, String> {
    shown(&report_url(run, "frame", steps)).await
}

/// Fetches the scaling of the jobs with a run's name, measured against the run `baseline`; against the usual one if
/// `None`.
pub async fn scaling(run: &str, baseline: Option<&str>) -> Result<Scaling, String> {
    let baseline = baseline.map_or_else(String::new, |run| format!("&baseline={run}"));
    shown(&format!("/api/v1/runs/{run}/scaling?form=frame{baseline}")).await
}

/// Fetches the predicted step of a run with the changes that `query` names, as [`model::what_if::query`] writes it.
pub async fn what_if(run: &str, query: &str) -> Result<ScenarioPrediction, String> {
    shown(&format!("/api/v1/runs/{run}/what-if?form=frame{query}")).await
}

/// Fetches the comparison of two runs.
pub async fn comparison(a: &str, b: &str) -> Result<Comparison, String> {
    shown(&format!("/api/v1/compare?a={a}&b={b}&form=frame")).await
}

/// Returns the URL that downloads steps of a run. `steps` includes both ends; `None` means the newest steps.
pub fn export_url(run: &str, format: &str, steps: Option<(u64, u64)>) -> String {
    format!("/api/v1/runs/{run}/export?format={format}{}", steps_parameter(steps))
}

/// Returns the URL that downloads the report over `steps` as a file.
pub fn report_url(run: &str, form: &str, steps: Option<(u64, u64)>) -> String {
    format!("/api/v1/runs/{run}?form={form}{}", steps_parameter(steps))
}

fn steps_parameter(steps: Option<(u64, u64)>) -> String {
    steps.map_or_else(String::new, |(first, last)| format!("&steps={first}..{last}"))
}

async fn shown<T: DeserializeOwned>(url: &str) -> Result<T, String> {
    view::decode(&get(url).await?).map_err(|error| error.to_string())
}

/// Fetches the list of runs.
pub async fn runs() -> Result<Vec<RunSummary>, String> {
    json(Request::get("/api/v1/runs").send().await).await
}

/// Fetches the newest sample of each rank's device.
pub async fn devices(run: &str) -> Result<Vec<RankDevice>, String> {
    json(Request::get(&format!("/api/v1/runs/{run}/devices")).send().await).await
}

/// Fetches every measure of devices and hosts over the last minute.
pub async fn usage(run: &str) -> Result<Vec<RecentUsage>, String> {
    json(Request::get(&format!("/api/v1/runs/{run}/usage")).send().await).await
}

/// Fetches the newest burst of each rank.
pub async fn bursts(run: &str) -> Result<Vec<RankBurst>, String> {
    json(Request::get(&format!("/api/v1/runs/{run}/bursts")).send().await).await
}

/// Asks all ranks for a burst of one second.
pub async fn ask_for_bursts(run: &str) -> Result<RecordingRequest, String> {
    json(Request::post(&format!("/api/v1/runs/{run}/bursts?millis=1000")).send().await).await
}

fn consistent(is: bool) -> Result<(), String> {
    if is { Ok(()) } else { Err("the server sent inconsistent columns".into()) }
}

async fn get(url: &str) -> Result<Vec<u8>, String> {
    let response = answered(Request::get(url).send().await).await?;
    response.binary().await.map_err(|_| NO_ANSWER.to_owned())
}

/// Fetches the newest stacks of each rank.
pub async fn stacks(run: &str) -> Result<Vec<RankStacks>, String> {
    json(Request::get(&format!("/api/v1/runs/{run}/stacks")).send().await).await
}

/// Fetches the layouts of each module's buckets.
pub async fn layouts(run: &str) -> Result<Vec<ModuleLayouts>, String> {
    json(Request::get(&format!("/api/v1/runs/{run}/layouts")).send().await).await
}

pub async fn ask_for_stacks(run: &str, rank: u32) -> Result<RecordingRequest, String> {
    json(Request::post(&format!("/api/v1/runs/{run}/stacks?rank={rank}")).send().await).await
}

/// Fetches the captures of a run, newest first.
pub async fn captures(run: &str) -> Result<Vec<Capture>, String> {
    json(Request::get(&format!("/api/v1/runs/{run}/captures")).send().await).await
}

/// Fetches what differs between the traces of a capture.
pub async fn trace_comparison(run: &str, capture: u64) -> Result<TraceComparison, String> {
    json(Request::get(&format!("/api/v1/runs/{run}/captures/{capture}/comparison")).send().await).await
}

/// Fetches what ran on a rank of an imported run.
pub async fn traced(run: &str, rank: u32) -> Result<TraceSummary, String> {
    let found: Vec<RankTrace> =
        json(Request::get(&format!("/api/v1/runs/{run}/traced?rank={rank}")).send().await).await?;
    found
        .into_iter()
        .next()
        .map(|trace| trace.summary)
        .ok_or_else(|| format!("There is no trace of rank {rank}."))
}

/// Fetches what differs between two ranks of an imported run.
pub async fn compared_ranks(run: &str, rank: u32, other: u32) -> Result<TraceComparison, String> {
    let query = format!("rank={rank}&against={other}");
    json(Request::get(&format!("/api/v1/runs/{run}/traced/comparison?{query}")).send().await).await
}

/// Asks ranks for a trace of some steps; without ranks, those that the server chooses.
pub async fn ask_for_traces(run: &str, ranks: &[u32]) -> Result<Capture, String> {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let query = if ranks.is_empty() { String::new() } else { format!("?ranks={}", ranks.join(",")) };
    json(Request::post(&format!("/api/v1/runs/{run}/captures{query}")).send().await).await
}

/// The status of an answer to a page that is not signed in.
const UNAUTHORIZED: u16 = 401;

/// Asks how this page has access; `None` if it has none.
pub async fn access() -> Result<Option<Access>, String> {
    let response = Request::get("/api/v1/access").send().await;
    match &response {
        Ok(response) if response.status() == UNAUTHORIZED => Ok(None),
        _ => json(response).await.map(Some),
    }
}

/// Ends the session of this page.
pub async fn sign_out() -> Result<(), String> {
    answered(Request::post("/api/v1/sign-out").send().await).await.map(drop)
}

async fn json<T: DeserializeOwned>(response: Result<Response, gloo_net::Error>) -> Result<T, String> {
    answered(response).await?.json().await.map_err(|error| error.to_string())
}

const NO_ANSWER: &str = "the server does not answer";

/// Returns the response; the server's error if it has one.
async fn answered(response: Result<Response, gloo_net::Error>) -> Result<Response, String> {
    let response = response.map_err(|_| NO_ANSWER.to_owned())?;
    if response.ok() {
        return Ok(response);
    }
    let error = response.json::<ApiError>().await.map(|error| error.error);
    Err(error.unwrap_or_else(|_| format!("the server answered {}", response.status())))
}
