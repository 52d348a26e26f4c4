//! The address. The path names the view, and the query holds the selection in it.

use leptos::prelude::*;
use leptos_router::NavigateOptions;
use leptos_router::hooks::{use_location, use_navigate, use_query_map};
use leptos_router::params::ParamsMap;
use model::route::Tab;

/// The run that a view shows. It changes when the user goes from one run to another.
#[derive(Clone, Copy)]
pub struct RunId(Memo<String>);

impl RunId {
    pub fn new(id: Memo<String>) -> Self {
        Self(id)
    }

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

    /// Returns `url` with the current query, so that the selection stays the same from view to view. Values in `url` take
    /// the place of current ones.
    pub fn keeping(&self, url: &str) -> String {
        let (path, own) = url.split_once('?').unwrap_or((url, ""));
        let mut query = self.query.get();
        for (key, value) in own.split('&').filter_map(|pair| pair.split_once('=')) {
            query.replace(key.to_owned(), value.to_owned());
        }
        format!("{path}{}", query.to_query_string())
    }

    /// Returns `path` with the current query in which these values are set.
    pub fn keeping_and<const N: usize>(&self, path: &str, values: [(&'static str, String); N]) -> String {
        let mut query = self.query.get();
        for (key, value) in values {
            query.replace(key, value);
        }
        format!("{path}{}", query.to_query_string())
    }

    /// Goes to the buckets of a step.
    pub fn go_to_step(&self, run: &str, step: u64) {
        let path = Tab::Buckets.path(run);
        let url = untrack(|| self.keeping_and(&path, [("step", step.to_string())]));
        self.go(&url);
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
