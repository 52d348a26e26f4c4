//! The verdict panel: what slows the job, in a sentence, with its cost and its evidence. It is the first thing on the
//! page.
//!
//! A report arrives twice per second. Elements stay while their texts change, so it neither takes the focus from a link
//! nor collapses a list.

use leptos::prelude::*;
use wire::views::{ComputedOn, Confidence, Report, Verdict, VerdictState};

use crate::live::Live;
use crate::route::{RunId, Tab};
use crate::widgets::List;

/// The content of the panel.
#[derive(Clone, Debug, Default, PartialEq)]
struct Finding {
    /// The kind of content for the style sheet: `waiting`, `failed`, `hung`, `nothing`, `insufficient`, `against`,
    /// `resolved`.
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
}

fn finding(report: &Report) -> Finding {
    let say = |kind, sentence: &str, below: &str| Finding {
        kind,
        sentence: sentence.into(),
        below: below.into(),
        others: report.verdicts.clone(),
        notes: report.notes.clone(),
        ..Finding::default()
    };
    if let Some(failure) = &report.failure {
        return say("failed", &failure.sentence, &failure.reason);
    }
    if let Some(hang) = &report.hang {
        let limit = units::clock(hang.limit_seconds);
        let below = format!("A run counts as hung after {limit} without a step.");
        return say("hung", &hang.sentence, &below);
    }
    let Some((worst, others)) = report.verdicts.split_first() else {
        return match &report.verdicts_missing {
            Some(reason) => say("insufficient", "Insufficient evidence.", &reason.to_string()),
            None if report.steps == 0 => say(
                "waiting",
                "Waiting for the first complete step.",
                "A verdict needs several steps that every rank has completed.",
            ),
            None => say(
                "nothing",
                &format!("Nothing stands out in {} steps.", units::count(report.steps)),
                "No rank, cause or bucket costs more than noise can explain.",
            ),
        };
    };
    Finding {
        kind: match worst.state {
            VerdictState::Resolved => "resolved",
            _ => "against",
        },
        sentence: worst.sentence.clone(),
        below: String::new(),
        verdict: Some(worst.clone()),
        others: others.to_vec(),
        notes: report.notes.clone(),
        computed_on: report.computed_on,
    }
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

/// Describes the state of the fault and the affected steps.
fn seen(verdict: &Verdict) -> String {
    let (first, last) = verdict.steps;
    let (first, last, count) =
        (units::count(first), units::count(last), units::count(verdict.affected_steps));
    match verdict.state {
        VerdictState::Active => format!("active since step {first}"),
        VerdictState::Recurring => format!("recurring, {count} steps from {first} to {last}"),
        VerdictState::Resolved => format!("resolved, {count} steps from {first} to {last}"),
    }
}

/// Returns the name of a state for the style sheet.
fn state(verdict: &Verdict) -> &'static str {
    match verdict.state {
        VerdictState::Active => "active",
        VerdictState::Recurring => "recurring",
        VerdictState::Resolved => "resolved",
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
    let when = onset.unix_millis.map_or_else(String::new, |millis| format!(", {}", date(millis)));
    let sure = if onset.verified { "more than scatter explains" } else { "which scatter may explain" };
    format!(
        "Began at step {}{bounds}{when}: local work changed from {} to {}, {sure}.",
        units::count(onset.step),
        units::nanos(onset.before_nanos),
        units::nanos(onset.after_nanos)
    )
}

/// Formats a date in the reader's time zone and locale.
fn date(unix_millis: u64) -> String {
    String::from(
        js_sys::Date::new(&(unix_millis as f64).into()).to_locale_string("default", &js_sys::Object::new()),
    )
}

/// The panel: the worst verdict in full, the other verdicts and the notes as lists.
#[component]
pub fn Verdicts() -> impl IntoView {
    let live = expect_context::<Live>();
    let content = move || {
        let found = live.run.get().map_or_else(
            || Finding { kind: "waiting", sentence: "Loading the run…".into(), ..Finding::default() },
            |shown| finding(&shown.report),
        );
        let Finding { kind, sentence, below, verdict, others, notes, computed_on } = found;
        view! {
            <div class="verdict" data-kind=kind>
                <p class="sentence" data-testid="verdict">{sentence}</p>
                <p class="quiet below">{below}</p>
                {verdict.map(|verdict| view! { <Grounds verdict=verdict computed_on=computed_on /> })}
            </div>
            <Others verdicts=others what="more verdict" />
            <Others verdicts=notes what="note" />
        }
    };
    view! { <section aria-label="Verdict">{content}</section> }
}

/// A collapsed list; `what` names one entry of it.
#[component]
fn Others(verdicts: Vec<Verdict>, what: &'static str) -> impl IntoView {
    let line = |verdict: Verdict| {
        let small = format!(
            " {} per affected step, {} of it; {}; confidence: {}",
            units::nanos(verdict.cost_nanos_per_step as f64),
            units::percent(verdict.cost_share),
            seen(&verdict),
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

/// The cost, evidence and links of the verdict shown in full.
#[component]
fn Grounds(verdict: Verdict, computed_on: ComputedOn) -> impl IntoView {
    let (lost, of) = match verdict.device_hours_per_day {
        Some(per_day) => (units::significant(per_day), format!(" {} per day", computed_on.hours())),
        None => (units::nanos(verdict.lost_nanos() as f64), " in all".into()),
    };
    let figures = [
        ("Cost", "cost", units::nanos(verdict.cost_nanos_per_step as f64), " per affected step".into()),
        ("Share", "cost-share", units::percent(verdict.cost_share), " of an affected step".into()),
        ("Lost", "lost", lost, of),
        ("Confidence", "confidence", confidence(verdict.confidence).into(), String::new()),
        ("Cause", "cause", verdict.cause.name().replace('_', " "), String::new()),
        ("State", "verdict-state", seen(&verdict), String::new()),
    ];
    let state = state(&verdict);
    let figures = figures
        .map(|(name, testid, value, unit)| {
            view! {
                <div>
                    <dt>{name}</dt>
                    <dd data-testid=testid data-state=state>{value}<small>{unit}</small></dd>
                </div>
            }
        })
        .collect_view();
    view! {
        <dl class="costs">{figures}</dl>
        <p class="onset" data-testid="onset">{onset(&verdict)}</p>
        <div class="grounds">
            <List title="Evidence" class="evidence" lines=verdict.evidence.clone() />
            <List title="Counter-evidence" class="counter-evidence" lines=verdict.counter_evidence.clone() />
        </div>
        <Links verdict=verdict />
    }
}

/// Links from the verdict to the rank and to an example step, if there is one.
#[component]
fn Links(verdict: Verdict) -> impl IntoView {
    let run = expect_context::<RunId>().get();
    let rank = verdict.culprit.as_ref().and_then(|culprit| culprit.ranks().first());
    let rank = rank.map_or_else(String::new, |rank| format!("rank={rank}&"));
    let step = verdict.example_step.map_or_else(String::new, |step| format!("step={step}"));
    let to = |tab: Tab| format!("{}?{rank}{step}", tab.path(&run));
    let example = verdict.example_step.map(|step| {
        view! {
            <a class="button primary" data-testid="example-step" href=to(Tab::Buckets)>
                {format!("See step {}", units::count(step))}
            </a>
        }
    });
    view! {
        <p class="actions">
            {example}
            <a class="button" href=to(Tab::Ranks)>"Compare ranks"</a>
        </p>
    }
}
