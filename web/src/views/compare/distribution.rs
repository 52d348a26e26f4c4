//! The distributions of the step times of two runs, in one chart.

use std::sync::Arc;

use viz::ticks;
use viz::xy::Axis;
use wire::ids::RunId;

use crate::xy::{Hit, Ink, Mark, Picture, Shown};

/// The number of bins across the chart.
const BINS: usize = 60;
/// One in this many steps is off the chart at either end: one extreme step must not flatten the rest.
const ODD: usize = 200;
/// The colors of the runs: the first is the baseline, the second the compared run.
const INKS: [Ink; 2] = [Ink::Muted, Ink::Accent];

/// Creates a step function for each run. The step times must be sorted.
pub fn distribution(runs: &[(&RunId, &[f32]); 2]) -> Shown {
    if runs.iter().any(|(_, nanos)| nanos.is_empty()) {
        return Err("One of the runs has no stored steps.".into());
    }
    let ends = |nanos: &[f32]| {
        let odd = nanos.len() / ODD;
        (f64::from(nanos[odd]), f64::from(nanos[nanos.len() - 1 - odd]))
    };
    let (from, to) = runs
        .iter()
        .map(|(_, nanos)| ends(nanos))
        .fold((f64::MAX, 0.0f64), |(from, to), ends| (from.min(ends.0), to.max(ends.1)));
    let room = ((to - from) * 0.04).max(to * 0.005);
    let (from, width) = (from - room, (to - from + 2.0 * room) / BINS as f64);
    let shares = runs.map(|(_, nanos)| shares(nanos, from, width));
    let most = shares.iter().flatten().copied().fold(0.0, f64::max);
    let (x, y) =
        (Axis::linear(from, from + width * BINS as f64), Axis::linear(0.0, ticks::ceiling(most * 1.05)));
    let edge = |bin: usize| from + width * bin as f64;
    let marks = shares.iter().zip(INKS).flat_map(|(shares, ink)| {
        let stairs: Vec<(f64, f64)> = shares
            .iter()
            .enumerate()
            .flat_map(|(bin, share)| [(edge(bin), *share), (edge(bin + 1), *share)])
            .collect();
        let band = stairs.iter().map(|&(x, y)| (x, 0.0, y)).collect();
        [Mark::Band { points: band, ink }, Mark::Line { points: stairs, ink, dashed: false }]
    });
    let hits = (0..BINS).map(|bin| Hit {
        at: (edge(bin) + width / 2.0, shares[0][bin].max(shares[1][bin])),
        says: std::iter::once(format!("{} to {}", units::nanos(edge(bin)), units::nanos(edge(bin + 1))))
            .chain(
                runs.iter()
                    .zip(&shares)
                    .map(|((run, _), share)| format!("{run}: {}", units::percent(share[bin]))),
            )
            .collect(),
    });
    Ok(Arc::new(Picture {
        x,
        y,
        x_ticks: x.ticks(8, units::nanos),
        y_ticks: y.ticks(4, units::percent),
        marks: marks.collect(),
        hits: hits.collect(),
    }))
}

fn shares(nanos: &[f32], start: f64, width: f64) -> Vec<f64> {
    let mut counts = vec![0.0; BINS];
    for &nanos in nanos {
        let bin = (f64::from(nanos) - start) / width;
        if bin >= 0.0 && (bin as usize) < BINS {
            counts[bin as usize] += 1.0;
        }
    }
    counts.iter().map(|count| count / nanos.len() as f64).collect()
}
