//! What the list of runs shows, as signals. The address contains every choice, so that a copied link shows the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leptos::prelude::*;
use model::runs::filter::{self, Filter, toggled};
use model::runs::order::{self, Groups, Lines};
use model::runs::overlay::TimeAxis;
use model::sort::Sort;
use wire::views::{RunState, RunSummary};

use crate::live::Live;
use crate::route::Address;

/// The number of runs in a list that is not shown completely.
const FIRST: usize = 200;
/// The time for which the search must rest before the address follows.
const AT_REST: Duration = Duration::from_millis(300);
/// What separates names in the address. Run ids contain no comma, but names may.
const BETWEEN_NAMES: &str = "\n";

type Index = HashMap<String, Arc<RunSummary>>;

#[derive(Clone, Copy)]
pub struct Listing {
    address: Address,
    /// The data.
    pub live: Live,
    /// The words of the search.
    pub text: RwSignal<String>,
    /// The filter, with those words.
    pub filter: Memo<Filter>,
    /// All runs by name.
    pub groups: Memo<Groups>,
    /// True if the list is grouped by name.
    pub grouped: Memo<bool>,
    /// The chosen order.
    pub sort: Memo<Option<Sort>>,
    /// The names of closed groups.
    pub closed: Memo<Vec<String>>,
    /// The ids of the ticked runs, in the order of ticking.
    pub picked: Memo<Vec<String>>,
    /// The axis of the chart of ticked runs.
    pub axis: Memo<TimeAxis>,
    /// True if the list is shown completely, however long it is.
    pub whole: RwSignal<bool>,
    pub lines: Memo<Lines>,
    /// The number of all runs.
    pub total: Memo<usize>,
    index: Memo<Arc<Index>>,
}

impl Listing {
    /// Creates the list that the address describes.
    pub fn new(address: Address, live: Live) -> Self {
        let text = search_text(address);
        let filter = Memo::new(move |_| Filter {
            text: text.get(),
            states: filter::read_states(&address.param("state").unwrap_or_default()),
            name: address.param("name"),
            ranks: address.number("ranks").and_then(|ranks| u32::try_from(ranks).ok()),
            label: address.param("label"),
        });
        let groups = Memo::new(move |_| all(live, Groups::new));
        let grouped = Memo::new(move |_| {
            groups.with(|groups| order::is_grouped(address.param("group").as_deref(), groups))
        });
        let sort = Memo::new(move |_| order::read_sort(&address.param("sort")?));
        let closed = Memo::new(move |_| named(address, "closed", BETWEEN_NAMES));
        let whole = RwSignal::new(false);
        let lines = Memo::new(move |_| {
            let most = if whole.get() { usize::MAX } else { FIRST };
            let (filter, groups) = (filter.read(), groups.read());
            all(live, |runs| {
                let order = order::ordered(runs, |run| filter.shows(run), sort.get(), &groups);
                let runs: Vec<&RunSummary> = order.into_iter().map(|at| &runs[at]).collect();
                order::lines(&runs, grouped.get(), &closed.read(), most)
            })
        });
        let index = move |_: Option<&Arc<Index>>| {
            let entry = |run: &RunSummary| (run.run.to_string(), Arc::new(run.clone()));
            all(live, |runs| Arc::new(runs.iter().map(entry).collect()))
        };
        Self {
            address,
            live,
            text,
            filter,
            groups,
            grouped,
            sort,
            closed,
            picked: Memo::new(move |_| named(address, "pick", ",")),
            axis: Memo::new(move |_| TimeAxis::read(address.param("over").as_deref())),
            whole,
            lines,
            total: Memo::new(move |_| all(live, <[RunSummary]>::len)),
            // Rows compare their own run, which is cheaper than comparing all runs here as well.
            index: Memo::new_with_compare(index, |_, _| true),
        }
    }

    /// Returns a run as a signal that changes only with this run.
    pub fn run(&self, id: String) -> Memo<Option<Arc<RunSummary>>> {
        let index = self.index;
        Memo::new(move |_| index.with(|index| index.get(&id).cloned()))
    }

    /// Returns a run as it is now, without subscribing to changes.
    pub fn run_now(&self, id: &str) -> Option<Arc<RunSummary>> {
        self.index.with_untracked(|index| index.get(id).cloned())
    }

    /// Returns the name of a run, or its id if the run is not in the list.
    pub fn name(&self, id: &str) -> String {
        self.index.with(|index| index.get(id).map_or_else(|| id.to_owned(), |run| run.name.clone()))
    }

    /// Ticks a run, or removes its tick.
    pub fn toggle_picked(&self, id: &str) {
        let picked = toggled(self.picked.get_untracked(), id.to_owned());
        self.address.set([("pick", joined(&picked, ","))]);
    }

    /// Removes all ticks.
    pub fn clear_picked(&self) {
        self.address.set([("pick", None)]);
    }

    /// Opens or closes the group of a name.
    pub fn toggle_closed(&self, name: &str) {
        let closed = toggled(self.closed.get_untracked(), name.to_owned());
        self.address.set([("closed", joined(&closed, BETWEEN_NAMES))]);
    }

    /// Adds a state to the filter, or removes it.
    pub fn toggle_state(&self, state: RunState) {
        let states = toggled(self.filter.with_untracked(|filter| filter.states.clone()), state);
        self.address.set([("state", filter::write_states(&states))]);
    }

    /// Shows only runs of this name, or of any name.
    pub fn choose_name(&self, name: Option<String>) {
        self.address.set([("name", name)]);
    }

    /// Shows only runs with this number of ranks, or with any number.
    pub fn choose_ranks(&self, ranks: Option<String>) {
        self.address.set([("ranks", ranks)]);
    }

    /// Shows only runs with this label, or with any labels.
    pub fn choose_label(&self, label: Option<String>) {
        self.address.set([("label", label)]);
    }

    /// Sorts by a column: down, up, and back to the given order.
    pub fn sort_by(&self, column: usize) {
        let sort = Sort::next(self.sort.get_untracked(), column);
        self.address.set([("sort", sort.map(order::write_sort))]);
    }

    /// Groups the list by name, or not.
    pub fn toggle_grouped(&self) {
        let choice = if self.grouped.get_untracked() { "none" } else { "name" };
        self.address.set([("group", Some(choice.into()))]);
    }

    /// Sets the axis of the chart of ticked runs.
    pub fn choose_axis(&self, axis: TimeAxis) {
        self.address.set([("over", (axis != TimeAxis::default()).then(|| axis.key().into()))]);
    }

    /// Shows all runs.
    pub fn clear_filters(&self) {
        self.text.set(String::new());
        self.address.set([("q", None), ("state", None), ("name", None), ("ranks", None), ("label", None)]);
    }

    /// Returns the link that compares the ticked runs. The older one is the baseline.
    pub fn compare_href(&self) -> String {
        let mut picked = self.picked.get();
        if picked.len() > 2 {
            return "/compare".into();
        }
        self.index.with(|index| {
            picked.sort_by_key(|id| index.get(id).map(|run| run.started_unix_millis));
        });
        let sides: Vec<String> =
            ["a", "b"].iter().zip(picked).map(|(key, id)| format!("{key}={id}")).collect();
        format!("/compare?{}", sides.join("&"))
    }
}

fn all<T>(live: Live, read: impl FnOnce(&[RunSummary]) -> T) -> T {
    live.runs.with(|runs| read(runs.as_deref().unwrap_or_default()))
}

fn named(address: Address, key: &str, separator: &str) -> Vec<String> {
    let text = address.param(key).unwrap_or_default();
    text.split(separator).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn joined(parts: &[String], separator: &str) -> Option<String> {
    (!parts.is_empty()).then(|| parts.join(separator))
}

/// Creates the words of the search. They are read from the address, and written to it once they rest, because browsers
/// refuse to change the address with every key.
fn search_text(address: Address) -> RwSignal<String> {
    let text = RwSignal::new(String::new());
    let agreed = StoredValue::new(String::new());
    Effect::new(move |_| {
        let named = address.param("q").unwrap_or_default();
        if named != agreed.get_value() {
            agreed.set_value(named.clone());
            text.set(named);
        }
    });
    Effect::new(move |_| {
        let written = text.get();
        let at_rest = move || {
            let is_newest = text.try_with_untracked(|now| *now == written) == Some(true);
            if is_newest && agreed.get_value() != written {
                agreed.set_value(written.clone());
                address.set([("q", (!written.is_empty()).then_some(written))]);
            }
        };
        set_timeout(at_rest, AT_REST);
    });
    text
}
