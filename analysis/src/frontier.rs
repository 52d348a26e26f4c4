//! The frontier ledger: where a delay first becomes visible (`docs/metrics.md`, "One step over all ranks").
//!
//! Each rank's parts are added up in the order in which a step runs. At each boundary, the frontier is the largest sum
//! of any rank. The increments of the frontier add up to the longest step, and each names the rank that set it. No
//! clocks are needed.

use wire::live::Part;

use crate::step::StepAnalysis;

/// The order in which a step's parts are added up. `Other` comes before compute, because time lost between input and
/// forward, or between forward and backward, delays the first bucket. Collectives end the part of a step that ranks
/// have in common.
pub const ORDER: [Part; Part::COUNT] = [
    Part::Input,
    Part::H2d,
    Part::Pause,
    Part::Idle,
    Part::Other,
    Part::Forward,
    Part::Backward,
    Part::ExposedTransfer,
    Part::ExposedWait,
    Part::Optimizer,
];

/// The amount by which one part moves the frontier, and the rank that moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Increment {
    pub part: Part,
    /// The rank that is furthest at the end of the part.
    pub rank: usize,
    /// The movement of the frontier, in nanoseconds.
    pub nanos: u64,
}

/// Returns the increments of one step in [`ORDER`]; empty if no rank has records.
#[must_use]
pub fn frontier(step: &StepAnalysis) -> Vec<Increment> {
    let mut reached = vec![0_u64; step.ranks.len()];
    let mut frontier = 0;
    let mut increments = Vec::with_capacity(ORDER.len());
    for part in ORDER {
        for (rank, analysis) in step.present() {
            reached[rank] += analysis.part(part);
        }
        let Some((rank, _)) = step.present().max_by_key(|(rank, _)| reached[*rank]) else { break };
        let nanos = reached[rank] - frontier;
        frontier = reached[rank];
        increments.push(Increment { part, rank, nanos });
    }
    increments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::step::RankAnalysis;

    fn rank(parts: [u64; Part::COUNT]) -> Option<Box<RankAnalysis>> {
        Some(Box::new(fixtures::rank(parts)))
    }

    #[test]
    fn late_input_is_attributed_to_its_part_and_increments_sum_to_the_longest_step() {
        let step = StepAnalysis {
            //              input h2d fwd bwd wait xfer opt pause idle other
            ranks: vec![rank([10, 0, 20, 40, 30, 5, 8, 0, 0, 0]), rank([40, 0, 20, 40, 0, 5, 8, 0, 0, 0])],
            local_nanos: 113,
            ..fixtures::step(0)
        };
        let increments = frontier(&step);
        assert_eq!(increments[0], Increment { part: Part::Input, rank: 1, nanos: 40 });
        assert_eq!(increments.iter().map(|increment| increment.nanos).sum::<u64>(), 113);
        let wait = increments.iter().find(|increment| increment.part == Part::ExposedWait).unwrap();
        assert_eq!(wait.nanos, 0, "the wait of a victim does not move the frontier");
    }
}
