//! Read-only content: rendered as markup, and put on the page by changing only what differs.
//!
//! A typed view of every table and list would compile to separate code, 3 to 6 KB of the download each; markup is text.
//! Elements stay while their texts change, so that neither focus nor selection is lost when a report arrives twice per
//! second. Nothing here has handlers: [`crate::route`] handles links.

use leptos::html;
use leptos::prelude::*;
use units::fixed;
use viz::palette::{self, Rgba};
use viz::within::within;
use wasm_bindgen::JsCast as _;
use web_sys::{Element, Node};

use crate::cells::effect;

/// Markup under construction.
#[derive(Default)]
pub struct Html(String);

impl Html {
    /// Appends literal markup. It must not contain data from outside.
    #[must_use]
    pub fn raw(mut self, markup: &str) -> Self {
        self.0.push_str(markup);
        self
    }

    /// Appends a text, escaped.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        for c in text.chars() {
            match c {
                '<' => self.0.push_str("&lt;"),
                '&' => self.0.push_str("&amp;"),
                '"' => self.0.push_str("&quot;"),
                c => self.0.push(c),
            }
        }
        self
    }

    /// Appends an element with a text; `tag` may have attributes.
    #[must_use]
    pub fn el(self, tag: &str, text: &str) -> Self {
        let name = tag.split(' ').next().unwrap_or(tag);
        self.raw("<").raw(tag).raw(">").text(text).raw("</").raw(name).raw(">")
    }

    /// Appends a table cell with a number.
    #[must_use]
    pub fn number(self, text: &str) -> Self {
        self.el("td class=number", text)
    }

    /// Appends a link within the dashboard.
    #[must_use]
    pub fn link(self, href: &str, text: &str) -> Self {
        self.raw("<a href=\"").text(href).raw("\">").text(text).raw("</a>")
    }

    /// Appends a square of a color.
    #[must_use]
    pub fn swatch(self, colour: Rgba) -> Self {
        self.raw("<svg class=swatch viewBox=\"0 0 10 10\" aria-hidden=true><rect width=10 height=10 fill=\"")
            .raw(&palette::css(colour))
            .raw("\"></rect></svg>")
    }

    /// Appends a bar between two shares of a row, 0 to 1, in the color of a part or in the page's color.
    #[must_use]
    pub fn bar(self, from: f64, to: f64, colour: Option<Rgba>) -> Self {
        let (from, to) = (within(from, 0.0, 1.0) * 100.0, within(to, 0.0, 1.0) * 100.0);
        let fill = colour.map_or_else(String::new, |colour| format!(" fill=\"{}\"", palette::css(colour)));
        self.raw("<svg class=track aria-hidden=true><rect height=\"100%\" rx=2 x=\"").raw(&format!(
            "{}%\" width=\"{}%\"{fill}></rect></svg>",
            fixed(from, 2),
            fixed((to - from).max(0.15), 2)
        ))
    }

    /// Appends each item in turn.
    #[must_use]
    pub fn each<T>(self, items: impl IntoIterator<Item = T>, mut write: impl FnMut(Self, T) -> Self) -> Self {
        let mut out = self;
        for item in items {
            out = write(out, item);
        }
        out
    }

    /// Returns the markup.
    #[must_use]
    pub fn done(self) -> String {
        self.0
    }
}

/// Creates an element whose content follows `content`.
pub fn shown(class: &'static str, content: Signal<String>) -> AnyView {
    let element = NodeRef::<html::Div>::new();
    effect(move || {
        let content = content.get();
        let Some(element) = element.get() else { return };
        let element: Element = element.into();
        let Ok(fresh) = element.clone_node() else { return };
        let fresh: Element = fresh.unchecked_into();
        fresh.set_inner_html(&content);
        align(&element, &fresh);
    });
    view! { <div class=class node_ref=element></div> }.into_any()
}

/// Makes the children of `old` equal to those of `new` and changes only what differs.
fn align(old: &Node, new: &Node) {
    let (mut ours, mut theirs) = (old.first_child(), new.first_child());
    while let Some(wanted) = theirs {
        theirs = wanted.next_sibling();
        let Some(present) = ours else {
            let _ = old.append_child(&wanted);
            continue;
        };
        ours = present.next_sibling();
        if present.node_name() != wanted.node_name() {
            let _ = old.replace_child(&wanted, &present);
        } else if let (Some(present), Some(wanted)) =
            (present.dyn_ref::<Element>(), wanted.dyn_ref::<Element>())
        {
            attributes(present, wanted);
            align(present, wanted);
        } else if present.node_value() != wanted.node_value() {
            present.set_node_value(wanted.node_value().as_deref());
        }
    }
    while let Some(extra) = ours {
        ours = extra.next_sibling();
        let _ = old.remove_child(&extra);
    }
}

fn attributes(old: &Element, new: &Element) {
    let name = |name: wasm_bindgen::JsValue| name.as_string().unwrap_or_default();
    for gone in old.get_attribute_names().iter().map(name) {
        // The reader decides whether a list is expanded.
        if gone != "open" && !new.has_attribute(&gone) {
            let _ = old.remove_attribute(&gone);
        }
    }
    for name in new.get_attribute_names().iter().map(name) {
        let value = new.get_attribute(&name).unwrap_or_default();
        if old.get_attribute(&name).as_deref() != Some(&value) {
            let _ = old.set_attribute(&name, &value);
        }
    }
}
