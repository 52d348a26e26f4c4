//! A table of many rows, sorted by any column and filtered by what the user types. Only the visible rows are in the
//! document. The elements of a row stay while its figures change, so that neither the focus nor a selected text is lost.

mod column;
#[cfg(test)]
mod tests;

use std::hash::Hash;
use std::sync::Arc;

use leptos::prelude::*;
use model::filter::finds;
use model::sort::{Sort, sorted};
use wasm_bindgen::{JsCast as _, UnwrapThrowExt as _};

pub use self::column::{Choice, Column};
use crate::widgets::pixels;

/// The height of a row in CSS pixels, as in the style sheet.
const ROW: f64 = 28.0;
/// The largest number of visible rows. More rows scroll inside the table.
const TALLEST: usize = 16;
/// The number of rows in the document beyond the visible ones, on either side.
const SPARE: usize = 6;
/// The number of rows up to which a table has no filter. So few are found at a glance.
const FEW: usize = 8;

/// A table. The first column names its row. `caption` describes the table for screen readers, and `key` tells a row from
/// the others while its figures change.
#[component]
pub fn Table<T, K>(
    testid: &'static str,
    #[prop(into)] caption: Signal<String>,
    columns: Vec<Column<T>>,
    #[prop(into)] rows: Signal<Vec<T>>,
    key: fn(&T) -> K,
    /// The column by which rows are sorted at first, the largest on top.
    #[prop(optional)]
    worst_first: Option<usize>,
    #[prop(optional)] choice: Option<Choice<T>>,
) -> impl IntoView
where
    T: Clone + PartialEq + Send + Sync + 'static,
    K: Clone + Eq + Hash + Send + Sync + 'static,
{
    let chooses = choice.is_some();
    let (columns, choice) = (Arc::new(columns), choice.map(Arc::new));
    let sort = RwSignal::new(worst_first.map(|column| Sort { column, is_ascending: false }));
    let filter = RwSignal::new(String::new());
    let scrolled = RwSignal::new(0usize);
    let width = columns.len();
    let headings = columns
        .iter()
        .enumerate()
        .map(|(at, column)| view! { <Heading at=at name=column.heading meaning=column.meaning class=column.class sort=sort /> })
        .collect_view();
    let order = {
        let columns = columns.clone();
        Memo::new(move |_| rows.with(|rows| filter.with(|typed| ordered(rows, &columns, typed, sort.get()))))
    };
    let window = Memo::new(move |_| {
        let count = order.with(Vec::len);
        let first = scrolled.get().min(count).saturating_sub(SPARE);
        (first, (scrolled.get() + TALLEST + SPARE).min(count))
    });
    let visible = Memo::new(move |_| {
        let (first, past) = window.get();
        rows.with(|rows| {
            order.with(|order| order[first..past].iter().map(|&at| key(&rows[at])).collect::<Vec<K>>())
        })
    });
    let row = move |id: K| {
        let row = Memo::new(move |_| rows.with(|rows| rows.iter().find(|row| key(row) == id).cloned()));
        view! { <Row row=row columns=columns.clone() choice=choice.clone() /> }
    };
    let on_scroll = move |event: leptos::ev::Event| {
        let element: web_sys::Element = event.current_target().unwrap_throw().unchecked_into();
        let row = (f64::from(element.scroll_top()) / ROW) as usize;
        if scrolled.get_untracked() != row {
            scrolled.set(row);
        }
    };
    let total = Memo::new(move |_| rows.with(Vec::len));
    let found = Memo::new(move |_| order.with(Vec::len));
    let below = move || found.get() - window.get().1;
    view! {
        <Filter testid=testid caption=caption filter=filter found=found total=total />
        <div class="rows" class:chooses=chooses tabindex="0" role="group" aria-label=caption on:scroll=on_scroll>
            <table data-testid=testid>
                <caption class="unseen">{caption}</caption>
                <thead><tr>{headings}</tr></thead>
                <tbody>
                    <Spacer columns=width rows=Signal::derive(move || window.get().0) />
                    <For each=move || visible.get() key=Clone::clone children=row />
                    <Spacer columns=width rows=Signal::derive(below) />
                </tbody>
            </table>
        </div>
    }
}

/// Returns the indices of the rows that the filter finds, in the chosen order.
fn ordered<T>(rows: &[T], columns: &[Column<T>], typed: &str, sort: Option<Sort>) -> Vec<usize> {
    let heading = columns.first().map_or("", |column| column.heading);
    let is_found = |row: &T| {
        let cells = || columns.iter().map(|column| (column.text)(row)).collect::<Vec<String>>();
        typed.trim().is_empty() || finds(typed, heading, &cells())
    };
    let found: Vec<usize> = (0..rows.len()).filter(|&at| is_found(&rows[at])).collect();
    let order = sorted(found.len(), sort, |at, column| (columns[column].key)(&rows[found[at]]));
    order.into_iter().map(|at| found[at]).collect()
}

/// The filter of a table, and how many rows it finds.
#[component]
fn Filter(
    testid: &'static str,
    caption: Signal<String>,
    filter: RwSignal<String>,
    found: Memo<usize>,
    total: Memo<usize>,
) -> impl IntoView {
    let is_filtered = Memo::new(move |_| filter.with(|typed| !typed.trim().is_empty()));
    let is_shown = Memo::new(move |_| total.get() > FEW || is_filtered.get());
    let words = move || {
        if is_filtered.get() {
            format!("{} of {} rows", units::count(found.get() as u64), units::count(total.get() as u64))
        } else {
            String::new()
        }
    };
    view! {
        <Show when=move || is_shown.get()>
            <p class="filter">
                <input
                    type="search"
                    placeholder="Filter"
                    aria-label=move || format!("Filter: {}", caption.get())
                    data-testid=format!("{testid}-filter")
                    prop:value=filter
                    on:input=move |event| filter.set(event_target_value(&event))
                />
                <small role="status">{words}</small>
            </p>
        </Show>
    }
}

/// The heading of a column, with which the table is sorted: down, up, and back to the given order.
#[component]
fn Heading(
    at: usize,
    name: &'static str,
    meaning: &'static str,
    class: &'static str,
    sort: RwSignal<Option<Sort>>,
) -> impl IntoView {
    let direction = move || sort.get().filter(|sort| sort.column == at).map(|sort| sort.is_ascending);
    let spoken =
        move || direction().map(|is_ascending| if is_ascending { "ascending" } else { "descending" });
    let arrow = move || match direction() {
        Some(true) => " ▲",
        Some(false) => " ▼",
        None => "",
    };
    view! {
        <th scope="col" class=class aria-sort=spoken>
            <button class="sort" title=meaning on:click=move |_| sort.update(|sort| *sort = Sort::next(*sort, at))>
                {name}
                <span aria-hidden="true">{arrow}</span>
            </button>
        </th>
    }
}

/// A row. `row` is `None` for the moment in which the row goes.
#[component]
fn Row<T>(row: Memo<Option<T>>, columns: Arc<Vec<Column<T>>>, choice: Option<Arc<Choice<T>>>) -> impl IntoView
where
    T: Clone + PartialEq + Send + Sync + 'static,
{
    let cell = {
        let columns = columns.clone();
        move |at: usize| {
            let columns = columns.clone();
            move || row.with(|row| row.as_ref().map(|row| (columns[at].view)(row)))
        }
    };
    let name_class = columns.first().map_or("", |column| column.class);
    // The button makes the row accessible by keyboard. A click on it reaches the row.
    let name = if choice.is_some() {
        view! { <button class="link">{cell(0)}</button> }.into_any()
    } else {
        cell(0).into_any()
    };
    let cells = columns.iter().enumerate().skip(1);
    let cells = cells.map(|(at, column)| view! { <td class=column.class>{cell(at)}</td> }).collect_view();
    let is_chosen = {
        let choice = choice.clone();
        Memo::new(move |_| match (&choice, row.get()) {
            (Some(choice), Some(row)) => (choice.is_chosen)(&row),
            _ => false,
        })
    };
    let choose = move |_| {
        if let (Some(choice), Some(row)) = (&choice, row.get_untracked()) {
            choice.choose.run(row);
        }
    };
    view! {
        <tr class:chosen=is_chosen on:click=choose>
            <th scope="row" class=name_class>{name}</th>
            {cells}
        </tr>
    }
}

/// A row as high as the rows that are not in the document.
#[component]
fn Spacer(columns: usize, rows: Signal<usize>) -> impl IntoView {
    view! {
        <tr class="spacer" aria-hidden="true">
            <td colspan=columns.to_string() style:height=move || pixels(rows.get() as f64 * ROW)></td>
        </tr>
    }
}
