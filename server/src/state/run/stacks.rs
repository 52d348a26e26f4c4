//! The stacks that the ranks of a run are asked for.

use std::sync::Arc;

use analysis::hang;
use wire::clock::ServerNanos;
use wire::ids::Rank;
use wire::request::RecordingRequest;
use wire::stacks::{LongStep, SpanLine, Stacks};
use wire::views::{Hang, Report};

use super::Run;
use crate::state::own_code::OwnCode;
use crate::state::stacks;

impl Run {
    /// Returns the newest stacks of each rank that has sent any.
    pub fn stacks(&self) -> impl Iterator<Item = (Rank, &Arc<Stacks>)> {
        self.ranks.iter().filter_map(|(rank, state)| Some((Rank(rank as u32), state.stacks.newest()?)))
    }

    /// Returns the stacks of the newest and longest long steps of each of `ranks` ranks, oldest first.
    #[must_use]
    pub fn long_steps(&self, ranks: usize) -> Vec<Vec<Arc<LongStep>>> {
        self.of_code(ranks, OwnCode::long_steps)
    }

    /// Returns the lines of code in which each of `ranks` ranks does what its spans record, as far as they are known.
    #[must_use]
    pub fn span_lines(&self, ranks: usize) -> Vec<Vec<SpanLine>> {
        self.of_code(ranks, OwnCode::lines)
    }

    fn of_code<T>(&self, ranks: usize, of: impl Fn(&OwnCode) -> Vec<T>) -> Vec<Vec<T>> {
        self.ranks.first(ranks).map(|rank| rank.map(|rank| of(&rank.own_code)).unwrap_or_default()).collect()
    }

    /// Asks ranks (`None`: all) for their stacks, in the answer to their next batch. Returns false if there is no such
    /// rank.
    pub fn ask_for_stacks(&mut self, rank: Option<Rank>, request: RecordingRequest) -> bool {
        let wanted = |at: usize| rank.is_none_or(|rank| rank.0 as usize == at);
        let ranks = self.ranks.iter_mut().filter(|(at, _)| wanted(*at));
        ranks.map(|(_, state)| state.stacks.ask(request)).count() > 0
    }

    /// Asks for the stacks that the verdicts and notes of a report need.
    pub fn want_stacks(&mut self, report: &Report, now: ServerNanos) {
        for rank in self.stacks_wanted.ranks(&report.verdicts, &report.notes, report.ranks, now) {
            self.ask_for_stacks(Some(Rank(rank)), stacks::request_of_evidence(now));
        }
    }

    /// Asks the ranks of a hang and some others for their stacks, once per hang, and adds to it where they stand.
    pub(super) fn explain_hang(&mut self, hang: Hang, now: ServerNanos) -> Hang {
        let request = match self.hang_asked {
            Some(request) => request,
            None => self.ask_because_of(&hang, now),
        };
        let answers = self.stacks().filter(|(_, stacks)| stacks.request >= request.number);
        hang::with_stacks(hang, answers.filter_map(|(rank, stacks)| Some((rank, stacks.profile()?))))
    }

    fn ask_because_of(&mut self, hang: &Hang, now: ServerNanos) -> RecordingRequest {
        let request = stacks::request_of_hang(now);
        let others = (0..self.world_size()).map(Rank).filter(|rank| !hang.ranks.contains(rank));
        for rank in hang.ranks.iter().copied().chain(others).take(stacks::MOST_OF_HANG) {
            self.ask_for_stacks(Some(rank), request);
        }
        self.hang_asked = Some(request);
        request
    }
}

#[cfg(test)]
mod tests {
    use wire::batch::{Batch, Note};
    use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};
    use wire::event::SpanKind;
    use wire::ids::{BatchSeq, Incarnation, RunId};
    use wire::stacks::{Frame, Profile, StacksOutcome};

    use super::*;

    const NOW: ServerNanos = ServerNanos(1_790_000_000_000_000_000);

    fn batch(seq: u64, incarnation: u64, notes: Vec<Note>) -> Batch {
        Batch {
            run: RunId::new("r").expect("the run id is valid"),
            rank: Rank(0),
            world_size: 1,
            incarnation: Incarnation(incarnation),
            seq: BatchSeq(seq),
            anchor: ClockAnchor { mono: MonoNanos(0), unix: UnixNanos(0) },
            probes: Vec::new(),
            drops: Vec::new(),
            notes,
            events: Vec::new(),
        }
    }

    #[test]
    fn what_a_rank_says_by_itself_answers_no_request_and_lasts_as_long_as_its_process() {
        let mut run = Run::new(RunId::new("r").expect("the run id is valid"), 1, NOW);
        let frame = Frame { function: "save\n".into(), file: "train.py".into(), line: 21 };
        let profile = Profile { frames: vec![frame.clone()], ..Profile::default() };
        let (begun, from, until) = (MonoNanos(1), MonoNanos(2), MonoNanos(3));
        let request = stacks::request_of_evidence(NOW);
        let outcome = StacksOutcome::Sampled(Profile::default());
        let answer = Stacks { request: request.number - 1, from, until, outcome };
        run.apply(batch(0, 1, vec![Note::Stacks(answer.clone())]), NOW).expect("the batch is new");
        run.ask_for_stacks(None, request);
        let long = Note::LongStep(LongStep { begun, usual_nanos: 1, from, until, profile });
        let line = Note::Line(SpanLine { kind: SpanKind::Checkpoint, frame });
        run.apply(batch(1, 1, vec![long, line]), NOW).expect("the batch is new");

        let newest: Vec<&Stacks> = run.stacks().map(|(_, stacks)| stacks.as_ref()).collect();
        assert_eq!(newest, [&answer]);
        assert_eq!(run.asked(Rank(0), NOW).stacks, Some(request), "the request is not answered");
        let said = |run: &Run| (run.long_steps(1)[0].len(), run.span_lines(1)[0].len());
        assert_eq!(said(&run), (1, 1));
        assert_eq!(
            run.long_steps(1)[0][0].profile.frames[0].function,
            "save\\n",
            "lines of a report stay whole"
        );
        run.apply(batch(0, 2, Vec::new()), NOW).expect("another process begins");
        assert_eq!(said(&run), (0, 0), "its clock is another one");
    }
}
