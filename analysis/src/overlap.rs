//! How much communication is hidden, and how much of that is only assumed (`docs/metrics.md`, "One step on one rank").
//!
//! Where only collectives are recorded, it may not show whether a rank computes while they run. The agent then assumes the
//! usual case and marks the time as [`wire::event::SpanKind::Unclear`]. An assumption is not a measurement: where it decides
//! the overlap, the overlap is a range, and the figure is missing.

use std::collections::BTreeMap;

use wire::event::Function;
use wire::views::Missing;

use crate::step::{CollectiveAnalysis, RankAnalysis, StepAnalysis};

/// The share of communication, in percent, that may be assumed in a figure.
const MAX_ASSUMED_PERCENT: u64 = 1;

/// Communication over ranks and steps, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overlap {
    comm: u64,
    hidden: u64,
    assumed_hidden: u64,
    assumed_exposed: u64,
}

impl Overlap {
    /// Adds up the communication of ranks.
    pub(crate) fn new<'a>(ranks: impl IntoIterator<Item = &'a RankAnalysis>) -> Self {
        ranks.into_iter().fold(Self::default(), |sum, rank| Self {
            comm: sum.comm + rank.comm_nanos,
            hidden: sum.hidden + rank.hidden_nanos,
            assumed_hidden: sum.assumed_hidden + rank.assumed_hidden_nanos,
            assumed_exposed: sum.assumed_exposed + rank.assumed_exposed_nanos,
        })
    }

    /// Returns hidden / all communication, assumptions included; `None` if nothing was reduced.
    pub(crate) fn ratio(&self) -> Option<f64> {
        (self.comm > 0).then(|| self.hidden as f64 / self.comm as f64)
    }

    /// Returns true if assumptions change the ratio by no more than a point.
    pub(crate) fn is_known(&self) -> bool {
        !is_assumed(self.assumed_hidden + self.assumed_exposed, self.comm)
    }

    /// Returns the ends of the range of the ratio in percent, rounded outward: with all unclear time blocked, and with all
    /// of it computed.
    fn range(&self) -> (u8, u8) {
        let least = 100 * (self.hidden - self.assumed_hidden) / self.comm.max(1);
        let most = (100 * (self.hidden + self.assumed_exposed)).div_ceil(self.comm.max(1));
        (least.min(100) as u8, most.min(100) as u8)
    }
}

impl StepAnalysis {
    /// Returns |hidden| / |collectives| over all ranks; `None` if nothing was reduced, or if it is only assumed.
    #[must_use]
    pub fn overlap(&self) -> Option<f64> {
        self.rank_overlap().ratio().filter(|_| self.is_overlap_known())
    }

    /// Returns true if it shows whether ranks compute while collectives run.
    #[must_use]
    pub fn is_overlap_known(&self) -> bool {
        self.rank_overlap().is_known()
    }

    fn rank_overlap(&self) -> Overlap {
        Overlap::new(self.present().map(|(_, rank)| rank))
    }
}

/// Returns true if assumptions about `unclear` of `all` nanoseconds decide a figure.
pub(crate) fn is_assumed(unclear: u64, all: u64) -> bool {
    100 * unclear > MAX_ASSUMED_PERCENT * all
}

/// Returns why the overlap of `steps` is not known, if it is not. `function` returns the function of a collective.
pub(crate) fn unclear(
    steps: &[&StepAnalysis],
    function: impl Fn(&CollectiveAnalysis) -> Function,
) -> Option<Missing> {
    let ranks = steps.iter().flat_map(|step| step.present().map(|(_, rank)| rank));
    let overlap = Overlap::new(ranks);
    if overlap.is_known() {
        return None;
    }
    let mut by_function: BTreeMap<Function, u64> = BTreeMap::new();
    for collective in steps.iter().flat_map(|step| &step.collectives) {
        *by_function.entry(function(collective)).or_default() += collective.unclear_nanos;
    }
    let most_unclear = by_function.into_iter().max_by_key(|&(_, nanos)| nanos);
    let (least, most) = overlap.range();
    Some(Missing::Unclear {
        least,
        most,
        function: most_unclear.map_or(Function::Other, |(function, _)| function),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(hidden: u64, assumed_hidden: u64, assumed_exposed: u64) -> Overlap {
        Overlap { comm: 1_000, hidden, assumed_hidden, assumed_exposed }
    }

    #[test]
    fn assumptions_widen_the_overlap_to_a_range_that_holds_both_ends() {
        assert_eq!(overlap(35, 0, 471).range(), (3, 51));
        assert_eq!(overlap(1_000, 996, 0).range(), (0, 100));
        assert_eq!(Overlap::default().range(), (0, 0));
    }

    #[test]
    fn an_overlap_is_known_if_assumptions_change_it_by_a_point_at_most() {
        assert!(overlap(500, 4, 6).is_known());
        assert!(!overlap(500, 5, 6).is_known());
        assert!(Overlap::default().is_known());
    }
}
