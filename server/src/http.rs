//! The HTTP server: routes, guards and limits.

mod access;
pub mod answer;
pub mod api;
pub mod assets;
mod captures;
pub mod compare;
pub mod connections;
pub mod detail;
pub mod devices;
pub mod error;
pub mod export;
pub mod guard;
pub mod imports;
pub mod ingest;
pub mod large;
mod layouts;
pub mod live;
mod pace;
pub mod recording;
mod report;
pub mod scaling;
mod sentences;
mod stacks;
mod traced;
mod usage;
mod viewed;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware;
use axum::routing::get;
use tokio::sync::watch;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::captures::Capturing;
use crate::clock::ServerClock;
use crate::imports::places::Places;
use crate::ingest::Intake;
use crate::metrics::Metrics;
use crate::state::hub::Hub;
use crate::store::log::Log;
use crate::vitals::Vitals;
use guard::Guard;

/// The largest body of a request other than a batch, in bytes.
const MAX_BODY_BYTES: usize = 64 << 10;
/// The time limit for answering a request. It does not apply to the live stream.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The content security policy: the dashboard may load scripts and styles from this server only, and connect to this
/// server only. Frames are allowed because a form's answer is loaded into one.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; \
    style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; base-uri 'none'; \
    form-action 'self'; frame-src 'self'; frame-ancestors 'none'";

/// The state that all handlers share.
#[derive(Clone)]
pub struct App {
    /// The task that owns all runs.
    pub hub: Hub,
    /// The append log.
    pub log: Log,
    /// What asks for captures and receives their traces.
    pub captures: Capturing,
    /// The dashboard.
    pub page: assets::Page,
    /// Prometheus metrics, shared: the state is cloned for every request.
    pub metrics: Arc<Metrics>,
    /// The server's clock.
    pub clock: ServerClock,
    /// The rules that decide which requests are accepted.
    pub guard: Arc<Guard>,
    /// The record of failed threads and tasks.
    pub vitals: Vitals,
    /// Where batches enter.
    pub intake: Intake,
    /// The turns of answers of many megabytes.
    pub turns: large::Turns,
    pub imports: Places,
    /// The places for live streams.
    pub streams: live::Streams,
    /// Becomes true when the server stops, which ends live streams.
    pub stopping: watch::Receiver<bool>,
}

/// The title and description of the OpenAPI document.
#[derive(OpenApi)]
#[openapi(info(
    title = "Paceline",
    description = "Observability for data-parallel training. Times are in nanoseconds unless a name says otherwise. \
                   A figure that cannot be computed is null, and `missing` gives the reason."
))]
struct ApiDocument;

/// Returns all routes with their guards and limits.
pub fn router(app: App) -> Router {
    let (api_routes, document) = OpenApiRouter::with_openapi(ApiDocument::openapi())
        .routes(routes!(api::runs))
        .routes(routes!(report::report))
        .routes(routes!(api::summary))
        .routes(routes!(detail::steps))
        .routes(routes!(detail::step_ranks))
        .routes(routes!(detail::heatmap))
        .routes(routes!(api::waterfall))
        .routes(routes!(devices::devices))
        .routes(routes!(usage::usage))
        .routes(routes!(devices::ask, devices::bursts))
        .routes(routes!(stacks::ask, stacks::stacks))
        .routes(routes!(layouts::layouts))
        .routes(routes!(traced::traced))
        .routes(routes!(traced::traced_comparison))
        .routes(routes!(captures::ask, captures::captures))
        .routes(routes!(captures::trace))
        .routes(routes!(captures::comparison))
        .routes(routes!(captures::refuse))
        .routes(routes!(scaling::scaling))
        .routes(routes!(scaling::what_if))
        .routes(routes!(compare::comparison))
        .routes(routes!(export::export))
        .routes(routes!(api::clock))
        .routes(routes!(access::access))
        .routes(routes!(access::sign_out))
        .split_for_parts();
    let ingest = OpenApiRouter::with_openapi(document)
        .routes(routes!(ingest::ingest))
        .layer(DefaultBodyLimit::max(wire::batch::MAX_WIRE_BYTES));
    let (ingest_routes, document) = ingest.split_for_parts();
    // Traces may take longer than any other request. The handlers have limits of their own.
    let uploads = OpenApiRouter::with_openapi(document)
        .routes(routes!(captures::upload))
        .routes(routes!(imports::import));
    let (upload_routes, document) = uploads.split_for_parts();
    let document = Arc::new(document);
    let openapi = get(move || {
        let document = document.clone();
        async move { axum::Json((*document).clone()) }
    });
    let requests = api_routes
        .layer(middleware::from_fn_with_state(app.clone(), viewed::tell))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .merge(ingest_routes)
        .route("/api/v1/openapi.json", openapi)
        .route("/metrics", get(api::metrics))
        .route("/healthz", get(api::healthz))
        .route("/readyz", get(api::readyz))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, ANSWER_WITHIN));
    requests
        .merge(upload_routes)
        .route("/api/v1/live", get(live::live))
        .fallback(assets::asset)
        .layer(middleware::from_fn_with_state(app.clone(), guard::check))
        .layer(middleware::from_fn(sentences::write))
        .layer(header_layer(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY))
        .layer(header_layer(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        // Other servers receive no referrer. This server receives the requesting page ([`guard`]).
        .layer(header_layer(header::REFERRER_POLICY, "same-origin"))
        .with_state(app)
}

fn header_layer(name: HeaderName, value: &'static str) -> SetResponseHeaderLayer<HeaderValue> {
    SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value))
}
