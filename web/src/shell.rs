//! The frame around every view: the bar at the top, the notice at the bottom, and the choice of view.

use leptos::prelude::*;

use crate::canvas::Stretch;
use crate::cells::{Memo, Var, act, derived, effect, memo, part, text};
use crate::keys;
use crate::live::Live;
use crate::pages::{compare::comparison, run::Run, runs::runs};
use crate::route::{Page, Router};
use crate::socket::Link;
use crate::theme::Theme;

/// The whole dashboard.
#[component]
pub fn App() -> impl IntoView {
    let router = Router::start();
    let theme = Theme::start();
    let live = Live::start();
    let help = Var::new(false);
    provide_context(router);
    provide_context(theme);
    provide_context(live);
    provide_context(Stretch::start());

    let run = memo(move || match router.page() {
        Page::Run(run, _) => Some(run),
        _ => None,
    });
    effect(move || live.look_at(run.get().as_deref()));
    effect(move || {
        document().set_title(&run.get().map_or_else(|| "Paceline".into(), |run| format!("{run} · Paceline")));
    });
    keys::global(move |key| {
        match key {
            "?" => help.update(|open| *open = !*open),
            " " => live.toggle_pause(run.get_untracked().as_deref()),
            _ => return false,
        }
        true
    });

    let page = memo(move || match router.page() {
        Page::Run(..) => None,
        other => Some(other),
    });
    let body = part(move || match page.get() {
        Some(Page::Runs) => runs(),
        None | Some(Page::Run(..)) => ().into_any(),
        Some(Page::Compare) => comparison(),
        Some(Page::Unknown) => view! {
            <section class="empty" data-testid="not-found">
                <h1>"This page does not exist."</h1>
                <p><a href="/">"All runs"</a></p>
            </section>
        }
        .into_any(),
    });
    let run_body = part(move || run.get().map(|id| view! { <Run id=id /> }).into_any());

    view! {
        <a class="skip" href="#main">"Skip to content"</a>
        <header class="bar">
            <a class="brand" href="/" aria-label="Paceline, all runs">
                <svg viewBox="0 0 24 24" aria-hidden="true">
                    <path d="M3 6h11M3 12h17M3 18h8" />
                </svg>
                <span>"Paceline"</span>
            </a>
            <nav class="crumbs" aria-label="Where you are">
                <a href="/">"Runs"</a>
                <b>{text(move || match router.page() {
                    Page::Run(run, _) => run,
                    Page::Compare => "Compare".into(),
                    Page::Runs | Page::Unknown => String::new(),
                })}</b>
            </nav>
            <span class="grow"></span>
            <Connection run=run />
            <button
                class="icon"
                aria-label=text(move || if theme.is_dark() { "Use the light theme" } else { "Use the dark theme" }.into())
                title="Light or dark"
                data-testid="theme"
                on:click=act(move |_| theme.toggle())
            >
                {text(move || if theme.is_dark() { "☀" } else { "☾" }.into())}
            </button>
            <button class="icon" aria-label="Keys" title="Keys (?)" data-testid="help-button" on:click=act(move |_| help.set(true))>
                "?"
            </button>
        </header>
        <main id="main">{body} {run_body}</main>
        <Notice />
        {keys::help(help)}
    }
}

/// The state of the connection. A click pauses or resumes.
#[component]
fn Connection(run: Memo<Option<String>>) -> impl IntoView {
    let live = expect_context::<Live>();
    let state = derived(move || match live.link.get() {
        Link::Connecting => ("connecting", "Connecting"),
        Link::Live => ("live", "Live"),
        Link::Stale(_) => ("stale", "Stale"),
        Link::Lost(_) => ("lost", "Reconnecting"),
        Link::Paused(_) => ("paused", "Paused"),
    });
    // Seconds change every second, so a screen reader reads only the states.
    let since = move || {
        let since = match live.link.get() {
            Link::Stale(since) | Link::Lost(since) | Link::Paused(since) => since,
            Link::Connecting | Link::Live => return String::new(),
        };
        format!("since {}", units::clock((live.now.get() - since) / 1000.0))
    };
    view! {
        <div class="connection" data-testid="connection" data-state=text(move || state.get().0.into())>
            <span role="status">
                <i class="dot" aria-hidden="true"></i>
                {text(move || state.get().1.into())}
            </span>
            <span class="since" aria-hidden="true">{text(since)}</span>
            <button
                class="quiet"
                data-testid="pause"
                title="Pause or resume (Space)"
                on:click=act(move |_| live.toggle_pause(run.get_untracked().as_deref()))
            >
                {text(move || if state.get().0 == "paused" { "Resume" } else { "Pause" }.into())}
            </button>
        </div>
    }
}

/// A notice that the data shown are old. It overlays the page, so that nothing moves when it appears.
#[component]
fn Notice() -> impl IntoView {
    let live = expect_context::<Live>();
    let words = move || {
        let age = |since: f64| units::clock((live.now.get() - since) / 1000.0);
        let shown = live.run.with(Option::is_some) || live.runs.with(Option::is_some);
        match live.link.get() {
            Link::Lost(_) if !shown => {
                Some("The server does not answer. This page connects automatically once it does.".into())
            }
            Link::Lost(since) => Some(format!(
                "The server does not answer. These data are {} old; this page resumes automatically.",
                age(since)
            )),
            Link::Stale(since) => Some(format!("No data for {}. This page may be out of date.", age(since))),
            _ => None,
        }
    };
    move || words().map(|text| view! { <div class="notice" data-testid="stale-notice">{text}</div> })
}
