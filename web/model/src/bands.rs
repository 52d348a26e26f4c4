//! Bands over a time line: which steps a fault covers, and in which lane its band lies.

use viz::span::Span;
use wire::views::{PastFault, Verdict, VerdictState};

use crate::verdict::label;

/// The band of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// The culprit and the cause.
    pub label: String,
    /// The state of the fault.
    pub state: VerdictState,
    /// The first and the last step.
    pub steps: (u64, u64),
}

/// Returns a band for each past fault and each verdict of a report. `newest` is the newest step.
#[must_use]
pub fn place(past: &[PastFault], verdicts: &[Verdict], newest: u64) -> Vec<Band> {
    let past_bands = past.iter().map(|fault| Band {
        label: label(fault.culprit.as_ref(), fault.cause),
        state: VerdictState::Resolved,
        steps: fault.steps,
    });
    let shown = verdicts.iter().filter(|verdict| !past.iter().any(|fault| is_part(verdict, fault)));
    past_bands.chain(shown.flat_map(|verdict| verdict_bands(verdict, newest))).collect()
}

/// Returns the band of a verdict, or one for each time of what happens now and then.
fn verdict_bands(verdict: &Verdict, newest: u64) -> Vec<Band> {
    let band =
        |steps| Band { label: label(verdict.culprit.as_ref(), verdict.cause), state: verdict.state, steps };
    match &verdict.recurrence {
        Some(recurrence) => recurrence.steps.iter().map(|&step| band((step, step))).collect(),
        None => vec![band(steps(verdict, newest))],
    }
}

/// Returns true if a verdict shows a part of `fault`.
fn is_part(verdict: &Verdict, fault: &PastFault) -> bool {
    let is_within = fault.steps.0 <= verdict.first_step() && verdict.steps.1 <= fault.steps.1;
    let is_over = verdict.state == VerdictState::Resolved;
    is_over && is_within && (&verdict.culprit, verdict.cause) == (&fault.culprit, fault.cause)
}

/// Returns the steps that a verdict covers. An active or recurring one extends to the newest step, which is `newest`.
#[must_use]
pub fn steps(verdict: &Verdict, newest: u64) -> (u64, u64) {
    let (first, last) = (verdict.first_step(), verdict.steps.1);
    match verdict.state {
        VerdictState::Active => (first, last.max(newest)),
        VerdictState::Recurring | VerdictState::Resolved => (first, last),
    }
}

/// Returns a lane below `lanes` for each band, so that bands in one lane do not overlap. A band that fits in no lane
/// lies in the last one.
#[must_use]
pub fn lanes(bands: &[Span], lanes: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..bands.len()).collect();
    order.sort_by(|&a, &b| bands[a].start.total_cmp(&bands[b].start));
    let mut ends: Vec<f64> = Vec::new();
    let mut placed = vec![0; bands.len()];
    for band in order {
        let free = ends.iter().position(|&end| end <= bands[band].start);
        let lane = free.unwrap_or_else(|| {
            if ends.len() < lanes {
                ends.push(f64::NEG_INFINITY);
            }
            ends.len().saturating_sub(1)
        });
        if let Some(end) = ends.get_mut(lane) {
            *end = end.max(bands[band].end);
        }
        placed[band] = lane;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::periods::tests::verdict;

    #[test]
    fn a_past_fault_has_one_band_while_the_report_shows_a_part_of_it() {
        let resolved = verdict(VerdictState::Resolved, (150, 199));
        let whole = PastFault { steps: (100, 199), ..PastFault::from(&resolved) };
        let steps = |verdicts: &[Verdict]| -> Vec<(u64, u64)> {
            place(std::slice::from_ref(&whole), verdicts, 700).into_iter().map(|band| band.steps).collect()
        };
        assert_eq!(steps(&[resolved]), [(100, 199)]);
        assert_eq!(steps(&[verdict(VerdictState::Active, (600, 690))]), [(100, 199), (600, 700)]);
        assert_eq!(steps(&[verdict(VerdictState::Resolved, (300, 350))]), [(100, 199), (300, 350)]);
    }

    #[test]
    fn overlapping_bands_lie_in_different_lanes() {
        let bands = [Span::new(50.0, 90.0), Span::new(0.0, 60.0), Span::new(60.0, 70.0)];
        assert_eq!(lanes(&bands, 3), [1, 0, 0]);
        assert_eq!(lanes(&bands, 1), [0, 0, 0]);
        assert_eq!(lanes(&[], 2), [0; 0]);
    }
}
