//! The frame around every view: the bar at the top, the notice at the bottom, and the choice of view.

use leptos::prelude::*;
use leptos_router::components::{ParentRoute, Route, Router, Routes};
use leptos_router::path;
use model::route::run_in;
use model::verdict::alarm;

use crate::access::{Access, SignOut};
use crate::commands::{CommandList, Commands, copy_link};
use crate::imports::Imports;
use crate::keys::{self, Help};
use crate::live::Live;
use crate::news::{ToastList, Toasts};
use crate::plot::Stretch;
use crate::route::Address;
use crate::socket::Link;
use crate::terms::{DefinitionDialog, OpenTerm};
use crate::theme::Theme;
use crate::views::buckets::Buckets;
use crate::views::code::Code;
use crate::views::compare::Compare;
use crate::views::health::Health;
use crate::views::overview::Overview;
use crate::views::plan::Planner;
use crate::views::ranks::Ranks;
use crate::views::run::Run;
use crate::views::runs::Runs;
use crate::views::scaling::Scaling;
use crate::views::utilization::Utilization;

/// The whole dashboard.
#[component]
pub fn App() -> impl IntoView {
    view! { <Router><Page /></Router> }
}

/// Everything within the router.
#[component]
fn Page() -> impl IntoView {
    let address = Address::new();
    let live = Live::start();
    provide_context(address);
    provide_context(Theme::start());
    provide_context(live);
    provide_context(Stretch::start());
    provide_context(OpenTerm::new());
    let toasts = Toasts::new();
    toasts.follow(live);
    provide_context(toasts);
    provide_context(CommandList::start());
    provide_context(Imports::new());
    let access = Access::new();
    access.follow(live, address);
    provide_context(access);

    let run = Memo::new(move |_| address.path.with(|path| run_in(path).map(str::to_owned)));
    Effect::new(move |_| live.look_at(run.get().as_deref()));
    let title = Memo::new(move |_| {
        let alarm = live.run.with(|run| run.as_ref().and_then(|run| alarm(&run.report)));
        [alarm, run.get(), Some("Paceline".into())].into_iter().flatten().collect::<Vec<String>>().join(" · ")
    });
    Effect::new(move |_| document().set_title(&title.get()));
    view! {
        <a class="skip" href="#main" rel="external">"Skip to content"</a>
        <Bar run=run />
        <main id="main">
            <Routes fallback=NotFound>
                <Route path=path!("/") view=Runs />
                <Route path=path!("/runs") view=Runs />
                <Route path=path!("/compare") view=Compare />
                <Route path=path!("/plan") view=Planner />
                <ParentRoute path=path!("/runs/:run") view=Run>
                    <Route path=path!("") view=Overview />
                    <Route path=path!("ranks") view=Ranks />
                    <Route path=path!("buckets") view=Buckets />
                    <Route path=path!("scaling") view=Scaling />
                    <Route path=path!("utilization") view=Utilization />
                    <Route path=path!("code") view=Code />
                    <Route path=path!("health") view=Health />
                </ParentRoute>
            </Routes>
        </main>
        <Notice />
        <DefinitionDialog />
        <ToastList />
    }
}

#[component]
fn NotFound() -> impl IntoView {
    view! {
        <section class="empty" data-testid="not-found">
            <h1>"This page does not exist."</h1>
            <p><a href="/">"All runs"</a></p>
        </section>
    }
}

/// The bar at the top.
#[component]
fn Bar(run: Memo<Option<String>>) -> impl IntoView {
    let (address, live) = (expect_context::<Address>(), expect_context::<Live>());
    let list = expect_context::<CommandList>();
    let help = RwSignal::new(false);
    keys::global(move |key| {
        match key {
            "?" => help.update(|open| *open = !*open),
            " " => live.toggle_pause(run.get_untracked().as_deref()),
            _ => return false,
        }
        true
    });
    let place = move || match (run.get(), address.path.get().as_str()) {
        (Some(run), _) => run,
        (None, "/compare") => "Compare".into(),
        (None, "/plan") => "Training plan".into(),
        (None, _) => String::new(),
    };
    view! {
        <header class="bar">
            <a class="brand" href="/" aria-label="Paceline, all runs">
                <svg viewBox="0 0 24 24" aria-hidden="true">
                    <path d="M3 6h11M3 12h17M3 18h8" />
                </svg>
                <span>"Paceline"</span>
            </a>
            <nav class="crumbs" aria-label="Where you are">
                <a href="/">"Runs"</a>
                <b>{place}</b>
            </nav>
            <span class="grow"></span>
            <button
                class="quiet find"
                data-testid="find"
                title="Find a view, rank, step, bucket, host, run or action"
                on:click=move |_| list.open.set(true)
            >
                "Find…"
                <kbd>"Ctrl K"</kbd>
            </button>
            <Connection run=run />
            <Tools help=help />
            <SignOut />
        </header>
        <Help open=help />
        <Commands run=run help=help />
    }
}

/// The buttons at the right of the bar.
#[component]
fn Tools(help: RwSignal<bool>) -> impl IntoView {
    let (theme, toasts) = (expect_context::<Theme>(), expect_context::<Toasts>());
    view! {
        <button
            class="icon"
            aria-label="Copy link"
            title="Copy a link to what this page shows"
            data-testid="copy-link"
            on:click=move |_| copy_link(toasts)
        >
            <svg viewBox="0 0 16 16" aria-hidden="true">
                <path d="M6 10l4-4M7 4l1-1a3 3 0 0 1 5 5l-1 1M9 12l-1 1a3 3 0 0 1-5-5l1-1" />
            </svg>
        </button>
        <button
            class="icon"
            aria-label=move || if theme.is_dark() { "Use the light theme" } else { "Use the dark theme" }
            title="Light or dark"
            data-testid="theme"
            on:click=move |_| theme.toggle()
        >
            {move || if theme.is_dark() { "☀" } else { "☾" }}
        </button>
        <button
            class="icon"
            aria-label="Keys"
            title="Keys (?)"
            data-testid="help-button"
            on:click=move |_| help.set(true)
        >
            "?"
        </button>
    }
}

/// How the state of the connection is written: by style sheets and tests, and on the page.
#[derive(Clone, Copy)]
struct ConnectionState {
    name: &'static str,
    label: &'static str,
}

/// The state of the connection. A click pauses or resumes.
#[component]
pub fn Connection(run: Memo<Option<String>>) -> impl IntoView {
    let live = expect_context::<Live>();
    let has_ended = Memo::new(move |_| live.has_ended());
    let state = Signal::derive(move || match live.link.get() {
        Link::Connecting => ConnectionState { name: "connecting", label: "Connecting" },
        // A run that has ended is not live, and its page is connected all the same.
        Link::Live if has_ended.get() => ConnectionState { name: "live", label: "Connected" },
        Link::Live => ConnectionState { name: "live", label: "Live" },
        Link::Stale(_) => ConnectionState { name: "stale", label: "Stale" },
        Link::Lost(_) => ConnectionState { name: "lost", label: "Reconnecting" },
        Link::Paused(_) => ConnectionState { name: "paused", label: "Paused" },
        Link::Outdated => ConnectionState { name: "lost", label: "Outdated" },
    });
    // Seconds change every second, so a screen reader reads only the states.
    let duration = move || {
        let begin = match live.link.get() {
            Link::Stale(begin) | Link::Lost(begin) | Link::Paused(begin) => begin,
            Link::Connecting | Link::Live | Link::Outdated => return String::new(),
        };
        format!("for {}", units::clock((live.now.get() - begin) / 1000.0))
    };
    view! {
        <div class="connection" data-testid="connection" data-state=move || state.get().name>
            <span role="status">
                <i class="dot" aria-hidden="true"></i>
                {move || state.get().label}
            </span>
            <span class="since" aria-hidden="true">{duration}</span>
            <button
                class="quiet"
                data-testid="pause"
                title="Pause or resume (Space)"
                style:display=move || (live.link.get() == Link::Outdated).then_some("none")
                on:click=move |_| live.toggle_pause(run.get_untracked().as_deref())
            >
                {move || if state.get().name == "paused" { "Resume" } else { "Pause" }}
            </button>
        </div>
    }
}

/// A notice that the data shown are old. It overlays the page, so that nothing moves when it appears.
#[component]
pub fn Notice() -> impl IntoView {
    let (live, access) = (expect_context::<Live>(), expect_context::<Access>());
    let has_ended = Memo::new(move |_| live.has_ended());
    let words = move || {
        let age = |since: f64| units::clock((live.now.get() - since) / 1000.0);
        let shown = live.run.with(Option::is_some) || live.runs.with(Option::is_some);
        match live.link.get() {
            Link::Lost(_) if access.is_refused.get() => Some(
                "This page is not signed in any more: the server was restarted, or nothing used the session for a week. \
                 Open /?token=TOKEN again."
                    .into(),
            ),
            Link::Lost(_) if !shown => {
                Some("The server does not answer. This page connects automatically once it does.".into())
            }
            // The figures of a run that has ended do not age.
            Link::Lost(_) if has_ended.get() => Some(
                "The server does not answer. This run has ended, so these data stay as they are. This page resumes \
                 automatically."
                    .into(),
            ),
            Link::Stale(since) if has_ended.get() => {
                Some(format!("No message from the server for {}.", age(since)))
            }
            Link::Lost(since) => Some(format!(
                "The server does not answer. These data are {} old; this page resumes automatically.",
                age(since)
            )),
            Link::Stale(since) => Some(format!("No data for {}. This page may be out of date.", age(since))),
            Link::Outdated => Some("The server was updated. Reload this page to see its data. ".into()),
            Link::Connecting | Link::Live | Link::Paused(_) => None,
        }
    };
    let is_outdated = Memo::new(move |_| live.link.get() == Link::Outdated);
    let reload = move || {
        is_outdated.get().then(|| {
            let reload = |_| drop(window().location().reload());
            view! { <button on:click=reload>"Reload"</button> }
        })
    };
    move || words().map(|text| view! { <div class="notice" data-testid="stale-notice">{text} {reload}</div> })
}
