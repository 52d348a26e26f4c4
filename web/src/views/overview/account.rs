//! Where the wall time goes, over all ranks together: one bar, and what it is made of.

use leptos::prelude::*;
use viz::palette::{self, Rgba};
use wire::live::Part;
use wire::views::{Account as Spent, AccountEntry, Spending};

use crate::live::Live;
use crate::terms::Term;
use crate::widgets::Swatch;

/// The least share of the wall time that is listed.
const MIN_SHARE: f64 = 0.001;

/// The panel.
#[component]
pub fn Account() -> impl IntoView {
    let live = expect_context::<Live>();
    let account = Memo::new(move |_| Some(live.run.get()?.report.account.clone()));
    let summary =
        move || account.get().filter(|account| account.wall_nanos > 0).map(|account| scope(&account));
    let content = move || account.get().map(|account| bar(&account));
    view! {
        <section class="panel" aria-label="Where the wall time goes" data-testid="account">
            <div class="panel-head"><h2><Term name="account" /><small>{summary}</small></h2></div>
            {content}
        </section>
    }
}

fn scope(account: &Spent) -> String {
    let wall = units::clock(account.wall_nanos as f64 / 1e9);
    match account.is_whole_run {
        true => format!(" {wall}, the whole run"),
        false => format!(" {wall}, the observed steps"),
    }
}

fn bar(account: &Spent) -> AnyView {
    if account.entries.is_empty() {
        return view! { <p class="quiet">"No step is complete on all ranks yet."</p> }.into_any();
    }
    let mut reached = 0.0;
    let pieces = account
        .entries
        .iter()
        .map(|entry| {
            let (left, width) = (reached, account.share(entry) * 100.0);
            reached += width;
            let title = format!("{} {}", entry.spending.title(), units::nanos(entry.nanos as f64));
            view! {
                <rect height="100%" x=format!("{left:.2}%") width=format!("{width:.2}%") fill=palette::css(color(entry.spending))>
                    <title>{title}</title>
                </rect>
            }
        })
        .collect_view();
    let listed = account.entries.iter().filter(|entry| account.share(entry) >= MIN_SHARE);
    let listed = listed.map(|entry| item(account, entry)).collect_view();
    view! {
        <svg class="track account" aria-hidden="true">{pieces}</svg>
        <ul class="account-parts">{listed}</ul>
    }
    .into_any()
}

fn item(account: &Spent, entry: &AccountEntry) -> impl IntoView + use<> {
    let (share, time) = (units::percent(account.share(entry)), units::nanos(entry.nanos as f64));
    view! {
        <li>
            <Swatch color=color(entry.spending) />
            {entry.spending.title()}
            " "
            <b>{share}</b>
            <small>" "{time}</small>
        </li>
    }
}

/// Returns the color of a part: that of the part of the step in which the time is lost.
fn color(spending: Spending) -> Rgba {
    match spending {
        Spending::Compute => palette::part(Part::Forward),
        Spending::Optimizer => palette::part(Part::Optimizer),
        Spending::Input => palette::part(Part::Input),
        Spending::Copies => palette::part(Part::H2d),
        Spending::Communication => palette::part(Part::ExposedTransfer),
        Spending::UnevenRanks => palette::part(Part::ExposedWait),
        Spending::Checkpoints
        | Spending::Evaluation
        | Spending::GarbageCollection
        | Spending::Compilation => palette::part(Part::Pause),
        Spending::Idle | Spending::WaitsInPasses => palette::part(Part::Idle),
        Spending::OtherInSteps => palette::part(Part::Other),
        Spending::Hangs | Spending::Recovery | Spending::Repeated => palette::ALARM,
        Spending::Start => palette::START,
        Spending::OtherSteps | Spending::Between | Spending::Ending => palette::IDLE,
    }
}

#[cfg(test)]
mod tests {
    use wasm_bindgen_test::wasm_bindgen_test;
    use wire::views::Report;

    use super::*;
    use crate::fixture::{empty_report, show};
    use crate::mounted::mount_in_run;

    #[wasm_bindgen_test]
    async fn the_parts_are_listed_with_their_shares_and_what_they_are_parts_of() {
        let (page, live) = mount_in_run(|| view! { <Account /> });
        show(live, empty_report());
        page.settle().await;
        assert!(page.text("[data-testid=account]").contains("No step is complete"));
        let entry = |spending, nanos| AccountEntry { spending, nanos };
        let account = Spent {
            wall_nanos: 4_000_000_000,
            is_whole_run: true,
            entries: vec![
                entry(Spending::Compute, 3_000_000_000),
                entry(Spending::Checkpoints, 1_000_000_000),
            ],
        };
        show(live, Report { account, ..empty_report() });
        page.settle().await;
        let text = page.text("[data-testid=account]");
        assert!(text.contains("4 s, the whole run") && text.contains("checkpoints 25.0 %"), "{text}");
    }
}
