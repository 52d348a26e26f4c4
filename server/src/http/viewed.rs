//! Tells the hub which runs are viewed.

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use wire::ids::RunId;

use super::App;

/// Reports that the run in the request's path is viewed. Does nothing for other paths.
pub async fn tell(
    State(app): State<App>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let run = parameters.ok().and_then(|all| {
        let (_, run) = all.iter().find(|(name, _)| *name == "run")?;
        RunId::new(run).ok()
    });
    run.into_iter().for_each(|run| app.hub.view(run));
    next.run(request).await
}
