//! The Overview of a run: the verdict, then the figures behind it.

mod charts;
mod figures;
mod ledger;
mod losses;
mod verdict;
mod what_if;

use leptos::prelude::*;

use self::charts::Charts;
use self::figures::Figures;
use self::ledger::LedgerTable;
use self::losses::Losses;
use self::verdict::Verdicts;
use self::what_if::WhatIfs;

/// The view.
#[component]
pub fn Overview() -> impl IntoView {
    view! {
        <Verdicts />
        <Figures />
        <div class="halves">
            <Losses />
            <WhatIfs />
        </div>
        <Charts />
        <LedgerTable />
    }
}
