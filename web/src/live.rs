//! The data that the server pushes, as signals and columns.
//!
//! Messages are applied when they arrive, and readers are notified once per animation frame. Views (lists, reports) are
//! applied at most twice per second, because they fill tables. While steps are selected, the dashboard shows the report
//! over them, and newer data continue to arrive.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use leptos::prelude::*;
use leptos_use::{signal_debounced, signal_throttled, use_document_visibility};
use viz::steps::Steps;
use wasm_bindgen::JsCast as _;
use web_sys::{MessageEvent, VisibilityState};
use wire::live::{FrameError, StepColumns, view};
use wire::views::{LiveView, Report, RunState, RunSummary};

use crate::api;
use crate::route::RunId;
use crate::socket::{self, Link, now_millis};

/// The shortest interval between changes of tables, in milliseconds.
const VIEW_MILLIS: f64 = 450.0;

/// The time for which the selection of steps must rest before its figures are requested, in milliseconds.
pub const AT_REST_MILLIS: f64 = 120.0;

/// A run's line in the list and its report, from the same moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RunView {
    /// The line in the list of runs.
    pub summary: RunSummary,
    /// The report over the recent steps, or over the selected ones.
    pub report: Report,
}

/// When the run was last heard from, its number of steps, and its state. A change means that newer data have arrived. `None`
/// before the run has arrived.
type Turn = Option<(u64, u64, RunState)>;

/// The data of the dashboard.
#[derive(Clone, Copy)]
pub struct Live {
    /// The list of runs; `None` before the first answer.
    pub runs: RwSignal<Option<Vec<RunSummary>>>,
    /// The run: its current state, or its state over the selected steps.
    pub run: Signal<Option<Arc<RunView>>>,
    /// The current state, even while steps are selected.
    pub newest: RwSignal<Option<Arc<RunView>>>,
    /// The state over the selected steps.
    selected: RwSignal<Option<Arc<RunView>>>,
    /// The reason why the report over the selected steps is not shown.
    pub selected_error: RwSignal<Option<String>>,
    /// True if the server does not know the selected run.
    pub no_such_run: RwSignal<bool>,
    /// The steps of the run. Not reactive: read [`Self::drawn`] to subscribe to changes.
    pub steps: StoredValue<Steps>,
    /// A counter that changes after [`Self::steps`] has changed, at most once per animation frame.
    pub drawn: RwSignal<u64>,
    /// The state of the connection.
    pub link: RwSignal<Link>,
    /// A counter that changes whenever the page connects to the server. What could not be fetched before is fetched again.
    pub connected: Memo<u32>,
    /// True while the page can be seen.
    is_visible: Memo<bool>,
    /// The time of `Date.now()`, updated about once per second.
    pub now: RwSignal<f64>,
}

#[derive(Default)]
struct Inbox {
    live: Option<Live>,
    view: Option<Vec<u8>>,
    view_millis: f64,
    view_timer: bool,
    frame_timer: bool,
}

thread_local! {
    static INBOX: RefCell<Inbox> = RefCell::default();
}

impl Live {
    /// Returns whether the run's records show when a device ran nothing.
    pub fn has_idle(&self) -> Memo<bool> {
        let run = self.run;
        Memo::new(move |_| run.with(|run| run.as_ref().is_some_and(|run| run.report.has_idle())))
    }

    /// Creates the data without a connection. Call once.
    pub fn start() -> Self {
        let (newest, selected) = (RwSignal::new(None), RwSignal::new(None));
        let (link, visibility) = (RwSignal::new(Link::Connecting), use_document_visibility());
        let connection = Memo::new(move |old: Option<&(bool, u32)>| {
            let (was_live, count) = old.copied().unwrap_or_default();
            let is_live = link.get() == Link::Live;
            (is_live, count + u32::from(is_live && !was_live))
        });
        let live = Self {
            runs: RwSignal::new(None),
            run: Signal::derive(move || selected.get().or_else(|| newest.get())),
            newest,
            selected,
            selected_error: RwSignal::new(None),
            no_such_run: RwSignal::new(false),
            steps: StoredValue::new(Steps::default()),
            drawn: RwSignal::new(0),
            link,
            connected: Memo::new(move |_| connection.get().1),
            is_visible: Memo::new(move |_| visibility.get() == VisibilityState::Visible),
            now: RwSignal::new(now_millis()),
        };
        INBOX.with_borrow_mut(|inbox| inbox.live = Some(live));
        let tick = move || {
            live.now.set(now_millis());
            socket::watch(live.link, receive);
        };
        // The page ends before this interval does.
        let _endless = set_interval_with_handle(tick, Duration::from_secs(1));
        live
    }

    /// Returns a value that changes about every `millis` milliseconds, whatever arrives.
    pub fn ticks(&self, millis: f64) -> Memo<u64> {
        let now = self.now;
        Memo::new(move |_| (now.get() / millis) as u64)
    }

    /// Returns true if the open run has ended.
    pub fn has_ended(&self) -> bool {
        self.newest.with(|run| run.as_ref().is_some_and(|run| run.summary.state.has_ended()))
    }

    /// Selects a run, or the list of runs if `run` is `None`.
    pub fn look_at(&self, run: Option<&str>) {
        INBOX.with_borrow_mut(|inbox| inbox.view = None);
        self.newest.set(None);
        self.selected.set(None);
        self.no_such_run.set(false);
        self.steps.set_value(Steps::default());
        self.drawn.update(|n| *n += 1);
        socket::connect(Some(path(run)), self.link, receive);
    }

    /// Shows the report over `steps`, or over the newest steps. Call once.
    pub fn show(&self, run: RunId, steps: Memo<Option<(u64, u64)>>) {
        let live = *self;
        let at_rest: Signal<Option<(u64, u64)>> = signal_debounced(steps, AT_REST_MILLIS);
        // The run may not have arrived when a link to a step is opened, and a report says how its run goes.
        let state = Memo::new(move |_| live.newest.with(|run| run.as_ref().map(|run| run.summary.state)));
        let fetched = LocalResource::new(move || {
            let (run, steps, is_known) = (run.get(), at_rest.get(), state.get().is_some());
            async move { Some(api::report(&run, Some(steps.filter(|_| is_known)?)).await) }
        });
        Effect::new(move |_| {
            let answer = fetched.get().flatten();
            let is_selected = steps.with(Option::is_some);
            match (answer.filter(|_| is_selected), live.newest.get_untracked()) {
                (Some(Ok(report)), Some(newest)) => {
                    let summary = newest.summary.clone();
                    live.selected.set(Some(Arc::new(RunView { summary, report })));
                    live.selected_error.set(None);
                }
                (Some(Err(error)), _) => live.selected_error.set(Some(error)),
                (None, _) if !is_selected => {
                    live.selected.set(None);
                    live.selected_error.set(None);
                }
                (Some(Ok(_)) | None, _) => {}
            }
        });
    }

    /// Returns a value that changes about every `millis` milliseconds while data of the run arrive, and once after the last
    /// of them. It does not change while the server is down or the page is hidden.
    pub fn turn(&self, millis: Signal<f64>) -> Signal<Turn> {
        let (newest, is_visible) = (self.newest, self.is_visible);
        let arrived = Memo::new(move |_| {
            newest.with(|run| {
                let summary = &run.as_ref()?.summary;
                Some((summary.last_seen_unix_millis, summary.steps, summary.state))
            })
        });
        let arrived: Signal<Turn> = signal_throttled(arrived, millis);
        let turn = Memo::new(move |old: Option<&Turn>| {
            old.copied().filter(|_| !is_visible.get()).unwrap_or_else(|| arrived.get())
        });
        // Tracking a memo does not compute it, and a memo that was never computed does not see changes. Reading it does both.
        Signal::derive(move || turn.get())
    }

    /// Returns the run for what must not change with every report: while the run is running, it is renewed about every
    /// `millis` milliseconds. A run that is not running changes only while it is read back, and then at once.
    pub fn steady(&self, millis: f64) -> Signal<Option<Arc<RunView>>> {
        let (newest, selected, turn) = (self.newest, self.selected, self.turn(Signal::stored(millis)));
        let is_running = Memo::new(move |_| {
            newest.with(|run| run.as_ref().is_some_and(|run| run.summary.state == RunState::Running))
        });
        Signal::derive(move || {
            let newest = if is_running.get() {
                turn.track();
                newest.get_untracked()
            } else {
                newest.get()
            };
            selected.get().or(newest)
        })
    }

    /// Pauses the live stream, or resumes it with a fresh snapshot.
    pub fn toggle_pause(&self, run: Option<&str>) {
        if matches!(self.link.get_untracked(), Link::Paused(_)) {
            self.link.set(Link::Connecting);
            socket::connect(Some(path(run)), self.link, receive);
        } else {
            socket::pause(self.link);
        }
    }
}

fn path(run: Option<&str>) -> String {
    run.map_or_else(|| "/api/v1/live".into(), |run| format!("/api/v1/live?run={run}"))
}

fn receive(event: MessageEvent) {
    let Ok(buffer) = event.data().dyn_into::<js_sys::ArrayBuffer>() else { return };
    let bytes = js_sys::Uint8Array::new(&buffer).to_vec();
    if view::is_view(&bytes) {
        INBOX.with_borrow_mut(|inbox| inbox.view = Some(bytes));
        take_view_in_time();
    } else {
        take_frame(&bytes);
    }
}

fn take_frame(bytes: &[u8]) {
    let Some(live) = INBOX.with_borrow(|inbox| inbox.live) else { return };
    match StepColumns::decode(bytes) {
        Ok(frame) => {
            let fits = live.steps.try_update_value(|steps| steps.apply(&frame));
            if fits != Some(true) {
                leptos::logging::warn!("a frame of {} ranks does not fit the steps here", frame.ranks);
                socket::restart(live.link, receive);
            }
        }
        Err(error) => return refuse(live, &error),
    }
    let first = INBOX.with_borrow_mut(|inbox| !std::mem::replace(&mut inbox.frame_timer, true));
    if first {
        request_animation_frame(move || {
            INBOX.with_borrow_mut(|inbox| inbox.frame_timer = false);
            live.drawn.update(|n| *n += 1);
        });
    }
}

/// Applies the newest view now, or once [`VIEW_MILLIS`] have passed since the last one.
fn take_view_in_time() {
    let wait = INBOX.with_borrow_mut(|inbox| {
        // A clock that was set back must not hold views back.
        let wait = (inbox.view_millis + VIEW_MILLIS - now_millis()).min(VIEW_MILLIS);
        if wait <= 0.0 {
            return Some(0.0);
        }
        (!std::mem::replace(&mut inbox.view_timer, true)).then_some(wait)
    });
    match wait {
        Some(wait) if wait > 0.0 => set_timeout(
            || {
                INBOX.with_borrow_mut(|inbox| inbox.view_timer = false);
                take_view();
            },
            Duration::from_millis(wait as u64 + 1),
        ),
        Some(_) => take_view(),
        None => {}
    }
}

fn take_view() {
    let taken = INBOX.with_borrow_mut(|inbox| {
        inbox.view_millis = now_millis();
        inbox.live.zip(inbox.view.take())
    });
    let Some((live, bytes)) = taken else { return };
    match view::decode(&bytes) {
        Ok(LiveView::Runs { runs }) => live.runs.set(Some(runs)),
        Ok(LiveView::Run { summary, report }) => {
            live.no_such_run.set(false);
            live.newest.set(Some(Arc::new(RunView { summary: *summary, report: *report })));
        }
        Ok(LiveView::NoSuchRun) => live.no_such_run.set(true),
        Err(error) => refuse(live, &error),
    }
}

/// Handles bytes that are not a message to this page.
fn refuse(live: Live, error: &FrameError) {
    if *error == FrameError::OTHER_VERSION {
        socket::give_up(live.link);
    } else {
        leptos::logging::warn!("{error}");
    }
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;
    use web_sys::MessageEventInit;
    use wire::live::view;

    use super::*;
    use crate::mounted::mount_in_run;
    use crate::shell::{Connection, Notice};

    /// Delivers bytes as the server does.
    fn deliver(bytes: &[u8]) {
        let init = MessageEventInit::new();
        init.set_data(&js_sys::Uint8Array::from(bytes).buffer());
        receive(MessageEvent::new_with_event_init_dict("message", &init).expect("a browser creates events"));
    }

    #[wasm_bindgen_test]
    async fn a_page_of_another_version_than_the_server_asks_to_be_reloaded() {
        let (page, live) =
            mount_in_run(|| view! { <Connection run=Memo::new(|_| Some("gpt-7".into())) /> <Notice /> });
        live.link.set(Link::Live);
        let mut frame = view::encode(&LiveView::NoSuchRun).expect("a view is plain data");
        // The version follows the four letters at the start.
        frame[4] ^= 1;
        deliver(&frame);
        page.settle().await;
        assert!(!live.no_such_run.get_untracked(), "the view was read");
        assert_eq!(live.link.get_untracked(), Link::Outdated);
        assert_eq!(
            page.text("[data-testid=stale-notice]"),
            "The server was updated. Reload this page to see its data. Reload"
        );
        assert!(page.text("[data-testid=connection]").starts_with("Outdated"));
    }
}
