//! Read-only parts of the page that the server renders. They cost the dashboard a request and no code.

use leptos::prelude::*;
use leptos::task::spawn_local;

use super::run::RunId;
use crate::api;
use crate::cells::{Var, effect, text};
use crate::html::shown;
use crate::live::Live;
use crate::range::Range;

/// Creates the part with this name.
pub fn served(name: &'static str) -> AnyView {
    let (live, run, range) = (expect_context::<Live>(), expect_context::<RunId>(), expect_context::<Range>());
    let content = Var::new(String::new());
    effect(move || {
        // Devices are sampled once per second, so the part is fetched once per second.
        live.now.track();
        let url = api::part_url(&run.get(), name, range.at.get());
        spawn_local(async move {
            // The old content stays while the server is unreachable. The notice tells the user.
            if let Ok(markup) = api::markup(&url).await {
                content.set(markup);
            }
        });
    });
    shown("page", text(move || content.get()))
}
