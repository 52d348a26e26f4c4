//! Export of steps as a file.

use std::io::{self, ErrorKind, Write};
use std::time::Instant;

use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::Semaphore;
use utoipa::IntoParams;
use wire::ids::Step;
use wire::usage::Usage;
use wire::views::{ApiError, RunSummary};

use super::App;
use super::api::{find, has_rank};
use super::error::Failure;
use super::usage::usage_of;
use crate::export::{self, Format, Refusal, Writer};
use crate::state::budget;
use crate::state::query::RunQuery;
use crate::state::recall::older::{Older, PlacedSteps};
use crate::state::recall::stored::{Limits, NotRead};
use crate::state::run::usage::MeasureHistory;
use crate::state::steps::placed::Placed;

/// The largest number of steps in an answer. Answers are built in memory. `paceline export` has no such limit.
const MAX_STEPS: u64 = 5_000;
/// The largest size of an answer, in bytes.
const MAX_BYTES: usize = 256 << 20;
/// The largest number of (step, rank) cells that the hub is asked for at once. They take it a few milliseconds.
const CELLS_AT_ONCE: usize = 512;

/// The steps to export, and the format.
#[derive(Debug, Deserialize, IntoParams)]
pub struct ExportQuery {
    /// `perfetto` (the default), `chrome`, `parquet` or `csv`. `paceline export --help` describes their content.
    format: Option<String>,
    /// `A..B`, both ends included. Default: the newest 50 steps.
    steps: Option<String>,
    /// The rank to export. Default: all ranks. HolisticTraceAnalysis needs one chrome trace per rank.
    rank: Option<u32>,
}

/// Exports steps as a file: at most 5,000 steps and 256 MiB. Steps that have left memory are read from disk. `paceline
/// export` has no such limits.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run}/export",
    params(("run" = String, Path), ExportQuery),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 400, body = ApiError),
        (status = 404, body = ApiError),
        (status = 413, body = ApiError),
        (status = 503, body = ApiError)
    )
)]
pub async fn export(
    State(app): State<App>,
    Path(run): Path<String>,
    Query(query): Query<ExportQuery>,
) -> Result<Response, Failure> {
    let summary = find(&app, &run)?.summary.clone();
    let format = query.format.as_deref().map_or(Ok(Format::Perfetto), str::parse).map_err(refuse)?;
    query.rank.map_or(Ok(()), |rank| has_rank(&summary, rank))?;
    let (first, last) = export::range(query.steps.as_deref(), &summary).map_err(refuse)?;
    if last.0 - first.0 >= MAX_STEPS {
        let steps = (last.0 - first.0).saturating_add(1);
        return Err(Failure::TooLarge(format!(
            "{steps} steps are too many: export at most {MAX_STEPS}, or use `paceline export`, which has no limit"
        )));
    }
    let turn = app.turns.wait().await?;
    let bytes = write(&app, &summary, format, (first, last), query.rank).await?;
    let suffix = query.rank.map_or_else(String::new, |rank| format!("-rank-{rank}"));
    let name = format!("{}-{first}-{last}{suffix}.{}", summary.run, format.extension());
    let headers = [
        (header::CONTENT_TYPE, format.media_type().to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    Ok((headers, turn.body(bytes)).into_response())
}

fn refuse(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Format(_) | Refusal::Steps(_) => Failure::BadRequest(refusal.to_string()),
        Refusal::NoSteps(_) | Refusal::NothingThere { .. } => Failure::NotFound(refusal.to_string()),
    }
}

/// Writes the file. The hub is asked for a few steps at a time, because live views wait for it too. Steps that have
/// left memory are read all at once.
async fn write(
    app: &App,
    summary: &RunSummary,
    format: Format,
    (first, last): (Step, Step),
    rank: Option<u32>,
) -> Result<Vec<u8>, Failure> {
    let mut file = File { format, summary: summary.clone(), rank, writer: None };
    let at_once = (CELLS_AT_ONCE / summary.most_ranks.max(1) as usize).max(1);
    // The range may extend beyond the newest step.
    let end = last.0.min(summary.last_step.unwrap_or(0));
    let mut next_step = first.0;
    while next_step <= end {
        let (first, last) = (Step(next_step), Step(end));
        let query = |reply| RunQuery::PlacedBetween { first, last, most: at_once, reply };
        let PlacedSteps { placed, older } = app.hub.query(summary.run.clone(), query).await?;
        let done = match (&older, placed.last()) {
            (Some(older), _) => older.steps.last.0,
            (None, Some(placed)) => placed.records.step.0,
            (None, None) => break,
        };
        file = match older {
            Some(older) => from_disk(file, older).await?,
            None => blocking(move || file.add(&placed)).await?,
        };
        next_step = done + 1;
    }
    let missing = || {
        let newest = summary.last_step.unwrap_or(0);
        Failure::NotFound(
            Refusal::NothingThere { run: summary.run.to_string(), first, last, newest }.to_string(),
        )
    };
    for usage in Usage::ALL.into_iter().filter(|_| format.has_measures()) {
        let ranks = usage_of(app, summary.run.as_str(), usage).await?;
        file = blocking(move || file.add_measure(usage, &ranks)).await?;
    }
    Ok(file.writer.ok_or_else(missing)?.finish().map_err(failed)?.0)
}

/// A file to export, begun when its first step is added.
struct File {
    format: Format,
    summary: RunSummary,
    rank: Option<u32>,
    writer: Option<Writer<Bounded>>,
}

impl File {
    fn add(mut self, placed: &[Placed]) -> Result<Self, Failure> {
        placed.iter().try_for_each(|placed| self.add_step(placed))?;
        Ok(self)
    }

    fn add_measure(mut self, usage: Usage, ranks: &[MeasureHistory]) -> Result<Self, Failure> {
        if let Some(writer) = &mut self.writer {
            writer.measure(usage, ranks).map_err(failed)?;
        }
        Ok(self)
    }

    fn add_step(&mut self, placed: &Placed) -> Result<(), Failure> {
        let step = placed.waterfall();
        if step.rank.is_empty() {
            return Ok(());
        }
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                Writer::begin(self.format, Bounded::default(), &self.summary, self.rank).map_err(failed)?
            }
        };
        writer.step(&step).map_err(failed)?;
        self.writer = Some(writer);
        Ok(())
    }
}

/// The permit to read from disk. One export reads at a time, because each may take as much memory as the largest step.
static READING: Semaphore = Semaphore::const_new(1);

async fn from_disk(mut file: File, older: Older) -> Result<File, Failure> {
    let _turn = READING.acquire().await.map_err(|closed| Failure::Server(closed.to_string()))?;
    let read = move || {
        let limits = Limits { bytes: budget::RECALL_BYTES, deadline: Instant::now() + budget::RECALL_WITHIN };
        older.visit(&limits, |placed| file.add_step(placed))?;
        Ok(file)
    };
    blocking(read).await
}

/// Runs `work` on a thread that may block.
async fn blocking(work: impl FnOnce() -> Result<File, Failure> + Send + 'static) -> Result<File, Failure> {
    tokio::task::spawn_blocking(work).await?
}

impl From<NotRead> for Failure {
    fn from(error: NotRead) -> Self {
        let instead = format!("{error}: export fewer steps, or use `paceline export`");
        match error {
            NotRead::TooLarge { .. } | NotRead::TooLong { .. } => Self::TooLarge(instead),
            NotRead::Store(error) => Self::Server(error.to_string()),
        }
    }
}

fn failed(error: io::Error) -> Failure {
    match error.kind() {
        ErrorKind::FileTooLarge => Failure::TooLarge(error.to_string()),
        _ => Failure::Server(error.to_string()),
    }
}

/// An answer that cannot grow beyond [`MAX_BYTES`].
#[derive(Default)]
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_BYTES {
            let sentence =
                format!("the export exceeds {} MiB: export fewer steps, or one rank", MAX_BYTES >> 20);
            return Err(io::Error::new(ErrorKind::FileTooLarge, sentence));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
