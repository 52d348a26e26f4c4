//! A table of many rows. Only the visible rows are in the document.
//!
//! Cells are requested as text and rendered as markup, so that all tables share one compiled implementation.

use leptos::ev;
use leptos::prelude::*;
use units::fixed;
use viz::palette;
use wasm_bindgen::{JsCast as _, UnwrapThrowExt as _};
use wire::live::Part;

use crate::cells::{Derived, Var, act, text};
use crate::html::{Html, shown};

/// The height of a row in CSS pixels, as in the style sheet.
const ROW: f64 = 28.0;
/// The largest number of visible rows. More rows scroll inside the table.
const TALLEST: usize = 16;
/// The number of rows in the document beyond the visible ones, on either side.
const SPARE: usize = 6;

/// The kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Numbers, with this heading.
    Number(&'static str),
    /// Text, with this heading.
    Words(&'static str),
    /// The parts of a step as a bar.
    Parts,
}

/// The rows of a table, and the handler for choosing one.
pub struct Rows {
    /// The number of rows.
    pub count: Derived<usize>,
    /// Returns the text of (row, column).
    pub cell: Box<dyn Fn(usize, usize) -> String + Send + Sync>,
    /// Returns the shares of the parts of a row's step, for tables with a column of parts.
    pub shares: Option<Box<dyn Fn(usize) -> [f64; 8] + Send + Sync>>,
    /// Returns true for the selected row.
    pub chosen: Box<dyn Fn(usize) -> bool + Send + Sync>,
    /// Handles the choice of a row.
    pub choose: Option<Box<dyn Fn(usize)>>,
}

impl Rows {
    /// Creates rows that cannot be chosen.
    pub fn new(count: Derived<usize>, cell: impl Fn(usize, usize) -> String + Send + Sync + 'static) -> Self {
        Self { count, cell: Box::new(cell), shares: None, chosen: Box::new(|_| false), choose: None }
    }

    /// Makes the rows choosable.
    #[must_use]
    pub fn choosing(
        self,
        chosen: impl Fn(usize) -> bool + Send + Sync + 'static,
        choose: impl Fn(usize) + 'static,
    ) -> Self {
        Self { chosen: Box::new(chosen), choose: Some(Box::new(choose)), ..self }
    }
}

/// Creates a table. The first column names its row. `caption` describes the table for screen readers.
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

/// Appends a row as high as the rows that are not in the document.
fn spacer(html: Html, columns: usize, rows: usize) -> Html {
    let height = rows as f64 * ROW;
    html.raw(&format!(
        "<tr class=spacer aria-hidden=true><td colspan={columns} height={}></td></tr>",
        fixed(height, 0)
    ))
}

/// Appends the parts of a step as one bar. Other columns contain the same numbers.
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
