//! A slow rank's stacks beside those of another rank.

use wire::stacks::ThreadRole;
use wire::views::Cause;

use super::Code;
use crate::finding::{Evidence, Finding};
use crate::stacks;

/// The part of a cost that a line must hold to be its cause.
const HOLDS: f64 = 0.5;

/// Compares the first suspect with another rank.
pub(super) fn find(finding: &Finding, suspects: &[u32], code: &Code<'_>) -> Option<Evidence> {
    let rank = *suspects.first()?;
    let own = code.profile(rank)?;
    let others = (0..code.stacks.len() as u32).filter(|rank| !suspects.contains(rank));
    let (other_rank, other) = others.filter_map(|rank| Some((rank, code.profile(rank)?))).next()?;
    let is_input = finding.verdict.cause == Cause::Input;
    let place = stacks::place(own, other, is_input)?;
    if is_input && stacks::is_of_training(&place) {
        return None;
    }
    Some(Evidence::InCode { place, rank, other_rank: Some(other_rank) })
}

/// Returns true if the rank is in the job's own code, and not in a library that every rank calls as well, for so long that this
/// holds the cost.
pub(super) fn is_own_code(finding: &Finding, evidence: &Evidence) -> bool {
    let Evidence::InCode { place, other_rank: Some(_), .. } = evidence else { return false };
    let may_be =
        matches!(finding.verdict.cause, Cause::Compute | Cause::Host | Cause::Processor | Cause::Unknown);
    may_be
        && place.inner.is_none()
        && place.role == ThreadRole::Main
        && !place.is_common()
        && place.share - place.other_share >= HOLDS * finding.verdict.cost_share
}
