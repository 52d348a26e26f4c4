//! The Code view: in which lines of code a rank spends its time, against another rank.

mod flame;
mod lines;
mod operators;
mod traces;

use leptos::either::Either;
use leptos::prelude::*;
use leptos::task::spawn_local;
use model::flame::thread_key;
use wire::request::RecordingRequest;
use wire::stacks::{Profile, StacksOutcome, ThreadRole};
use wire::views::{Culprit, RankStacks};

use self::flame::Flame;
use self::lines::Lines;
use self::operators::Operators;
use self::traces::Traces;
use crate::api;
use crate::live::Live;
use crate::polled::polled;
use crate::route::{Address, RunId};
use crate::socket::Link;

/// The time between two fetches while nothing was asked for, in milliseconds. A verdict samples its ranks without being asked.
const FETCH_MILLIS: f64 = 5_000.0;

/// The same while an answer is expected.
const WAITING_MILLIS: f64 = 1_000.0;

/// The ranks that are compared, and the threads that are shown.
#[derive(Clone, PartialEq)]
pub struct Compared {
    rank: u32,
    own: Profile,
    other: Option<OtherRank>,
    role: ThreadRole,
}

/// The rank that a rank is compared with.
#[derive(Clone, PartialEq)]
struct OtherRank {
    rank: u32,
    profile: Profile,
}

/// The view. An imported run has no ranks that could send stacks, and its traces say what ran.
#[component]
pub fn Code() -> impl IntoView {
    let live = expect_context::<Live>();
    let is_imported = Memo::new(move |_| live.run.with(|run| run.as_ref().map(|run| run.summary.imported)));
    move || match is_imported.get()? {
        true => Some(Either::Left(view! { <Operators /> })),
        false => Some(Either::Right(view! { <Sampled /> })),
    }
}

/// Sampled stacks, and captured traces.
#[component]
fn Sampled() -> impl IntoView {
    let (live, run, address) =
        (expect_context::<Live>(), expect_context::<RunId>(), expect_context::<Address>());
    let asked = RwSignal::new(None::<f64>);
    let is_waiting = Memo::new(move |_| asked.get().is_some_and(|end| live.now.get() < end));
    let interval = Signal::derive(move || Some(if is_waiting.get() { WAITING_MILLIS } else { FETCH_MILLIS }));
    let stacks = polled(interval, Some(()), |run, ()| async move { api::stacks(&run).await.ok() });
    let ranks = Memo::new(move |_| {
        stacks.with(|stacks| stacks.iter().flatten().map(|sampled| sampled.rank.0).collect::<Vec<u32>>())
    });
    let culprit = Memo::new(move |_| {
        live.run.with(|run| {
            let verdicts = &run.as_ref()?.report.verdicts;
            verdicts
                .iter()
                .filter_map(|verdict| verdict.culprit.as_ref())
                .flat_map(Culprit::ranks)
                .next()
                .copied()
        })
    });
    let rank = Memo::new(move |_| {
        let wanted = address.number("rank").map(|rank| rank as u32).or(culprit.get());
        ranks.with(|ranks| wanted.filter(|rank| ranks.contains(rank)).or(ranks.first().copied()))
    });
    let other = Memo::new(move |_| {
        let wanted = address.number("against").map(|rank| rank as u32);
        let is_another = |other: &u32| Some(*other) != rank.get();
        ranks.with(|ranks| {
            let wanted = wanted.filter(|wanted| ranks.contains(wanted) && is_another(wanted));
            wanted.or_else(|| ranks.iter().copied().find(is_another))
        })
    });
    let compared = Memo::new(move |_| {
        let profile = |rank: u32| {
            stacks.with(|stacks| {
                let found = stacks.iter().flatten().find(|sampled| sampled.rank.0 == rank)?;
                found.stacks.profile().cloned()
            })
        };
        let rank = rank.get()?;
        let own = profile(rank)?;
        let wanted = address.param("thread");
        let role = ThreadRole::ALL.into_iter().find(|role| wanted.as_deref() == Some(thread_key(*role)));
        let has = |role: &ThreadRole| own.threads.iter().any(|thread| thread.role == *role);
        let role = role.filter(has).unwrap_or(ThreadRole::Main);
        let other = other.get().and_then(|rank| Some(OtherRank { rank, profile: profile(rank)? }));
        Some(Compared { rank, own, other, role })
    });
    let is_known = Memo::new(move |_| stacks.with(|stacks| stacks.as_ref().map(|stacks| !stacks.is_empty())));
    view! {
        <section class="panel" aria-label="Code" data-testid="code">
            <div class="panel-head">
                <h2>"Lines of code"<small>" sampled stacks"</small></h2>
                <Show when=move || is_known.get() == Some(true)>
                    <Choices ranks=ranks rank=rank other=other compared=compared />
                </Show>
                <span class="grow"></span>
                <Ask rank=rank other=other asked=asked />
            </div>
            <Status stacks=stacks rank=rank />
            {move || compared.with(Option::is_some).then(|| view! {
                <Flame compared=compared />
                <Lines compared=compared />
                <Files run=run />
            })}
        </section>
        <Traces rank=rank other=other />
    }
}

/// The choice of the rank, the rank it is compared with, and the threads.
#[component]
fn Choices(
    ranks: Memo<Vec<u32>>,
    rank: Memo<Option<u32>>,
    other: Memo<Option<u32>>,
    compared: Memo<Option<Compared>>,
) -> impl IntoView {
    let address = expect_context::<Address>();
    let choose = move |key: &'static str| {
        move |event: leptos::ev::Event| address.set([(key, Some(event_target_value(&event)))])
    };
    let options = move |chosen: Memo<Option<u32>>, left_out: Option<Memo<Option<u32>>>| {
        let listed =
            ranks.get().into_iter().filter(|rank| left_out.is_none_or(|out| out.get() != Some(*rank)));
        listed
            .map(|rank| {
                view! { <option value=rank.to_string() prop:selected=move || chosen.get() == Some(rank)>{rank}</option> }
            })
            .collect_view()
    };
    let roles = Memo::new(move |_| {
        compared.with(|compared| {
            let threads = || compared.iter().flat_map(|compared| &compared.own.threads);
            let has = |role: &ThreadRole| threads().any(|thread| thread.role == *role);
            ThreadRole::ALL.into_iter().filter(has).collect::<Vec<ThreadRole>>()
        })
    });
    let chosen =
        Memo::new(move |_| compared.with(|compared| compared.as_ref().map(|compared| compared.role)));
    let role_options = move || {
        roles
            .get()
            .into_iter()
            .map(|role| {
                view! { <option value=thread_key(role) prop:selected=move || chosen.get() == Some(role)>{role.name()}</option> }
            })
            .collect_view()
    };
    view! {
        <label class="field">
            <span>"Rank"</span>
            <select data-testid="code-rank" on:change=choose("rank")>{move || options(rank, None)}</select>
        </label>
        <label class="field" class:hidden=move || other.get().is_none()>
            <span>"against rank"</span>
            <select data-testid="code-against" on:change=choose("against")>
                {move || options(other, Some(rank))}
            </select>
        </label>
        <label class="field" class:hidden=move || roles.with(Vec::len) < 2>
            <span>"of its"</span>
            <select data-testid="code-thread" on:change=choose("thread")>{role_options}</select>
        </label>
    }
}

/// The button that samples the ranks again, or ranks 0 and 1 at first.
#[component]
fn Ask(rank: Memo<Option<u32>>, other: Memo<Option<u32>>, asked: RwSignal<Option<f64>>) -> impl IntoView {
    let (run, live) = (expect_context::<RunId>(), expect_context::<Live>());
    let error = RwSignal::new(String::new());
    let ask = move |_| {
        let ranks = live.run.with_untracked(|run| run.as_ref().map_or(0, |run| run.report.ranks));
        let first = rank.get_untracked().unwrap_or(0);
        let second = other.get_untracked().unwrap_or(1);
        let wanted: Vec<u32> = [first, second].into_iter().filter(|rank| *rank < ranks).collect();
        spawn_local(async move {
            for rank in wanted {
                let answer = api::ask_for_stacks(&run.get_untracked(), rank).await;
                error.set(answer.as_ref().err().cloned().unwrap_or_default());
                if let Ok(request) = answer {
                    let patience = RecordingRequest::PATIENCE_MILLIS + u64::from(request.millis);
                    asked.set(Some(live.now.get_untracked() + patience as f64));
                }
            }
        });
    };
    let has_ended =
        Memo::new(move |_| live.run.with(|run| run.as_ref().is_none_or(|run| run.summary.state.has_ended())));
    let is_unreachable = move || matches!(live.link.get(), Link::Lost(_) | Link::Connecting);
    view! {
        <span class="error" role="status">{error}</span>
        <button disabled=move || is_unreachable() || has_ended.get() on:click=ask data-testid="sample">"Sample 2 s"</button>
    }
}

/// Says why there is nothing to show.
#[component]
fn Status(stacks: Signal<Option<Vec<RankStacks>>>, rank: Memo<Option<u32>>) -> impl IntoView {
    let words = move || {
        stacks.with(|stacks| match (stacks, rank.get()) {
            (None, _) => String::new(),
            (Some(_), None) => {
                "No rank has been sampled yet. A rank that a verdict names is sampled by itself, and so are \
                the ranks of a hang."
                    .into()
            }
            (Some(stacks), Some(rank)) => {
                let found = stacks.iter().find(|sampled| sampled.rank.0 == rank);
                match found.map(|sampled| &sampled.stacks.outcome) {
                    Some(StacksOutcome::Refused { reason }) => {
                        format!("Rank {rank} has no stacks: {reason}.")
                    }
                    _ => String::new(),
                }
            }
        })
    };
    view! { <p class="quiet" role="status" data-testid="code-status">{words}</p> }
}

/// The files for other tools.
#[component]
fn Files(run: RunId) -> impl IntoView {
    let file = move |format: &str| format!("/api/v1/runs/{}/stacks?format={format}", run.get());
    view! {
        <p class="quiet">
            "All sampled ranks as "
            <a rel="external" download="stacks.speedscope.json" href=move || file("speedscope")>"speedscope profile"</a>
            " or "
            <a rel="external" download="stacks.folded" href=move || file("folded")>"folded stacks"</a>
            ". In a terminal: "<code>"paceline stacks"</code>
        </p>
    }
}
