//! The verdict panel: what slows the job, in a sentence, with its cost and its evidence. It is the first thing on the
//! page.
//!
//! Elements stay while their texts change (see [`crate::html`]). A report arrives twice per second and must neither
//! take the focus from a link nor collapse a list.

use leptos::prelude::*;
use wire::views::{ComputedOn, Confidence, Report, Verdict, VerdictState};

use super::run::RunId;
use crate::cells::text;
use crate::html::{Html, shown};
use crate::live::Live;
use crate::route::Tab;

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

/// Creates the panel: the worst verdict in full, the other verdicts and the notes as lists.
pub fn verdicts() -> AnyView {
    let (live, run) = (expect_context::<Live>(), expect_context::<RunId>());
    let content = text(move || {
        let found = live.run.get().map_or_else(
            || Finding { kind: "waiting", sentence: "Loading the run…".into(), ..Finding::default() },
            |shown| finding(&shown.report),
        );
        let html = Html::default().raw(&format!("<div class=verdict data-kind={}>", found.kind));
        let html = html
            .el("p class=sentence data-testid=verdict", &found.sentence)
            .el("p class=\"quiet below\"", &found.below);
        let html = found
            .verdict
            .iter()
            .fold(html, |html, verdict| grounds(html, verdict, found.computed_on, &run.get()));
        let html = others(html.raw("</div>"), &found.others, "more verdict");
        others(html, &found.notes, "note").done()
    });
    view! { <section aria-label="Verdict">{shown("", content)}</section> }.into_any()
}

/// Appends a collapsed list; `what` names one entry of it.
fn others(html: Html, others: &[Verdict], what: &str) -> Html {
    if others.is_empty() {
        return html;
    }
    let count = others.len();
    let title = format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    html.raw("<details class=others>")
        .el("summary", &title)
        .raw("<ul>")
        .each(others, |html, verdict| {
            let cost = units::nanos(verdict.cost_nanos_per_step as f64);
            let (share, sure) = (units::percent(verdict.cost_share), confidence(verdict.confidence));
            let small =
                format!(" {cost} per affected step, {share} of it; {}; confidence: {sure}", seen(verdict));
            html.raw("<li>").text(&verdict.sentence).el("small", &small).raw("</li>")
        })
        .raw("</ul></details>")
}

/// Appends the cost, evidence and links of the verdict shown in full.
fn grounds(html: Html, verdict: &Verdict, computed_on: ComputedOn, run: &str) -> Html {
    let hours = format!(" {} per day", computed_on.hours());
    let (lost, of) = match verdict.device_hours_per_day {
        Some(per_day) => (units::significant(per_day), hours.as_str()),
        None => (units::nanos(verdict.lost_nanos() as f64), " in all"),
    };
    let figures = [
        ("Cost", "cost", units::nanos(verdict.cost_nanos_per_step as f64), " per affected step"),
        ("Share", "cost-share", units::percent(verdict.cost_share), " of an affected step"),
        ("Lost", "lost", lost, of),
        ("Confidence", "confidence", confidence(verdict.confidence).into(), ""),
        ("Cause", "cause", verdict.cause.name().replace('_', " "), ""),
        ("State", "verdict-state", seen(verdict), ""),
    ];
    let html = html.raw("<dl class=costs>").each(figures, |html, (name, testid, value, unit)| {
        html.raw("<div>")
            .el("dt", name)
            .raw(&format!("<dd data-testid={testid} data-state={}>", state(verdict)))
            .text(&value)
            .el("small", unit)
            .raw("</dd></div>")
    });
    let html =
        html.raw("</dl>").el("p class=onset data-testid=onset", &onset(verdict)).raw("<div class=grounds>");
    let html = list(html, "Evidence", "evidence", &verdict.evidence);
    let html = list(html, "Counter-evidence", "counter-evidence", &verdict.counter_evidence).raw("</div>");
    links(html, verdict, run)
}

/// Appends a list with its title, or nothing if the list is empty.
pub fn list(html: Html, title: &str, class: &str, lines: &[String]) -> Html {
    if lines.is_empty() {
        return html;
    }
    html.raw(&format!("<div class={class} data-testid={class}>"))
        .el("h2", title)
        .raw("<ul>")
        .each(lines, |html, line| html.el("li", line))
        .raw("</ul></div>")
}

/// Appends links from the verdict to the rank and to an example step, if there is one.
fn links(html: Html, verdict: &Verdict, run: &str) -> Html {
    let rank = verdict.culprit.as_ref().and_then(|culprit| culprit.ranks().first());
    let rank = rank.map_or_else(String::new, |rank| format!("rank={rank}&"));
    let step = verdict.example_step.map_or_else(String::new, |step| format!("step={step}"));
    let to = |tab: Tab| format!("{}?{rank}{step}", tab.path(run));
    let html = html.raw("<p class=actions>");
    let html = match verdict.example_step {
        Some(step) => html
            .raw("<a class=\"button primary\" data-testid=example-step href=\"")
            .text(&to(Tab::Buckets))
            .raw("\">")
            .text(&format!("See step {}", units::count(step)))
            .raw("</a>"),
        None => html,
    };
    html.raw("<a class=button href=\"").text(&to(Tab::Ranks)).raw("\">Compare ranks</a></p>")
}
