//! The sentences of reports: the only place where what was found is put into words.
//!
//! Modules that infer something return values ([`crate::finding`]); the functions here turn them into plain English.

use wire::stacks::ThreadRole;
use wire::views::{CodeLine, Culprit, PastFault, Verdict};

use crate::finding::{Evidence, Finding};
use crate::stacks::location;

pub(crate) mod account;
pub mod advice;
mod evidence;
mod failure;
pub mod goodput;
pub mod groups;
mod hang;
pub mod layouts;
mod listed;
pub(crate) mod memory;
pub(crate) mod mfu;
mod scaling;
pub(crate) mod scenario;
mod sentence;
pub mod what_if;

pub(crate) use failure::failure;
pub(crate) use hang::{hang, hang_in_different, standing};
pub(crate) use scaling::{assumptions, cap_advice};

/// Writes the texts of a verdict.
pub(crate) fn verdict(finding: Finding) -> Verdict {
    let who = Who::new(finding.verdict.culprit.as_ref(), finding.is_alone);
    let advice = advice::advice(&finding);
    Verdict {
        advice,
        sentence: sentence::sentence(&finding, &who),
        evidence: finding.evidence.iter().map(|evidence| who.evidence(evidence)).collect(),
        counter_evidence: finding.counter_evidence.iter().map(|doubt| who.doubt(doubt)).collect(),
        code: finding.evidence.iter().find_map(code),
        ..finding.verdict
    }
}

fn code(evidence: &Evidence) -> Option<CodeLine> {
    match evidence {
        Evidence::InCode { place, other_rank, .. } => Some(CodeLine {
            at: place.location(),
            threads: place.role,
            share: Some(place.share),
            other_rank: *other_rank,
            other_share: other_rank.map(|_| place.other_share),
        }),
        Evidence::Called { frame, .. } => Some(CodeLine {
            at: location(frame),
            threads: ThreadRole::Main,
            share: None,
            other_rank: None,
            other_share: None,
        }),
        _ => None,
    }
}

/// Describes a fault that is over: `rank 2, input, steps 100 to 199, 14.2 ms per step.`
#[must_use]
pub fn past_fault(fault: &PastFault) -> String {
    let (first, last) = fault.steps;
    format!(
        "{}, {}, steps {} to {}, {} per step.",
        Who::new(fault.culprit.as_ref(), false).name(),
        fault.cause.words(),
        units::count(first),
        units::count(last),
        units::nanos(fault.cost_nanos_per_step as f64)
    )
}

/// The ranks that a sentence is about, for pronouns and verbs that agree with them.
struct Who<'a> {
    ranks: &'a [u32],
    is_alone: bool,
}

impl<'a> Who<'a> {
    /// All ranks have an empty list. With `is_alone`, there is only one.
    fn new(culprit: Option<&'a Culprit>, is_alone: bool) -> Self {
        Self { ranks: culprit.map_or(&[], Culprit::ranks), is_alone }
    }

    /// Returns `single` for a single rank, `several` otherwise.
    fn choose<'t>(&self, single: &'t str, several: &'t str) -> &'t str {
        if self.ranks.len() == 1 || self.is_alone { single } else { several }
    }

    fn its(&self) -> &'static str {
        self.choose("its", "their")
    }

    fn itself(&self) -> &'static str {
        self.choose("itself", "themselves")
    }

    /// Returns the ranks as the subject of a sentence: "rank 2", "ranks 1, 3 and 5".
    fn name(&self) -> String {
        match self.ranks {
            [rank] => format!("rank {rank}"),
            [rest @ .., last] => {
                let rest: Vec<String> = rest.iter().map(ToString::to_string).collect();
                format!("ranks {} and {last}", rest.join(", "))
            }
            [] if self.is_alone => "the only rank".into(),
            [] => "all ranks".into(),
        }
    }
}
