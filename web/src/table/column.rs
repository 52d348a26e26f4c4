//! What a table shows of a row, and what it does with one.

use leptos::prelude::*;
use model::sort::SortKey;
use viz::palette;
use wire::live::Part;

use crate::widgets::Bar;

type Read<T, U> = Box<dyn Fn(&T) -> U + Send + Sync>;

/// A column: its heading, and what a row has in it.
pub struct Column<T> {
    pub(super) heading: &'static str,
    /// What the column means, shown with its heading.
    pub(super) meaning: &'static str,
    /// The class of its cells: `number`, `bar-cell`, or none.
    pub(super) class: &'static str,
    pub(super) view: Read<T, AnyView>,
    /// The text of a cell, for the filter; empty for a picture.
    pub(super) text: Read<T, String>,
    pub(super) key: Read<T, SortKey>,
}

impl<T> Column<T> {
    /// Creates a column of numbers, given as (value, text). The value decides the order; NaN comes last.
    pub fn number(
        heading: &'static str,
        read: impl Fn(&T) -> (f64, String) + Clone + Send + Sync + 'static,
    ) -> Self {
        let (text, key) = (read.clone(), read.clone());
        Self {
            heading,
            meaning: "Sort",
            class: "number",
            view: Box::new(move |row| read(row).1.into_any()),
            text: Box::new(move |row| text(row).1),
            key: Box::new(move |row| SortKey::Number(key(row).0)),
        }
    }

    /// Creates a column of text.
    pub fn text(heading: &'static str, read: impl Fn(&T) -> String + Clone + Send + Sync + 'static) -> Self {
        let (text, key) = (read.clone(), read.clone());
        Self {
            heading,
            meaning: "Sort",
            class: "",
            view: Box::new(move |row| read(row).into_any()),
            text: Box::new(text),
            key: Box::new(move |row| SortKey::Text(key(row))),
        }
    }

    /// Creates a column of long names. The table shows their begin, and the whole name where the pointer is.
    pub fn name(heading: &'static str, read: impl Fn(&T) -> String + Clone + Send + Sync + 'static) -> Self {
        let whole = read.clone();
        let view = move |row: &T| {
            let (name, shown) = (whole(row), whole(row));
            view! { <span class="long" title=name>{shown}</span> }.into_any()
        };
        Self { view: Box::new(view), ..Self::text(heading, read) }
    }

    /// Says what the column means.
    pub fn meaning(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }

    /// Aligns texts as numbers are.
    pub fn right(self) -> Self {
        Self { class: "number", ..self }
    }

    /// Creates a column of bars, given as (share of the largest value, whether it is the culprit's). Another column contains
    /// the same numbers.
    pub fn bar(read: impl Fn(&T) -> (f64, bool) + Send + Sync + 'static) -> Self {
        let view = move |row: &T| {
            let (share, is_culprit) = read(row);
            view! { <Bar from=0.0 to=share is_culprit=is_culprit /> }.into_any()
        };
        Self::picture("", view)
    }

    /// Creates a column of pictures. Other columns contain their numbers.
    pub fn picture(heading: &'static str, view: impl Fn(&T) -> AnyView + Send + Sync + 'static) -> Self {
        Self {
            heading,
            meaning: "Sort",
            class: "bar-cell",
            view: Box::new(view),
            text: Box::new(|_| String::new()),
            key: Box::new(|_| SortKey::None),
        }
    }

    /// Creates a column of bars: the shares of the parts of a step. Other columns contain the same numbers.
    pub fn parts(read: impl Fn(&T) -> [f64; Part::COUNT] + Send + Sync + 'static) -> Self {
        Self::picture("Parts", move |row| view! { <Parts shares=read(row) /> }.into_any())
    }
}

/// What a table does with a row that the user chooses.
pub struct Choice<T: 'static> {
    pub(super) is_chosen: Read<T, bool>,
    pub(super) choose: Callback<T>,
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

/// The parts of a step as one bar.
#[component]
fn Parts(shares: [f64; Part::COUNT]) -> impl IntoView {
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
