//! Import of traces: the button, the area to drop files on, and the panel that follows an import.

use leptos::prelude::*;
use leptos::{ev, html};
use wire::views::imports::ImportedRun;

use crate::imports::{Imports, Stage};
use crate::news::Toasts;

/// A button that opens the browser's choice of files.
#[component]
pub fn ImportButton() -> impl IntoView {
    let imports = expect_context::<Imports>();
    let field = NodeRef::<html::Input>::new();
    let open = move |_| {
        if let Some(field) = field.get_untracked() {
            field.click();
        }
    };
    let choose = move |_| {
        let Some(field) = field.get_untracked() else { return };
        let files = field.files().map(|list| (0..list.length()).filter_map(|at| list.get(at)).collect());
        imports.start(None, files.unwrap_or_default());
        // The same files can be chosen again.
        field.set_value("");
    };
    view! {
        <button
            data-testid="import-button"
            title="Import the traces that PyTorch's profiler wrote on the ranks of a job"
            disabled=move || imports.is_busy()
            on:click=open
        >
            "Import traces"
        </button>
        <input
            type="file"
            multiple
            class="hidden"
            data-testid="import-files"
            aria-label="Traces to import"
            node_ref=field
            on:change=choose
        />
    }
}

/// Takes files that are dropped anywhere on the page.
#[component]
pub fn DropArea() -> impl IntoView {
    let (imports, toasts) = (expect_context::<Imports>(), expect_context::<Toasts>());
    let is_over = RwSignal::new(false);
    let over = window_event_listener(ev::dragover, move |event| {
        if has_files(&event) {
            event.prevent_default();
            is_over.set(true);
        }
    });
    let leave = window_event_listener(ev::dragleave, move |event| {
        // Between two elements of the page, it enters the second one.
        if event.related_target().is_none() {
            is_over.set(false);
        }
    });
    let drop = window_event_listener(ev::drop, move |event| {
        is_over.set(false);
        if !has_files(&event) {
            return;
        }
        event.prevent_default();
        if imports.is_busy() {
            toasts.say(true, "An import is in progress. Drop these files when it is done.".into());
        } else {
            imports.drop(&event);
        }
    });
    on_cleanup(move || [over, leave, drop].into_iter().for_each(|handle| handle.remove()));
    view! {
        <Show when=move || is_over.get()>
            <div class="drop" data-testid="drop">"Drop the traces of one job to import them"</div>
        </Show>
    }
}

fn has_files(event: &ev::DragEvent) -> bool {
    let types = event.data_transfer().map(|data| data.types());
    types.is_some_and(|types| types.includes(&"Files".into(), 0))
}

/// The import in progress, or the last one until it is dismissed.
#[component]
pub fn ImportPanel() -> impl IntoView {
    let imports = expect_context::<Imports>();
    let is_there = Memo::new(move |_| imports.stage().is_some());
    let is_busy = Memo::new(move |_| imports.is_busy());
    let action = move |_| if imports.is_busy() { imports.cancel() } else { imports.dismiss() };
    let title = Memo::new(move |_| match imports.stage() {
        Some(Stage::Sending { .. }) => format!("Sending {}", imports.what()),
        Some(Stage::Reading) => format!("Reading {}", imports.what()),
        Some(Stage::Done(_)) => "The traces are imported".into(),
        Some(Stage::Failed(_)) => "The import failed".into(),
        Some(Stage::Cancelled) => "The import is cancelled".into(),
        None => String::new(),
    });
    view! {
        <Show when=move || is_there.get()>
            <section class="panel import" data-testid="import" aria-label="Import">
                <div class="panel-head">
                    <h2 role="status" data-testid="import-title">{title}</h2>
                    <span class="grow"></span>
                    <button data-testid="import-action" on:click=action>
                        {move || if is_busy.get() { "Cancel" } else { "Dismiss" }}
                    </button>
                </div>
                <Progress />
                {move || ended(imports.stage())}
            </section>
        </Show>
    }
}

/// The bytes that are sent. It stays the same element while they grow.
#[component]
fn Progress() -> impl IntoView {
    let imports = expect_context::<Imports>();
    let is_busy = Memo::new(move |_| imports.is_busy());
    let sent = move || match imports.stage() {
        Some(Stage::Sending { sent, all }) => Some((sent, all)),
        _ => None,
    };
    let words = move || match sent() {
        Some((sent, all)) => format!("{} of {} sent", units::bytes(sent as u64), units::bytes(all as u64)),
        None => "All is sent. The server joins the ranks and stores the run.".into(),
    };
    view! {
        <Show when=move || is_busy.get()>
            <progress
                aria-label="Bytes sent"
                max="1"
                value=move || sent().map(|(sent, all)| (sent / all.max(1.0)).to_string())
            ></progress>
            <p class="quiet tabular" data-testid="import-progress">{words}</p>
        </Show>
    }
}

fn ended(stage: Option<Stage>) -> AnyView {
    match stage {
        Some(Stage::Done(run)) => done(&run).into_any(),
        Some(Stage::Failed(why)) => {
            view! { <p class="error" role="alert" data-testid="import-error">{why}</p> }.into_any()
        }
        Some(Stage::Cancelled) => {
            view! { <p class="quiet">"The server forgets what it has received."</p> }.into_any()
        }
        _ => ().into_any(),
    }
}

fn done(run: &ImportedRun) -> impl IntoView + use<> {
    let lines = |lines: Vec<String>| lines.into_iter().map(|line| view! { <li>{line}</li> }).collect_view();
    let ranks = run.ranks.iter().map(|one| format!("Rank {}: {} ({})", one.rank.0, one.extent(), one.file));
    let skipped = run.skipped.iter().map(|one| format!("Skipped {}: {}", one.file, one.reason));
    let remarks = run.remarks.iter().map(|remark| units::capitalized(remark));
    view! {
        <p class="lead" data-testid="import-found">
            {run.found()} "." <a data-testid="import-run" href=format!("/runs/{}", run.run)>"Open "{run.name.clone()}</a>
        </p>
        <ul class="caveats" data-testid="import-remarks">{lines(skipped.chain(remarks).collect())}</ul>
        <details>
            <summary>"Files"</summary>
            <ul class="plain" data-testid="import-ranks">{lines(ranks.collect())}</ul>
        </details>
    }
}
