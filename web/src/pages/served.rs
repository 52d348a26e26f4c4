//! What the server writes, since all of it is only shown: it costs the page a fetch and no code.

use leptos::prelude::*;
use leptos::task::spawn_local;

use super::run::RunId;
use crate::api;
use crate::cells::{Var, effect, text};
use crate::html::shown;
use crate::live::Live;
use crate::range::Range;

/// The part of this name.
pub fn served(name: &'static str) -> AnyView {
    let (live, run, range) = (expect_context::<Live>(), expect_context::<RunId>(), expect_context::<Range>());
    let content = Var::new(String::new());
    effect(move || {
        // Devices are looked at once a second, and so is this.
        live.now.track();
        let url = api::part_url(&run.get(), name, range.at.get());
        spawn_local(async move {
            // What was there stays while the server is away, which the page says elsewhere.
            if let Ok(markup) = api::markup(&url).await {
                content.set(markup);
            }
        });
    });
    shown("page", text(move || content.get()))
}
