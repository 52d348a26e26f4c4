//! The cause of a failed run: the rank that failed first, how it ended, and how far it had come.
//!
//! When one rank dies, the others fail too, each with an error about a neighbor, or the launcher ends them. The rank to
//! examine is the one that raised an exception that is not about a neighbor, or else the one that ended without an end-of-run
//! message; of several, the one whose process ended first, or else the one with the least progress. If that does not decide, none
//! of them is named.

use wire::batch::Instrumentation;
use wire::clock::UnixNanos;
use wire::ids::{Rank, Seq, Step};
use wire::views::Failure;

use crate::finding::FirstFailure;
use crate::wording;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankEnd {
    /// How the rank ended.
    pub how: Ended,
    /// The reason as reported; empty if none was reported.
    pub reason: String,
    /// The newest step that the rank finished.
    pub last_step: Option<Step>,
    /// The newest collective that the rank started.
    pub last_collective: Option<Seq>,
    /// When the launcher on its host saw the process end.
    pub seen: Option<UnixNanos>,
    /// The host of the rank; empty if it is not known.
    pub host: String,
}

/// How a rank ended, ordered from the most to the least likely origin of a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    /// The launcher reported that the process failed; the rank itself sent no end-of-run message.
    WithoutAWord,
    /// The server has received nothing from the rank for some time.
    Silent,
    /// The rank reported an error.
    WithAnError,
    /// The rank is running, or has completed its work.
    #[default]
    Well,
}

/// Words of the exceptions that a rank raises because it lost another one: those of gloo, NCCL and PyTorch's stores.
const ABOUT_PEERS: [&str; 7] =
    ["gloo", "NCCL", "torch.distributed.Dist", "by peer", "TCPStore", "Socket", "Timeout"];

/// The most by which the clocks of two hosts may differ. NTP keeps them closer.
const CLOCKS_DIFFER_NANOS: i64 = 1_000_000_000;

impl RankEnd {
    /// Returns whether the rank raised an exception of its own. The Python package appends exceptions in parentheses.
    fn raised(&self) -> bool {
        self.how == Ended::WithAnError
            && self
                .reason
                .split_once(" (")
                .is_some_and(|(_, exception)| !ABOUT_PEERS.iter().any(|word| exception.contains(word)))
    }

    /// Returns whether the process of this rank surely ended before that of another one.
    fn ended_before(&self, other: &Self) -> bool {
        let margin = if self.host == other.host { 0 } else { CLOCKS_DIFFER_NANOS };
        self.seen.zip(other.seen).is_some_and(|(own, others)| others.0 - own.0 > margin)
    }

    /// Returns a number that is smaller for a more likely origin of a failure.
    fn order(&self) -> (bool, Ended) {
        // A launcher that sees a rank fail ends the others, which then fall silent or end without a word.
        (!self.raised(), self.how)
    }
}

/// Returns the failure of a run with these ranks; `None` if none of them failed.
#[must_use]
pub fn failure(ranks: &[RankEnd], instrumentation: Instrumentation) -> Option<Failure> {
    let ended_badly = || ranks.iter().enumerate().filter(|(_, end)| end.how != Ended::Well);
    let progress = |end: &RankEnd| (end.order(), end.seen, end.last_collective);
    let (rank, first) = ended_badly().min_by_key(|(rank, end)| (progress(end), *rank))?;
    let others = ended_badly().count() as u32 - 1;
    let is_alike = |end: &RankEnd| match first.how {
        Ended::WithAnError => false,
        // The records of its last half second are lost with such a rank, so the one that seems to be behind need not be.
        Ended::WithoutAWord => end.order() == first.order() && !first.ended_before(end),
        _ => progress(end) == progress(first),
    };
    let together: Vec<&RankEnd> =
        ended_badly().map(|(_, end)| end).filter(|end| std::ptr::eq(*end, first) || is_alike(end)).collect();
    let alike = together.len() as u32 - 1;
    let last_step = together.iter().map(|end| end.last_step).min().flatten();
    let is_same = together.iter().all(|end| end.last_collective == first.last_collective);
    let last_collective = first.last_collective.filter(|_| is_same);
    Some(Failure {
        rank: Rank(rank as u32),
        reason: first.reason.clone(),
        last_step,
        last_collective,
        last_seen_unix_millis: None,
        others,
        alike,
        sentence: wording::failure(&FirstFailure {
            rank,
            fell_silent: first.how == Ended::Silent,
            reason: &first.reason,
            last_step,
            last_collective,
            others,
            alike,
            instrumentation,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(how: Ended, reason: &str, step: u64, collective: u64) -> RankEnd {
        RankEnd {
            how,
            reason: reason.into(),
            last_step: Some(Step(step)),
            last_collective: Some(Seq(collective)),
            ..RankEnd::default()
        }
    }

    #[test]
    fn the_rank_that_died_is_named_instead_of_the_ranks_that_lost_it() {
        let ranks = [
            end(Ended::WithAnError, "rank 1 is gone: connection closed", 211, 1_700),
            end(Ended::WithoutAWord, "rank 1 was killed by signal 9", 211, 1_701),
            end(Ended::WithAnError, "rank 1 is gone: connection closed", 211, 1_702),
        ];
        let failure = failure(&ranks, Instrumentation::Reducer).unwrap();
        assert_eq!((failure.rank, failure.others), (Rank(1), 2));
        assert_eq!(
            failure.sentence,
            "Rank 1 was killed by signal 9; it had finished step 211 and started collective 1,701. 2 other ranks \
             failed with it."
        );
    }

    #[test]
    fn an_exception_of_a_rank_explains_those_that_ended_without_a_word_after_it() {
        let lost = "rank 1 ended with exit code 1 (RuntimeError at train.py:6: [gloo/pair.cc:561] Connection closed)";
        let own = "rank 1 ended with exit code 1 (torch.OutOfMemoryError at train.py:8: CUDA out of memory)";
        for silence in [Ended::Silent, Ended::WithoutAWord] {
            let named = |reason| {
                let ranks = [end(silence, "", 300, 602), end(Ended::WithAnError, reason, 300, 600)];
                failure(&ranks, Instrumentation::Reducer).unwrap().rank
            };
            assert_eq!([own, lost, "rank 1 ended with exit code 1"].map(named), [Rank(1), Rank(0), Rank(0)]);
        }
    }

    #[test]
    fn of_several_errors_the_rank_with_the_least_progress_is_named() {
        let ranks = [
            end(Ended::WithAnError, "timed out", 9, 80),
            end(Ended::WithAnError, "out of memory", 9, 79),
            RankEnd::default(),
        ];
        assert_eq!(
            failure(&ranks, Instrumentation::Reducer).unwrap().sentence,
            "Rank 1 failed: out of memory; it had finished step 9 and started collective 79. 1 other rank failed with it."
        );
        assert_eq!(failure(&[RankEnd::default()], Instrumentation::Reducer), None);
        let all =
            failure(&vec![end(Ended::WithAnError, "timed out", 9, 80); 1_024], Instrumentation::Reducer)
                .unwrap()
                .sentence;
        assert!(all.ends_with("1,023 other ranks failed with it."), "{all}");
        let silent = RankEnd { how: Ended::Silent, ..RankEnd::default() };
        assert_eq!(
            failure(&[silent], Instrumentation::Reducer).unwrap().sentence,
            "Rank 0 fell silent before its first step."
        );
        let silent = RankEnd { how: Ended::Silent, ..RankEnd::default() };
        assert_eq!(
            failure(&[silent], Instrumentation::Nccl).unwrap().sentence,
            "Rank 0 fell silent before Paceline had found its steps."
        );
    }
    #[test]
    fn of_ranks_that_ended_alike_none_is_named() {
        let killed = |rank| {
            let reason = format!("rank {rank} ended without a word, perhaps killed for lack of memory");
            end(Ended::WithoutAWord, &reason, 9, 80)
        };
        let said = |ranks: &[RankEnd]| failure(ranks, Instrumentation::Reducer).unwrap().sentence;
        let lost = end(Ended::WithAnError, "rank 2 is gone: connection closed", 9, 81);
        assert_eq!(
            said(&[killed(0), killed(1), lost.clone()]),
            "2 ranks ended without a word, perhaps killed for lack of memory; they had finished step 9 and started \
             collective 80. Which of them was the first is not known. 1 other rank failed with them."
        );
        assert!(said(&[lost, killed(1)]).starts_with("Rank 1 ended without a word"));
        let ahead = RankEnd { last_step: Some(Step(12)), last_collective: Some(Seq(97)), ..killed(1) };
        assert_eq!(
            said(&[killed(0), ahead]),
            "2 ranks ended without a word, perhaps killed for lack of memory; they had finished step 9 or a later one. Which of \
             them was the first is not known."
        );
        let silent = RankEnd { how: Ended::Silent, ..RankEnd::default() };
        assert_eq!(
            said(&[silent.clone(), silent]),
            "2 ranks fell silent before their first step. Which of them was the first is not known."
        );
    }

    #[test]
    fn of_ranks_that_ended_without_a_word_the_first_is_named_if_its_end_was_seen_before_all_others() {
        let millis = |millis: i64| Some(UnixNanos(1_760_000_000_000_000_000 + millis * 1_000_000));
        let killed = |host: &str, at: i64| RankEnd {
            seen: millis(at),
            host: host.into(),
            ..end(Ended::WithoutAWord, "", 9, 80)
        };
        let named = |ranks: &[RankEnd]| {
            let failure = failure(ranks, Instrumentation::Reducer).unwrap();
            (failure.alike == 0).then_some(failure.rank)
        };
        assert_eq!(named(&[killed("a", 1), killed("a", 0), killed("a", 1)]), Some(Rank(1)));
        assert_eq!(named(&[killed("a", 0), killed("a", 0), killed("a", 90)]), None);
        // The order of ends that launchers on two hosts saw is known if they are further apart than their clocks.
        assert_eq!(named(&[killed("a", 900), killed("b", 0)]), None);
        assert_eq!(named(&[killed("a", 1_001), killed("b", 0)]), Some(Rank(1)));
        let unseen = RankEnd { seen: None, ..killed("a", 0) };
        assert_eq!(named(&[killed("a", 0), unseen]), None);
    }
}
