//! The table of groups: the cost of collectives in jobs with several kinds of parallelism.

use analysis::wording::groups::{self, GroupRow};
use units::{bytes, nanos};
use wire::views::Report;

use super::tables::{head, section};
use super::{Cell, Section, Table};

/// Returns the table of groups. Returns `None` if all collectives are among all ranks.
pub(super) fn groups(report: &Report) -> Option<Section> {
    let rows = groups::rows(&report.groups, report.ranks);
    if rows.is_empty() {
        return None;
    }
    let names = ["group", "functions", "collectives", "size", "time", "exposed", "wait", "latest rank"];
    let introduction =
        "Means per rank and step, over all groups of a shape and then per group, longest wait first.";
    let left_out = groups::left_out(&report.groups);
    let rows = rows.into_iter().map(cells).collect();
    section(
        "Groups",
        vec![introduction.to_owned()],
        false,
        Table { head: head(&names), rows, left_out, ..Table::default() },
    )
}

fn cells(GroupRow { name, functions, cost, latest }: GroupRow) -> Vec<Cell> {
    vec![
        name.into(),
        functions.into(),
        format!("{:.1}", cost.collectives).into(),
        bytes(cost.bytes.round() as u64).into(),
        nanos(cost.comm_nanos).into(),
        cost.exposed_nanos.map_or_else(|| "not known".to_owned(), nanos).into(),
        nanos(cost.wait_nanos).into(),
        latest.into(),
    ]
}
