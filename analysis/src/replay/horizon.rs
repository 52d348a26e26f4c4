//! The furthest and the second furthest rank at each point of a step.
//!
//! Collectives wait only for the last rank, so the length of a step depends on maxima over ranks. With the second
//! furthest rank known, replacing one rank does not require examining the others: all ranks are tried in the time of
//! two passes.

/// One rank's times at all points of a step, in nanoseconds, in the order of [`super::graph::Graph::flatten`].
pub(super) struct Line(pub(super) Vec<f64>);

/// The furthest and the second furthest rank at each point.
pub(super) struct Horizon(Vec<Furthest>);

#[derive(Clone, Copy)]
struct Furthest {
    rank: usize,
    first: f64,
    second: f64,
}

impl Horizon {
    pub(super) fn new(lines: impl Iterator<Item = Line>) -> Self {
        let none = Furthest { rank: usize::MAX, first: f64::NEG_INFINITY, second: f64::NEG_INFINITY };
        let mut furthest = Vec::new();
        for (rank, line) in lines.enumerate() {
            furthest.resize(line.0.len(), none);
            for (furthest, &time) in furthest.iter_mut().zip(&line.0) {
                if time > furthest.first {
                    *furthest = Furthest { rank, first: time, second: furthest.first };
                } else if time > furthest.second {
                    furthest.second = time;
                }
            }
        }
        Self(furthest)
    }

    pub(super) fn maxima(&self) -> Vec<f64> {
        self.0.iter().map(|furthest| furthest.first).collect()
    }

    /// Returns the maxima with one rank's line replaced.
    pub(super) fn replaced(&self, rank: usize, line: &Line) -> Vec<f64> {
        let remaining =
            |furthest: &Furthest| if furthest.rank == rank { furthest.second } else { furthest.first };
        self.0.iter().zip(&line.0).map(|(furthest, &time)| remaining(furthest).max(time)).collect()
    }
}
