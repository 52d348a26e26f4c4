//! The first view of a run: the verdict, then what proves it.

use leptos::prelude::*;

use super::{
    charts::Charts, figures::Figures, ledger::LedgerTable, losses::Losses, verdict::Verdicts,
    what_if::WhatIfs,
};

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
    .into_any()
}
