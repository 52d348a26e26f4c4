//! What the run used its time for: the attempts at the job, and each rank's lifeline.

use analysis::goodput::{self, Counted, Now};
use wire::batch::{Batch, Instrumentation, Note};
use wire::clock::{MonoNanos, ServerNanos};
use wire::event::{Event, StepRecord};
use wire::host::{HostFigure, HostSample};
use wire::ids::{Rank, Step};
use wire::views::Missing;
use wire::views::goodput::Goodput;

use super::Run;
use crate::state::steps::placed::Done;

/// The attempts at the job.
#[derive(Default)]
pub(super) struct Attempts {
    /// Oldest first.
    begun: Vec<Begun>,
    /// The newest step that any rank has ended.
    newest: Option<Step>,
}

/// The begin of an attempt.
#[derive(Clone, Copy)]
struct Begun {
    /// The newest step that any rank had ended before.
    done: Option<Step>,
    /// The step that the job resumes, if it states it.
    resumed: Option<Step>,
    /// The world size.
    ranks: u32,
}

impl Begun {
    /// Returns the number of the first step, for a job whose agents count from 0: what the job states, or else the step after
    /// those that were done before.
    fn first(&self) -> u64 {
        let next = self.done.map_or(0, |done| done.0.saturating_add(1));
        self.resumed.map_or(next, |resumed| resumed.0)
    }
}

impl Attempts {
    /// Returns the number of the attempt to which a new process of a rank belongs: the newest one of this world size, but not
    /// before `next`, or else one that begins.
    fn number(&self, next: usize, ranks: u32) -> usize {
        let newest = self.begun.iter().rposition(|begun| begun.ranks == ranks);
        newest.filter(|&newest| newest >= next).unwrap_or(self.begun.len().max(next))
    }

    /// Returns the begin of attempt `number`. The attempt begins with its first rank.
    fn enter(&mut self, number: usize, ranks: u32) -> &mut Begun {
        while self.begun.len() <= number {
            self.begun.push(Begun { done: self.newest, resumed: None, ranks });
        }
        &mut self.begun[number]
    }

    /// Returns the world size of each attempt.
    fn worlds(&self) -> Vec<u32> {
        self.begun.iter().map(|begun| begun.ranks).collect()
    }

    /// Notes that a rank has ended a step.
    pub(super) fn end(&mut self, step: Step) {
        self.newest = self.newest.max(Some(step));
    }
}

impl Run {
    /// Numbers the steps of a batch from the step that the job resumes, or else from the newest step that earlier attempts had
    /// ended, if the job is unmodified: its agent counts from 0 in every process. Returns true if the batch is changed.
    pub fn renumber(&mut self, batch: &mut Batch) -> bool {
        let hello = batch
            .notes
            .iter()
            .find_map(|note| if let Note::Hello(hello) = note { Some(hello) } else { None });
        let hello = hello.or_else(|| self.hello());
        if !hello.is_some_and(|hello| hello.instrumentation.is_unmodified_job()) {
            return false;
        }
        let state = self.ranks.speaking(batch.rank.0 as usize);
        let next = state.lifeline.next_attempt();
        let is_known = state.incarnation == Some(batch.incarnation);
        let number = match is_known {
            true => next.saturating_sub(1),
            false => self.attempts.number(next, batch.world_size),
        };
        let resumed = batch
            .notes
            .iter()
            .find_map(|note| if let Note::Resumed { step } = note { Some(*step) } else { None });
        let begun = self.attempts.enter(number, batch.world_size);
        begun.resumed = begun.resumed.or(resumed);
        let first = begun.first();
        if batch.events.is_empty() {
            return false;
        }
        batch.events.iter_mut().for_each(|event| event.set_step(Step(event.step().0.saturating_add(first))));
        first > 0
    }

    /// Returns the number that the first step of the newest attempt has, if the agents of the job count from 0.
    #[must_use]
    pub fn first_step_of_attempt(&self) -> u64 {
        let newest = self.attempts.begun.last().filter(|_| self.is_unmodified_job());
        newest.map_or(0, Begun::first)
    }

    /// Notes that another process speaks for a rank, with its first batch. Records of steps that its predecessor did not end are
    /// dropped.
    pub(super) fn begin_attempt(&mut self, batch: &Batch) {
        let lifeline = &mut self.ranks.speaking(batch.rank.0 as usize).lifeline;
        let number = self.attempts.number(lifeline.next_attempt(), batch.world_size);
        lifeline.begin(number as u32, self.attempts.enter(number, batch.world_size).done);
        self.incoming.restart(batch.rank);
        // A job that starts again does not hang, however long it takes to its first step.
        (self.last_step_at, self.hang, self.hang_asked) = (None, None, None);
    }

    /// Notes the step that the newest process of a rank resumes. Stored batches are not numbered again when they are read back,
    /// but later ones are.
    pub(super) fn resume(&mut self, rank: Rank, step: Step) {
        let lifeline = &mut self.ranks.speaking(rank.0 as usize).lifeline;
        lifeline.resumes(step);
        let number = lifeline.next_attempt().saturating_sub(1);
        let begun = self.attempts.enter(number, self.ranks.world_size() as u32);
        begun.resumed = begun.resumed.or(Some(step));
    }

    /// Takes what a batch says about the time of its process.
    pub(super) fn hear_lifeline(&mut self, batch: &Batch, now: ServerNanos) {
        self.ranks.speaking(batch.rank.0 as usize).lifeline.hear(batch.anchor.mono, now);
    }

    /// Adds an event of a step that an earlier attempt did already. It is not analyzed again.
    pub(super) fn repeat(&mut self, rank: Rank, event: &Event, now: ServerNanos) {
        if let &Event::Step(StepRecord { step, begin, end, .. }) = event {
            self.ranks.speaking(rank.0 as usize).lifeline.repeat(step, begin, end);
            // A run that repeats steps does not hang.
            self.last_step_at = Some(now);
        }
    }

    /// Adds an analyzed step to the lifelines.
    pub(super) fn count_step(&mut self, done: &Done) {
        let is_observed = done.analysis.is_observed_in_full();
        for (rank, records, analysis) in done.ranks() {
            let StepRecord { step, begin, end, .. } = records.record;
            let parts = is_observed.then_some(analysis);
            self.ranks.speaking(rank).lifeline.count(&Counted { step, begin, end, parts });
        }
    }

    /// Returns what the run used its wall time for.
    pub(super) fn goodput(&self, now: ServerNanos) -> Result<Goodput, Missing> {
        if self.instrumentation() == Instrumentation::Trace {
            return Err(Missing::Imported);
        }
        let has_begun = self.ranks.iter().all(|(_, rank)| rank.lifeline.has_steps());
        let lifelines: Vec<_> = self.ranks.ever().map(|rank| Some(&rank?.lifeline)).collect();
        let state = match (self.is_over(now), self.hang.is_some() || !has_begun) {
            (true, _) => Now::Over,
            (false, true) => Now::Waiting(now),
            (false, false) => Now::Running,
        };
        goodput::goodput(&lifelines, &self.attempts.worlds(), state)
    }
}

/// Returns when the process of a sample began, on its clock.
pub(super) fn process_start(sample: &HostSample) -> Option<MonoNanos> {
    let age = i64::try_from(sample.get(HostFigure::ProcessAge)?).ok()?;
    Some(sample.at + -age)
}
