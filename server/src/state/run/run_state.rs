//! The state of a run: starting, running, hung, failed or completed.

use analysis::failure::{self, Ended, RankEnd};
use analysis::hang::{self, Progress};
use analysis::{report, stats};
use wire::batch::Instrumentation;
use wire::clock::ServerNanos;
use wire::device::DeviceFigure;
use wire::ids::{Rank, Seq};
use wire::views::{Failure, Hang, RunState};

use super::reports::millis;
use super::{HANG_NANOS, LOST_NANOS, REPORTING_NANOS, RankState, Run, START_HANG_NANOS};
use crate::state::budget::RECENT_STEPS;

impl Run {
    pub(super) fn all_said_bye(&self) -> bool {
        match self.instrumentation() {
            // A rank without a file says nothing. The others have all said hello before the first record arrives.
            Instrumentation::Trace => self.ranks.iter().all(|(_, rank)| rank.bye.is_some()),
            _ => self.ranks.all(|rank| rank.bye.is_some()),
        }
    }

    /// Returns the number of ranks of an imported job that have no file.
    pub(super) fn absent_ranks(&self) -> usize {
        match self.instrumentation() {
            Instrumentation::Trace => self.ranks.world_size().saturating_sub(self.ranks.spoken()),
            _ => 0,
        }
    }

    /// Returns true if collectives are numbered by function.
    pub(super) fn numbers_by_function(&self) -> bool {
        self.instrumentation().numbers_by_function()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.all_said_bye() && self.is_settled()
    }

    pub(super) fn is_lost(&self, now: ServerNanos) -> bool {
        now - self.last_seen.max(self.listens_from) > LOST_NANOS
    }

    pub(super) fn detect_hang(&self, now: ServerNanos) -> Option<Hang> {
        let Some(last_step_at) = self.last_step_at else { return self.startup_hang(now) };
        let silence = now - last_step_at;
        if silence < HANG_NANOS {
            return None;
        }
        let ranks = self.progress(now, |rank| rank.launched);
        let median = self.recent_median_nanos().map(|nanos| nanos / 1e9);
        let hang = hang::detect(silence as f64 / 1e9, median, &ranks, self.instrumentation())?;
        Some(Hang { since_unix_millis: Some(millis(last_step_at)), ..hang })
    }

    /// Returns the hang of a run in which a rank waits in a collective for long before its first step.
    fn startup_hang(&self, now: ServerNanos) -> Option<Hang> {
        let wait_begin = self.ranks.iter().filter_map(|(_, rank)| Some(rank.waits?.begin)).min()?;
        if now - wait_begin < START_HANG_NANOS {
            return None;
        }
        let ranks = self.progress(now, |rank| rank.waits.map(|waits| waits.waiting.seq));
        let limit_seconds = START_HANG_NANOS as f64 / 1e9;
        let hang = hang::startup_hang(
            (now - wait_begin) as f64 / 1e9,
            limit_seconds,
            &ranks,
            self.instrumentation(),
        );
        Some(Hang { since_unix_millis: Some(millis(wait_begin)), ..hang })
    }

    /// Returns the progress of each rank of the world.
    fn progress(&self, now: ServerNanos, launched: impl Fn(&RankState) -> Option<Seq>) -> Vec<Progress> {
        let progress = |rank: Option<&RankState>| Progress {
            launched: rank.and_then(&launched),
            silent_seconds: rank
                .and_then(|rank| rank.last_seen)
                .map_or(0, |seen| (now - seen).max(0).unsigned_abs() / 1_000_000_000),
        };
        self.ranks.world().map(progress).collect()
    }

    /// Returns the hang of a run that hangs now, or of an imported job that hung.
    pub(super) fn hang(&self) -> Option<Hang> {
        self.hang.clone().or_else(|| self.recorded_hang())
    }

    /// Returns the hang that the files of an imported job show. None of its ranks has completed its work then, and those that the others
    /// wait for say what is known of it. If all ranks say it, it does not show for which of them the others wait.
    fn recorded_hang(&self) -> Option<Hang> {
        if !self.hung_when_recorded() {
            return None;
        }
        let speaks = |&(_, rank): &(usize, &RankState)| !rank.bye_reason.is_empty();
        let sentence = self.ranks.iter().find(speaks).map(|(_, rank)| rank.bye_reason.clone())?;
        let ranks: Vec<Rank> = self.ranks.iter().filter(speaks).map(|(rank, _)| Rank(rank as u32)).collect();
        let ranks = if ranks.len() == self.ranks.iter().count() { Vec::new() } else { ranks };
        let (since_seconds, limit_seconds, since_unix_millis) = (None, None, None);
        Some(Hang { since_seconds, since_unix_millis, limit_seconds, ranks, sentence, standing: Vec::new() })
    }

    /// Returns true if files of an imported job show that it hung.
    fn hung_when_recorded(&self) -> bool {
        self.instrumentation() == Instrumentation::Trace && self.ranks.any(|rank| rank.bye == Some(false))
    }

    pub(super) fn failure(&self, now: ServerNanos) -> Option<Failure> {
        if self.state(now) != RunState::Failed {
            return None;
        }
        let is_silent = |rank: &RankState| rank.last_seen.is_none_or(|seen| now - seen > REPORTING_NANOS);
        let end = |rank: Option<&RankState>| {
            let Some(rank) = rank else {
                return RankEnd { how: Ended::Silent, ..RankEnd::default() };
            };
            RankEnd {
                how: match rank.bye {
                    Some(true) => Ended::Well,
                    Some(false) if rank.bye_by_launcher => Ended::WithoutAWord,
                    Some(false) => Ended::WithAnError,
                    None if is_silent(rank) => Ended::Silent,
                    None => Ended::Well,
                },
                reason: rank.bye_reason.clone(),
                last_step: rank.last_step,
                last_collective: rank.launched,
                seen: rank.seen_to_end,
                host: rank.hello.as_ref().map(|hello| hello.host.clone()).unwrap_or_default(),
            }
        };
        let failure =
            failure::failure(&self.ranks.world().map(end).collect::<Vec<_>>(), self.instrumentation())?;
        let seen = self.ranks.world().nth(failure.rank.0 as usize).flatten().and_then(|rank| rank.last_seen);
        Some(Failure { last_seen_unix_millis: seen.map(millis), ..failure })
    }

    fn recent_median_nanos(&self) -> Option<f64> {
        let recent = self.steps.analyzed().iter().rev().take(RECENT_STEPS);
        stats::median(recent.filter(|step| report::is_observed(step)).map(|step| step.step_nanos() as f64))
    }

    #[must_use]
    pub fn state(&self, now: ServerNanos) -> RunState {
        if self.hung_when_recorded() {
            RunState::Hung
        } else if self.ranks.any(|rank| rank.bye == Some(false)) {
            RunState::Failed
        } else if self.has_ended() {
            RunState::Completed
        } else if self.is_lost(now) {
            RunState::Failed
        } else if self.hang.is_some() {
            RunState::Hung
        } else if self.completed_steps == 0 && !self.is_busy_without_steps() {
            RunState::Starting
        } else {
            RunState::Running
        }
    }

    /// Returns whether this is an unmodified job without known steps whose devices are busy. Its steps are unknown
    /// because no hook reports steps, or because they are not found yet.
    fn is_busy_without_steps(&self) -> bool {
        let is_busy = |rank: &RankState| {
            let sample = rank.devices.newest();
            sample
                .and_then(|sample| sample.get(DeviceFigure::UtilizationPercent))
                .is_some_and(|percent| percent > 0)
        };
        self.is_unmodified_job() && self.ranks.any(is_busy)
    }

    pub(super) fn is_unmodified_job(&self) -> bool {
        self.hello().is_some_and(|hello| hello.instrumentation.is_unmodified_job())
    }

    /// Returns true if no more batches are expected.
    #[must_use]
    pub fn is_over(&self, now: ServerNanos) -> bool {
        self.has_ended() || self.is_lost(now)
    }
}

#[cfg(test)]
mod tests {
    use wire::batch::{Batch, Hello, Note, Waiting};
    use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};
    use wire::event::Function;
    use wire::fixtures;
    use wire::ids::{BatchSeq, RunId};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn time(seconds: i64) -> ServerNanos {
        ServerNanos(1_790_000_000 * SECOND) + seconds * SECOND
    }

    /// A batch of `rank` that is sent after `seconds`, which its clock counts.
    fn batch(rank: u32, seq: u64, seconds: i64, note: Note) -> Batch {
        Batch {
            rank: Rank(rank),
            world_size: 2,
            seq: BatchSeq(seq),
            anchor: ClockAnchor { mono: MonoNanos(seconds * SECOND), unix: UnixNanos(0) },
            notes: vec![note],
            ..fixtures::batch()
        }
    }

    fn hello() -> Note {
        Note::Hello(Hello { instrumentation: Instrumentation::Nccl, ..fixtures::hello() })
    }

    #[test]
    fn a_rank_that_waits_for_a_minute_before_its_first_step_makes_a_hang_until_that_ends() {
        let mut run = Run::new(RunId::new("r").expect("the run id is valid"), 2, time(0));
        let waiting = Waiting { seq: Function::Broadcast.numbered(3), launch: MonoNanos(10 * SECOND) };
        let send = |run: &mut Run, rank, seq, seconds, note| {
            run.apply(batch(rank, seq, seconds, note), time(seconds)).expect("the batch is new");
        };
        send(&mut run, 0, 0, 1, hello());
        send(&mut run, 1, 0, 1, hello());
        send(&mut run, 0, 1, 12, Note::Waits { waiting: Some(waiting) });
        // Both ranks go on to report.
        let heard = |run: &mut Run, seconds| {
            run.ranks.iter_mut().for_each(|(_, rank)| rank.last_seen = Some(time(seconds)));
            run.last_seen = time(seconds);
            run.tick(time(seconds));
        };
        heard(&mut run, 69);
        assert_eq!(run.state(time(69)), RunState::Starting);
        heard(&mut run, 70);
        assert_eq!(run.state(time(70)), RunState::Hung);
        let hang = run.hang().expect("the run hangs");
        assert_eq!((hang.ranks, hang.since_unix_millis), (vec![Rank(1)], Some(millis(time(10)))));
        assert_eq!(
            hang.sentence,
            "No step has completed yet, after 60 s of waiting: rank 1 has not started broadcast 3."
        );
        send(&mut run, 0, 2, 75, Note::Waits { waiting: None });
        heard(&mut run, 76);
        assert_eq!(run.state(time(76)), RunState::Starting);
        let waits: Vec<u64> = run.ranks.iter().map(|(_, rank)| rank.start_waits).collect();
        assert_eq!(waits, [65 * SECOND.unsigned_abs(), 0]);
    }
}
