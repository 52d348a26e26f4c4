//! What the run used its wall time for: a row per use, and a bar per attempt if the job was restarted.

use analysis::wording::goodput::{START_UNKNOWN, attempt as describe, meaning, ranks, time};
use leptos::prelude::*;
use viz::palette::{self, Rgba};
use wire::live::Part;
use wire::views::goodput::{Attempt, Goodput as Figures, TimeUse, Uses};
use wire::views::{ComputedOn, Figure, Missing};

use crate::live::Live;
use crate::terms::Term;
use crate::widgets::{Bar, Swatch};

/// The panel.
#[component]
pub fn Goodput() -> impl IntoView {
    let live = expect_context::<Live>();
    let goodput = Memo::new(move |_| {
        let report = &live.run.get()?.report;
        Some((report.goodput.clone(), report.computed_on))
    });
    let summary = move || match goodput.get()?.0 {
        Figure::Known(goodput) => Some(format!(
            " {} of {} on {}",
            units::percent(goodput.ratio),
            units::clock(goodput.wall_nanos as f64 / 1e9),
            ranks(&goodput)
        )),
        Figure::Missing { .. } => None,
    };
    let content = move || {
        Some(match goodput.get()? {
            (Figure::Known(goodput), computed_on) => life(&goodput, computed_on),
            (Figure::Missing { missing }, _) => why(&missing),
        })
    };
    view! {
        <section class="panel" aria-label="Goodput" data-testid="goodput">
            <div class="panel-head"><h2><Term name="goodput" /><small>{summary}</small></h2></div>
            {content}
        </section>
    }
}

fn why(missing: &Missing) -> AnyView {
    view! { <p class="quiet">{units::capitalized(&missing.to_string())}"."</p> }.into_any()
}

fn life(goodput: &Figures, computed_on: ComputedOn) -> AnyView {
    let mut reached = 0.0;
    let rows = goodput
        .uses
        .iter()
        .map(|(&time_use, &nanos)| {
            let left = reached;
            reached += goodput.share(time_use);
            view! { <Row time_use=time_use time=time(nanos, computed_on) from=left to=reached /> }
        })
        .collect_view();
    let start = (!goodput.knows_start).then_some(START_UNKNOWN);
    view! {
        <div class="scroll-x plain-scroll">
            <table class="way">
                <caption class="unseen">"What the wall time of all ranks went to"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Use"</th>
                        <th scope="col" class="number">"Share"</th>
                        <th scope="col"><span class="unseen">"Bar"</span></th>
                        <th scope="col">"Over all ranks"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
        {start.map(|text| view! { <p class="quiet">{text}</p> })}
        {attempts(goodput)}
    }
    .into_any()
}

#[component]
fn Row(time_use: TimeUse, time: String, from: f64, to: f64) -> impl IntoView {
    let basis = if time_use.is_inferred() { " (inferred)" } else { "" };
    view! {
        <tr data-use=time_use.name()>
            <th scope="row"><Swatch color=color(time_use) />{time_use.title()}</th>
            <td class="number">{units::percent(to - from)}</td>
            <td class="bar-cell"><Bar from=from to=to color=Some(color(time_use)) /></td>
            <td class="help">{time}": "{meaning(time_use)}{basis}</td>
        </tr>
    }
}

/// The attempts, each as a bar. The longest one fills its cell.
fn attempts(goodput: &Figures) -> Option<impl IntoView + use<>> {
    if goodput.attempts.len() < 2 {
        return None;
    }
    let longest = goodput.attempts.iter().map(length).max().unwrap_or(1).max(1) as f64;
    let rows = goodput
        .attempts
        .iter()
        .map(|attempt| {
            let described = describe(attempt);
            let bar = view! { <Life uses=attempt.uses.clone() whole=longest /> };
            view! {
                <tr>
                    <th scope="row">"Attempt "{attempt.number + 1}</th>
                    <td class="bar-cell">{bar}</td>
                    <td class="help">{described}</td>
                </tr>
            }
        })
        .collect_view();
    Some(view! {
        <table class="way" data-testid="attempts">
            <caption class="unseen">"Attempts"</caption>
            <tbody>{rows}</tbody>
        </table>
    })
}

fn length(attempt: &Attempt) -> u64 {
    attempt.uses.values().sum()
}

/// The times by use side by side. `whole` is the time of the whole bar, in nanoseconds.
#[component]
fn Life(uses: Uses, whole: f64) -> impl IntoView {
    let mut reached = 0.0;
    let pieces = uses
        .into_iter()
        .map(|(time_use, nanos)| {
            let (left, width) = (reached, nanos as f64 / whole * 100.0);
            reached += width;
            view! {
                <rect height="100%" x=format!("{left:.2}%") width=format!("{width:.2}%") fill=palette::css(color(time_use))>
                    <title>{time_use.title()}" "{units::nanos(nanos as f64)}</title>
                </rect>
            }
        })
        .collect_view();
    view! { <svg class="track" aria-hidden="true">{pieces}</svg> }
}

/// Returns the color of a use. Uses of a kind share one: starting, pausing, and time that is lost.
fn color(time_use: TimeUse) -> Rgba {
    match time_use {
        TimeUse::Compute => palette::part(Part::Forward),
        TimeUse::StragglerWait => palette::part(Part::ExposedWait),
        TimeUse::ExposedTransfer => palette::part(Part::ExposedTransfer),
        TimeUse::Input => palette::part(Part::Input),
        TimeUse::OtherInSteps => palette::part(Part::Other),
        TimeUse::Launch | TimeUse::Setup | TimeUse::WarmUp => palette::START,
        TimeUse::Evaluation | TimeUse::Checkpoint => palette::part(Part::Pause),
        TimeUse::Hang | TimeUse::Recovery | TimeUse::Repeated => palette::ALARM,
        TimeUse::Ending | TimeUse::Between => palette::IDLE,
    }
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;
    use wire::views::Report;

    use super::*;
    use crate::fixture::{empty_report, show};
    use crate::mounted::mount_in_run;

    #[wasm_bindgen_test]
    async fn uses_have_rows_and_attempts_have_bars_only_after_a_restart() {
        let uses = Uses::from([(TimeUse::Compute, 6_000_000_000), (TimeUse::Recovery, 2_000_000_000)]);
        let attempt = |number| Attempt {
            number,
            began_unix_millis: 0,
            ranks: 2,
            steps: Some((0, 99)),
            repeated_steps: 20,
            uses: uses.clone(),
        };
        let figures = |attempts| Figures {
            ratio: 0.75,
            compute_ratio: 0.75,
            wall_nanos: 4_000_000_000,
            ranks: 2,
            uses: uses.clone(),
            repeated_steps: 20,
            knows_start: true,
            attempts,
        };
        let (page, live) = mount_in_run(|| view! { <Goodput /> });
        show(live, empty_report());
        page.settle().await;
        assert!(page.text("[data-testid=goodput]").contains("No observed step"));
        show(live, Report { goodput: Figure::Known(figures(vec![attempt(0)])), ..empty_report() });
        page.settle().await;
        let text = page.text("[data-testid=goodput]");
        assert!(text.contains("75.0 % of 4 s on 2 ranks") && text.contains("recovery"), "{text}");
        assert!(!text.contains("Attempt"), "{text}");
        let attempts = vec![attempt(0), attempt(1)];
        show(live, Report { goodput: Figure::Known(figures(attempts)), ..empty_report() });
        page.settle().await;
        let text = page.text("[data-testid=attempts]");
        assert!(text.contains("Attempt 2") && text.contains("20 steps repeated"), "{text}");
    }
}
