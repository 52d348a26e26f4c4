//! The address. The path names the view, and the query holds the selection in it.

use leptos::prelude::*;
use leptos_router::NavigateOptions;
use leptos_router::hooks::{use_location, use_navigate, use_query_map};
use leptos_router::params::ParamsMap;

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

/// Returns the run that a path names, if it is the path of a view of a run.
pub fn run_in(path: &str) -> Option<&str> {
    path.strip_prefix("/runs/")?.split('/').next().filter(|run| !run.is_empty())
}

/// Returns the view of a run that a path names.
pub fn tab_in(path: &str) -> Option<Tab> {
    let key = path.strip_prefix("/runs/")?.split('/').nth(1).unwrap_or_default();
    Tab::ALL.into_iter().find(|tab| tab.key() == key)
}

/// The run that a view shows. It changes when the user goes from one run to another.
#[derive(Clone, Copy)]
pub struct RunId(Memo<String>);

impl RunId {
    /// Creates the run whose id is `id`.
    pub fn new(id: Memo<String>) -> Self {
        Self(id)
    }

    /// Returns the id.
    pub fn get(&self) -> String {
        self.0.get()
    }

    /// Returns the id without subscribing to changes.
    pub fn get_untracked(&self) -> String {
        self.0.get_untracked()
    }

    /// Returns true if the id is still `id`, and the view still exists.
    pub fn is_still(&self, id: &str) -> bool {
        self.0.try_get_untracked().is_some_and(|now| now == id)
    }
}

type Navigate = Box<dyn Fn(&str, NavigateOptions)>;

/// The address, as signals. The selection is stored only here, so that a copied link shows the same.
#[derive(Clone, Copy)]
pub struct Address {
    /// The path.
    pub path: Memo<String>,
    query: Memo<ParamsMap>,
    navigate: StoredValue<Navigate, LocalStorage>,
}

impl Address {
    /// Follows the address. Call once, within the router.
    pub fn new() -> Self {
        let navigate: Navigate = Box::new(use_navigate());
        Self {
            path: use_location().pathname,
            query: use_query_map(),
            navigate: StoredValue::new_local(navigate),
        }
    }

    /// Returns a value of the query.
    pub fn param(&self, key: &str) -> Option<String> {
        self.query.with(|query| query.get(key))
    }

    /// Returns a number of the query.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.param(key)?.parse().ok()
    }

    /// Returns `path` with the current query, so that the selection stays the same from view to view.
    pub fn keeping(&self, path: &str) -> String {
        format!("{path}{}", self.query.with(ParamsMap::to_query_string))
    }

    /// Goes to `url` and adds the current address to the history.
    pub fn go(&self, url: &str) {
        self.navigate(url, NavigateOptions { resolve: false, ..NavigateOptions::default() });
    }

    /// Sets or removes values of the query without adding to the history, because a selection is not a page.
    pub fn set<const N: usize>(&self, values: [(&'static str, Option<String>); N]) {
        let mut query = self.query.get_untracked();
        for (key, value) in values {
            match value {
                Some(value) => query.replace(key, value),
                None => drop(query.remove(key)),
            }
        }
        if query == self.query.get_untracked() {
            return;
        }
        let url = format!("{}{}", self.path.get_untracked(), query.to_query_string());
        let options =
            NavigateOptions { resolve: false, replace: true, scroll: false, ..NavigateOptions::default() };
        self.navigate(&url, options);
    }

    fn navigate(&self, url: &str, options: NavigateOptions) {
        self.navigate.with_value(|navigate| navigate(url, options));
    }
}
