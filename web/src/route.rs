//! The address. The path names the view, and the query holds the selection in it.
//!
//! A general router would cost 40 KB of the download, too much for four kinds of path.

use std::collections::BTreeMap;

use leptos::ev;
use leptos::prelude::*;
use wasm_bindgen::{JsCast as _, JsValue};

use crate::cells::Var;
/// A view of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// The verdict, the figures and the ledger.
    Overview,
    /// The rank x step heatmap.
    Ranks,
    /// The waterfall of one step.
    Buckets,
    /// Efficiency against world size.
    Scaling,
    /// Samples and bursts of the ranks' devices.
    Devices,
    /// The trustworthiness of the figures.
    Health,
}

impl Tab {
    /// All tabs, left to right.
    pub const ALL: [Self; 6] =
        [Self::Overview, Self::Ranks, Self::Buckets, Self::Scaling, Self::Devices, Self::Health];

    /// Returns the label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Ranks => "Ranks",
            Self::Buckets => "Buckets",
            Self::Scaling => "Scaling",
            Self::Devices => "Devices",
            Self::Health => "Health",
        }
    }

    /// Returns the last part of the path; empty for the first tab.
    fn key(self) -> String {
        if self == Self::Overview { String::new() } else { self.name().to_ascii_lowercase() }
    }

    /// Returns the path of the view of `run`.
    pub fn path(self, run: &str) -> String {
        let key = self.key();
        if key.is_empty() { format!("/runs/{run}") } else { format!("/runs/{run}/{key}") }
    }
}

/// The page that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// The list of runs.
    Runs,
    /// One run.
    Run(String, Tab),
    /// The comparison of two runs, which the query names.
    Compare,
    /// No page of the dashboard.
    Unknown,
}

impl Page {
    fn from_path(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let tab = |key: &str| Tab::ALL.into_iter().find(|tab| tab.key() == key);
        match parts[..] {
            [] | ["runs"] => Self::Runs,
            ["compare"] => Self::Compare,
            ["runs", run] => Self::Run(run.into(), Tab::Overview),
            ["runs", run, key] => tab(key).map_or(Self::Unknown, |tab| Self::Run(run.into(), tab)),
            _ => Self::Unknown,
        }
    }
}

type Query = BTreeMap<String, String>;

/// The address, as signals. The selection is stored only here, so that a copied link shows the same.
#[derive(Clone, Copy)]
pub struct Router {
    page: Var<Page>,
    query: Var<Query>,
}

impl Router {
    /// Reads the address, and follows links and the back and forward buttons. Call once.
    pub fn start() -> Self {
        let (page, query) = read();
        let router = Self { page: Var::new(page), query: Var::new(query) };
        let _popstate = window_event_listener(ev::popstate, move |_| router.refresh());
        let _click = window_event_listener(ev::click, move |event| router.follow_link(&event));
        router
    }

    /// Returns the page.
    pub fn page(&self) -> Page {
        self.page.get()
    }

    /// Returns a value of the query.
    pub fn param(&self, key: &str) -> Option<String> {
        self.query.with(|query| query.get(key).cloned())
    }

    /// Returns a number of the query.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.param(key)?.parse().ok()
    }

    /// Returns `path` with the current query, so that the selection stays the same from view to view.
    pub fn keeping(&self, path: &str) -> String {
        format!("{path}{}", self.query.with(written))
    }

    /// Goes to `url` and adds the current address to the history.
    pub fn go(&self, url: &str) {
        if let Ok(history) = window().history() {
            let _ = history.push_state_with_url(&JsValue::NULL, "", Some(url));
        }
        self.refresh();
        window().scroll_to_with_x_and_y(0.0, 0.0);
    }

    /// Sets or removes values of the query without adding to the history, because a selection is not a page.
    pub fn set<const N: usize>(&self, values: [(&str, Option<String>); N]) {
        let mut query = self.query.get_untracked();
        for (key, value) in values {
            match value {
                Some(value) => query.insert(key.into(), value),
                None => query.remove(key),
            };
        }
        if query == self.query.get_untracked() {
            return;
        }
        let path = window().location().pathname().unwrap_or_default();
        if let Ok(history) = window().history() {
            let url = format!("{path}{}", written(&query));
            let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&url));
        }
        self.query.set(query);
    }

    fn refresh(&self) {
        let (page, query) = read();
        if self.page.get_untracked() != page {
            self.page.set(page);
        }
        self.query.set(query);
    }

    /// Changes the view on a plain click on a link of the dashboard, instead of loading a page.
    fn follow_link(&self, event: &web_sys::MouseEvent) {
        let plain = event.button() == 0
            && !(event.ctrl_key() || event.meta_key() || event.shift_key() || event.alt_key());
        if !plain || event.default_prevented() {
            return;
        }
        let Some(link) = event
            .target()
            .and_then(|target| target.dyn_into::<web_sys::Element>().ok())
            .and_then(|target| target.closest("a[href]").ok().flatten())
        else {
            return;
        };
        let href = link.get_attribute("href").unwrap_or_default();
        if href.starts_with('/') && !href.starts_with("/api/") && !link.has_attribute("download") {
            event.prevent_default();
            self.go(&href);
        }
    }
}

fn read() -> (Page, Query) {
    let location = window().location();
    let path = location.pathname().unwrap_or_default();
    let search = location.search().unwrap_or_default();
    let mut query = Query::new();
    for (key, value) in search.trim_start_matches('?').split('&').filter_map(|pair| pair.split_once('=')) {
        query.insert(decode(key), decode(value));
    }
    (Page::from_path(&path), query)
}

fn written(query: &Query) -> String {
    let pairs: Vec<String> = query
        .iter()
        .map(|(key, value)| format!("{key}={}", String::from(js_sys::encode_uri_component(value))))
        .collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn decode(text: &str) -> String {
    js_sys::decode_uri_component(text).map_or_else(|_| text.into(), String::from)
}
