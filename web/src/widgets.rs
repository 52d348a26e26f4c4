//! Small elements that several views use.

use leptos::html;
use leptos::prelude::*;
use units::fixed;
use viz::palette;
use wire::views::{Figure, Missing, RunState};

use crate::cells::{Derived, Var, act, effect, flag, text};
use crate::html::{Html, shown};

/// Formats a length for a style, in whole pixels.
pub fn pixels(length: f64) -> String {
    format!("{}px", fixed(length, 0))
}

/// Lists of type-erased views. Lists of typed views would be compiled once per type.
pub trait Views {
    /// Returns the items, type-erased.
    fn views(self) -> Vec<AnyView>;
}

impl<V: IntoView + 'static, I: IntoIterator<Item = V>> Views for I {
    fn views(self) -> Vec<AnyView> {
        self.into_iter().map(|item| item.into_any()).collect()
    }
}

/// Renders the state of a run.
pub fn state_chip(state: RunState) -> String {
    let name = state.name();
    format!("<span class=chip data-state={name}><i class=dot aria-hidden=true></i>{name}</span>")
}

/// Appends a key figure: its test id, name and definition, its value or the reason why it is missing, and a line below.
pub fn figure(
    html: Html,
    (testid, name, means): (&str, &str, &str),
    value: Result<String, String>,
    below: &str,
) -> Html {
    let html = html.raw("<div class=figure title=\"").text(means).raw("\">").el("dt", name);
    match value {
        Ok(value) => {
            // The unit is written smaller.
            let (number, unit) = value.split_at(value.find(' ').unwrap_or(value.len()));
            html.raw(&format!("<dd data-testid={testid}>")).text(number).el("small", unit).raw("</dd>")
        }
        Err(reason) => {
            return html
                .raw(&format!("<dd data-testid={testid} class=missing>—</dd>"))
                .el("dd class=below", &reason)
                .raw("</div>");
        }
    }
    .el("dd class=below", below)
    .raw("</div>")
}

/// Formats a figure; an error with the reason if it is missing.
pub fn written(figure: &Figure<f64>, format: fn(f64) -> String) -> Result<String, String> {
    figure.as_result().map(|&value| format(value)).map_err(Missing::to_string)
}

/// A square of a color.
#[component]
pub fn Swatch(colour: palette::Rgba, #[prop(optional)] hatched: bool) -> impl IntoView {
    view! { <i class="swatch" class:hatched=hatched aria-hidden="true" style:--c=palette::css(colour)></i> }
}

/// Creates a legend of fills: color, hatching, name.
pub fn legend(items: &[(palette::Rgba, bool, &str)]) -> AnyView {
    let items = items
        .iter()
        .map(|&(colour, hatched, name)| view! { <li><Swatch colour=colour hatched=hatched />{name.to_owned()}</li> })
        .views();
    view! { <ul class="legend">{items}</ul> }.into_any()
}

/// The point of a tooltip and the size of its chart, in CSS pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooltipPlace {
    /// The distance from the chart's left edge.
    pub x: f64,
    /// The distance from the chart's top.
    pub y: f64,
    /// The width of the chart.
    pub width: f64,
    /// The height of the chart.
    pub height: f64,
}

/// A tooltip near the pointer, on the side where there is room.
#[component]
pub fn Tip(#[prop(into)] place: Derived<Option<TooltipPlace>>, children: Children) -> impl IntoView {
    let transform = text(move || {
        place.get().map_or_else(String::new, |TooltipPlace { x, y, width, height }| {
            let across = if x > width / 2.0 { "calc(-100% - 14px)" } else { "14px" };
            let down = if y > height / 2.0 { "calc(-100% - 14px)" } else { "14px" };
            format!("translate({}, {}) translate({across}, {down})", pixels(x), pixels(y))
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

/// Creates a dialog with read-only content. Any click closes it, including one on a link in it. So does Escape.
pub fn dialog(testid: &'static str, name: &'static str, open: Var<bool>, content: Signal<String>) -> AnyView {
    let dialog = NodeRef::<html::Dialog>::new();
    effect(move || {
        let Some(dialog) = dialog.get() else { return };
        match (open.get(), dialog.open()) {
            (true, false) => drop(dialog.show_modal()),
            (false, true) => dialog.close(),
            _ => {}
        }
    });
    view! {
        <dialog
            class="dialog"
            node_ref=dialog
            data-testid=testid
            aria-label=name
            on:close=act(move |_| open.set(false))
            on:click=act(move |_| open.set(false))
        >
            <div class="panel-head">
                <h2>{name}</h2>
                <span class="grow"></span>
                <button class="quiet" data-testid=format!("{testid}-close")>"Close"</button>
            </div>
            {shown("groups", content)}
        </dialog>
    }
    .into_any()
}
