//! The routes of a server without a socket, with a directory and runs that the test chooses.

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use paceline::captures::Capturing;
use paceline::clock::ServerClock;
use paceline::http::App;
use paceline::http::guard::Guard;
use paceline::ingest::Intake;
use paceline::metrics::Metrics;
use paceline::state::collection::Collection;
use paceline::state::hub::Hub;
use paceline::store::directory::Layout;
use paceline::store::log::Log;
use paceline::store::log::writer::Writer;
use paceline::store::sealer::Sealer;
use paceline::vitals::Vitals;

/// Returns the request that sends a batch, or what pretends to be one.
///
/// # Panics
/// Never: the request is valid.
pub fn post(frame: Vec<u8>) -> Request<Body> {
    let request = Request::post("/api/v1/ingest").header("host", "localhost").body(Body::from(frame));
    request.expect("the request is valid")
}

/// Builds the state that all handlers share. Runs that are no longer in memory are read from `layout`; without a
/// layout, they are not found.
///
/// # Errors
/// Returns an error if a thread cannot be started.
pub fn app(data: &Path, runs: Collection, layout: Option<Layout>) -> anyhow::Result<App> {
    let (metrics, clock) = (Arc::new(Metrics::new()), ServerClock::start());
    let vitals = Vitals::default();
    let (sealer, _thread) = Sealer::start(Layout::new(data), &vitals)?;
    let log = Log::start(Writer::new(Layout::new(data)), metrics.server.clone(), sealer, &vitals)?;
    let hub = Hub::start(runs, clock, metrics.clone(), &vitals, log.clone(), layout);
    let intake = Intake::new(hub.clone(), metrics.server.clone(), clock);
    let captures = Capturing::new(hub.clone(), Layout::new(data), clock);
    let guard = Arc::new(Guard { loopback_only: true, ..Guard::default() });
    let stopping = tokio::sync::watch::channel(false).1;
    let (turns, imports, streams) = Default::default();
    Ok(App {
        hub,
        log,
        captures,
        page: &[],
        metrics,
        clock,
        guard,
        vitals,
        intake,
        turns,
        imports,
        streams,
        stopping,
    })
}
