//! The tables of goodput: what the wall time of all ranks went to, and the attempts at the job.

use analysis::wording::goodput::{START_UNKNOWN, attempt, ranks, time};
use wire::views::Report;
use wire::views::goodput::{Attempt, Goodput, TimeUse};

use super::tables::{head, section};
use super::{Cell, Section, Table};
use units::percent;

/// Returns the table of uses, the productive ones first.
pub(super) fn uses(report: &Report) -> Option<Section> {
    let goodput = report.goodput.known()?;
    let row = |(&time_use, &nanos): (&TimeUse, &u64)| -> Vec<Cell> {
        let basis = match (time_use.is_productive(), time_use.is_inferred()) {
            (true, _) => "goodput",
            (false, false) => "recorded",
            (false, true) => "inferred",
        };
        vec![
            time_use.title().into(),
            percent(goodput.share(time_use)).into(),
            time(nanos, report.computed_on).into(),
            basis.into(),
        ]
    };
    let rows = goodput.uses.iter().map(row).collect();
    let table =
        Table { head: head(&["", "of the wall time", "over all ranks", "basis"]), rows, ..Table::default() };
    section("Goodput", introduction(goodput), false, table)
}

fn introduction(goodput: &Goodput) -> Vec<String> {
    let wall = units::clock(goodput.wall_nanos as f64 / 1e9);
    let (least, most) = goodput.rank_range();
    let sum = match least == most {
        true => "the wall time times the number of ranks",
        false => "the time for which each rank belonged to the job",
    };
    let ranks = ranks(goodput);
    let mut introduction = vec![format!("What {ranks} did in {wall}. The parts sum to {sum}.")];
    if !goodput.knows_start {
        introduction.push(START_UNKNOWN.into());
    }
    introduction
}

/// Returns the table of attempts, if the job was restarted.
pub(super) fn attempts(report: &Report) -> Option<Section> {
    let attempts = &report.goodput.known()?.attempts;
    if attempts.len() < 2 {
        return None;
    }
    let row = |tried: &Attempt| -> Vec<Cell> {
        let spent = |usage| time(tried.uses.get(&usage).copied().unwrap_or(0), report.computed_on).into();
        let (recovery, repeated) = (spent(TimeUse::Recovery), spent(TimeUse::Repeated));
        vec![(tried.number + 1).to_string().into(), attempt(tried).into(), recovery, repeated]
    };
    let rows = attempts.iter().map(row).collect();
    let table = Table { head: head(&["attempt", "", "recovery", "repeated"]), rows, ..Table::default() };
    let introduction = vec!["Times are over all ranks.".to_owned()];
    section("Attempts", introduction, false, table)
}
