//! The table of the account: where the wall time goes, over all ranks together.

use units::{nanos, percent};
use wire::views::{AccountEntry, Report};

use super::tables::{head, section};
use super::{Cell, Section, Table};

/// The length of a run from which its length is written in whole seconds, in nanoseconds.
const LONG: f64 = 10e9;

/// Returns the table, the largest entry first.
pub(super) fn account(report: &Report) -> Option<Section> {
    let account = &report.account;
    let row = |entry: &AccountEntry| -> Vec<Cell> {
        vec![
            entry.spending.title().into(),
            nanos(entry.nanos as f64).into(),
            percent(account.share(entry)).into(),
        ]
    };
    let rows = account.entries.iter().map(row).collect();
    let table = Table { head: head(&["", "time", "of it"]), rows, ..Table::default() };
    let wall = account.wall_nanos as f64;
    let wall = if wall < LONG { nanos(wall) } else { units::clock(wall / 1e9) };
    let whole = if account.is_whole_run { "the run" } else { "the observed steps" };
    let introduction = format!(
        "The {wall} of {whole}. Each part is what the time would be less without it, for all ranks together; the parts sum to the whole."
    );
    section("Where the wall time goes", vec![introduction], true, table)
}
