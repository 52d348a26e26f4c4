//! Evidence from stacks: the line of code in which a slow rank spends more of its time than another rank.

use std::sync::Arc;

use wire::stacks::Stacks;
use wire::views::Cause;

use crate::finding::{Evidence, Finding};
use crate::stacks;

/// Adds the line of code to a finding on ranks, if the stacks of one of them and of some other rank are known.
pub(crate) fn explain(finding: &mut Finding, stacks: &[Option<Arc<Stacks>>]) {
    let Some(culprit) = &finding.verdict.culprit else { return };
    let suspects = culprit.ranks();
    let of = |rank: u32| stacks.get(rank as usize)?.as_ref()?.profile();
    let Some(own) = suspects.first().and_then(|rank| of(*rank)) else { return };
    let others = (0..stacks.len() as u32).filter(|rank| !suspects.contains(rank));
    let Some((other_rank, other)) = others.filter_map(|rank| Some((rank, of(rank)?))).next() else { return };
    let by_workers = finding.verdict.cause == Cause::Input;
    if let Some(place) = stacks::place(own, other, by_workers) {
        // The person who fixes it looks for this line first.
        finding.evidence.insert(0, Evidence::InCode { place, other_rank });
    }
}
