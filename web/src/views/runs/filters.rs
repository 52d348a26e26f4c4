//! The search and the filters above the list of runs.

use leptos::ev;
use leptos::prelude::*;
use model::attributes;
use model::runs::filter::{self, STATES, attention};
use wire::views::{RunState, RunSummary};

use super::focus_row;
use super::listing::Listing;

/// The search and the filters.
#[component]
pub fn Filters(listing: Listing) -> impl IntoView {
    let on_key = |event: ev::KeyboardEvent| {
        if event.key() == "ArrowDown" && focus_row(true) {
            event.prevent_default();
        }
    };
    let counts = Memo::new(move |_| {
        let filter = listing.filter.read();
        listing.live.runs.with(|runs| filter.counts(runs.as_deref().unwrap_or_default()))
    });
    let is_filtered = Memo::new(move |_| !listing.filter.read().is_empty());
    view! {
        <div class="filters" role="search" aria-label="Runs">
            <input
                class="search"
                type="search"
                data-testid="search"
                aria-label="Search runs by name, id, label, state or verdict"
                placeholder="Search name, label or verdict  ( / )"
                autocomplete="off"
                spellcheck="false"
                prop:value=listing.text
                on:input=move |event| listing.text.set(event_target_value(&event))
                on:keydown=on_key
            />
            <div class="states" role="group" aria-label="State">
                {STATES.map(|state| view! { <StateToggle listing=listing state=state counts=counts /> }).collect_view()}
            </div>
            <Choices listing=listing />
            <button
                data-testid="group"
                aria-pressed=move || listing.grouped.get().to_string()
                on:click=move |_| listing.toggle_grouped()
            >
                "Group by name"
            </button>
            <button
                class="quiet"
                data-testid="clear"
                class:hidden=move || !is_filtered.get()
                on:click=move |_| listing.clear_filters()
            >
                "Clear filters"
            </button>
        </div>
    }
}

/// The choices of a name, a number of ranks and a label.
#[component]
fn Choices(listing: Listing) -> impl IntoView {
    let labels = options(listing, attributes::labels);
    view! {
        <Choice
            testid="filter-name"
            name="Name"
            any="any name"
            options=options(listing, filter::names)
            chosen=Signal::derive(move || listing.filter.read().name.clone())
            choose=Callback::new(move |name| listing.choose_name(name))
        />
        <Choice
            testid="filter-ranks"
            name="Ranks"
            any="any number"
            options=options(listing, filter::ranks)
            chosen=Signal::derive(move || listing.filter.read().ranks.map(|ranks| ranks.to_string()))
            choose=Callback::new(move |ranks| listing.choose_ranks(ranks))
        />
        <Show when=move || !labels.read().is_empty() || listing.filter.read().label.is_some()>
            <Choice
                testid="filter-label"
                name="Label"
                any="any label"
                options=labels
                chosen=Signal::derive(move || listing.filter.read().label.clone())
                choose=Callback::new(move |label| listing.choose_label(label))
            />
        </Show>
    }
}

/// A state that the filter may contain, with the number of its runs.
#[component]
fn StateToggle(listing: Listing, state: RunState, counts: Memo<[usize; STATES.len()]>) -> impl IntoView {
    let is_chosen = move || listing.filter.read().states.contains(&state);
    let count = move || units::count(counts.get()[attention(state)] as u64);
    view! {
        <button
            data-testid=format!("state-{}", state.name())
            data-state=state.name()
            aria-pressed=move || is_chosen().to_string()
            on:click=move |_| listing.toggle_state(state)
        >
            <i class="dot" aria-hidden="true"></i>
            {state.name()}
            <span class="tabular">" "{count}</span>
        </button>
    }
}

/// Returns the options of a list of choices as (value, label).
fn options<T: ToString + 'static>(
    listing: Listing,
    counts: fn(&[RunSummary]) -> Vec<(T, usize)>,
) -> Memo<Vec<(String, String)>> {
    let option = |(value, runs): (T, usize)| {
        let value = value.to_string();
        let label = format!("{value} ({})", units::count(runs as u64));
        (value, label)
    };
    Memo::new(move |_| {
        let runs = listing.live.runs.read();
        counts(runs.as_deref().unwrap_or_default()).into_iter().map(option).collect()
    })
}

/// A list of choices, of which none need be chosen.
#[component]
fn Choice(
    testid: &'static str,
    name: &'static str,
    any: &'static str,
    options: Memo<Vec<(String, String)>>,
    chosen: Signal<Option<String>>,
    choose: Callback<Option<String>>,
) -> impl IntoView {
    let option = move |(value, label): (String, String)| {
        let is_chosen = {
            let value = value.clone();
            move || chosen.read().as_ref() == Some(&value)
        };
        view! { <option value=value prop:selected=is_chosen>{label}</option> }
    };
    let change = move |event: ev::Event| {
        let value = event_target_value(&event);
        choose.run((!value.is_empty()).then_some(value));
    };
    view! {
        <label class="field">
            <span>{name}</span>
            <select data-testid=testid on:change=change>
                <option value="" prop:selected=move || chosen.read().is_none()>{any}</option>
                <For each=move || options.get() key=Clone::clone let:entry>{option(entry)}</For>
            </select>
        </label>
    }
}
