//! Which operators and kernels ran, by name: on one rank of a run that is imported from traces, on all, or on one against another.

use leptos::either::EitherOf3;
use leptos::prelude::*;
use units::nanos;
use wire::traces::{TraceSummary, TraceTotals};
use wire::views::captures::TraceComparison;
use wire::views::{Culprit, Report};

use crate::api;
use crate::live::Live;
use crate::polled::polled;
use crate::route::Address;
use crate::traced::{Differences, Sums};

/// The value of a choice that stands for no single rank.
const NONE: &str = "none";

#[derive(Clone, PartialEq)]
enum Shown {
    Ranks(Option<u32>, TraceSummary),
    Compared(Box<TraceComparison>),
    Error(String),
}

/// The section.
#[component]
pub fn Operators() -> impl IntoView {
    let (live, address) = (expect_context::<Live>(), expect_context::<Address>());
    let ranks_in = move |read: fn(&Report) -> Vec<u32>| {
        live.run.with(|run| run.as_ref().map(|run| read(&run.report)).unwrap_or_default())
    };
    let ranks =
        Memo::new(move |_| ranks_in(|report| report.ledger.iter().map(|ledger| ledger.rank.0).collect()));
    let culprits = Memo::new(move |_| {
        ranks_in(|report| {
            let named = report.verdicts.iter().filter_map(|verdict| verdict.culprit.as_ref());
            named.flat_map(Culprit::ranks).copied().collect()
        })
    });
    // Without a choice, a rank that a verdict names is compared with one that none names.
    let rank = Memo::new(move |_| match address.param("rank") {
        Some(chosen) => chosen.parse().ok(),
        None => culprits.with(|culprits| culprits.first().copied()),
    });
    let other = Memo::new(move |_| match address.param("against") {
        Some(chosen) => chosen.parse().ok(),
        None => ranks
            .with(|ranks| ranks.iter().copied().find(|rank| culprits.with(|named| !named.contains(rank))))
            .filter(|_| culprits.with(|named| rank.get().is_some_and(|rank| named.contains(&rank)))),
    });
    let all = Memo::new(move |_| live.run.with(|run| run.as_ref()?.report.traced.clone()));
    let fetched = polled(
        None,
        Memo::new(move |_| rank.get().map(|rank| (rank, other.get().filter(|other| *other != rank)))),
        fetch,
    );
    let shown = move || match rank.get() {
        None => all.get().map(|all| Shown::Ranks(None, all)),
        Some(_) => fetched.get(),
    };
    let has_names = Memo::new(move |_| all.with(Option::is_some));
    view! {
        <section class="panel" aria-label="Operators and kernels" data-testid="traced">
            <div class="panel-head">
                <h2>"Operators and kernels"<small>" mean per step, as the imported traces have them"</small></h2>
                <Show when=move || has_names.get()>
                    <Choice testid="traced-rank" key="rank" label="Rank" none="all" ranks=ranks chosen=rank />
                    // Only a single rank is compared with another.
                    <Show when=move || rank.get().is_some()>
                        <Choice testid="traced-against" key="against" label="against rank" none="none" ranks=ranks chosen=other />
                    </Show>
                </Show>
            </div>
            <Show when=move || !has_names.get()>
                <p class="quiet" data-testid="traced-none">
                    "The imported files do not say which operators and kernels ran. Traces of PyTorch's profiler do."
                </p>
            </Show>
            {move || shown().map(|shown| match shown {
                Shown::Ranks(rank, summary) => EitherOf3::A(view! {
                    <p class="quiet" data-testid="traced-summary">{told(rank, &summary.totals())}</p>
                    <Sums summary=summary />
                }),
                Shown::Compared(found) => EitherOf3::B(view! {
                    <p class="quiet" data-testid="traced-summary">{super::traces::tell_both(&found)}</p>
                    <Differences rows=found.rows sides=["This rank", "Other rank"] />
                }),
                Shown::Error(error) => EitherOf3::C(view! { <p class="error" role="status">{error}</p> }),
            })}
        </section>
    }
}

/// Fetches what ran on a rank, or what differs between two.
async fn fetch(run: String, (rank, other): (u32, Option<u32>)) -> Option<Shown> {
    Some(match other {
        Some(other) => api::compared_ranks(&run, rank, other)
            .await
            .map_or_else(Shown::Error, |found| Shown::Compared(Box::new(found))),
        None => {
            api::traced(&run, rank).await.map_or_else(Shown::Error, |found| Shown::Ranks(Some(rank), found))
        }
    })
}

#[component]
fn Choice(
    testid: &'static str,
    key: &'static str,
    label: &'static str,
    /// The name of the choice of no single rank.
    none: &'static str,
    ranks: Memo<Vec<u32>>,
    chosen: Memo<Option<u32>>,
) -> impl IntoView {
    let address = expect_context::<Address>();
    let choose = move |event: leptos::ev::Event| address.set([(key, Some(event_target_value(&event)))]);
    let options = move || {
        let option = |rank: u32| {
            view! { <option value=rank.to_string() prop:selected=move || chosen.get() == Some(rank)>{rank}</option> }
        };
        ranks.get().into_iter().map(option).collect_view()
    };
    view! {
        <label class="field">
            <span>{label}</span>
            <select data-testid=testid on:change=choose>
                <option value=NONE prop:selected=move || chosen.get().is_none()>{none}</option>
                {options}
            </select>
        </label>
    }
}

/// Says what the steps of a rank, or of all ranks, consist of.
fn told(rank: Option<u32>, totals: &TraceTotals) -> String {
    let whose = rank.map_or_else(|| "in the mean over ranks".into(), |rank| format!("on rank {rank}"));
    let device = totals.kernel_nanos.zip(totals.gap_nanos).map_or_else(String::new, |(kernels, gaps)| {
        format!(
            " Kernels take {}; launch gaps, in which the device runs nothing, {}.",
            nanos(kernels),
            nanos(gaps)
        )
    });
    format!("A step takes {} {whose}.{device}", nanos(totals.step_nanos))
}
