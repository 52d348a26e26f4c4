//! A table of many rows, sorted by any column. Only the visible rows are in the document.

use leptos::prelude::*;
use model::sort::{Sort, SortKey, sorted};
use viz::palette;
use wasm_bindgen::{JsCast as _, UnwrapThrowExt as _};
use wire::live::Part;

use crate::widgets::{Bar, pixels};

/// The height of a row in CSS pixels, as in the style sheet.
const ROW: f64 = 28.0;
/// The largest number of visible rows. More rows scroll inside the table.
const TALLEST: usize = 16;
/// The number of rows in the document beyond the visible ones, on either side.
const SPARE: usize = 6;

type CellView<T> = Box<dyn Fn(&T) -> AnyView + Send + Sync>;
type CellKey<T> = Box<dyn Fn(&T) -> SortKey + Send + Sync>;

/// A column: its heading, and what a row has in it.
pub struct Column<T> {
    heading: &'static str,
    /// What the column means, shown with its heading.
    meaning: &'static str,
    /// The class of its cells: `number`, `bar-cell`, or none.
    class: &'static str,
    view: CellView<T>,
    key: CellKey<T>,
}

impl<T> Column<T> {
    /// Creates a column of numbers, given as (value, text). The value decides the order; NaN comes last.
    pub fn number(
        heading: &'static str,
        read: impl Fn(&T) -> (f64, String) + Clone + Send + Sync + 'static,
    ) -> Self {
        let key = read.clone();
        Self {
            heading,
            meaning: "Sort",
            class: "number",
            view: Box::new(move |row| read(row).1.into_any()),
            key: Box::new(move |row| SortKey::Number(key(row).0)),
        }
    }

    /// Creates a column of text.
    pub fn text(heading: &'static str, read: impl Fn(&T) -> String + Clone + Send + Sync + 'static) -> Self {
        let key = read.clone();
        Self {
            heading,
            meaning: "Sort",
            class: "",
            view: Box::new(move |row| read(row).into_any()),
            key: Box::new(move |row| SortKey::Text(key(row))),
        }
    }

    /// Says what the column means.
    pub fn meaning(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }

    /// Aligns texts as numbers are.
    pub fn right(self) -> Self {
        Self { class: "number", ..self }
    }

    /// Creates a column of bars from 0 to a share of the largest value. Another column contains the same numbers.
    pub fn bar(heading: &'static str, read: impl Fn(&T) -> f64 + Send + Sync + 'static) -> Self {
        Self::picture(heading, move |row| view! { <Bar from=0.0 to=read(row) colour=None /> }.into_any())
    }

    /// Creates a column of pictures. Other columns contain their numbers.
    pub fn picture(heading: &'static str, view: impl Fn(&T) -> AnyView + Send + Sync + 'static) -> Self {
        Self {
            heading,
            meaning: "Sort",
            class: "bar-cell",
            view: Box::new(view),
            key: Box::new(|_| SortKey::None),
        }
    }

    /// Creates a column of bars: the shares of the parts of a step. Other columns contain the same numbers.
    pub fn parts(read: impl Fn(&T) -> [f64; 8] + Send + Sync + 'static) -> Self {
        Self::picture("Parts", move |row| view! { <Parts shares=read(row) /> }.into_any())
    }
}

/// What a table does with a row that the user chooses.
pub struct Choice<T: 'static> {
    is_chosen: Box<dyn Fn(&T) -> bool + Send + Sync>,
    choose: Callback<T>,
}

impl<T: 'static> Choice<T> {
    /// Creates a choice. `is_chosen` returns true for the chosen row.
    pub fn new(
        is_chosen: impl Fn(&T) -> bool + Send + Sync + 'static,
        choose: impl Fn(T) + Send + Sync + 'static,
    ) -> Self {
        Self { is_chosen: Box::new(is_chosen), choose: Callback::new(choose) }
    }
}

/// A table. The first column names its row. `caption` describes the table for screen readers.
#[component]
pub fn Table<T: Clone + Send + Sync + 'static>(
    testid: &'static str,
    #[prop(into)] caption: Signal<String>,
    columns: Vec<Column<T>>,
    rows: Signal<Vec<T>>,
    #[prop(optional)] choice: Option<Choice<T>>,
) -> impl IntoView {
    let chooses = choice.is_some();
    let sort = RwSignal::new(None::<Sort>);
    let scrolled = RwSignal::new(0usize);
    let headings = columns
        .iter()
        .enumerate()
        .map(|(at, column)| view! { <Heading at=at name=column.heading meaning=column.meaning class=column.class sort=sort /> })
        .collect_view();
    let width = columns.len();
    let body = move || {
        let rows = rows.get();
        let order = sorted(rows.len(), sort.get(), |row, column| (columns[column].key)(&rows[row]));
        let first = scrolled.get().min(rows.len()).saturating_sub(SPARE);
        let past = (scrolled.get() + TALLEST + SPARE).min(rows.len());
        let shown =
            order[first..past].iter().map(|&at| row(&rows[at], &columns, choice.as_ref())).collect_view();
        view! {
            <Spacer columns=width rows=first />
            {shown}
            <Spacer columns=width rows=rows.len() - past />
        }
    };
    let on_scroll = move |event: leptos::ev::Event| {
        let element: web_sys::Element = event.current_target().unwrap_throw().unchecked_into();
        let row = (f64::from(element.scroll_top()) / ROW) as usize;
        if scrolled.get_untracked() != row {
            scrolled.set(row);
        }
    };
    view! {
        <div class="rows" class:chooses=chooses tabindex="0" role="group" aria-label=caption on:scroll=on_scroll>
            <table data-testid=testid>
                <caption class="unseen">{caption}</caption>
                <thead><tr>{headings}</tr></thead>
                <tbody>{body}</tbody>
            </table>
        </div>
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

fn row<T: Clone + Send + Sync + 'static>(
    row: &T,
    columns: &[Column<T>],
    choice: Option<&Choice<T>>,
) -> AnyView {
    let is_chosen = choice.is_some_and(|choice| (choice.is_chosen)(row));
    let choose = choice.map(|choice| {
        let (choose, row) = (choice.choose, row.clone());
        move || choose.run(row.clone())
    });
    let mut cells = columns.iter().map(|column| ((column.view)(row), column.class));
    let Some((name, name_class)) = cells.next() else { return ().into_any() };
    // The button makes the row accessible by keyboard. A click on it reaches the row.
    let name =
        if choose.is_some() { view! { <button class="link">{name}</button> }.into_any() } else { name };
    let cells = cells.map(|(cell, class)| view! { <td class=class>{cell}</td> }).collect_view();
    view! {
        <tr
            class:chosen=is_chosen
            on:click=move |_| {
                if let Some(choose) = &choose {
                    choose();
                }
            }
        >
            <th scope="row" class=name_class>{name}</th>
            {cells}
        </tr>
    }
    .into_any()
}

/// A row as high as the rows that are not in the document.
#[component]
fn Spacer(columns: usize, rows: usize) -> impl IntoView {
    view! {
        <tr class="spacer" aria-hidden="true">
            <td colspan=columns.to_string() style:height=pixels(rows as f64 * ROW)></td>
        </tr>
    }
}

/// The parts of a step as one bar.
#[component]
fn Parts(shares: [f64; 8]) -> impl IntoView {
    let mut left = 0.0;
    let parts = Part::ALL
        .map(|part| {
            let (x, width) = (left * 100.0, shares[part as usize] * 100.0);
            left += shares[part as usize];
            view! {
                <rect
                    height="100%"
                    x=format!("{x:.2}%")
                    width=format!("{width:.2}%")
                    fill=palette::css(palette::part(part))
                ></rect>
            }
        })
        .collect_view();
    view! { <svg class="track" aria-hidden="true">{parts}</svg> }
}
