//! Messages that appear when something changes: a toast, and a browser notification if the user allows it.

use std::time::Duration;

use leptos::prelude::*;
use leptos::task::spawn_local;
use model::news::{Known, News};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Notification, NotificationPermission};

use crate::live::Live;

/// The time for which a toast is shown.
const SHOWN: Duration = Duration::from_secs(10);

/// A message that is shown.
#[derive(Clone, Debug, PartialEq)]
struct Toast {
    number: u32,
    news: News,
}

/// The messages that are shown.
#[derive(Clone, Copy)]
pub struct Toasts {
    shown: RwSignal<Vec<Toast>>,
    next: StoredValue<u32>,
}

impl Toasts {
    /// Creates an empty list. Call once.
    pub fn new() -> Self {
        Self { shown: RwSignal::new(Vec::new()), next: StoredValue::new(0) }
    }

    /// Tells of what changes in the run that `live` shows. Call once.
    pub fn follow(&self, live: Live) {
        let toasts = *self;
        Effect::new(move |earlier: Option<Option<(String, Known)>>| {
            let now = live
                .newest
                .with(|run| run.as_ref().map(|run| (run.summary.run.to_string(), Known::new(&run.report))));
            if let (Some(Some((old_run, earlier))), Some((run, known))) = (&earlier, &now)
                && old_run == run
            {
                for News { is_bad, text } in known.news_since(earlier) {
                    notify(&format!("Paceline: {run}"), &text);
                    toasts.say(is_bad, text);
                }
            }
            // While the next run loads, the last one stays the one to compare with.
            now.or(earlier.flatten())
        });
    }

    /// Shows a message for a while.
    pub fn say(&self, is_bad: bool, text: String) {
        let number = self.next.get_value();
        self.next.set_value(number.wrapping_add(1));
        let shown = self.shown;
        shown.update(|shown| shown.push(Toast { number, news: News { is_bad, text } }));
        set_timeout(move || shown.update(|shown| shown.retain(|toast| toast.number != number)), SHOWN);
    }

    /// Asks the user for permission to notify.
    pub fn ask_to_notify(&self) {
        let toasts = *self;
        spawn_local(async move {
            let asked = Notification::request_permission();
            if let Ok(asked) = asked {
                let _ = JsFuture::from(asked).await;
            }
            let is_allowed = Notification::permission() == NotificationPermission::Granted;
            toasts.say(
                !is_allowed,
                if is_allowed {
                    "You are notified of verdicts while this page is open.".into()
                } else {
                    "The browser does not allow notifications. Allow them in the settings of this page."
                        .into()
                },
            );
        });
    }
}

/// Notifies of something if the user has allowed it and looks at another page.
fn notify(title: &str, text: &str) {
    if document().hidden() && Notification::permission() == NotificationPermission::Granted {
        let options = web_sys::NotificationOptions::new();
        options.set_body(text);
        let _ = Notification::new_with_options(title, &options);
    }
}

/// The messages, at the edge of the page.
#[component]
pub fn ToastList() -> impl IntoView {
    let toasts = expect_context::<Toasts>();
    let close = move |number: u32| toasts.shown.update(|shown| shown.retain(|toast| toast.number != number));
    view! {
        <ul class="toasts" role="status" aria-live="polite" data-testid="toasts">
            <For
                each=move || toasts.shown.get()
                key=|toast| toast.number
                children=move |toast| {
                    let kind = if toast.news.is_bad { "bad" } else { "good" };
                    view! {
                        <li data-kind=kind>
                            <span>{toast.news.text}</span>
                            <button class="quiet" aria-label="Dismiss" on:click=move |_| close(toast.number)>"✕"</button>
                        </li>
                    }
                }
            />
        </ul>
    }
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;
    use wire::views::{Report, VerdictState};

    use super::*;
    use crate::fixture::{empty_report, show, verdict};
    use crate::mounted::{Mounted, mount_in_run};

    fn page() -> (Mounted, Live) {
        mount_in_run(|| {
            expect_context::<Toasts>().follow(expect_context::<Live>());
            view! { <ToastList /> }
        })
    }

    fn report_with(state: VerdictState) -> Report {
        Report { verdicts: vec![verdict(state)], ..empty_report() }
    }

    #[wasm_bindgen_test]
    async fn a_verdict_that_appears_and_is_resolved_is_told_once_each() {
        let (page, live) = page();
        let reports = [
            empty_report(),
            report_with(VerdictState::Active),
            report_with(VerdictState::Active),
            report_with(VerdictState::Resolved),
        ];
        for report in reports {
            show(live, report);
            page.settle().await;
        }
        assert_eq!(
            page.texts("li span"),
            [verdict(VerdictState::Active).sentence, "Resolved: Rank 2 · input.".to_owned()]
        );
        assert_eq!(page.attribute("li:nth-child(2)", "data-kind").as_deref(), Some("good"));
    }

    #[wasm_bindgen_test]
    async fn an_old_verdict_of_the_first_report_is_no_news_and_a_toast_can_be_dismissed() {
        let (page, live) = page();
        show(live, report_with(VerdictState::Active));
        page.settle().await;
        assert_eq!(page.texts("li"), [""; 0]);
        show(live, report_with(VerdictState::Resolved));
        page.settle().await;
        page.click("li button").await;
        assert_eq!(page.texts("li"), [""; 0]);
    }
}
