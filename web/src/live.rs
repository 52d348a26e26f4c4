//! What the server pushes, as signals and columns.
//!
//! Messages are applied when they come; the page is told once per animation frame. Texts (lists, reports)
//! are taken at most twice a second, since they fill tables.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use leptos::prelude::*;
use serde::Deserialize;
use viz::steps::Steps;
use wasm_bindgen::JsCast as _;
use web_sys::MessageEvent;
use wire::live::StepColumns;
use wire::views::{Report, RunSummary};

use crate::socket::{self, Link, now_millis};

/// Tables change at most this often.
const TEXT_MILLIS: f64 = 450.0;

/// A run's line and its report, of one moment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RunView {
    /// The line of the list.
    pub summary: RunSummary,
    /// The report over the recent window.
    pub report: Report,
}

/// What is known, as the page sees it.
#[derive(Clone, Copy)]
pub struct Live {
    /// The list; `None` before the first answer.
    pub runs: RwSignal<Option<Vec<RunSummary>>>,
    /// The run that is looked at.
    pub run: RwSignal<Option<Arc<RunView>>>,
    /// The server does not know the run that was asked for.
    pub no_such_run: RwSignal<bool>,
    /// Its steps. Not reactive: read [`Self::drawn`] to be told of changes.
    pub steps: StoredValue<Steps>,
    /// Changes at most once per animation frame, after [`Self::steps`] did.
    pub drawn: RwSignal<u64>,
    /// The connection.
    pub link: RwSignal<Link>,
    /// `Date.now()`, about once a second.
    pub now: RwSignal<f64>,
}

#[derive(Default)]
struct Inbox {
    live: Option<Live>,
    text: Option<String>,
    text_millis: f64,
    text_timer: bool,
    frame_timer: bool,
}

thread_local! {
    static INBOX: RefCell<Inbox> = RefCell::default();
}

impl Live {
    /// Starts, connected to nothing. Call once.
    pub fn start() -> Self {
        let live = Self {
            runs: RwSignal::new(None),
            run: RwSignal::new(None),
            no_such_run: RwSignal::new(false),
            steps: StoredValue::new(Steps::default()),
            drawn: RwSignal::new(0),
            link: RwSignal::new(Link::Connecting),
            now: RwSignal::new(now_millis()),
        };
        INBOX.with_borrow_mut(|inbox| inbox.live = Some(live));
        let every = Duration::from_secs(1);
        let _ = set_interval_with_handle(
            move || {
                live.now.set(now_millis());
                socket::watch(live.link, receive);
            },
            every,
        );
        live
    }

    /// Looks at one run, or at the list.
    pub fn look_at(&self, run: Option<&str>) {
        INBOX.with_borrow_mut(|inbox| inbox.text = None);
        self.run.set(None);
        self.no_such_run.set(false);
        self.steps.set_value(Steps::default());
        self.drawn.update(|n| *n += 1);
        socket::connect(Some(path(run)), self.link, receive);
    }

    /// Stops taking data, or starts again with a fresh snapshot.
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
    let data = event.data();
    if let Some(text) = data.as_string() {
        INBOX.with_borrow_mut(|inbox| inbox.text = Some(text));
        take_text_in_time();
    } else if let Ok(buffer) = data.dyn_into::<js_sys::ArrayBuffer>() {
        take_frame(&js_sys::Uint8Array::new(&buffer).to_vec());
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
        Err(error) => leptos::logging::warn!("{error}"),
    }
    let first = INBOX.with_borrow_mut(|inbox| !std::mem::replace(&mut inbox.frame_timer, true));
    if first {
        request_animation_frame(move || {
            INBOX.with_borrow_mut(|inbox| inbox.frame_timer = false);
            live.drawn.update(|n| *n += 1);
        });
    }
}

/// Takes the newest text now, or when [`TEXT_MILLIS`] have passed since the last one.
fn take_text_in_time() {
    let wait = INBOX.with_borrow_mut(|inbox| {
        let wait = inbox.text_millis + TEXT_MILLIS - now_millis();
        if wait <= 0.0 {
            return Some(0.0);
        }
        (!std::mem::replace(&mut inbox.text_timer, true)).then_some(wait)
    });
    match wait {
        Some(wait) if wait > 0.0 => set_timeout(
            || {
                INBOX.with_borrow_mut(|inbox| inbox.text_timer = false);
                take_text();
            },
            Duration::from_millis(wait as u64 + 1),
        ),
        Some(_) => take_text(),
        None => {}
    }
}

fn take_text() {
    let taken = INBOX.with_borrow_mut(|inbox| {
        inbox.text_millis = now_millis();
        inbox.live.zip(inbox.text.take())
    });
    let Some((live, text)) = taken else { return };
    match parse(&text) {
        Ok(Text::Runs(runs)) => live.runs.set(Some(runs)),
        Ok(Text::Run(run)) => {
            live.no_such_run.set(false);
            live.run.set(Some(run));
        }
        Ok(Text::NoSuchRun) => live.no_such_run.set(true),
        Err(error) => leptos::logging::warn!("the server said what this page does not know: {error}"),
    }
}

/// [`wire::views::LiveText`], read in two passes. Its derived reader would copy every text into a tree first,
/// because the tag may come last; that costs time, and 20 KB of the bundle.
enum Text {
    Runs(Vec<RunSummary>),
    Run(Arc<RunView>),
    NoSuchRun,
}

fn parse(text: &str) -> Result<Text, serde_json::Error> {
    #[derive(Deserialize)]
    struct Tag {
        kind: String,
    }
    #[derive(Deserialize)]
    struct Runs {
        runs: Vec<RunSummary>,
    }
    match serde_json::from_str::<Tag>(text)?.kind.as_str() {
        "runs" => Ok(Text::Runs(serde_json::from_str::<Runs>(text)?.runs)),
        "run" => Ok(Text::Run(Arc::new(serde_json::from_str(text)?))),
        "no_such_run" => Ok(Text::NoSuchRun),
        other => Err(serde::de::Error::custom(format!("kind {other}"))),
    }
}
