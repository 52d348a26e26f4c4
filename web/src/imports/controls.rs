//! The button that imports files, the drop of files on the page, and the panel that follows an import.

use leptos::prelude::*;
use wasm_bindgen::JsCast as _;
use web_sys::{DragEvent, File, HtmlInputElement};

use super::Imports;
use crate::news::Toasts;
use crate::widgets::Bar;

/// A button that opens the browser's choice of files.
#[component]
pub fn ImportButton() -> impl IntoView {
    let imports = expect_context::<Imports>();
    let choose = move |event| {
        let field = event_target::<HtmlInputElement>(&event);
        let chosen = field.files().into_iter();
        let files: Vec<File> =
            chosen.flat_map(|list| (0..list.length()).filter_map(move |at| list.get(at))).collect();
        imports.start(None, &files);
        // The same files can be chosen again.
        field.set_value("");
    };
    view! {
        <label class="button" title="Import the traces that PyTorch's profiler wrote on the ranks of a job">
            "Import traces"
            <input
                type="file"
                class="unseen"
                multiple
                data-testid="import-files"
                disabled=move || imports.is_busy.get()
                on:change=choose
            />
        </label>
    }
}

/// Imports files that are dropped anywhere on the page, while the calling component is there.
pub fn take_drops() {
    let (imports, toasts) = (expect_context::<Imports>(), expect_context::<Toasts>());
    let take = move |event: web_sys::Event| {
        let event: DragEvent = event.unchecked_into();
        if !has_files(&event) {
            return;
        }
        let name = event.type_();
        if name != "dragleave" {
            event.prevent_default();
        }
        // On the way from one element of the page to another, `dragover` comes next.
        show_target(name == "dragover");
        if name == "drop" && imports.is_busy.get_untracked() {
            toasts.say(true, "An import is in progress. Drop these files when it is done.".into());
        } else if name == "drop" {
            imports.drop(&event);
        }
    };
    for name in ["dragover", "dragleave", "drop"] {
        let handle = window_event_listener_untyped(name, take);
        on_cleanup(move || handle.remove());
    }
}

fn has_files(event: &DragEvent) -> bool {
    event.data_transfer().is_some_and(|data| data.types().includes(&"Files".into(), 0))
}

/// Shows that the page takes what is dragged over it.
fn show_target(is_over: bool) {
    if let Some(body) = document().body() {
        // An error means that the name of the class is not valid.
        let _valid = body.class_list().toggle_with_force("dropping", is_over);
    }
}

/// The import in progress, or the last one until it is dismissed.
#[component]
pub fn ImportPanel() -> impl IntoView {
    let imports = expect_context::<Imports>();
    let Imports { title, text, sent, is_busy, has_failed, run, .. } = imports;
    let is_absent = move || title.with(String::is_empty);
    view! {
        <section class="panel import" data-testid="import" aria-label="Import" class:hidden=is_absent>
            <div class="panel-head">
                <h2 role="status" data-testid="import-title">{move || title.get()}</h2>
                <span class="grow"></span>
                {move || run.get().map(|run| view! { <a class="button primary" data-testid="import-run" href=run>"Open the run"</a> })}
                <button data-testid="import-action" on:click=move |_| imports.end_or_dismiss()>
                    {move || if is_busy.get() { "Cancel" } else { "Dismiss" }}
                </button>
            </div>
            {move || is_busy.get().then(|| view! { <Bar from=0.0 to=sent.get() /> })}
            <p class="lines" class:error=move || has_failed.get() data-testid="import-text">{move || text.get()}</p>
        </section>
    }
}
