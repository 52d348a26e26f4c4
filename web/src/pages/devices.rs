//! What the ranks' devices do. The server writes it ([`api::devices`]): all of it is only shown.

use leptos::prelude::*;
use leptos::task::spawn_local;

use super::run::RunId;
use crate::api;
use crate::cells::{Var, effect, text};
use crate::html::shown;
use crate::live::Live;

/// The view.
pub fn devices() -> AnyView {
    let (live, run) = (expect_context::<Live>(), expect_context::<RunId>());
    let content = Var::new(String::new());
    effect(move || {
        // Devices are looked at once a second, and so is this.
        live.now.track();
        let run = run.get();
        spawn_local(async move {
            // What was there stays while the server is away, which the page says elsewhere.
            if let Ok(markup) = api::devices(&run).await {
                content.set(markup);
            }
        });
    });
    shown("page", text(move || content.get()))
}
