//! How a client has access: what the page shows of it, and the end of its session.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse};
use wire::views::Access;

use super::App;

/// Says whether this client has a session that it can end, and which requests of the last hour lacked the token.
#[utoipa::path(get, path = "/api/v1/access", responses((status = 200, body = Access)))]
pub async fn access(State(app): State<App>, headers: HeaderMap) -> Json<Access> {
    let unauthorized = app.guard.unauthorized.last_hour(Instant::now());
    Json(Access { signed_in: app.guard.is_signed_in(&headers), unauthorized })
}

/// Ends the session of this client. Its cookie is of no more use, and the browser forgets it.
#[utoipa::path(
    post,
    path = "/api/v1/sign-out",
    responses((status = 204, description = "The client has no session any more."))
)]
pub async fn sign_out(State(app): State<App>, headers: HeaderMap) -> impl IntoResponse {
    (StatusCode::NO_CONTENT, AppendHeaders([(header::SET_COOKIE, app.guard.sign_out(&headers))]))
}
