//! The table of runs: its headings, the headings of groups, and a row for each run.

use leptos::prelude::*;
use model::runs::order::{Column, Line};

use super::listing::Listing;
use super::row::Row;

/// The number of columns: those that can be sorted, and the ticks.
const COLUMNS: usize = Column::ALL.len() + 1;

#[component]
pub fn RunTable(listing: Listing) -> impl IntoView {
    let headings =
        (0..Column::ALL.len()).map(|at| view! { <Heading listing=listing at=at /> }).collect_view();
    let left_out = Memo::new(move |_| listing.lines.read().left_out);
    let nothing = move || listing.lines.read().runs == 0;
    view! {
        <div class="scroll-x" class:hidden=nothing>
            <table class="runs" data-testid="runs-table">
                <thead>
                    <tr>
                        <th scope="col" class="tick"><span class="unseen">"Tick"</span></th>
                        {headings}
                    </tr>
                </thead>
                <tbody>
                    <For each=move || listing.lines.get().lines key=Clone::clone let:line>
                        {match line {
                            Line::Group(name) => view! { <GroupHeading listing=listing name=name /> }.into_any(),
                            Line::Run { id, in_group } => {
                                view! { <Row listing=listing id=id in_group=in_group /> }.into_any()
                            }
                        }}
                    </For>
                </tbody>
            </table>
        </div>
        <button
            class="show-all"
            data-testid="show-all"
            class:hidden=move || left_out.get() == 0
            on:click=move |_| listing.whole.set(true)
        >
            {move || format!("Show {} more runs", units::count(left_out.get() as u64))}
        </button>
    }
}

/// The heading of a column, with which the list is sorted: down, up, and back to the given order.
#[component]
fn Heading(listing: Listing, at: usize) -> impl IntoView {
    let column = Column::ALL[at];
    let direction = move || listing.sort.get().filter(|sort| sort.column == at).map(|sort| sort.is_ascending);
    let spoken =
        move || direction().map(|is_ascending| if is_ascending { "ascending" } else { "descending" });
    let arrow = move || match direction() {
        Some(true) => " ▲",
        Some(false) => " ▼",
        None => "",
    };
    let is_number = !matches!(column, Column::State | Column::Name | Column::Started | Column::Verdict);
    view! {
        <th scope="col" class:number=is_number aria-sort=spoken>
            <button class="sort" title=column.means() on:click=move |_| listing.sort_by(at)>
                {column.heading()}
                <span aria-hidden="true">{arrow}</span>
            </button>
        </th>
    }
}

/// The heading of the runs of one name. A click closes or opens the group.
#[component]
fn GroupHeading(listing: Listing, name: String) -> impl IntoView {
    let is_open = {
        let name = name.clone();
        Memo::new(move |_| !listing.closed.read().contains(&name))
    };
    let facts = {
        let name = name.clone();
        Memo::new(move |_| {
            let group = listing.groups.with(|groups| groups.get(&name)).unwrap_or_default();
            let best = group.best.map(|nanos| format!(" · best step time {}", units::nanos(nanos as f64)));
            format!("{} runs{}", units::count(group.runs as u64), best.unwrap_or_default())
        })
    };
    let toggle = {
        let name = name.clone();
        move |_| listing.toggle_closed(&name)
    };
    view! {
        <tr class="group" data-group=name.clone()>
            <td colspan=COLUMNS.to_string()>
                <button class="quiet" aria-expanded=move || is_open.get().to_string() on:click=toggle>
                    <span class="arrow" aria-hidden="true">{move || if is_open.get() { "▾" } else { "▸" }}</span>
                    <b>{name.clone()}</b>
                    <small>{facts}</small>
                </button>
            </td>
        </tr>
    }
}
