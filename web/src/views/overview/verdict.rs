//! The verdict panel: what slows the job, in a sentence, with its cost and its evidence. It is the first thing on the
//! page.
//!
//! A report arrives twice per second. Elements stay while their texts change, so it neither takes the focus from a link
//! nor collapses a list.

use analysis::wording::past_fault;
use leptos::prelude::*;
use model::flame::thread_key;
use model::route::Tab;
use model::verdict::{confidence, state};
use wire::views::{CodeLine, ComputedOn, Culprit as Culprits, Report, RunState, Verdict, VerdictState};

use super::culprit::Culprit;
use crate::dates::date_and_time;
use crate::live::Live;
use crate::route::{Address, RunId};
use crate::terms::Term;
use crate::widgets::List;

/// The content of the panel.
#[derive(Clone, Debug, Default, PartialEq)]
struct Finding {
    /// The kind of content for the style sheet: `waiting`, `nothing`, `insufficient`, `against`, `resolved`.
    kind: &'static str,
    sentence: String,
    below: String,
    /// The verdict that the figures describe, if any.
    verdict: Option<Verdict>,
    /// The verdicts that are not shown in full.
    others: Vec<Verdict>,
    /// The effects that cost little.
    notes: Vec<Verdict>,
    computed_on: ComputedOn,
    /// True if the run has ended.
    has_ended: bool,
}

fn finding(report: &Report) -> Finding {
    let say = |kind, sentence: &str, below: &str| Finding {
        kind,
        sentence: sentence.into(),
        below: below.into(),
        others: report.verdicts.clone(),
        notes: report.notes.clone(),
        has_ended: report.state.has_ended(),
        ..Finding::default()
    };
    let Some((worst, others)) = report.verdicts.split_first() else {
        return match &report.verdicts_missing {
            Some(reason) => say("insufficient", &(units::capitalized(&reason.to_string()) + "."), ""),
            None if report.steps == 0 => say(
                "waiting",
                "Waiting for the first complete step.",
                "A verdict needs several steps that every rank has completed.",
            ),
            None => say(
                if matches!(report.state, RunState::Failed | RunState::Hung) { "waiting" } else { "nothing" },
                &match report.spent.as_str() {
                    "" => format!("Nothing stands out in {} steps.", units::count(report.steps)),
                    spent => spent.to_owned(),
                },
                &("No rank, cause or bucket costs more than noise can explain.".to_owned()
                    + &earlier(report)),
            ),
        };
    };
    Finding {
        kind: if is_past(worst, report.state.has_ended()) { "resolved" } else { "against" },
        sentence: worst.sentence.clone(),
        below: String::new(),
        verdict: Some(worst.clone()),
        others: others.to_vec(),
        notes: report.notes.clone(),
        computed_on: report.computed_on,
        has_ended: report.state.has_ended(),
    }
}

/// Describes the newest past fault.
fn earlier(report: &Report) -> String {
    let Some((newest, others)) = report.past_faults.split_last() else { return String::new() };
    let more = match others.len() {
        0 => String::new(),
        1 => " The bar of step time shows another one.".into(),
        more => format!(" The bar of step time shows {more} others."),
    };
    format!(" The most recent fault is over: {}{more}", past_fault(newest))
}

/// Returns true if a fault is over, because it was resolved or because its run has ended.
fn is_past(verdict: &Verdict, has_ended: bool) -> bool {
    verdict.state == VerdictState::Resolved || has_ended
}

/// Returns the cost, what it is the cost of, its share, and what that is a share of.
fn costs(verdict: &Verdict) -> [String; 4] {
    match &verdict.recurrence {
        Some(recurrence) => [
            units::nanos(recurrence.nanos as f64),
            " each time, ".into(),
            units::percent(recurrence.share_of_time),
            " of the time; ".into(),
        ],
        None => [
            units::nanos(verdict.cost_nanos_per_step as f64),
            " per affected step, ".into(),
            units::percent(verdict.cost_share),
            " of such a step; ".into(),
        ],
    }
}

/// Describes the state of the fault and the affected steps.
fn seen(verdict: &Verdict, has_ended: bool) -> String {
    let (first, last) = verdict.steps;
    let (first, last, count) =
        (units::count(first), units::count(last), units::count(verdict.affected_steps));
    match verdict.state {
        _ if verdict.cause.is_outside_steps() => "outside of steps".into(),
        VerdictState::Active if has_ended => format!("from step {first} until the run ended"),
        VerdictState::Active => format!("active since step {first}"),
        VerdictState::Recurring => format!("recurring, {count} steps from {first} to {last}"),
        VerdictState::Resolved => format!("resolved, {count} steps from {first} to {last}"),
    }
}

/// Describes the onset: when the fault began, how certain that is, and what changed.
fn onset(verdict: &Verdict) -> String {
    let Some(onset) = verdict.onset else { return String::new() };
    let bounds = if onset.earliest == onset.latest {
        String::new()
    } else {
        format!(" (between {} and {})", units::count(onset.earliest), units::count(onset.latest))
    };
    let when = onset.unix_millis.map_or_else(String::new, |millis| format!(", {}", date_and_time(millis)));
    let sure = if onset.verified { "more than scatter explains" } else { "which scatter may explain" };
    format!(
        "Began at step {}{bounds}{when}: local work changed from {} to {}, {sure}.",
        units::count(onset.step),
        units::nanos(onset.before_nanos),
        units::nanos(onset.after_nanos)
    )
}

/// The panel: what is wrong with the run's processes, the worst verdict in full, the other verdicts and notes as lists.
#[component]
pub fn Verdicts() -> impl IntoView {
    let live = expect_context::<Live>();
    let found = Memo::new(move |_| {
        live.run.with(|shown| match shown {
            Some(shown) => finding(&shown.report),
            None => Finding { kind: "waiting", sentence: "Loading the run…".into(), ..Finding::default() },
        })
    });
    let said = move |read: fn(&Finding) -> String| move || found.with(read);
    let verdict = Memo::new(move |_| found.with(|found| found.verdict.clone()));
    let has_ended = Memo::new(move |_| found.with(|found| found.has_ended));
    let grounds = move || {
        let computed_on = found.with(|found| found.computed_on);
        let has_ended = has_ended.get();
        verdict
            .get()
            .map(|verdict| view! { <Grounds verdict=verdict computed_on=computed_on has_ended=has_ended /> })
    };
    let list = move |read: fn(&Finding) -> &[Verdict], what: &'static str| move || view! { <Others verdicts=found.with(|found| read(found).to_vec()) what=what has_ended=has_ended.get() /> };
    let others = list(|found| &found.others, "more verdict");
    let notes = list(|found| &found.notes, "note");
    view! {
        <section aria-label="Verdict">
            <div class="verdict" data-kind=move || found.with(|found| found.kind)>
                <div class="verdict-text">
                    <p class="sentence" data-testid="verdict">{said(|found| units::unbroken(&found.sentence))}</p>
                    <p class="quiet below">{said(|found| units::unbroken(&found.below))}</p>
                    {grounds}
                </div>
                <Culprit verdict=verdict />
            </div>
            {others}
            {notes}
        </section>
    }
}

/// A collapsed list; `what` names one entry of it.
#[component]
fn Others(verdicts: Vec<Verdict>, what: &'static str, has_ended: bool) -> impl IntoView {
    let line = |verdict: Verdict| {
        let small = format!(
            " {}{}; confidence: {}",
            costs(&verdict).concat(),
            seen(&verdict, has_ended),
            confidence(verdict.confidence)
        );
        view! { <li>{verdict.sentence}<small>{small}</small></li> }
    };
    let count = verdicts.len();
    let title = format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    (count > 0).then(|| {
        view! {
            <details class="others">
                <summary>{title}</summary>
                <ul>{verdicts.into_iter().map(line).collect_view()}</ul>
            </details>
        }
    })
}

/// The cost, state, onset, advice and evidence of the verdict shown in full.
#[component]
fn Grounds(verdict: Verdict, computed_on: ComputedOn, has_ended: bool) -> impl IntoView {
    let lost = match verdict.device_hours_per_day.filter(|_| !has_ended) {
        Some(per_day) => format!("{} {} per day", units::significant(per_day), computed_on.hours()),
        None => format!("{} in all", units::nanos(verdict.lost_nanos() as f64)),
    };
    let [cost, per, share, share_of] = costs(&verdict);
    let state_name = state(verdict.state);
    let count = |lines: &[String]| lines.len();
    let (evidence, counter_evidence) = (count(&verdict.evidence), count(&verdict.counter_evidence));
    let fold = match counter_evidence {
        0 => format!("Evidence ({evidence})"),
        _ => format!("Evidence ({evidence}), counter-evidence ({counter_evidence})"),
    };
    view! {
        <dl class="costs">
            <div>
                <dt><Term name="cost" /></dt>
                <dd>
                    <span data-testid="cost">{cost}</span>
                    <small>{per}<span data-testid="cost-share">{share}</span>{share_of}
                    <span data-testid="lost">{lost}</span></small>
                </dd>
            </div>
            <div>
                <dt>"state"</dt>
                <dd data-testid="verdict-state" data-state=state_name>{seen(&verdict, has_ended)}</dd>
            </div>
            <div>
                <dt><Term name="cause" /></dt>
                <dd data-testid="cause">{verdict.cause.words()}</dd>
            </div>
            <div>
                <dt><Term name="confidence" /></dt>
                <dd data-testid="confidence">{confidence(verdict.confidence)}</dd>
            </div>
            {verdict.code.clone().map(|code| view! { <InCode code=code rank=culprit_of(&verdict) /> })}
        </dl>
        <p class="onset" data-testid="onset">{onset(&verdict)}</p>
        <p class="advice" data-testid="advice"><b>{if has_ended { "Before the next run: " } else { "What to do: " }}</b>{verdict.advice.clone()}</p>
        <Links verdict=verdict.clone() />
        <details class="others">
            <summary data-testid="grounds">{fold}</summary>
            <div class="grounds">
                <List title="Evidence" class="evidence" lines=verdict.evidence />
                <List title="Counter-evidence" class="counter-evidence" lines=verdict.counter_evidence />
            </div>
        </details>
    }
}

/// The line of code, with a link to the stacks that name it.
#[component]
fn InCode(code: CodeLine, rank: Option<u32>) -> impl IntoView {
    let (run, address) = (expect_context::<RunId>().get(), expect_context::<Address>());
    let rank = rank.map_or_else(String::new, |rank| format!("rank={rank}&"));
    let (path, threads) = (Tab::Code.path(&run), thread_key(code.threads));
    let other = code.other_rank.zip(code.other_share);
    let compared = other.map_or_else(String::new, |(rank, _)| format!("against={rank}&"));
    let url = format!("{path}?{rank}{compared}thread={threads}");
    let shares = match (code.share, other) {
        (Some(own), Some((rank, share))) => {
            format!(" {} of its samples; {} on rank {rank}", units::percent(own), units::percent(share))
        }
        (Some(own), None) => format!(" {} of the samples of one rank", units::percent(own)),
        (None, _) => String::new(),
    };
    view! {
        <div class="wide">
            <dt>"Line of code"</dt>
            <dd data-testid="line-of-code">
                <a href=move || address.keeping(&url)><code>{code.at.clone()}</code></a>
                <small>{shares}</small>
            </dd>
        </div>
    }
}

/// Returns the first rank that the verdict names.
fn culprit_of(verdict: &Verdict) -> Option<u32> {
    verdict.culprit.as_ref().map(Culprits::ranks)?.first().copied()
}

/// Links from the verdict to the rank and to an example step, if there is one.
#[component]
fn Links(verdict: Verdict) -> impl IntoView {
    let run = expect_context::<RunId>().get();
    let rank = verdict.culprit.as_ref().and_then(|culprit| culprit.ranks().first());
    let rank = rank.map_or_else(String::new, |rank| format!("rank={rank}&"));
    let step = verdict.example_step.map_or_else(String::new, |step| format!("step={step}"));
    let address = expect_context::<Address>();
    let link = move |tab: Tab| {
        let url = format!("{}?{rank}{step}", tab.path(&run));
        move || address.keeping(&url)
    };
    let (buckets, ranks) = (link(Tab::Buckets), link(Tab::Ranks));
    let example = verdict.example_step.map(|step| {
        view! {
            <a class="button primary" data-testid="example-step" href=buckets.clone()>
                {format!("See a typical slow step, {}", units::count(step))}
            </a>
        }
    });
    view! {
        <p class="actions">
            {example}
            <a class="button" href=ranks>"Compare ranks"</a>
        </p>
    }
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;
    use wire::views::PastFault;

    use super::*;
    use crate::fixture::{self, empty_report, show};
    use crate::mounted::{Mounted, mount_in_run};

    fn page() -> (Mounted, Live) {
        mount_in_run(|| view! { <Verdicts /> })
    }

    #[wasm_bindgen_test]
    async fn a_verdict_says_who_what_it_costs_and_what_to_do() {
        let (page, live) = page();
        let verdict = fixture::verdict(VerdictState::Active);
        show(live, Report { verdicts: vec![verdict.clone()], ..empty_report() });
        page.settle().await;
        assert_eq!(page.text("[data-testid=verdict]"), units::unbroken(&verdict.sentence));
        assert_eq!(page.text("[data-testid=cost]"), "14.0 ms");
        assert_eq!(page.text("[data-testid=verdict-state]"), "active since step 40");
        assert!(page.text("[data-testid=advice]").contains(&verdict.advice));
        assert_eq!(
            page.attribute("[data-testid=example-step]", "href").as_deref(),
            Some("/runs/gpt-7/buckets?rank=2&step=120")
        );
    }

    #[wasm_bindgen_test]
    async fn evidence_that_was_opened_stays_open_when_the_next_report_arrives() {
        let (page, live) = page();
        let report = Report { verdicts: vec![fixture::verdict(VerdictState::Active)], ..empty_report() };
        show(live, report.clone());
        page.settle().await;
        page.click("[data-testid=grounds]").await;
        let costlier = Verdict { cost_nanos_per_step: 15_000_000, ..fixture::verdict(VerdictState::Active) };
        show(live, Report { verdicts: vec![costlier], ..report });
        page.settle().await;
        assert_eq!(page.text("[data-testid=cost]"), "15.0 ms");
        assert!(page.attribute("details", "open").is_some());
    }

    #[wasm_bindgen_test]
    async fn a_fault_of_a_run_that_ended_is_told_as_past() {
        let (page, live) = page();
        let verdicts = vec![fixture::verdict(VerdictState::Active)];
        show(live, Report { verdicts, state: RunState::Completed, ..empty_report() });
        page.settle().await;
        assert_eq!(page.attribute(".verdict", "data-kind").as_deref(), Some("resolved"));
        assert_eq!(page.text("[data-testid=verdict-state]"), "from step 40 until the run ended");
        assert_eq!(page.text("[data-testid=lost]"), "1.40 s in all");
        assert!(page.text("[data-testid=advice]").starts_with("Before the next run: "));
    }

    #[wasm_bindgen_test]
    async fn a_healthy_run_is_not_alarming() {
        let (page, live) = page();
        show(live, Report { steps: 200, verdicts_missing: None, ..empty_report() });
        page.settle().await;
        assert_eq!(page.text("[data-testid=verdict]"), "Nothing stands out in 200 steps.");
        assert!(page.find("[data-testid=cost]").is_none());
    }

    #[wasm_bindgen_test]
    async fn a_run_that_has_recovered_says_which_fault_is_over() {
        let (page, live) = page();
        let past = PastFault::from(&fixture::verdict(VerdictState::Resolved));
        let report = Report { steps: 512, verdicts_missing: None, ..empty_report() };
        show(live, Report { past_faults: vec![past.clone()], ..report.clone() });
        page.settle().await;
        assert_eq!(page.text("[data-testid=verdict]"), "Nothing stands out in 512 steps.");
        let said = "The most recent fault is over: rank 2, input, steps 40 to 139, 14.0\u{a0}ms per step.";
        assert!(page.text(".below").ends_with(said), "{}", page.text(".below"));
        show(live, Report { past_faults: vec![past.clone(), past], ..report });
        page.settle().await;
        assert!(page.text(".below").ends_with("The bar of step time shows another one."));
    }
}
