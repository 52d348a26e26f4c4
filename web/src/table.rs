//! A table of many rows of which only the visible ones are in the document.
//!
//! Rows are asked for as text, cell by cell, and written as markup, so that every table of the page is one piece
//! of code.

use leptos::ev;
use leptos::prelude::*;
use units::fixed;
use viz::palette;
use wasm_bindgen::{JsCast as _, UnwrapThrowExt as _};
use wire::live::Part;

use crate::cells::{Derived, Var, act, text};
use crate::html::{Html, shown};

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

/// What a table shows, and what happens when a row is chosen.
pub struct Rows {
    /// How many there are.
    pub count: Derived<usize>,
    /// The text of (row, column).
    pub cell: Box<dyn Fn(usize, usize) -> String + Send + Sync>,
    /// Shares of the parts of a row's step, where there is such a column.
    pub shares: Option<Box<dyn Fn(usize) -> [f64; 8] + Send + Sync>>,
    /// True for the row that is selected.
    pub chosen: Box<dyn Fn(usize) -> bool + Send + Sync>,
    /// A row is chosen.
    pub choose: Option<Box<dyn Fn(usize)>>,
}

impl Rows {
    /// Rows that cannot be chosen.
    pub fn new(count: Derived<usize>, cell: impl Fn(usize, usize) -> String + Send + Sync + 'static) -> Self {
        Self { count, cell: Box::new(cell), shares: None, chosen: Box::new(|_| false), choose: None }
    }

    /// Rows of which one can be chosen.
    #[must_use]
    pub fn choosing(
        self,
        chosen: impl Fn(usize) -> bool + Send + Sync + 'static,
        choose: impl Fn(usize) + 'static,
    ) -> Self {
        Self { chosen: Box::new(chosen), choose: Some(Box::new(choose)), ..self }
    }
}

/// A table. The first column names its row; `caption` says what it is about, for a screen reader.
pub fn table(testid: &'static str, caption: Signal<String>, columns: Vec<Column>, rows: Rows) -> AnyView {
    let scrolled = Var::new(0usize);
    let Rows { count, cell, shares, chosen, choose } = rows;
    let chooses = choose.is_some();
    let on_scroll = act(move |event: ev::Event| {
        let element: web_sys::Element = event.current_target().unwrap_throw().unchecked_into();
        let row = (f64::from(element.scroll_top()) / ROW) as usize;
        if scrolled.get_untracked() != row {
            scrolled.set(row);
        }
    });
    let on_click = act(move |event: ev::MouseEvent| {
        if let (Some(choose), Some(row)) = (&choose, clicked(&event)) {
            choose(row);
        }
    });
    let content = text(move || {
        let count = count.get();
        let first = scrolled.get().min(count).saturating_sub(SPARE);
        let past = (scrolled.get() + TALLEST + SPARE).min(count);
        let html = Html::default()
            .raw("<table data-testid=")
            .raw(testid)
            .raw("><caption class=unseen>")
            .text(&caption.get())
            .raw("</caption><thead><tr>")
            .each(&columns, |html, column| html.el(column.heading().0, column.heading().1))
            .raw("</tr></thead><tbody>");
        let html = spacer(html, columns.len(), first).each(first..past, |html, at| {
            let html = html.raw(if chosen(at) { "<tr class=chosen data-row=" } else { "<tr data-row=" });
            let html = html.raw(&at.to_string()).raw("><th scope=row class=number>");
            let name = cell(at, 0);
            let html = if chooses { html.el("button class=link", &name) } else { html.text(&name) };
            html.raw("</th>")
                .each(columns.iter().enumerate().skip(1), |html, (column, kind)| match kind {
                    Column::Parts => parts(html, shares.as_ref().map_or([0.0; 8], |shares| shares(at))),
                    Column::Number(_) => html.number(&cell(at, column)),
                    Column::Words(_) => html.el("td", &cell(at, column)),
                })
                .raw("</tr>")
        });
        spacer(html, columns.len(), count.saturating_sub(past)).raw("</tbody></table>").done()
    });
    view! {
        <div class="rows" class:chooses=chooses tabindex="0" role="group" aria-label=caption on:scroll=on_scroll on:click=on_click>
            {shown("", content)}
        </div>
    }
    .into_any()
}

impl Column {
    fn heading(self) -> (&'static str, &'static str) {
        match self {
            Self::Number(name) => ("th scope=col class=number", name),
            Self::Words(name) => ("th scope=col", name),
            Self::Parts => ("th scope=col", "Parts"),
        }
    }
}

/// As high as the rows that are not in the document.
fn spacer(html: Html, columns: usize, rows: usize) -> Html {
    let height = rows as f64 * ROW;
    html.raw(&format!(
        "<tr class=spacer aria-hidden=true><td colspan={columns} height={}></td></tr>",
        fixed(height, 0)
    ))
}

/// The parts of a step as one bar; the columns beside it say the same in numbers.
fn parts(html: Html, shares: [f64; 8]) -> Html {
    let mut left = 0.0;
    html.raw("<td class=bar-cell><svg class=track aria-hidden=true>")
        .each(Part::ALL, |html, part| {
            let (x, width) = (left * 100.0, shares[part as usize] * 100.0);
            left += shares[part as usize];
            html.raw(&format!(
                "<rect height=\"100%\" x=\"{}%\" width=\"{}%\" fill=\"",
                fixed(x, 2),
                fixed(width, 2)
            ))
            .raw(&palette::css(palette::part(part)))
            .raw("\"></rect>")
        })
        .raw("</svg></td>")
}

fn clicked(event: &ev::MouseEvent) -> Option<usize> {
    let target = event.target()?.dyn_into::<web_sys::Element>().ok()?;
    target.closest("tr[data-row]").ok()??.get_attribute("data-row")?.parse().ok()
}
