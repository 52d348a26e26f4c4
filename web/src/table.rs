//! A table of many rows of which only the visible ones are in the document.
//!
//! Rows are asked for as text, cell by cell, so that every table of the page is one piece of code.

use leptos::ev;
use leptos::prelude::*;
use wasm_bindgen::{JsCast as _, UnwrapThrowExt as _};

use crate::cells::{Derived, Kept, Var, derived, flag, memo, text};
use crate::widgets::{PartsBar, Views as _, pixels};

/// Height of a row in CSS pixels; the style sheet holds the same.
const ROW: f64 = 28.0;
/// More rows than this scroll inside the table.
const TALLEST: usize = 16;
/// Rows in the document beyond the visible ones, on either side.
const SPARE: usize = 6;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Numbers, with this heading.
    Number(&'static str),
    /// Words.
    Words(&'static str),
    /// The parts of a step as a bar.
    Parts,
}

/// A table. The first column names its row.
#[component]
pub fn Table(
    testid: &'static str,
    /// What the table is about, for a screen reader.
    #[prop(into)]
    caption: Signal<String>,
    columns: Vec<Column>,
    #[prop(into)] count: Derived<usize>,
    /// The text of (row, column); called again when what it reads changes.
    #[prop(into)]
    cell: Callback<(usize, usize), String>,
    /// Shares of the parts of a row's step, where there is such a column.
    #[prop(optional, into)]
    shares: Option<Callback<usize, [f64; 8]>>,
    /// True for the row that is selected.
    #[prop(optional, into)]
    chosen: Option<Callback<usize, bool>>,
    /// A row is chosen.
    #[prop(optional, into)]
    choose: Option<Callback<usize>>,
) -> impl IntoView {
    let scrolled = Var::new(0usize);
    let width = columns.len();
    let visible = memo(move || {
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
    let spacer = move |below: bool| {
        let height = text(move || {
            let visible = visible.get();
            let rows = if below { count.get().saturating_sub(visible.end) } else { visible.start };
            pixels(rows as f64 * ROW)
        });
        view! { <tr class="spacer" aria-hidden="true" style:height=height><td colspan=width></td></tr> }
    };
    let headings = columns
        .iter()
        .map(|column| match *column {
            Column::Number(name) => view! { <th scope="col" class="number">{name}</th> },
            Column::Words(name) => view! { <th scope="col" class="">{name}</th> },
            Column::Parts => view! { <th scope="col" class="">"Parts"</th> },
        })
        .views();
    let columns = Kept::new(columns);
    let row = move |at: usize| {
        let cells = columns.with(|columns| {
            columns
                .iter()
                .enumerate()
                .skip(1)
                .map(|(column, kind)| match kind {
                    Column::Parts => {
                        let shares = derived(move || shares.map_or([0.0; 8], |shares| shares.run(at)));
                        view! { <td class="bar-cell"><PartsBar shares=shares /></td> }.into_any()
                    }
                    Column::Number(_) => {
                        view! { <td class="number">{text(move || cell.run((at, column)))}</td> }.into_any()
                    }
                    Column::Words(_) => view! { <td>{text(move || cell.run((at, column)))}</td> }.into_any(),
                })
                .views()
        });
        let name = text(move || cell.run((at, 0)));
        let name = match choose {
            Some(choose) => {
                view! { <button class="link" on:click=move |_| choose.run(at)>{name}</button> }.into_any()
            }
            None => name.into_any(),
        };
        let chosen = flag(move || chosen.is_some_and(|chosen| chosen.run(at)));
        view! {
            <tr
                class:chosen=chosen
                on:click=move |_| if let Some(choose) = choose { choose.run(at) }
            >
                <th scope="row" class="number">{name}</th>
                {cells}
            </tr>
        }
    };
    view! {
        <div class="rows" class:chooses=choose.is_some() tabindex="0" role="group" aria-label=caption on:scroll=on_scroll>
            <table data-testid=testid>
                <caption class="unseen">{caption}</caption>
                <thead><tr>{headings}</tr></thead>
                <tbody>
                    {spacer(false)}
                    <For each=move || visible.get() key=|at| *at children=row />
                    {spacer(true)}
                </tbody>
            </table>
        </div>
    }
    .into_any()
}
