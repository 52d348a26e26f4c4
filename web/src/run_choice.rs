//! Lists from which a run is chosen. The address holds the choice.

use leptos::prelude::*;
use model::runs::choices::{Choices, choices, with_chosen};

use crate::live::Live;
use crate::route::Address;

/// A list of all runs, grouped by name.
#[component]
pub fn RunChoice(key: &'static str, name: &'static str, nothing: &'static str) -> impl IntoView {
    let live = expect_context::<Live>();
    let groups = Signal::derive(move || choices(&live.runs.get().unwrap_or_default()));
    view! { <GroupedChoice key=key name=name nothing=nothing groups=groups /> }
}

/// A list of these runs. `key` is the key of the choice in the address, and `nothing` is what the list shows while no run
/// is chosen.
#[component]
pub fn GroupedChoice(
    key: &'static str,
    name: &'static str,
    #[prop(into)] nothing: Signal<String>,
    groups: Signal<Vec<Choices>>,
) -> impl IntoView {
    let address = expect_context::<Address>();
    let chosen = Memo::new(move |_| address.param(key));
    let groups = Memo::new(move |_| with_chosen(groups.get(), chosen.get().as_deref()));
    let options = move || {
        let chosen = chosen.get();
        let option = |(run, label): (String, String)| {
            let is_chosen = chosen.as_ref() == Some(&run);
            view! { <option value=run selected=is_chosen>{label}</option> }
        };
        let group = |Choices { name, runs }| {
            view! { <optgroup label=name>{runs.into_iter().map(option).collect_view()}</optgroup> }
        };
        view! {
            <option value="" selected=chosen.is_none()>{nothing.get()}</option>
            {groups.get().into_iter().map(group).collect_view()}
        }
    };
    let change = move |event: leptos::ev::Event| {
        let run = event_target_value(&event);
        address.set([(key, (!run.is_empty()).then_some(run))]);
    };
    view! {
        <label class="field">
            <span>{name}</span>
            <select data-testid=format!("choose-{key}") on:change=change>{options}</select>
        </label>
    }
}
