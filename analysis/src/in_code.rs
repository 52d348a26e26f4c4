//! Evidence from stacks: the line of code in which a slow rank spends more of its time than another rank, or in which all ranks
//! stand while they lose time alike.
//!
//! It comes before all other evidence. What a rank runs is seen; why its processor or its host would be slow is concluded.

use std::sync::Arc;

use wire::stacks::{Profile, Stacks, ThreadRole};
use wire::views::{Cause, Confidence, Culprit};

use crate::finding::{Evidence, Finding, Reason, Statement};
use crate::stacks::{self, During, Place};

/// The part of a cost that a line must hold to be its cause.
const HOLDS: f64 = 0.5;

/// Adds the line of code to a finding, if the stacks that show it are known.
pub(crate) fn explain(finding: &mut Finding, stacks: &[Option<Arc<Stacks>>]) {
    let found = match &finding.verdict.culprit {
        Some(Culprit::All) => of_all(finding, stacks),
        Some(named) => of_some(finding, named.ranks(), stacks),
        None => None,
    };
    let Some(InCode { place, rank, other_rank }) = found else { return };
    if other_rank.is_some() && is_own_code(finding, &place) {
        finding.reason = Some(Reason::OwnCode);
        finding.is_scatter = false;
        if finding.verdict.cause == Cause::Processor {
            (finding.verdict.cause, finding.verdict.confidence) = (Cause::Compute, Confidence::Medium);
        }
    }
    // The person who fixes it looks for this line first.
    finding.evidence.insert(0, Evidence::InCode { place, rank, other_rank });
}

/// A line, the rank that is in it, and the rank that it is compared with.
struct InCode {
    place: Place,
    rank: u32,
    other_rank: Option<u32>,
}

fn profile_of(stacks: &[Option<Arc<Stacks>>], rank: u32) -> Option<&Profile> {
    stacks.get(rank as usize)?.as_ref()?.profile()
}

/// Compares a suspect with another rank.
fn of_some(finding: &Finding, suspects: &[u32], stacks: &[Option<Arc<Stacks>>]) -> Option<InCode> {
    // What happens now and then is seldom on a stack that was sampled at another time.
    if matches!(finding.statement, Statement::NowAndThen { .. }) {
        return None;
    }
    let own = suspects.first().and_then(|rank| Some((*rank, profile_of(stacks, *rank)?)))?;
    let others = (0..stacks.len() as u32).filter(|rank| !suspects.contains(rank));
    let other = others.filter_map(|rank| Some((rank, profile_of(stacks, rank)?))).next()?;
    let by_workers = finding.verdict.cause == Cause::Input;
    let place = stacks::place(own.1, other.1, by_workers)?;
    Some(InCode { place, rank: own.0, other_rank: Some(other.0) })
}

/// Finds the line in which a rank stands while all ranks lose time alike.
fn of_all(finding: &Finding, stacks: &[Option<Arc<Stacks>>]) -> Option<InCode> {
    let during = match (finding.statement, finding.verdict.cause) {
        (Statement::AllAlike, Cause::Input) => During::Input,
        (Statement::AllAlike, Cause::Optimizer) => During::Optimizer,
        (Statement::AllAlike, Cause::Host) => During::Outside,
        _ => return None,
    };
    let of_rank = |rank: u32| Some((rank, stacks::busiest(profile_of(stacks, rank)?, during)?));
    let (rank, place) = (0..stacks.len() as u32).find_map(of_rank)?;
    Some(InCode { place, rank, other_rank: None })
}

/// Returns true if the rank is in the job's own code and not in a library that every rank calls as well, for so long that this
/// holds the cost.
fn is_own_code(finding: &Finding, place: &Place) -> bool {
    let may_be =
        matches!(finding.verdict.cause, Cause::Compute | Cause::Host | Cause::Processor | Cause::Unknown);
    may_be
        && place.inner.is_none()
        && place.role == ThreadRole::Main
        && place.share - place.other_share >= HOLDS * finding.verdict.cost_share
}
