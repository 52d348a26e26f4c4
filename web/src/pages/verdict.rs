//! What is slowing the job, in a sentence, with its cost and its evidence. The first thing on the page.
//!
//! The elements stay and their texts follow: a report comes twice a second, and must take neither the focus
//! from a link nor fold a list that one reads.

use leptos::prelude::*;
use viz::units;
use wire::views::{Confidence, Persistence, Report, Verdict};

use super::run::RunId;
use crate::cells::{derived, flag, memo, text};
use crate::live::Live;
use crate::route::Tab;
use crate::widgets::Views as _;

/// What the panel says.
#[derive(Clone, Debug, Default, PartialEq)]
struct Finding {
    /// For the style sheet: `waiting`, `hung`, `nothing`, `insufficient`, `against`.
    kind: &'static str,
    sentence: String,
    below: String,
    /// What the figures are about, if anything.
    verdict: Option<Verdict>,
    /// Verdicts that are not shown in full.
    others: Vec<Verdict>,
}

fn finding(report: &Report) -> Finding {
    let say = |kind, sentence: &str, below: &str| Finding {
        kind,
        sentence: sentence.into(),
        below: below.into(),
        others: report.verdicts.clone(),
        ..Finding::default()
    };
    if let Some(hang) = &report.hang {
        let limit = units::clock(hang.limit_seconds);
        let below = format!("A run counts as hung after {limit} without a step.");
        return say("hung", &hang.sentence, &below);
    }
    let Some((worst, others)) = report.verdicts.split_first() else {
        return match report.missing.get("verdicts") {
            Some(reason) => say("insufficient", "Insufficient evidence.", reason),
            None if report.steps == 0 => say(
                "waiting",
                "Waiting for the first complete step.",
                "A verdict needs a few steps that every rank has finished.",
            ),
            None => say(
                "nothing",
                &format!("Nothing stands out in {} steps.", units::count(report.steps)),
                "No rank, cause or bucket costs a share of the step that can be told from noise.",
            ),
        };
    };
    let insufficient = worst.confidence == Confidence::InsufficientEvidence;
    Finding {
        kind: if insufficient { "insufficient" } else { "against" },
        sentence: worst.sentence.clone(),
        below: String::new(),
        verdict: Some(worst.clone()),
        others: others.to_vec(),
    }
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::InsufficientEvidence => "insufficient evidence",
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

/// Whether it stays, and since when.
fn seen(verdict: &Verdict) -> String {
    let steps = verdict.steps.map_or_else(String::new, |(first, last)| {
        format!(", steps {} to {}", units::count(first), units::count(last))
    });
    let how = match verdict.persistence {
        Some(Persistence::Persistent) => "in nearly all steps",
        Some(Persistence::Onset) => "since it began",
        Some(Persistence::Transient) => "came and went",
        Some(Persistence::Recurring) => "comes and goes",
        None => "by all ranks",
    };
    format!("{how}{steps}")
}

/// When it began, how sure that is, and what changed.
fn onset(verdict: &Verdict) -> String {
    let Some(onset) = verdict.onset else { return String::new() };
    let bounds = if onset.earliest == onset.latest {
        String::new()
    } else {
        format!(" (between {} and {})", units::count(onset.earliest), units::count(onset.latest))
    };
    let when = onset.unix_millis.map_or_else(String::new, |millis| format!(", {}", date(millis)));
    let sure =
        if onset.verified { "more than its scatter explains" } else { "which its scatter may explain" };
    format!(
        "Began at step {}{bounds}{when}: its own work went from {} to {}, {sure}.",
        units::count(onset.step),
        units::nanos(onset.before_ns),
        units::nanos(onset.after_ns)
    )
}

/// In the reader's own time zone and manner of writing.
fn date(unix_millis: u64) -> String {
    String::from(
        js_sys::Date::new(&(unix_millis as f64).into()).to_locale_string("default", &js_sys::Object::new()),
    )
}

/// The worst verdict in full, the others as a list.
#[component]
pub fn Verdicts() -> impl IntoView {
    let live = expect_context::<Live>();
    let found = memo(move || {
        live.run.with(|run| {
            run.as_ref().map_or_else(
                || Finding {
                    kind: "waiting", sentence: "Looking at the run…".into(), ..Finding::default()
                },
                |run| finding(&run.report),
            )
        })
    });
    let of = move |read: fn(&Finding) -> String| text(move || found.with(read));
    let no_others = derived(move || found.with(|found| found.others.is_empty()));
    let how_many = text(move || {
        let count = found.with(|found| found.others.len());
        format!("{count} more finding{}", if count == 1 { "" } else { "s" })
    });
    let lines = move || {
        found.with(|found| {
            let line = |verdict: &Verdict| {
                let cost = units::nanos(verdict.cost_ns_per_step as f64);
                let share = units::percent(verdict.cost_share);
                let sure = confidence(verdict.confidence);
                view! {
                    <li>
                        {verdict.sentence.clone()}" "
                        <small>{format!("{cost} per step, {share}, confidence: {sure}")}</small>
                    </li>
                }
            };
            found.others.iter().map(line).views()
        })
    };
    view! {
        <section aria-label="Verdict">
            <div class="verdict" data-kind=of(|found| found.kind.into())>
                <p class="sentence" data-testid="verdict">{of(|found| found.sentence.clone())}</p>
                <p class="quiet below">{of(|found| found.below.clone())}</p>
                <Grounds found=found />
            </div>
            <details class="others" class:hidden=no_others>
                <summary>{how_many}</summary>
                <ul>{lines}</ul>
            </details>
        </section>
    }
    .into_any()
}

/// Cost, evidence and links of the verdict that is shown.
#[component]
fn Grounds(found: Memo<Finding>) -> impl IntoView {
    let run = expect_context::<RunId>();
    let live = expect_context::<Live>();
    let of = move |read: fn(&Verdict) -> String| {
        text(move || found.with(|found| found.verdict.as_ref().map(read).unwrap_or_default()))
    };
    let figure = |name: &'static str, testid: &'static str, value: Signal<String>, unit: &'static str| {
        view! {
            <div>
                <dt>{name}</dt>
                <dd data-testid=testid>{value}<small>{unit}</small></dd>
            </div>
        }
    };
    let list = move |title: &'static str, class: &'static str, read: fn(&Verdict) -> &Vec<String>| {
        let items = memo(move || {
            found.with(|found| found.verdict.as_ref().map(|v| read(v).clone()).unwrap_or_default())
        });
        let empty = derived(move || items.with(Vec::is_empty));
        let lines = move || items.get().into_iter().map(|item| view! { <li>{item}</li> }).views();
        view! {
            <div class=class class:hidden=empty data-testid=class>
                <h2>{title}</h2>
                <ul>{lines}</ul>
            </div>
        }
    };
    let example = memo(move || found.with(|found| found.verdict.as_ref()?.example_step));
    let link = move |tab: Tab| {
        text(move || {
            let rank = found.with(|found| {
                let culprit = found.verdict.as_ref().and_then(|verdict| verdict.culprit.as_ref());
                let worst = culprit.and_then(|culprit| culprit.ranks().first());
                worst.map_or_else(String::new, |rank| format!("rank={rank}&"))
            });
            // Waterfalls are kept for longer than the columns that the other views draw.
            let step = example.get().filter(|&step| {
                tab == Tab::Buckets || live.steps.with_value(|steps| steps.row_of(step)).is_some()
            });
            let step = step.map_or_else(String::new, |step| format!("step={step}"));
            format!("{}?{rank}{step}", tab.path(&run.get()))
        })
    };
    let none = derived(move || found.with(|found| found.verdict.is_none()));
    let no_onset = flag(move || {
        found.with(|found| found.verdict.as_ref().is_none_or(|verdict| verdict.onset.is_none()))
    });
    let no_example = derived(move || example.get().is_none());
    view! {
        <dl class="costs" class:hidden=none>
            {figure("Cost", "cost", of(|v| units::nanos(v.cost_ns_per_step as f64)), " per step, over all steps")}
            {figure("Share", "cost-share", of(|v| units::percent(v.cost_share)), " of step time")}
            {figure("Lost", "gpu-hours", of(|v| units::significant(v.gpu_hours_per_day)), " GPU-hours per day")}
            {figure("Confidence", "confidence", of(|v| confidence(v.confidence).into()), "")}
            {figure("Cause", "cause", of(|v| v.cause.name().replace('_', " ")), "")}
            {figure("Seen", "persistence", of(seen), "")}
        </dl>
        <p class="onset" class:hidden=no_onset data-testid="onset">{of(onset)}</p>
        <div class="grounds" class:hidden=none>
            {list("Evidence", "evidence", |v| &v.evidence)}
            {list("Counter-evidence", "counter-evidence", |v| &v.counter_evidence)}
        </div>
        <p class="actions" class:hidden=no_example>
            <a class="button primary" href=link(Tab::Buckets) data-testid="example-step">
                {text(move || format!("See step {}", units::count(example.get().unwrap_or_default())))}
            </a>
            <a class="button" href=link(Tab::Ranks)>"Compare ranks"</a>
        </p>
    }
    .into_any()
}
