//! The first view of a run: the verdict, then what proves it.

use leptos::prelude::*;

use super::{charts::Charts, figures::Figures, ledger::LedgerTable, verdict::Verdicts};

/// The view.
#[component]
pub fn Overview() -> impl IntoView {
    view! {
        <Verdicts />
        <Figures />
        <Charts />
        <LedgerTable />
    }
}
