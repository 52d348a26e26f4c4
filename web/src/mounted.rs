//! A component in the document of a test, and what a person does with it.

use std::sync::{Arc, OnceLock};

use leptos::mount::mount_to;
use leptos::prelude::*;
use leptos::task::tick;
use leptos_router::components::Router;
use wasm_bindgen::JsCast as _;

use crate::access::Access;
use crate::imports::Imports;
use crate::live::Live;
use crate::news::Toasts;
use crate::plot::Stretch;
use crate::range::Range;
use crate::route::{Address, RunId};
use crate::step_chart::StepCharts;
use crate::terms::OpenTerm;
use crate::theme::Theme;
use web_sys::{Element, Event, EventInit, HtmlElement, HtmlInputElement};

/// A mounted component. Dropping it removes it from the document.
pub struct Mounted {
    outer: HtmlElement,
    _handle: Box<dyn std::any::Any>,
}

pub fn mount<V: IntoView + 'static>(view: impl FnOnce() -> V + 'static) -> Mounted {
    let outer = document()
        .create_element("div")
        .expect("a document creates elements")
        .unchecked_into::<HtmlElement>();
    document().body().expect("a test has a body").append_child(&outer).expect("a body takes elements");
    let handle = mount_to(outer.clone(), view);
    Mounted { outer, _handle: Box::new(handle) }
}

/// Mounts what `view` returns on the page of the run `gpt-7`, without a server. The data come from the test.
pub fn mount_in_run<V: IntoView + 'static>(view: impl FnOnce() -> V + Send + 'static) -> (Mounted, Live) {
    let live = Arc::new(OnceLock::new());
    let started = live.clone();
    let page = mount(move || {
        view! {
            <Router>
                {
                    let address = Address::new();
                    let live = Live::start();
                    provide_context(address);
                    provide_context(live);
                    provide_context(Theme::start());
                    provide_context(Stretch::start());
                    provide_context(OpenTerm::new());
                    provide_context(Toasts::new());
                    provide_context(Imports::new());
                    provide_context(Access::new());
                    let run = RunId::new(Memo::new(|_| "gpt-7".into()));
                    let range = Range::new(live, address);
                    provide_context(run);
                    provide_context(range);
                    provide_context(StepCharts::new(range, address, run));
                    let _ = started.set(live);
                    view()
                }
            </Router>
        }
    });
    (page, *live.get().expect("the component was mounted"))
}

impl Mounted {
    /// Waits until effects have run.
    pub async fn settle(&self) {
        tick().await;
        tick().await;
    }

    /// Returns the first element that the selector matches.
    pub fn find(&self, css: &str) -> Option<Element> {
        self.outer.query_selector(css).expect("the selector is valid")
    }

    fn get(&self, css: &str) -> Element {
        self.find(css).unwrap_or_else(|| panic!("no {css} in {}", self.outer.inner_html()))
    }

    /// Returns the text of an element.
    pub fn text(&self, css: &str) -> String {
        self.get(css).text_content().unwrap_or_default()
    }

    /// Returns the texts of all elements that the selector matches.
    pub fn texts(&self, css: &str) -> Vec<String> {
        let found = self.outer.query_selector_all(css).expect("the selector is valid");
        (0..found.length()).filter_map(|at| found.get(at)?.text_content()).collect()
    }

    /// Returns an attribute of an element.
    pub fn attribute(&self, css: &str, name: &str) -> Option<String> {
        self.get(css).get_attribute(name)
    }

    /// Clicks an element.
    pub async fn click(&self, css: &str) {
        self.get(css).unchecked_into::<HtmlElement>().click();
        self.settle().await;
    }

    /// Types a text into a field, in place of what is in it.
    pub async fn enter(&self, css: &str, text: &str) {
        let field: HtmlInputElement = self.get(css).unchecked_into();
        field.set_value(text);
        self.send(&field, "input").await;
    }

    /// Scrolls an element so that `top` pixels are above its edge.
    pub async fn scroll(&self, css: &str, top: f64) {
        let element = self.get(css);
        // Tests have no style sheet.
        element.set_attribute("style", "height: 476px; overflow: auto").expect("elements have attributes");
        element.set_scroll_top(top as i32);
        self.send(&element, "scroll").await;
    }

    async fn send(&self, element: &Element, name: &str) {
        let how = EventInit::new();
        how.set_bubbles(true);
        let event = Event::new_with_event_init_dict(name, &how).expect("an event has a name");
        element.dispatch_event(&event).expect("an element takes events");
        self.settle().await;
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.outer.remove();
    }
}
