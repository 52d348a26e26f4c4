//! A server's routes without a socket, on a directory and with runs of the test's choice.

use std::path::Path;
use std::sync::Arc;

use paceline::clock::ServerClock;
use paceline::http::App;
use paceline::http::guard::Guard;
use paceline::metrics::Metrics;
use paceline::state::collection::Collection;
use paceline::state::hub::Hub;
use paceline::store::directory::Layout;
use paceline::store::log::Log;
use paceline::store::log::writer::Writer;
use paceline::store::sealer::Sealer;
use paceline::vitals::Vitals;

/// What handlers share. What has left memory is read from `layout`; without one, nothing is.
///
/// # Errors
/// When a thread cannot be started.
pub fn app(data: &Path, runs: Collection, layout: Option<Layout>) -> anyhow::Result<App> {
    let (metrics, clock) = (Metrics::new(), ServerClock::start());
    let vitals = Vitals::default();
    let (sealer, _thread) = Sealer::start(Layout::new(data), &vitals)?;
    let log = Log::start(Writer::new(Layout::new(data)), metrics.server.clone(), sealer, &vitals)?;
    let hub = Hub::start(runs, clock, metrics.clone(), &vitals, layout);
    let guard = Arc::new(Guard { loopback_only: true, ..Guard::default() });
    let stopping = tokio::sync::watch::channel(false).1;
    Ok(App { hub, log, metrics, clock, guard, vitals, room: Default::default(), stopping })
}
