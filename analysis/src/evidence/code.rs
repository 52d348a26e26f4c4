//! The line of code in which time is lost: evidence that comes before all other. What a rank runs is seen; why its processor or its
//! host would be slow is concluded.
//!
//! * [`compared`]: a slow rank's stacks beside those of another rank.
//! * [`alike`]: the stacks of one rank, if all ranks lose time alike.
//! * [`loaders`]: the loader workers of several ranks, if none of them keeps up.
//! * [`now_and_then`]: the stacks that ranks take of themselves while a step lasts long, and the lines that they report.

mod alike;
mod compared;
mod loaders;
mod now_and_then;

pub(super) use loaders::settle as settle_loaders;

use std::sync::Arc;

use timing::clocks::ClockFit;
use wire::clock::ServerNanos;
use wire::event::SpanKind;
use wire::stacks::{Frame, LongStep, Profile, SpanLine, Stacks};
use wire::views::{Cause, Confidence, Culprit};

use crate::finding::{Evidence, Finding, Reason, Statement};
use crate::step::StepAnalysis;

/// What is known of the ranks' code, by rank.
#[derive(Clone, Copy)]
pub(crate) struct Code<'a> {
    /// The newest stacks that were asked for.
    pub(crate) stacks: &'a [Option<Arc<Stacks>>],
    pub(crate) long_steps: &'a [Vec<Arc<LongStep>>],
    /// The lines that ranks report.
    pub(crate) lines: &'a [Vec<SpanLine>],
    pub(crate) fits: &'a [Option<ClockFit>],
    pub(crate) steps: &'a [&'a StepAnalysis],
}

impl<'a> Code<'a> {
    /// Returns the lines in which checkpoints, evaluations and other pauses begin.
    fn pauses(&self) -> Vec<&'a Frame> {
        let all = self.lines.iter().flatten().filter(|line| SpanKind::PAUSES.contains(&line.kind));
        all.map(|line| &line.frame).collect()
    }

    fn profile(&self, rank: u32) -> Option<&'a Profile> {
        self.stacks.get(rank as usize)?.as_ref()?.profile()
    }

    /// Returns the window of a step on the server's clock.
    pub(super) fn window(&self, step: u64) -> Option<(ServerNanos, ServerNanos)> {
        let at = self.steps.binary_search_by_key(&step, |analysis| analysis.step.0).ok()?;
        self.steps[at].window
    }
}

/// Adds the line of code to a finding, if what is known shows it.
pub(super) fn explain(finding: &mut Finding, code: &Code<'_>) {
    let found = match (finding.statement, &finding.verdict.culprit) {
        (_, None) => None,
        (Statement::NowAndThen { .. }, Some(_)) => now_and_then::find(finding, code),
        (Statement::Always { .. }, Some(named)) => {
            now_and_then::find(finding, code).or_else(|| compared::find(finding, named.ranks(), code))
        }
        (_, Some(Culprit::All)) => alike::find(finding, code),
        (_, Some(named)) => compared::find(finding, named.ranks(), code),
    };
    let Some(evidence) = found else { return };
    let lasts = !matches!(finding.statement, Statement::NowAndThen { .. } | Statement::Always { .. });
    if lasts && compared::is_own_code(finding, &evidence) {
        finding.reason = Some(Reason::OwnCode);
        finding.is_scatter = false;
        if finding.verdict.cause == Cause::Processor {
            (finding.verdict.cause, finding.verdict.confidence) = (Cause::Compute, Confidence::Medium);
            finding.evidence.retain(|evidence| *evidence != Evidence::ProcessorsVary);
        }
    }
    // The person who fixes it looks for this line first.
    finding.evidence.insert(0, evidence);
}
