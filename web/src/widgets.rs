//! Small elements that several views use.

use leptos::html;
use leptos::prelude::*;
use units::decimal;
use viz::palette::{self, Pattern};
use wire::views::{Figure, Missing, RunState};

/// Formats a length for a style, in whole pixels.
pub fn pixels(length: f64) -> String {
    format!("{}px", decimal(length, 0))
}

#[component]
pub fn StateChip(state: RunState) -> impl IntoView {
    view! {
        <span class="chip" data-state=state.name()>
            <i class="dot" aria-hidden="true"></i>
            {state.name()}
        </span>
    }
}

/// Formats a figure; an error with the reason if it is missing.
pub fn written<T>(figure: &Figure<f64>, format: fn(f64) -> T) -> Result<T, String> {
    figure.as_result().map(|&value| format(value)).map_err(Missing::to_string)
}

/// A bar between two shares of a row, 0 to 1: in the color of a part, in that of the culprit, or in the page's color.
#[component]
pub fn Bar(
    from: f64,
    to: f64,
    #[prop(default = None)] color: Option<palette::Rgba>,
    #[prop(optional)] is_culprit: bool,
) -> impl IntoView {
    let (from, to) = (from.clamp(0.0, 1.0) * 100.0, to.clamp(0.0, 1.0) * 100.0);
    view! {
        <svg class="track" class:culprit=is_culprit aria-hidden="true">
            <rect
                height="100%"
                rx="2"
                x=format!("{from:.2}%")
                width=format!("{:.2}%", (to - from).max(0.15))
                fill=color.map(palette::css)
            ></rect>
        </svg>
    }
}

/// A list with its title, or nothing if the list is empty.
#[component]
pub fn List(title: &'static str, class: &'static str, lines: Vec<String>) -> impl IntoView {
    (!lines.is_empty()).then(|| {
        let lines = lines.into_iter().map(|line| view! { <li>{line}</li> }).collect_view();
        view! {
            <div class=class data-testid=class>
                <h2>{title}</h2>
                <ul>{lines}</ul>
            </div>
        }
    })
}

/// A square of a color and pattern.
#[component]
pub fn Swatch(color: palette::Rgba, #[prop(default = Pattern::Solid)] pattern: Pattern) -> impl IntoView {
    view! { <i class="swatch" data-pattern=pattern.name() aria-hidden="true" style:--c=palette::css(color)></i> }
}

/// A legend of fills: color, pattern, name.
#[component]
pub fn Legend<T: IntoView + 'static>(items: Vec<(palette::Rgba, Pattern, T)>) -> impl IntoView {
    let items = items
        .into_iter()
        .map(|(color, pattern, name)| view! { <li><Swatch color=color pattern=pattern />{name}</li> })
        .collect_view();
    view! { <ul class="legend">{items}</ul> }
}

/// The key of a line in a legend. `color` is a CSS color.
#[component]
pub fn LineKey(color: String, dashed: bool) -> impl IntoView {
    view! { <i class="line-key" class:dashed=dashed style:border-color=color aria-hidden="true"></i> }
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
pub fn Tip(#[prop(into)] place: Signal<Option<TooltipPlace>>, children: Children) -> impl IntoView {
    let transform = Signal::derive(move || {
        place.get().map_or_else(String::new, |TooltipPlace { x, y, width, height }| {
            let across = if x > width / 2.0 { "calc(-100% - 14px)" } else { "14px" };
            let down = if y > height / 2.0 { "calc(-100% - 14px)" } else { "14px" };
            format!("translate({}, {}) translate({across}, {down})", pixels(x), pixels(y))
        })
    });
    let shown = Signal::derive(move || place.with(Option::is_some));
    view! {
        <div class="tip" class:shown=shown style:transform=transform aria-hidden="true">
            {children()}
        </div>
    }
    .into_any()
}

/// Notes that the browser has closed a dialog. The browser reports a close later. If the dialog is open again by then, it
/// stays open.
pub fn dialog_closed(dialog: NodeRef<html::Dialog>, open: RwSignal<bool>) {
    if dialog.get_untracked().is_none_or(|dialog| !dialog.open()) {
        open.set(false);
    }
}

/// A dialog with read-only content. Any click closes it, including one on a link in it. So does Escape.
#[component]
pub fn Dialog(
    testid: &'static str,
    name: &'static str,
    open: RwSignal<bool>,
    children: Children,
) -> impl IntoView {
    let dialog = NodeRef::<html::Dialog>::new();
    Effect::new(move |_| {
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
            on:close=move |_| dialog_closed(dialog, open)
            on:click=move |_| open.set(false)
        >
            <div class="panel-head">
                <h2>{name}</h2>
                <span class="grow"></span>
                <button class="quiet" data-testid=format!("{testid}-close")>"Close"</button>
            </div>
            <div class="groups">{children()}</div>
        </dialog>
    }
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;

    use super::*;
    use crate::mounted::mount;

    #[wasm_bindgen_test]
    async fn a_tooltip_is_on_the_side_where_there_is_room() {
        let place = RwSignal::new(None);
        let page = mount(move || view! { <Tip place=place>"12 ms"</Tip> });
        assert_eq!(page.attribute(".tip", "class").as_deref(), Some("tip"));
        let at = |x: f64, y: f64| Some(TooltipPlace { x, y, width: 200.0, height: 100.0 });
        place.set(at(20.0, 10.0));
        page.settle().await;
        assert!(page.attribute(".tip", "style").is_some_and(|style| style.contains("translate(14px, 14px)")));
        place.set(at(190.0, 90.0));
        page.settle().await;
        let style = page.attribute(".tip", "style").unwrap_or_default();
        assert!(style.contains("translate(calc(-100% - 14px), calc(-100% - 14px))"), "{style}");
    }

    #[wasm_bindgen_test]
    async fn a_dialog_closes_on_any_click_and_tells_its_signal() {
        let open = RwSignal::new(true);
        let page = mount(move || view! { <Dialog testid="help" name="Keys" open=open>"?"</Dialog> });
        page.settle().await;
        assert!(page.attribute("dialog", "open").is_some());
        page.click("dialog .groups").await;
        assert!(!open.get_untracked() && page.attribute("dialog", "open").is_none());
    }
}
