//! How this page has access to the server: its session, and requests of others that lack the token.

use leptos::prelude::*;
use leptos::task::spawn_local;
use wire::views::{Access as Answer, UnauthorizedRequests};

use crate::api;
use crate::live::Live;
use crate::route::Address;
use crate::socket::Link;

/// The interval at which a page without a connection asks whether it is still signed in, in milliseconds.
const ASK_EVERY_MILLIS: f64 = 5_000.0;

/// The access of this page.
#[derive(Clone, Copy)]
pub struct Access {
    /// Whether the page has a session that it can end.
    pub signed_in: RwSignal<bool>,
    /// Whether the server refuses this page until a person signs in.
    pub is_refused: RwSignal<bool>,
    /// The requests of the last hour that lack the token.
    pub unauthorized: RwSignal<UnauthorizedRequests>,
}

impl Access {
    /// Creates the access of a page that has not asked yet.
    pub fn new() -> Self {
        Self {
            signed_in: RwSignal::new(false),
            is_refused: RwSignal::new(false),
            unauthorized: RwSignal::default(),
        }
    }

    /// Asks the server whenever the page connects or shows another view, and now and then while it cannot connect: a
    /// server that was restarted knows no session. Call once.
    pub fn follow(self, live: Live, address: Address) {
        let turn = Memo::new(move |_| match live.link.get() {
            Link::Lost(since) => ((live.now.get() - since) / ASK_EVERY_MILLIS) as i64,
            _ => -1,
        });
        Effect::new(move |_| {
            address.path.track();
            let (connected, turn) = (live.connected.get(), turn.get());
            // Before the page has connected, or just after it lost the connection, there is nothing to ask.
            if turn > 0 || (turn < 0 && connected > 0) {
                spawn_local(async move { self.apply(api::access().await) });
            }
        });
    }

    /// Takes over an answer; `None` if the server refuses this page. Without an answer, what is known stays.
    fn apply(self, answer: Result<Option<Answer>, String>) {
        let Ok(answer) = answer else { return };
        self.is_refused.set(answer.is_none());
        let Answer { signed_in, unauthorized } = answer.unwrap_or_default();
        self.signed_in.set(signed_in);
        self.unauthorized.set(unauthorized);
    }
}

/// The button that ends the session, on a page that has one.
#[component]
pub fn SignOut() -> impl IntoView {
    let access = expect_context::<Access>();
    let sign_out = move |_| {
        spawn_local(async {
            // The list of runs is not shown without a session, which is what the person sees then.
            if api::sign_out().await.is_ok() {
                let _ = window().location().assign("/");
            }
        });
    };
    move || {
        access.signed_in.get().then(|| {
            view! {
                <button
                    class="icon"
                    aria-label="Sign out"
                    title="Sign out: this browser needs the token again"
                    data-testid="sign-out"
                    on:click=sign_out
                >
                    <svg viewBox="0 0 16 16" aria-hidden="true">
                        <path d="M6 3H3v10h3M7 8h6M10 5l3 3-3 3" />
                    </svg>
                </button>
            }
        })
    }
}

/// A line about requests that lack the token, if there were any: a job whose token is mistyped is not observed.
#[component]
pub fn Unauthorized() -> impl IntoView {
    let access = expect_context::<Access>();
    move || {
        let words = access.unauthorized.with(sentence)?;
        Some(view! { <p class="quiet" data-testid="unauthorized">{words}</p> })
    }
}

fn sentence(requests: &UnauthorizedRequests) -> Option<String> {
    let UnauthorizedRequests { no_token, wrong_token, newest_peer } = requests;
    let counted = |number: u64, which: &str| {
        let plural = if number == 1 { "" } else { "s" };
        (number > 0).then(|| format!("{} request{plural} {which}", units::count(number)))
    };
    let parts = [counted(*wrong_token, "with a wrong token"), counted(*no_token, "without a token")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let newest = newest_peer.as_ref().map(|peer| format!(", the newest from {peer}")).unwrap_or_default();
    (!parts.is_empty()).then(|| {
        format!(
            "Refused in the last hour: {}{newest}. A job with a wrong PACELINE_TOKEN is not observed.",
            parts.join(" and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;

    use super::*;
    use crate::mounted::mount;

    #[wasm_bindgen_test]
    async fn requests_without_the_token_are_named_and_only_a_session_can_be_ended() {
        let access = Access::new();
        let page = mount(move || {
            provide_context(access);
            view! { <SignOut /><Unauthorized /> }
        });
        assert!(page.find("[data-testid=unauthorized]").is_none());
        assert!(page.find("[data-testid=sign-out]").is_none());
        let unauthorized =
            UnauthorizedRequests { no_token: 2, wrong_token: 1, newest_peer: Some("10.0.0.7".into()) };
        access.apply(Ok(Some(Answer { signed_in: true, unauthorized })));
        page.settle().await;
        let said = page.text("[data-testid=unauthorized]");
        assert!(
            said.contains(
                "1 request with a wrong token and 2 requests without a token, the newest from 10.0.0.7"
            ),
            "{said}"
        );
        assert!(page.find("[data-testid=sign-out]").is_some());
        access.apply(Err("the server does not answer".into()));
        assert!(!access.is_refused.get_untracked() && access.signed_in.get_untracked());
        access.apply(Ok(None));
        page.settle().await;
        assert!(access.is_refused.get_untracked());
        assert!(page.find("[data-testid=sign-out]").is_none());
    }
}
