//! Hang detection. A run hangs if no step completes for max(10 x median step, 10 s); the hang names the ranks that the
//! others wait for.

use wire::batch::Instrumentation;
use wire::event::Function;
use wire::ids::{Rank, Seq};
use wire::stacks::Profile;
use wire::views::{Hang, Standing};

use crate::finding::Stall;
use crate::{stacks, wording};

/// The shortest time without a completed step that counts as a hang.
const MIN_LIMIT_SECONDS: f64 = 10.0;
/// The number of median steps without a completed step that counts as a hang.
const STEPS: f64 = 10.0;
/// The time without data after which a rank counts as silent. Agents send a heartbeat every two seconds.
const SILENT_SECONDS: u64 = 5;

/// The progress of one rank through its collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The newest collective that the rank has launched.
    pub launched: Option<Seq>,
    /// The time since the server last received data from the rank, in seconds.
    pub silent_seconds: u64,
}

impl Progress {
    fn is_silent(&self) -> bool {
        self.silent_seconds >= SILENT_SECONDS
    }
}

/// Returns the time without a completed step that counts as a hang, in seconds.
pub(crate) fn limit_seconds(typical_step_seconds: f64) -> f64 {
    (typical_step_seconds * STEPS).max(MIN_LIMIT_SECONDS)
}

/// Returns the hang of a run, or `None` if the run does not hang. `since_seconds` is the time since its last completed
/// step.
#[must_use]
pub fn detect(
    since_seconds: f64,
    median_step_seconds: Option<f64>,
    ranks: &[Progress],
    instrumentation: Instrumentation,
) -> Option<Hang> {
    let limit_seconds = limit_seconds(median_step_seconds.unwrap_or(0.0));
    if since_seconds < limit_seconds {
        return None;
    }
    Some(stalled((since_seconds, limit_seconds), ranks, instrumentation, false))
}

/// Returns the hang of a run that has completed no step, and in which a rank has waited in a collective for `since_seconds`, more than
/// `limit_seconds`. `ranks` have launched what they wait in now.
#[must_use]
pub fn startup_hang(
    since_seconds: f64,
    limit_seconds: f64,
    ranks: &[Progress],
    instrumentation: Instrumentation,
) -> Hang {
    let hang = stalled((since_seconds, limit_seconds), ranks, instrumentation, true);
    let awaited = awaited(ranks);
    if !instrumentation.numbers_by_function() || !differ(&awaited) {
        return hang;
    }
    // Each of them waits for the others, so none is behind.
    let sentence = wording::hang_in_different(since_seconds, &awaited, instrumentation);
    Hang { ranks: Vec::new(), sentence, ..hang }
}

/// Returns the collectives that ranks wait in, each with its ranks, in the order of the lowest rank.
fn awaited(ranks: &[Progress]) -> Vec<(Seq, Vec<Rank>)> {
    let mut awaited: Vec<(Seq, Vec<Rank>)> = Vec::new();
    for (rank, seq) in
        (0..).map(Rank).zip(ranks).filter_map(|(rank, progress)| Some((rank, progress.launched?)))
    {
        match awaited.iter_mut().find(|(known, _)| *known == seq) {
            Some((_, ranks)) => ranks.push(rank),
            None => awaited.push((seq, vec![rank])),
        }
    }
    awaited
}

/// Returns true if collectives are of different functions. Those of one function have an order, so that some rank is behind.
fn differ(awaited: &[(Seq, Vec<Rank>)]) -> bool {
    let mut functions = awaited.iter().map(|(seq, _)| Function::from_seq(*seq));
    let first = functions.next();
    functions.any(|function| Some(function) != first)
}

fn stalled(
    (since_seconds, limit_seconds): (f64, f64),
    ranks: &[Progress],
    instrumentation: Instrumentation,
    is_before_steps: bool,
) -> Hang {
    let furthest = ranks.iter().filter_map(|rank| rank.launched).max();
    let suspects: Vec<Rank> = suspects(ranks, furthest);
    let progress = |rank: &Rank| ranks[rank.0 as usize];
    let sentence = wording::hang(&Stall {
        since_seconds,
        furthest,
        suspects: &suspects,
        silent: suspects.iter().filter(|rank| progress(rank).is_silent()).count(),
        have_started: suspects.iter().all(|rank| progress(rank).launched == furthest),
        instrumentation,
        is_before_steps,
    });
    Hang {
        since_seconds: Some(since_seconds),
        since_unix_millis: None,
        limit_seconds: Some(limit_seconds),
        ranks: suspects,
        sentence,
        standing: Vec::new(),
    }
}

/// Adds to a hang where the main threads of its ranks stand. Ranks with equal stacks stand together.
#[must_use]
pub fn with_stacks<'a>(hang: Hang, sampled: impl Iterator<Item = (Rank, &'a Profile)>) -> Hang {
    let mut standing: Vec<Standing> = Vec::new();
    for (rank, at) in sampled.filter_map(|(rank, profile)| Some((rank, stacks::standing(profile)?))) {
        match standing.iter_mut().find(|known| known.at == at) {
            Some(known) => known.ranks.push(rank),
            None => standing.push(Standing { ranks: vec![rank], at }),
        }
    }
    standing.sort_by_key(|known| !known.ranks.iter().any(|rank| hang.ranks.contains(rank)));
    let sentence = format!("{}{}", hang.sentence, wording::standing(&standing));
    Hang { sentence, standing, ..hang }
}

/// Returns the ranks that the others wait for: the silent ranks, or the furthest behind if all ranks still report.
/// Being behind alone is not enough, because a rank that waits inside a collective has not started the next one either.
fn suspects(ranks: &[Progress], furthest: Option<Seq>) -> Vec<Rank> {
    let select = |is: &dyn Fn(&Progress) -> bool| -> Vec<Rank> {
        (0..ranks.len()).filter(|&rank| is(&ranks[rank])).map(|rank| Rank(rank as u32)).collect()
    };
    let silent = select(&|rank| rank.is_silent());
    if !silent.is_empty() && silent.len() < ranks.len() {
        return silent;
    }
    let least = ranks.iter().map(|rank| rank.launched).min().flatten();
    select(&|rank| rank.launched < furthest && rank.launched == least)
}

#[cfg(test)]
mod tests {
    use wire::stacks::{Frame, Stack, ThreadRole, ThreadStacks};

    use super::*;

    fn reducer_hang(since_seconds: f64, median_seconds: Option<f64>, ranks: &[Progress]) -> Option<Hang> {
        detect(since_seconds, median_seconds, ranks, Instrumentation::Reducer)
    }

    fn progress(seq: u64) -> Progress {
        Progress { launched: Some(Seq(seq)), ..Progress::default() }
    }

    #[test]
    fn the_rank_that_has_not_launched_is_named() {
        let ranks = [progress(9), progress(9), progress(7), progress(9)];
        assert_eq!(reducer_hang(9.9, Some(0.1), &ranks), None);
        assert_eq!(reducer_hang(30.0, Some(4.0), &ranks), None, "ten slow steps are not a hang");
        let hang = reducer_hang(12.0, Some(0.1), &ranks).unwrap();
        assert_eq!(hang.ranks, [Rank(2)]);
        assert_eq!(hang.sentence, "No step has completed for 12 s: rank 2 has not started collective 9.");
    }

    #[test]
    fn collectives_of_an_unmodified_job_are_counted_by_function() {
        let progress =
            |count| Progress { launched: Some(Function::AllReduce.numbered(count)), ..Progress::default() };
        let hang = detect(12.0, Some(0.1), &[progress(302), progress(301)], Instrumentation::Nccl).unwrap();
        assert_eq!(hang.sentence, "No step has completed for 12 s: rank 1 has not started all-reduce 302.");
    }

    /// Rank 2 waits for rank 1 inside collective 8, while rank 0 is in collective 9.
    #[test]
    fn a_silent_rank_is_named_instead_of_the_ranks_that_wait_for_it() {
        let stopped = Progress { silent_seconds: 11, ..progress(8) };
        assert_eq!(
            reducer_hang(12.0, Some(0.1), &[progress(9), stopped, progress(8)]).unwrap().ranks,
            [Rank(1)]
        );
        assert_eq!(
            reducer_hang(12.0, Some(0.1), &[progress(9), progress(7), progress(8)]).unwrap().ranks,
            [Rank(1)]
        );
    }

    #[test]
    fn ranks_with_equal_stacks_stand_together_and_missing_ones_come_first() {
        let at = |function: &str, line| {
            let frame =
                |function: &str| Frame { function: function.into(), file: "/job/train.py".into(), line };
            let stacks = vec![Stack { count: 9, frames: vec![0] }];
            let thread = ThreadStacks {
                role: ThreadRole::Main,
                name: String::new(),
                processes: 1,
                samples: 9,
                stacks,
            };
            Profile { frames: vec![frame(function)], threads: vec![thread], torn: 0 }
        };
        let (waits, reads) = (at("backward", 48), at("read", 12));
        let hang = reducer_hang(
            12.0,
            Some(0.1),
            &[super::tests::progress(9), super::tests::progress(9), super::tests::progress(7)],
        )
        .unwrap();
        let sampled = [(Rank(0), &waits), (Rank(1), &waits), (Rank(2), &reads)];
        assert_eq!(
            with_stacks(hang, sampled.into_iter()).sentence,
            "No step has completed for 12 s: rank 2 has not started collective 9. Rank 2 is in train.py:12 (read). Ranks \
             0, 1 are in train.py:48 (backward)."
        );
    }

    #[test]
    fn before_the_first_step_the_rank_is_named_that_the_others_wait_for() {
        let progress =
            |count| Progress { launched: Some(Function::Broadcast.numbered(count)), ..Progress::default() };
        let hang =
            startup_hang(75.0, 60.0, &[progress(3), Progress::default(), progress(3)], Instrumentation::Nccl);
        assert_eq!((hang.ranks, hang.limit_seconds), (vec![Rank(1)], Some(60.0)));
        assert_eq!(
            hang.sentence,
            "No step has completed yet, after 75 s of waiting: rank 1 has not started broadcast 3."
        );
        let hang = startup_hang(75.0, 60.0, &[progress(3), progress(3)], Instrumentation::Nccl);
        assert_eq!(
            hang.sentence,
            "No step has completed yet, after 75 s of waiting; all ranks have launched the same collectives."
        );
    }

    #[test]
    fn no_rank_is_behind_if_ranks_wait_in_different_collectives() {
        let progress =
            |function: Function| Progress { launched: Some(function.numbered(3)), ..Progress::default() };
        let ranks = [Function::Broadcast, Function::AllReduce, Function::Broadcast].map(progress);
        let hang = startup_hang(75.0, 60.0, &ranks, Instrumentation::Nccl);
        assert_eq!(hang.ranks, []);
        assert_eq!(
            hang.sentence,
            "No step has completed yet, after 75 s of waiting in different collectives: ranks 0, 2 in broadcast 3, rank 1 in \
             all-reduce 3."
        );
    }

    #[test]
    fn a_rank_that_launched_nothing_is_behind() {
        let hang = reducer_hang(12.0, None, &[progress(0), Progress::default()]).unwrap();
        assert_eq!(hang.ranks, [Rank(1)]);
        assert!(reducer_hang(12.0, None, &[progress(3), progress(3)]).unwrap().ranks.is_empty());
    }
}
