//! The waterfall of the view, fetched from the server.

use std::sync::Arc;
use std::time::Duration;

use leptos::prelude::*;
use leptos::task::spawn_local;

use super::StepSelection;
use crate::api;
use crate::live::Live;
use crate::route::RunId;
use crate::socket::Link;

/// The shortest interval between waterfalls while following the newest step. Faster changes cannot be read.
const FOLLOW: Duration = Duration::from_millis(500);

/// Fetches the requested step: immediately when it changes, and every [`FOLLOW`] while following.
pub fn load(selection: StepSelection, live: Live, run: RunId) {
    let wanted = StoredValue::new(0u32);
    let fetch = move |step: Option<u64>| {
        let run = run.get_untracked();
        let mine = wanted.try_update_value(|n| {
            *n += 1;
            *n
        });
        async move {
            let answer = api::waterfall(&run, step).await;
            // A later request makes this answer obsolete. A view that is gone has no requests.
            if mine.is_none() || wanted.try_get_value() != mine {
                return;
            }
            match answer {
                Ok(waterfall) => {
                    selection.shown.set(Some(Arc::new(waterfall)));
                    selection.error.set(None);
                }
                Err(error) => selection.error.set(Some(error)),
            }
        }
    };
    Effect::new(move |last: Option<(String, Option<u64>)>| {
        let (wanted, alive) = ((run.get(), selection.step.get()), live.link.get() == Link::Live);
        // Fetch again when the server is back, if it was unreachable before.
        if last.as_ref() != Some(&wanted) || (alive && selection.error.with_untracked(Option::is_some)) {
            spawn_local(fetch(wanted.1));
        }
        wanted
    });
    let newest = move || live.steps.with_value(|steps| steps.step.last().copied());
    let follow = set_interval_with_handle(
        move || {
            let following = selection.step.try_get_untracked() == Some(None);
            let flows = matches!(live.link.get_untracked(), Link::Live);
            let old = untrack(|| selection.shown_step());
            if following && flows && !document().hidden() && newest() != old {
                spawn_local(fetch(None));
            }
        },
        FOLLOW,
    );
    on_cleanup(move || {
        if let Ok(handle) = follow {
            handle.clear();
        }
    });
}
