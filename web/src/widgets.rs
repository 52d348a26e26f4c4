//! Small things that several views use.

use leptos::prelude::*;
use viz::palette;
use wire::live::Part;
use wire::views::{Report, RunState};

use crate::cells::{flag, text};

/// A length for a style. Whole pixels: the shortest form of a float would bring code that nothing else needs.
pub fn pixels(length: f64) -> String {
    format!("{length:.0}px")
}

/// Lists of views of one type, for the same reason.
pub trait Views {
    /// The items, erased.
    fn views(self) -> Vec<AnyView>;
}

impl<V: IntoView + 'static, I: IntoIterator<Item = V>> Views for I {
    fn views(self) -> Vec<AnyView> {
        self.into_iter().map(|item| item.into_any()).collect()
    }
}

/// What a state is called, and its class.
pub fn state_name(state: RunState) -> &'static str {
    match state {
        RunState::Starting => "starting",
        RunState::Running => "running",
        RunState::Hung => "hung",
        RunState::Completed => "completed",
        RunState::Failed => "failed",
    }
}

/// Where a run is in its life.
#[component]
pub fn StateChip(#[prop(into)] state: Signal<RunState>) -> impl IntoView {
    let name = text(move || state_name(state.get()).into());
    view! {
        <span class="chip" data-state=name>
            <i class="dot" aria-hidden="true"></i>
            {name}
        </span>
    }
    .into_any()
}

/// A key figure: its name, its value, a line below. What is not known says why.
#[component]
pub fn Figure(
    testid: &'static str,
    name: &'static str,
    /// The definition, from METRICS.md.
    means: &'static str,
    /// The figure, or why there is none.
    #[prop(into)]
    value: Signal<Result<String, String>>,
    #[prop(into)] below: Signal<String>,
) -> impl IntoView {
    // The unit is written smaller.
    let part = move |unit: bool| {
        let written = value.get().unwrap_or_else(|_| "—".into());
        let (number, rest) = written.split_at(written.find(' ').unwrap_or(written.len()));
        if unit { rest.to_owned() } else { number.to_owned() }
    };
    let line = text(move || value.get().map_or_else(|reason| reason, |_| below.get()));
    let missing = flag(move || value.with(Result::is_err));
    view! {
        <div class="figure" title=means>
            <dt>{name}</dt>
            <dd data-testid=testid class:missing=missing>
                {text(move || part(false))}
                <small>{text(move || part(true))}</small>
            </dd>
            <dd class="below">{line}</dd>
        </div>
    }
    .into_any()
}

/// Why a figure of the report is missing, in a sentence.
pub fn reason(report: &Report, name: &str) -> String {
    let missing = &report.missing;
    missing
        .get(name)
        .or_else(|| missing.iter().find(|(key, _)| key.starts_with(name)).map(|(_, reason)| reason))
        .cloned()
        .unwrap_or_else(|| "not known yet".into())
}

/// A square of a colour.
#[component]
pub fn Swatch(colour: palette::Rgba, #[prop(optional)] hatched: bool) -> impl IntoView {
    view! { <i class="swatch" class:hatched=hatched aria-hidden="true" style:--c=palette::css(colour)></i> }
}

/// The parts of a step with their colours.
#[component]
pub fn PartsLegend() -> impl IntoView {
    view! {
        <ul class="legend">
            {Part::ALL
                .map(|part| view! { <li><Swatch colour=palette::part(part) />{part.name()}</li> })
                .views()}
        </ul>
    }
}

/// The parts of a step as one bar; the text beside it says the same in numbers.
#[component]
pub fn PartsBar(#[prop(into)] shares: Signal<[f64; 8]>) -> impl IntoView {
    view! {
        <div class="parts-bar" aria-hidden="true">
            {Part::ALL
                .map(|part| {
                    let width = text(move || format!("{:.2}%", shares.get()[part as usize] * 100.0));
                    view! {
                        <i
                            style:background-color=palette::css(palette::part(part))
                            style:width=width
                        ></i>
                    }
                })
                .views()}
        </div>
    }
    .into_any()
}

/// A bar between two shares of a row, 0 to 1; in the colour of a part, or the page's own.
#[component]
pub fn Bar(from: f64, to: f64, #[prop(optional_no_strip)] colour: Option<palette::Rgba>) -> impl IntoView {
    let percent = |share: f64| format!("{:.2}%", share.clamp(0.0, 1.0) * 100.0);
    let (left, width) = (percent(from), percent(to.clamp(0.0, 1.0) - from.clamp(0.0, 1.0)));
    view! {
        <span class="track" aria-hidden="true">
            <i style:left=left style:width=width style:background-color=colour.map(palette::css)></i>
        </span>
    }
    .into_any()
}

/// Where a tooltip points to, and in how large a chart, in CSS pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// From the chart's left edge.
    pub x: f64,
    /// From its top.
    pub y: f64,
    /// The chart's width.
    pub width: f64,
    /// The chart's height.
    pub height: f64,
}

/// A box near the pointer, on the side where there is room.
#[component]
pub fn Tip(#[prop(into)] place: Signal<Option<Place>>, children: Children) -> impl IntoView {
    let transform = text(move || {
        place.get().map_or_else(String::new, |Place { x, y, width, height }| {
            let across = if x > width / 2.0 { "calc(-100% - 14px)" } else { "14px" };
            let down = if y > height / 2.0 { "calc(-100% - 14px)" } else { "14px" };
            format!("translate({x:.0}px, {y:.0}px) translate({across}, {down})")
        })
    });
    let shown = flag(move || place.with(Option::is_some));
    view! {
        <div class="tip" class:shown=shown style:transform=transform aria-hidden="true">
            {children()}
        </div>
    }
    .into_any()
}
