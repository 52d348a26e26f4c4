//! The line in which ranks stand in long steps, and the lines in which they say that they write checkpoints, evaluate or compile.

use wire::event::SpanKind;
use wire::stacks::{Profile, ThreadRole};
use wire::views::Cause;

use super::{Code, loaders};
use crate::finding::{Evidence, Finding};
use crate::long_steps::{long_line, merged, profiles_within};
use crate::stacks::{LossPlace, busiest};

/// Finds the line that a rank reported, or else the one that its stacks show.
pub(super) fn find(finding: &Finding, code: &Code<'_>) -> Option<Evidence> {
    let named = finding.verdict.culprit.as_ref()?.ranks();
    let ranks = code.long_steps.len().max(code.lines.len()) as u32;
    let suspects: Vec<u32> = if named.is_empty() { (0..ranks).collect() } else { named.to_vec() };
    reported(finding.verdict.cause, &suspects, code).or_else(|| sampled(finding, &suspects, code))
}

fn reported(cause: Cause, suspects: &[u32], code: &Code<'_>) -> Option<Evidence> {
    let kind = match cause {
        Cause::Checkpoint => SpanKind::Checkpoint,
        Cause::Evaluation => SpanKind::Evaluation,
        Cause::Compilation => SpanKind::Compilation,
        _ => return None,
    };
    let evidence = |&rank: &u32| {
        let mut lines = code.lines.get(rank as usize)?.iter().filter(|line| line.kind == kind);
        // Of several lines, the records do not say which of them is which pause.
        let (first, None) = (lines.next()?, lines.next()) else { return None };
        Some(Evidence::Called { frame: first.frame.clone(), rank })
    };
    suspects.iter().find_map(evidence)
}

fn sampled(finding: &Finding, suspects: &[u32], code: &Code<'_>) -> Option<Evidence> {
    let steps: &[u64] = match &finding.verdict.recurrence {
        Some(recurrence) => &recurrence.steps,
        None => &[finding.verdict.steps.0],
    };
    let is_input = finding.verdict.cause == Cause::Input;
    if is_input && let Some(line) = suspects.iter().find_map(|&rank| workers_line(rank, code)) {
        return Some(line);
    }
    let profiles = |rank: u32| profiles(rank, steps, code);
    let (rank, own) = suspects.iter().map(|&rank| (rank, profiles(rank))).find(|(_, own)| !own.is_empty())?;
    let others = (0..code.long_steps.len() as u32).filter(|rank| !suspects.contains(rank));
    let other = others.map(|rank| (rank, profiles(rank))).find(|(_, other)| !other.is_empty());
    let place = match &other {
        _ if is_input => busiest(&merged(&own), LossPlace::Input, &code.pauses()),
        Some((_, other)) => long_line(&own, other, false),
        None => long_line(&own, &[], false),
    }?;
    let other_rank = other.map(|(rank, _)| rank).filter(|_| !is_input);
    Some(Evidence::InCode { place, rank, other_rank })
}

/// Returns the line in which the loader workers of a rank mostly are, if they do not keep up. A rank takes stacks of itself and not of
/// them. Workers that start again, for instance, are at work for a short time.
fn workers_line(rank: u32, code: &Code<'_>) -> Option<Evidence> {
    let profile = code.profile(rank)?;
    loaders::busy(profile)?;
    let place = busiest(profile, LossPlace::Input, &code.pauses())?;
    (place.role == ThreadRole::Worker).then_some(Evidence::InCode { place, rank, other_rank: None })
}

/// Returns the stacks that a rank took of itself during these steps.
fn profiles<'a>(rank: u32, steps: &[u64], code: &Code<'a>) -> Vec<&'a Profile> {
    let (Some(long), Some(Some(fit))) = (code.long_steps.get(rank as usize), code.fits.get(rank as usize))
    else {
        return Vec::new();
    };
    let windows = steps.iter().filter_map(|&step| code.window(step));
    let found = windows.flat_map(|window| profiles_within(long.iter().map(AsRef::as_ref), fit, window));
    found.collect()
}
