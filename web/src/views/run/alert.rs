//! What is wrong with the processes of a run: it failed, it hangs, ranks are silent, or memory is nearly full. It stands above every view,
//! because no figure matters before it.

use analysis::wording::advice;
use leptos::prelude::*;
use model::ranks::host_of;
use model::route::Tab;
use wire::views::{Failure, Hang, RankEventKind, Report};

use crate::dates::{date_and_time, time_of_day};
use crate::live::Live;
use crate::route::{Address, RunId};

/// A message above the views.
#[derive(Clone, Debug, PartialEq)]
struct Trouble {
    /// The kind for the style sheet and for tests: `failed`, `hung`, `silent` or `memory`.
    kind: &'static str,
    sentence: String,
    /// What the sentence does not say.
    more: String,
    advice: String,
    rank: Option<u32>,
    /// The newest step that shows the trouble, after what the page calls it.
    step: Option<(&'static str, u64)>,
}

fn trouble(report: &Report) -> Option<Trouble> {
    if let Some(failure) = &report.failure {
        return Some(Trouble {
            kind: "failed",
            more: where_and_when(report, failure),
            sentence: failure.sentence.clone(),
            advice: advice::AFTER_FAILURE.into(),
            rank: (failure.alike == 0).then_some(failure.rank.0),
            step: failure.last_step.map(|step| ("last step", step.0)),
        });
    }
    if let Some(hang) = &report.hang {
        return Some(Trouble {
            kind: "hung",
            sentence: hang.sentence.clone(),
            more: progress_times(hang),
            advice: advice::DURING_HANG.into(),
            rank: hang.ranks.first().map(|rank| rank.0),
            step: report.step_range.map(|(_, last)| ("last observed step", last)),
        });
    }
    let mut silent = report.events.iter().filter(|event| event.kind == RankEventKind::Silent);
    let Some(first) = silent.next() else { return memory(report) };
    let begin = time_of_day(first.unix_millis as f64);
    Some(Trouble {
        kind: "silent",
        sentence: format!("Rank {} has been silent since {begin}.", first.rank),
        more: also_silent(&silent.map(|event| event.rank.0).collect::<Vec<u32>>()),
        advice: advice::ON_SILENCE.into(),
        rank: Some(first.rank.0),
        step: None,
    })
}

/// Returns the memory of a running job that may be full within a day.
fn memory(report: &Report) -> Option<Trouble> {
    let growth = report.memory.iter().find(|growth| growth.is_urgent && !report.state.has_ended())?;
    Some(Trouble {
        kind: "memory",
        sentence: growth.sentence.clone(),
        more: String::new(),
        advice: growth.advice.clone(),
        rank: Some(growth.first_rank),
        step: None,
    })
}

/// Says on which host the failed rank ran, and when it was last heard from, if it is known which rank failed first.
fn where_and_when(report: &Report, failure: &Failure) -> String {
    if failure.alike > 0 {
        return String::new();
    }
    let host = host_of(&report.hosts, failure.rank.0).map(|host| format!("ran on host {host}"));
    let seen =
        failure.last_seen_unix_millis.map(|at| format!("was last heard from on {}", date_and_time(at)));
    match [host, seen].into_iter().flatten().collect::<Vec<String>>() {
        said if said.is_empty() => String::new(),
        said => format!("Rank {} {}.", failure.rank, said.join(" and ")),
    }
}

/// Says since when no step has completed, and when that counts as a hang.
fn progress_times(hang: &Hang) -> String {
    // Files that show a hang do not say how long it lasted.
    let rule = hang
        .limit_seconds
        .map(|limit| format!("A run counts as hung after {} without progress.", units::clock(limit)));
    let last = hang.since_unix_millis.map(|at| format!("No progress since {}.", date_and_time(at)));
    last.into_iter().chain(rule).collect::<Vec<_>>().join(" ")
}

/// The largest number of other silent ranks that the message names.
const MAX_NAMED: usize = 12;

/// Names the other silent ranks.
fn also_silent(others: &[u32]) -> String {
    let named: Vec<String> = others.iter().take(MAX_NAMED).map(u32::to_string).collect();
    match others.len() {
        0 => String::new(),
        1 => format!("Rank {} is silent too.", named[0]),
        count if count > MAX_NAMED => {
            format!("Ranks {} and {} more are silent too.", named.join(", "), count - MAX_NAMED)
        }
        _ => format!("Ranks {} are silent too.", named.join(", ")),
    }
}

/// The message; nothing while every rank works. It is not a live region, because the seconds of a hang would be read out each
/// time. A toast announces the hang once.
#[component]
pub fn Alert() -> impl IntoView {
    let live = expect_context::<Live>();
    let found = Memo::new(move |_| live.newest.with(|run| run.as_ref().and_then(|run| trouble(&run.report))));
    move || {
        found.get().map(|trouble| {
            let Trouble { kind, sentence, more, advice, rank, step } = trouble;
            view! {
                <section class="verdict alert" data-kind=kind aria-label="What is wrong with this run" data-testid="alert">
                    <p class="sentence">{units::unbroken(&sentence)}</p>
                    <p class="quiet below">{more}</p>
                    <p class="advice"><b>"What to do: "</b>{advice}</p>
                    <Links rank=rank step=step />
                </section>
            }
        })
    }
}

#[component]
fn Links(rank: Option<u32>, step: Option<(&'static str, u64)>) -> impl IntoView {
    let (address, run) = (expect_context::<Address>(), expect_context::<RunId>().get());
    let link = |tab: Tab, values: [(&'static str, String); 1]| address.keeping_and(&tab.path(&run), values);
    let step = step.map(|(name, step)| {
        let href = link(Tab::Buckets, [("step", step.to_string())]);
        view! { <a class="button primary" href=href>{format!("See the {name}, {}", units::count(step))}</a> }
    });
    let rank = rank.map(|rank| {
        let href = link(Tab::Ranks, [("rank", rank.to_string())]);
        view! { <a class="button" href=href>{format!("See rank {rank}")}</a> }
    });
    view! { <p class="actions">{step}{rank}</p> }
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;
    use wire::ids::{Rank, Step};
    use wire::views::{RankEvent, RunState};

    use super::*;
    use crate::fixture::{empty_report, show};
    use crate::mounted::mount_in_run;

    #[wasm_bindgen_test]
    async fn a_failure_names_the_rank_and_what_to_do_and_links_to_the_last_step() {
        let (page, live) = mount_in_run(|| view! { <Alert /> });
        assert!(page.find("[data-testid=alert]").is_none());
        let failure = Failure {
            rank: Rank(1),
            reason: "killed by signal 9".into(),
            last_step: Some(Step(46)),
            last_collective: None,
            last_seen_unix_millis: Some(1_760_000_000_000),
            others: 3,
            alike: 0,
            sentence: "Rank 1 was killed by signal 9.".into(),
        };
        show(live, Report { failure: Some(failure.clone()), state: RunState::Failed, ..empty_report() });
        page.settle().await;
        assert_eq!(page.text(".sentence"), "Rank 1 was killed by signal 9.");
        assert!(page.text(".below").starts_with("Rank 1 was last heard from on "), "{}", page.text(".below"));
        assert!(page.text(".advice").contains("log of this rank"));
        assert_eq!(page.attribute("a.primary", "href").as_deref(), Some("/runs/gpt-7/buckets?step=46"));
        assert_eq!(page.texts("a.button").last().map(String::as_str), Some("See rank 1"));

        let failure = Failure { alike: 2, sentence: "3 ranks ended without a word.".into(), ..failure };
        show(live, Report { failure: Some(failure), state: RunState::Failed, ..empty_report() });
        page.settle().await;
        assert_eq!(page.text(".below"), "", "which rank failed first is unknown, so nothing is said of one");
        assert_eq!(page.texts("a.button"), ["See the last step, 46"]);
    }

    #[wasm_bindgen_test]
    async fn a_hang_hides_the_silence_that_it_explains() {
        let (page, live) = mount_in_run(|| view! { <Alert /> });
        let silent = RankEvent { rank: Rank(3), kind: RankEventKind::Silent, unix_millis: 1_760_000_000_000 };
        let report = Report { events: vec![silent], ..empty_report() };
        show(live, report.clone());
        page.settle().await;
        assert!(page.text(".sentence").starts_with("Rank 3 has been silent since "));
        let hang = Hang {
            since_seconds: Some(31.0),
            since_unix_millis: Some(1_760_000_000_000),
            limit_seconds: Some(30.0),
            ranks: vec![Rank(3)],
            sentence: "No step has completed for 31 s.".into(),
            standing: Vec::new(),
        };
        show(live, Report { hang: Some(hang), ..report });
        page.settle().await;
        assert_eq!(page.texts(".sentence"), ["No step has completed for 31\u{a0}s."]);
        assert!(page.text(".below").starts_with("No progress since "), "{}", page.text(".below"));
    }
}
