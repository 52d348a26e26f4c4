//! A table of many rows of which only the visible ones are in the document.

use std::ops::Range;

use leptos::ev;
use leptos::prelude::*;
use wasm_bindgen::{JsCast as _, UnwrapThrowExt as _};

/// Height of a row in CSS pixels; the style sheet holds the same.
const ROW: f64 = 28.0;
/// More rows than this scroll inside the table.
const TALLEST: usize = 16;
/// Rows in the document beyond the visible ones, on either side.
const SPARE: usize = 6;

/// A column: its heading, and whether it holds numbers.
pub type Column = (&'static str, bool);

/// A table. `row` makes the cells of a row and is called again when what it reads changes.
#[component]
pub fn Rows<V: IntoView + 'static>(
    testid: &'static str,
    /// What the table is about, for a screen reader.
    #[prop(into)]
    caption: Signal<String>,
    columns: Vec<Column>,
    #[prop(into)] count: Signal<usize>,
    row: impl Fn(usize) -> V + Copy + Send + Sync + 'static,
) -> impl IntoView {
    let scrolled = RwSignal::new(0usize);
    let width = columns.len();
    let visible = Memo::new(move |_| {
        let first = scrolled.get().saturating_sub(SPARE);
        first..(scrolled.get() + TALLEST + SPARE).min(count.get())
    });
    let on_scroll = move |event: ev::Event| {
        let element: web_sys::Element = event.current_target().unwrap_throw().unchecked_into();
        let row = (f64::from(element.scroll_top()) / ROW) as usize;
        if scrolled.get_untracked() != row {
            scrolled.set(row);
        }
    };
    let spacer = move |rows: fn(Range<usize>, usize) -> usize| {
        let height = move || format!("{}px", rows(visible.get(), count.get()) as f64 * ROW);
        view! { <tr class="spacer" aria-hidden="true" style:height=height><td colspan=width></td></tr> }
    };
    view! {
        <div class="rows" tabindex="0" role="region" aria-label=move || caption.get() on:scroll=on_scroll>
            <table data-testid=testid aria-rowcount=move || count.get() + 1>
                <caption class="unseen">{move || caption.get()}</caption>
                <thead>
                    <tr>
                        {columns
                            .into_iter()
                            .map(|(name, number)| view! { <th scope="col" class:number=number>{name}</th> })
                            .collect_view()}
                    </tr>
                </thead>
                <tbody>
                    {spacer(|visible, _| visible.start)}
                    <For each=move || visible.get() key=|at| *at let:at>
                        {row(at)}
                    </For>
                    {spacer(|visible, count| count.saturating_sub(visible.end))}
                </tbody>
            </table>
        </div>
    }
}
