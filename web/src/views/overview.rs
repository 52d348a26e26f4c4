//! The Overview of a run: what slows it, what that costs, and what would help.

mod account;
mod charts;
mod culprit;
mod figures;
mod goodput;
mod verdict;
mod way;
mod what_if;

use leptos::prelude::*;

use self::account::Account;
use self::charts::Charts;
use self::figures::Figures;
use self::goodput::Goodput;
use self::verdict::Verdicts;
use self::way::Way;
use crate::periods::Compared;
use crate::with_steps::WithSteps;

#[component]
pub fn Overview() -> impl IntoView {
    let compared = Compared::new();
    view! {
        <Verdicts />
        <Account />
        <Figures compared=compared />
        <Way compared=compared />
        <WithSteps><Charts /></WithSteps>
        <Goodput />
    }
}
