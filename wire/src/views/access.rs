//! How a client has access to the server, and who tried to have it.

use serde::{Deserialize, Serialize};

/// How this client has access, and which requests had none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Access {
    /// Whether the client has a session, which it can end. Programs that send the token have none.
    pub signed_in: bool,
    /// The requests without the right token.
    pub unauthorized: UnauthorizedRequests,
}

/// The requests without the right token in the last hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnauthorizedRequests {
    /// The number of requests without a token.
    pub no_token: u64,
    /// The number of requests with another token than the server's.
    pub wrong_token: u64,
    /// The address that sent the newest one; that of the proxy if there is one.
    pub newest_peer: Option<String>,
}
