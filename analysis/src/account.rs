//! Where the time of a step goes, over all ranks together: parts that sum to its period (`docs/metrics.md`, "Account").
//!
//! A ledger says what each rank did. It does not say what a step would take without it, because ranks wait for each other: a second
//! in which one rank writes a checkpoint is a second of waiting on every other rank. The account takes one thing after another out
//! of the step and books by how much the step gets shorter, so nothing counts twice:
//!
//! 1. the **pauses** of all ranks, kind by kind: what the slowest rank needs with them, less what it needs without them;
//! 2. what the slowest rank needs beyond the usual one: **uneven** work;
//! 3. the parts of the **usual** rank, whose own work is the lower median: of two ranks, the faster one;
//! 4. the rest of the period: the exposed **transfer**, as far as the usual rank has one, and waits that no order of ranks explains,
//!    which count as uneven.
//!
//! No step of this depends on the numbers of ranks.

mod whole;

use wire::event::SpanKind;
use wire::live::Part;

use crate::stats;
use crate::step::{RankAnalysis, StepAnalysis};
pub(crate) use whole::{account, move_time};

pub(crate) const PAUSES: usize = SpanKind::PAUSES.len();

/// The parts of own work that are not a pause, in the order of a step.
pub(crate) const OWN: [Part; 7] =
    [Part::Input, Part::H2d, Part::Forward, Part::Backward, Part::Optimizer, Part::Idle, Part::Other];

/// Where the period of one step goes; times in nanoseconds. The parts sum to the period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepAccount {
    /// The pauses, in the order of [`SpanKind::PAUSES`].
    pub(crate) pauses: [f64; PAUSES],
    /// What the slowest rank needs beyond the usual one, without pauses.
    pub(crate) uneven: Uneven,
    /// The own work of the usual rank without pauses, in the order of [`OWN`].
    pub(crate) usual: [f64; OWN.len()],
    /// The exposed transfer.
    pub(crate) transfer: f64,
}

/// By how much the slowest rank is slower than the usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Uneven {
    /// The time, in nanoseconds.
    pub(crate) nanos: f64,
    /// How much longer each part takes the slowest rank, in the order of [`OWN`]. These parts sum to at most `nanos`.
    pub(crate) parts: [f64; OWN.len()],
}

impl StepAccount {
    /// Makes the account of a step; `None` if no rank has records.
    pub(crate) fn new(step: &StepAnalysis) -> Option<Self> {
        let mut own: Vec<[f64; OWN.len()]> = step.present().map(|(_, rank)| own_parts(rank)).collect();
        let longest = slowest(step, 0);
        let mut pauses = [0.0; PAUSES];
        let mut longest_left = longest;
        for (at, pause) in pauses.iter_mut().enumerate() {
            let shorter = slowest(step, at + 1);
            *pause = longest_left - shorter;
            longest_left = shorter;
        }
        // Ranks with equal work are told apart by its parts, so that their numbers decide nothing.
        own.sort_unstable_by(|a, b| {
            sum(a).total_cmp(&sum(b)).then_with(|| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
        });
        let (usual, slow) = (*own.get(own.len().checked_sub(1)? / 2)?, *own.last()?);
        let rest = (step.period_nanos() as f64 - longest).max(0.0);
        let transfers = step.present().map(|(_, rank)| rank.part(Part::ExposedTransfer) as f64);
        let transfer = stats::lower_median(transfers).unwrap_or(0.0).min(rest);
        let mut uneven = Uneven::new(&slow, &usual);
        uneven.nanos += rest - transfer;
        Some(Self { pauses, uneven, usual, transfer })
    }

    /// Returns the time of one part of the usual rank's own work.
    pub(crate) fn usual(&self, part: Part) -> f64 {
        own_index(part).map_or(0.0, |at| self.usual[at])
    }

    /// Returns how much longer one part takes the slowest rank than the usual one.
    pub(crate) fn uneven(&self, part: Part) -> f64 {
        own_index(part).map_or(0.0, |at| self.uneven.parts[at])
    }

    /// Returns the sum of all parts: the period, or the longest own work if that is longer.
    pub(crate) fn total(&self) -> f64 {
        self.pauses.iter().sum::<f64>() + self.uneven.nanos + sum(&self.usual) + self.transfer
    }
}

impl Uneven {
    /// Compares the own work of the slowest rank with that of the usual one. A part in which the slowest rank is faster leaves the
    /// other parts less to explain.
    fn new(slow: &[f64; OWN.len()], usual: &[f64; OWN.len()]) -> Self {
        let nanos = sum(slow) - sum(usual);
        let longer: [f64; OWN.len()] = std::array::from_fn(|at| (slow[at] - usual[at]).max(0.0));
        let all = sum(&longer);
        let scale = if all > 0.0 { nanos / all } else { 0.0 };
        Self { nanos, parts: longer.map(|part| part * scale) }
    }
}

/// Returns the index of a part in [`OWN`]; `None` for pauses and collectives.
pub(crate) fn own_index(part: Part) -> Option<usize> {
    OWN.iter().position(|&own| own == part)
}

fn own_parts(rank: &RankAnalysis) -> [f64; OWN.len()] {
    OWN.map(|part| rank.part(part) as f64)
}

/// Returns the longest own work of any rank without the first `skipped` kinds of pauses.
fn slowest(step: &StepAnalysis, skipped: usize) -> f64 {
    let own = step.present().map(|(_, rank)| {
        let pauses: u64 = rank.pauses[skipped..].iter().sum();
        sum(&own_parts(rank)) + pauses as f64
    });
    own.fold(0.0, f64::max)
}

fn sum(parts: &[f64; OWN.len()]) -> f64 {
    parts.iter().sum()
}
