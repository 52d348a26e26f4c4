//! Global key bindings, and their list.

use leptos::ev;
use leptos::prelude::*;
use wasm_bindgen::JsCast as _;

use crate::widgets::Dialog;

/// Calls `act` for every key that is not meant for a control. `act` returns true if it used the key. The binding ends
/// when the calling component is removed.
pub fn global(act: impl Fn(&str) -> bool + 'static) {
    listen(Box::new(act));
}

fn listen(act: Box<dyn Fn(&str) -> bool>) {
    let handle = window_event_listener(ev::keydown, move |event| {
        let control = event.ctrl_key() || event.meta_key() || event.alt_key();
        if control || event.default_prevented() || is_for_a_control(&event) {
            return;
        }
        if act(&event.key()) {
            event.prevent_default();
        }
    });
    on_cleanup(move || handle.remove());
}

fn is_for_a_control(event: &web_sys::KeyboardEvent) -> bool {
    let Some(target) = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok()) else {
        return false;
    };
    match target.tag_name().as_str() {
        "INPUT" | "SELECT" | "TEXTAREA" => true,
        "BUTTON" | "A" | "SUMMARY" => matches!(event.key().as_str(), " " | "Enter"),
        _ => target.closest("dialog[open]").is_ok_and(|dialog| dialog.is_some()) && event.key() != "?",
    }
}

const KEYS: [(&str, &[(&str, &str)]); 4] = [
    (
        "Anywhere",
        &[
            ("Ctrl + K", "find a view, rank, step, bucket, host, run or action"),
            ("?", "show this list"),
            ("Space", "pause, resume"),
            ("1 … 7", "Overview, Ranks, Buckets, Scaling, Utilization, Code, Health"),
            ("[ ]", "move the selected steps back, forward by one"),
            ("L", "follow the newest steps"),
            ("E", "export traces, tables and the report"),
            ("Tab", "next control; arrow keys work in charts"),
        ],
    ),
    ("Runs", &[("/", "search"), ("↑ ↓", "select a run"), ("Enter", "open it")]),
    (
        "Charts",
        &[
            ("W S", "zoom in, out"),
            ("A D", "move left, right"),
            ("Ctrl + wheel", "zoom at the pointer"),
            ("Shift + wheel, drag", "move"),
            ("F", "follow the newest steps"),
            ("Shift + F", "show all steps"),
            ("Shift + W, S", "fewer, more ranks"),
            ("← →, Enter", "move the crosshair of a focused chart, open its step"),
            ("← → ↑ ↓", "move the selection of a focused heatmap or waterfall"),
            ("Esc", "clear the selection"),
        ],
    ),
    (
        "Buckets",
        &[
            (", .", "previous, next step"),
            ("F", "follow the newest step"),
            ("0", "show the whole step"),
            ("drag, M", "measure a range, what is visible"),
            ("P", "pin the selected rank"),
        ],
    ),
];

/// The list of keys, which is shown while `open` is true.
#[component]
pub fn Help(open: RwSignal<bool>) -> impl IntoView {
    let group = |(name, keys): (&'static str, &[(&'static str, &'static str)])| {
        view! {
            <section>
                <h3>{name}</h3>
                <dl>{keys.iter().map(key_line).collect_view()}</dl>
            </section>
        }
    };
    view! { <Dialog testid="help" name="Keys" open=open>{KEYS.map(group).collect_view()}</Dialog> }
}

fn key_line((key, what): &(&'static str, &'static str)) -> impl IntoView + use<> {
    view! {
        <dt><kbd>{*key}</kbd></dt>
        <dd>{*what}</dd>
    }
}
