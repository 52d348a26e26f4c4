//! The Overview of a run: the verdict, then the figures behind it.

use leptos::prelude::*;

use super::charts::Charts;
use super::figures::figures;
use super::ledger::ledger_table;
use super::losses::losses;
use super::verdict::verdicts;
use super::what_if::what_ifs;

/// Creates the view.
pub fn overview() -> AnyView {
    view! {
        {verdicts()}
        {figures()}
        <div class="halves">
            {losses()}
            {what_ifs()}
        </div>
        <Charts />
        {ledger_table()}
    }
    .into_any()
}
