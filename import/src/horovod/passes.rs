//! The cycles in which rank 0 takes note of ranks that are ready.
//!
//! In a cycle, rank 0 notes its own tensors, waits for the messages of all others, and notes theirs in the order of ranks. The
//! order of entries within a cycle therefore says nothing about which rank was later, however far apart they are.

/// The longest time between two entries of a cycle without marks, in nanoseconds: half a cycle, as Horovod has it by default.
const APART_NANOS: i64 = 500_000;
/// The length of a cycle if the timeline does not show it, in nanoseconds: Horovod's default.
const DEFAULT_CYCLE_NANOS: u64 = 1_000_000;
/// The largest number of cycles whose lengths are kept.
const MAX_LENGTHS: usize = 65_536;

/// The entries of one cycle so far. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Pass {
    time: i64,
    newest: i64,
    rank: u32,
}

/// Finds the cycles of a timeline. Times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Passes {
    current: Option<Pass>,
    /// The newest mark of a cycle.
    mark: Option<i64>,
    /// The times between marks of cycles, as far as there are marks.
    between_marks: Vec<i64>,
    /// The times between cycles in which ranks were noticed.
    between_passes: Vec<i64>,
}

impl Passes {
    /// Takes note of a mark that a cycle begins (`HOROVOD_TIMELINE_MARK_CYCLES`).
    pub(super) fn mark(&mut self, time: i64) {
        if let Some(before) = self.mark.replace(time) {
            keep(&mut self.between_marks, time.saturating_sub(before));
        }
    }

    /// Returns the time of the cycle in which a rank was noticed at `time`.
    pub(super) fn notice(&mut self, rank: u32, time: i64) -> i64 {
        let is_of = |pass: &Pass| {
            let is_near = match self.mark {
                Some(mark) => mark <= pass.time,
                None => time.saturating_sub(pass.newest) < APART_NANOS,
            };
            rank >= pass.rank && time >= pass.newest && is_near
        };
        let pass = match self.current.filter(is_of) {
            Some(pass) => Pass { newest: time, rank, ..pass },
            None => {
                if let Some(before) = self.current {
                    keep(&mut self.between_passes, time.saturating_sub(before.time));
                }
                Pass { time, newest: time, rank }
            }
        };
        self.current = Some(pass);
        pass.time
    }

    /// Returns the usual length of a cycle, in nanoseconds. Without marks, it is taken from the shortest times between
    /// cycles in which ranks were noticed: there are others between most of them.
    pub(super) fn cycle_nanos(mut self) -> u64 {
        let (lengths, share) = match self.between_marks.is_empty() {
            false => (&mut self.between_marks, 2),
            true => (&mut self.between_passes, 10),
        };
        lengths.retain(|length| *length > 0);
        lengths.sort_unstable();
        lengths.get(lengths.len() / share).map_or(DEFAULT_CYCLE_NANOS, |length| length.unsigned_abs())
    }
}

fn keep(lengths: &mut Vec<i64>, length: i64) {
    if lengths.len() < MAX_LENGTHS {
        lengths.push(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(passes: &mut Passes, noticed: &[(u32, i64)]) -> Vec<i64> {
        noticed.iter().map(|&(rank, time)| passes.notice(rank, time)).collect()
    }

    #[test]
    fn ranks_that_are_noticed_in_one_cycle_are_ready_together() {
        let mut passes = Passes::default();
        let found = times(&mut passes, &[(0, 1_000), (1, 3_000), (3, 9_000), (1, 11_000), (2, 900_000)]);
        assert_eq!(found, [1_000, 1_000, 1_000, 11_000, 900_000], "a lower rank begins a cycle, and a gap");
        assert_eq!(passes.cycle_nanos(), 10_000);
    }

    #[test]
    fn marks_say_where_cycles_begin() {
        let mut passes = Passes::default();
        passes.mark(0);
        // Rank 0 waits for the messages of the others for 3 ms.
        assert_eq!(times(&mut passes, &[(0, 1_000), (2, 3_000_000)]), [1_000, 1_000]);
        passes.mark(5_000_000);
        assert_eq!(times(&mut passes, &[(2, 5_000_100)]), [5_000_100]);
        assert_eq!(passes.cycle_nanos(), 5_000_000);
        assert_eq!(Passes::default().cycle_nanos(), DEFAULT_CYCLE_NANOS);
    }
}
