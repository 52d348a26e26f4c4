//! A WebSocket that stays open: it connects, reconnects with back-off, and detects silence.
//!
//! This module does not know the messages; [`crate::live`] reads them.

use std::cell::RefCell;
use std::time::Duration;

use leptos::prelude::*;
use wasm_bindgen::prelude::*;
use web_sys::{BinaryType, CloseEvent, MessageEvent, WebSocket};

/// The silence after which data count as stale, in milliseconds. The server sends a message at least every 2 s.
const SILENCE_MILLIS: f64 = 5_000.0;
/// The silence after which the connection is replaced, in milliseconds.
const DEAD_MILLIS: f64 = 12_000.0;
/// The first and the longest wait before another attempt, in milliseconds. They are short, because the server is
/// usually near.
const BACK_OFF_MILLIS: (f64, f64) = (400.0, 5_000.0);

/// The state of the connection. Times are from `Date.now()`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Link {
    /// Connecting for the first time.
    Connecting,
    /// Receiving data.
    Live,
    /// Connected, but silent since this time.
    Stale(f64),
    /// Disconnected; no data since this time.
    Lost(f64),
    /// Closed by the user at this time.
    Paused(f64),
    /// Closed because the server is of another version than this page, which cannot read its messages.
    Outdated,
}

struct Open {
    socket: WebSocket,
    // The handlers live as long as the socket may call them.
    _message: Closure<dyn FnMut(MessageEvent)>,
    _close: Closure<dyn FnMut(CloseEvent)>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    path: Option<String>,
    /// The number of connections. It distinguishes a late event of an old connection from one of the current
    /// connection.
    generation: u32,
    failures: u32,
    heard_millis: f64,
    ever: bool,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

pub type Handler = fn(MessageEvent);

/// Connects to `path` and closes the previous connection. `None` only closes.
pub fn connect(path: Option<String>, link: RwSignal<Link>, handler: Handler) {
    STATE.with_borrow_mut(|state| {
        if state.path != path {
            state.ever = false;
        }
        state.failures = 0;
        state.path = path;
    });
    if STATE.with_borrow(|state| !state.ever) {
        link.set(Link::Connecting);
    }
    open(link, handler);
}

/// Closes the connection. The data shown stay.
pub fn pause(link: RwSignal<Link>) {
    close();
    link.set(Link::Paused(now_millis()));
}

/// Closes the connection for good: this page cannot read what the server sends.
pub fn give_up(link: RwSignal<Link>) {
    close();
    link.set(Link::Outdated);
}

/// Replaces this connection with a new one, after a moment.
pub fn restart(link: RwSignal<Link>, handler: Handler) {
    close();
    lost(link, handler);
}

/// Checks the connection for silence. Call about once per second.
pub fn watch(link: RwSignal<Link>, handler: Handler) {
    let (connected, heard) = STATE.with_borrow(|state| (state.open.is_some(), state.heard_millis));
    let silent = now_millis() - heard;
    match link.get_untracked() {
        Link::Live if silent > SILENCE_MILLIS => link.set(Link::Stale(heard)),
        Link::Stale(_) if connected && silent > DEAD_MILLIS => {
            restart(link, handler);
        }
        _ => {}
    }
}

/// Returns the time in milliseconds since the Unix epoch, on this machine's clock.
pub fn now_millis() -> f64 {
    js_sys::Date::now()
}

fn close() {
    let old = STATE.with_borrow_mut(|state| {
        state.generation += 1;
        state.open.take()
    });
    if let Some(old) = old {
        old.socket.set_onmessage(None);
        old.socket.set_onclose(None);
        let _ = old.socket.close();
    }
}

fn open(link: RwSignal<Link>, handler: Handler) {
    close();
    let Some(path) = STATE.with_borrow(|state| state.path.clone()) else { return };
    let generation = STATE.with_borrow(|state| state.generation);
    let location = window().location();
    let scheme = if location.protocol().is_ok_and(|p| p == "https:") { "wss" } else { "ws" };
    let host = location.host().unwrap_or_default();
    let Ok(socket) = WebSocket::new(&format!("{scheme}://{host}{path}")) else {
        lost(link, handler);
        return;
    };
    socket.set_binary_type(BinaryType::Arraybuffer);

    let message = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
        STATE.with_borrow_mut(|state| {
            state.failures = 0;
            state.ever = true;
            state.heard_millis = now_millis();
        });
        if link.get_untracked() != Link::Live {
            link.set(Link::Live);
        }
        handler(event);
    });
    let close = Closure::<dyn FnMut(CloseEvent)>::new(move |_| {
        if STATE.with_borrow(|state| state.generation) == generation {
            lost(link, handler);
        }
    });
    socket.set_onmessage(Some(message.as_ref().unchecked_ref()));
    socket.set_onclose(Some(close.as_ref().unchecked_ref()));
    STATE.with_borrow_mut(|state| {
        state.open = Some(Open { socket, _message: message, _close: close });
    });
}

fn lost(link: RwSignal<Link>, handler: Handler) {
    let (failures, heard, generation) = STATE.with_borrow_mut(|state| {
        state.failures += 1;
        (state.failures, state.heard_millis, state.generation)
    });
    if !matches!(link.get_untracked(), Link::Lost(_)) {
        link.set(Link::Lost(if heard > 0.0 { heard } else { now_millis() }));
    }
    let (first, longest) = BACK_OFF_MILLIS;
    let base = (first * 2f64.powi(failures as i32 - 1)).min(longest);
    // Jitter keeps many pages from reconnecting at the same instant.
    let wait = base * (0.8 + 0.4 * js_sys::Math::random());
    set_timeout(
        move || {
            let current = STATE.with_borrow(|state| state.generation) == generation;
            if current && !matches!(link.get_untracked(), Link::Paused(_)) {
                open(link, handler);
            }
        },
        Duration::from_millis(wait as u64),
    );
}
