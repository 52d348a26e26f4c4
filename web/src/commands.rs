//! The command list, opened with Ctrl + K: type to find a view, rank, step, bucket, host, run or action.

use leptos::prelude::*;
use leptos::task::spawn_local;
use leptos::{ev, html};
use model::commands::{self, Action, Command, Target};
use model::route::run_in;
use wasm_bindgen_futures::JsFuture;
use wire::views::RunSummary;

use crate::api;
use crate::live::Live;
use crate::news::Toasts;
use crate::route::Address;
use crate::theme::Theme;
use crate::widgets::dialog_closed;

/// Opens the command list from anywhere.
#[derive(Clone, Copy)]
pub struct CommandList {
    /// True while the list is open.
    pub open: RwSignal<bool>,
    /// A change of the visible steps, for the page of a run. `true` follows the newest steps, `false` shows all.
    pub steps: RwSignal<Option<bool>>,
}

impl CommandList {
    /// Creates a closed list that opens with Ctrl + K or Command + K. Call once.
    pub fn start() -> Self {
        let list = Self { open: RwSignal::new(false), steps: RwSignal::new(None) };
        let _keys = window_event_listener(ev::keydown, move |event| {
            if (event.ctrl_key() || event.meta_key()) && event.key().eq_ignore_ascii_case("k") {
                event.prevent_default();
                list.open.update(|open| *open = !*open);
            }
        });
        list
    }
}

/// What the user has typed, and where they are in the list of what it finds.
#[derive(Clone, Copy)]
struct Search {
    typed: RwSignal<String>,
    /// The place of the marked command.
    marked: RwSignal<usize>,
    runs: RwSignal<Vec<RunSummary>>,
}

impl Search {
    fn new() -> Self {
        Self {
            typed: RwSignal::new(String::new()),
            marked: RwSignal::new(0),
            runs: RwSignal::new(Vec::new()),
        }
    }

    /// Begins again, with the runs that the server has now.
    fn begin(self) {
        self.enter(String::new());
        spawn_local(async move {
            if let Ok(found) = api::runs().await {
                self.runs.set(found);
            }
        });
    }

    fn enter(self, text: String) {
        self.typed.set(text);
        self.marked.set(0);
    }

    fn found(self, run: Memo<Option<String>>) -> Memo<Vec<Command>> {
        let (list, live) = (expect_context::<CommandList>(), expect_context::<Live>());
        Memo::new(move |_| {
            if !list.open.get() {
                return Vec::new();
            }
            let run = run.get();
            live.run.with(|shown| {
                let report = shown.as_ref().map(|shown| &shown.report);
                let run = run.as_deref().map(|run| (run, report));
                self.runs.with(|runs| commands::find(&self.typed.get(), run, runs))
            })
        })
    }

    /// Arrow keys move the mark, and Enter carries out the marked command.
    fn press(self, event: &ev::KeyboardEvent, found: Memo<Vec<Command>>, act: Callback<Command>) {
        let last = found.with(Vec::len).saturating_sub(1);
        match event.key().as_str() {
            "ArrowDown" => self.marked.update(|at| *at = (*at + 1).min(last)),
            "ArrowUp" => self.marked.update(|at| *at = at.saturating_sub(1)),
            "Enter" => {
                if let Some(command) = found.with(|found| found.get(self.marked.get()).cloned()) {
                    act.run(command);
                }
            }
            _ => return,
        }
        event.prevent_default();
    }
}

/// The list. `run` is the run whose page is open; `help` opens the list of keys.
#[component]
pub fn Commands(run: Memo<Option<String>>, help: RwSignal<bool>) -> impl IntoView {
    let list = expect_context::<CommandList>();
    let (dialog, input) = (NodeRef::<html::Dialog>::new(), NodeRef::<html::Input>::new());
    let search = Search::new();
    Effect::new(move |_| {
        let Some(dialog) = dialog.get() else { return };
        match (list.open.get(), dialog.open()) {
            (true, false) => {
                drop(dialog.show_modal());
                if let Some(input) = input.get() {
                    let _ = input.focus();
                }
                search.begin();
            }
            (false, true) => dialog.close(),
            _ => {}
        }
    });
    let found = search.found(run);
    let act = action(run, help);
    let lines = move || {
        let found = found.get().into_iter().enumerate();
        found
            .map(|(at, command)| view! { <Line command=command at=at search=search act=act /> })
            .collect_view()
    };
    let is_empty = move || found.with(Vec::is_empty);
    view! {
        <dialog
            class="dialog commands"
            node_ref=dialog
            data-testid="commands"
            aria-label="Commands"
            on:close=move |_| dialog_closed(dialog, list.open)
        >
            <input
                node_ref=input
                type="search"
                role="combobox"
                aria-label="Find a view, rank, step, bucket, host, run or action"
                aria-expanded="true"
                aria-controls="command-list"
                aria-activedescendant=move || (!is_empty()).then(|| format!("command-{}", search.marked.get()))
                placeholder="Find a view, rank, step, bucket, host, run or action"
                data-testid="command-input"
                prop:value=move || search.typed.get()
                on:input=move |event| search.enter(event_target_value(&event))
                on:keydown=move |event| search.press(&event, found, act)
            />
            <ul id="command-list" role="listbox" aria-label="Commands">{lines}</ul>
            <p class="quiet" role="status">
                {move || is_empty().then_some("Nothing found. Type a view, rank, step, host or run.")}
            </p>
        </dialog>
    }
}

/// A command in the list.
#[component]
fn Line(command: Command, at: usize, search: Search, act: Callback<Command>) -> impl IntoView {
    let (name, kind) = (command.name.clone(), command.kind);
    view! {
        <li
            role="option"
            id=format!("command-{at}")
            aria-selected=move || (search.marked.get() == at).to_string()
            on:click=move |_| act.run(command.clone())
        >
            <span>{name}</span>
            <small>{kind}</small>
        </li>
    }
}

/// Returns what carries out a command and closes the list.
fn action(run: Memo<Option<String>>, help: RwSignal<bool>) -> Callback<Command> {
    let list = expect_context::<CommandList>();
    let (address, live) = (expect_context::<Address>(), expect_context::<Live>());
    let (theme, toasts) = (expect_context::<Theme>(), expect_context::<Toasts>());
    Callback::new(move |command: Command| {
        list.open.set(false);
        match command.target {
            // Within the run, the selection stays.
            Target::Go(url) if run_in(&url).is_some() && run_in(&url) == run.get_untracked().as_deref() => {
                address.go(&untrack(|| address.keeping(&url)));
            }
            Target::Go(url) => address.go(&url),
            Target::Act(Action::Follow) => list.steps.set(Some(true)),
            Target::Act(Action::ShowAll) => list.steps.set(Some(false)),
            Target::Act(Action::Pause) => live.toggle_pause(run.get_untracked().as_deref()),
            Target::Act(Action::Theme) => theme.toggle(),
            Target::Act(Action::Keys) => help.set(true),
            Target::Act(Action::CopyLink) => copy_link(toasts),
            Target::Act(Action::Notify) => toasts.ask_to_notify(),
        }
    })
}

/// Copies the address of the page.
pub fn copy_link(toasts: Toasts) {
    spawn_local(async move {
        let link = window().location().href().unwrap_or_default();
        let copied = JsFuture::from(window().navigator().clipboard().write_text(&link)).await.is_ok();
        let text = if copied { "Link copied." } else { "The browser does not allow copying here." };
        toasts.say(!copied, text.into());
    });
}
