//! What runs within the window of each step, whichever step launched it.

use timing::intervals::Interval;

use crate::kineto::{Trace, Work};

/// Finds the work of a trace that runs within windows. All windows together take one pass over the work, and what runs in
/// several of them is looked at once for each.
pub(super) struct Running<'a> {
    trace: &'a Trace,
    /// The first work that begins after the last window, as an index of [`Trace::work`].
    next: usize,
    /// The work before it that may run on after the last window.
    open: Vec<usize>,
}

impl<'a> Running<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        Self { trace, next: 0, open: Vec::new() }
    }

    /// Returns the work that runs within a window, in order of its begin. Windows must be asked for in order of time.
    pub(super) fn work_within(&mut self, (begin, end): Interval) -> Vec<usize> {
        let work = &self.trace.work;
        let end_index = self.next + work[self.next..].partition_point(|work| work.begin < end);
        self.open.extend(self.next..end_index);
        self.next = end_index;
        self.open.retain(|&at| work[at].end > begin);
        self.open.clone()
    }
}

/// Returns true if some work is the part of another step's collective, as an export of an imported run writes it.
pub(super) fn is_part(trace: &Trace, work: &Work) -> bool {
    let group = work.carried.and_then(|at| trace.carried[at as usize].group);
    group.is_some_and(|group| trace.groups[group as usize].is_of_parts())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kineto::Kind;

    #[test]
    fn work_runs_in_each_window_that_it_reaches() {
        let work = |(begin, end)| Work {
            kind: Kind::Compute,
            begin,
            end,
            stream: 7,
            correlation: 1,
            name: 0,
            carried: None,
        };
        let trace = Trace {
            work: [(0, 5), (3, 40), (8, 10), (12, 19), (20, 22), (30, 31)].map(work).to_vec(),
            ..Trace::default()
        };
        let mut running = Running::new(&trace);
        assert_eq!(running.work_within((6, 10)), [1, 2]);
        assert_eq!(running.work_within((10, 20)), [1, 3], "what ends where a window begins is not in it");
        assert_eq!(running.work_within((20, 21)), [1, 4]);
        assert_eq!(running.work_within((41, 50)), [0; 0]);
    }
}
