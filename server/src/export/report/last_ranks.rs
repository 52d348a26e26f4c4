//! The table of the ranks that start collectives last.

use units::{nanos, percent};
use wire::views::what_if::Fix;
use wire::views::{LastRank, Report};

use super::tables::{head, section};
use super::{Cell, Section, Table};

/// The share of the period from which a terminal shows that a rank is late.
const WORTH_SHOWING: f64 = 0.01;
/// The share of all lateness from which a sentence says that a rank has it.
const MOST: f64 = 0.5;
/// The largest number of ranks that are listed.
const SHOWN: usize = 8;

/// Returns who starts collectives last, how often and by how much. `None` if no rank is known to.
pub(super) fn last_ranks(report: &Report) -> Option<Section> {
    let latest = report.last_ranks.first()?;
    let period = report.period_nanos.value().unwrap_or(0.0);
    let is_notable = latest.nanos_per_step >= WORTH_SHOWING * period;
    let shown = &report.last_ranks[..report.last_ranks.len().min(SHOWN)];
    let table = Table {
        head: head(&["", "last in", "later by", "at most", "of all", "a fix saves"]),
        rows: shown.iter().map(|rank| cells(report, rank)).collect(),
        left_out: report.last_ranks.len() - shown.len(),
        ..Table::default()
    };
    let introduction = vec![
        format!(
            "How much later than the rank before it the last rank starts a collective, per step, in the {} collectives whose last \
             rank is known. It costs only what the other ranks cannot use for other work or other waits.",
            units::count(latest.collectives)
        ),
        sentence(report, latest),
    ];
    section(
        "Who starts collectives last",
        introduction.into_iter().filter(|line| !line.is_empty()).collect(),
        is_notable,
        table,
    )
}

fn cells(report: &Report, rank: &LastRank) -> Vec<Cell> {
    vec![
        format!("rank {}", rank.rank).into(),
        units::count(rank.last).into(),
        nanos(rank.nanos_per_step).into(),
        nanos(rank.longest_nanos as f64).into(),
        percent(rank.share).into(),
        saving(report, rank).map_or_else(|| "not known".to_owned(), nanos).into(),
    ]
}

/// Names the rank that has most of the lateness, and says how much a fix saves; empty if no rank has most of it.
fn sentence(report: &Report, latest: &LastRank) -> String {
    if latest.share < MOST {
        return String::new();
    }
    let saved = match saving(report, latest) {
        Some(saving) if saving < MOST * latest.nanos_per_step => {
            format!("; a fix saves {}", nanos(saving.max(0.0)))
        }
        _ => String::new(),
    };
    format!(
        "Rank {} is last in {} of them, by {} per step in all ({} of such time){saved}.",
        latest.rank,
        units::count(latest.last),
        nanos(latest.nanos_per_step),
        percent(latest.share)
    )
}

/// Returns what fixing a rank saves, in nanoseconds per step, if it is known.
fn saving(report: &Report, rank: &LastRank) -> Option<f64> {
    let what_if = report.what_if.known()?;
    what_if.ranks.iter().find(|saving| saving.fix == Fix::Rank(rank.rank)).map(|saving| saving.nanos_per_step)
}
