//! Batches: which a run accepts, and what it does with them.

use std::sync::Arc;

use analysis::step::StepAnalysis;
use wire::batch::Batch;
use wire::clock::ServerNanos;
use wire::event::Event;
use wire::ids::Rank;

use super::incarnations::{self, Denied};
use super::notes::{self, Arrival, Heard};
use super::{RankState, Run};
use crate::state::budget;
use crate::state::refusal::ApplyError;

impl Run {
    /// Checks a batch against the limits that hold for every run.
    ///
    /// # Errors
    /// Returns [`ApplyError::StepNumber`] if a step number is too large.
    pub fn check_alone(batch: &Batch) -> Result<(), ApplyError> {
        let steps = batch.events.iter().map(Event::step);
        match steps.max().filter(|step| step.0 > budget::MAX_STEP) {
            Some(step) => Err(ApplyError::StepNumber { run: batch.run.clone(), rank: batch.rank, step }),
            None => Ok(()),
        }
    }

    /// Decides whether `batch` is accepted now, and counts a refusal. The server has accepted batches since `accepting_since`.
    /// Restoring does not call this: a stored batch was accepted when it arrived.
    ///
    /// # Errors
    /// Returns the reason ([`ApplyError`]) if the batch is not accepted.
    pub fn admit(
        &mut self,
        batch: &Batch,
        now: ServerNanos,
        accepting_since: ServerNanos,
    ) -> Result<(), ApplyError> {
        let admitted = Self::check_alone(batch).and_then(|()| {
            self.admit_world(batch, now, accepting_since)?;
            let bytes = self.rank_bytes + batch.notes.iter().map(notes::note_bytes).sum::<usize>();
            if bytes > budget::RANK_BYTES {
                return Err(ApplyError::TooMuchSaid { run: self.id.clone(), bytes });
            }
            let incarnations = &mut self.ranks.speaking(batch.rank.0 as usize).incarnations;
            incarnations.admit(batch, now, accepting_since).map_err(|denied| self.explain(batch.rank, denied))
        });
        if let Err(error) = &admitted
            && error.is_refusal()
        {
            self.refused.count += 1;
            self.refused.last = error.to_string();
        }
        admitted
    }

    fn explain(&self, rank: Rank, denied: Denied) -> ApplyError {
        let run = self.id.clone();
        let millis = |nanos: i64| nanos / 1_000_000;
        match denied {
            Denied::Duplicate => ApplyError::Duplicate,
            Denied::Wait { heard_ago } => ApplyError::Wait { run, rank, heard_ago_millis: millis(heard_ago) },
            Denied::Taken { heard_ago } => {
                ApplyError::Taken { run, rank, heard_ago_millis: millis(heard_ago) }
            }
            Denied::TooManyIncarnations => ApplyError::TooManyIncarnations { run, rank },
            Denied::TooOld => ApplyError::TooOld { run, rank },
        }
    }

    /// Applies a batch and analyzes the steps that it closes. Returns the analyzed steps, newest last.
    ///
    /// # Errors
    /// Returns [`ApplyError::WorldSize`] if the batch is of a process whose world has ended, [`ApplyError::StepNumber`] if a step
    /// number is too large, and [`ApplyError::Duplicate`] or [`ApplyError::TooOld`] if the batch is not new.
    pub fn apply(&mut self, batch: Batch, now: ServerNanos) -> Result<Vec<Arc<StepAnalysis>>, ApplyError> {
        self.ingest(batch, now)?;
        let mut analyzed = Vec::new();
        while let Some(work) = self.next_work() {
            analyzed.push(self.finish(work.analyze(), now));
        }
        Ok(analyzed)
    }

    /// Applies a batch. Steps that it closes wait for analysis ([`Self::next_work`]).
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Self::apply`].
    pub fn ingest(&mut self, batch: Batch, now: ServerNanos) -> Result<(), ApplyError> {
        self.check_new(&batch)?;
        self.last_seen = self.last_seen.max(now);
        self.incoming.hear(now);
        let rank = batch.rank;
        let state = self.ranks.speaking(rank.0 as usize);
        let bytes_before = if state.last_seen.is_some() { state.bytes() } else { 0 };
        state.incarnations.store(&batch, now);
        if state.incarnations.is_past(batch.incarnation) && !incarnations::is_bye_of_launcher(&batch) {
            // Its steps are those of an attempt that has ended, and the rank's state is that of a later process.
            batch.events.iter().for_each(|event| self.incoming.add_late(event));
            return Ok(());
        }
        let by_launcher = self.hear_process(&batch, now);
        let Batch { anchor, probes, notes, events, .. } = batch;
        let world_size = self.ranks.world_size();
        let arrival = Arrival { rank, anchor, now, by_launcher, world_size };
        let state = self.ranks.speaking(rank.0 as usize);
        state.last_seen = Some(now);
        let mut heard = Heard::default();
        notes.into_iter().for_each(|note| state.hear(note, &arrival, &mut heard));
        let repeated = self.add_events(rank, events);
        let bytes = self.ranks.speaking(rank.0 as usize).bytes();
        self.rank_bytes = (self.rank_bytes + bytes).saturating_sub(bytes_before);
        heard.resumed.into_iter().for_each(|step| self.resume(rank, step));
        repeated.iter().for_each(|event| self.repeat(rank, event, now));
        self.add_probes(rank, &probes);
        self.add_samples(rank, heard.samples, now);
        self.close_steps();
        Ok(())
    }

    /// Checks that a batch fits the run and did not arrive before.
    fn check_new(&mut self, batch: &Batch) -> Result<(), ApplyError> {
        Self::check_alone(batch)?;
        self.enter_world(batch)?;
        let new = self.ranks.speaking(batch.rank.0 as usize).incarnations.is_new(batch);
        new.map_err(|denied| self.explain(batch.rank, denied))
    }

    /// Notes which process sent a batch. Another process begins with a new state, except for what outlasts processes. Returns
    /// true if the launcher sent it, for a rank that ended without a word.
    fn hear_process(&mut self, batch: &Batch, now: ServerNanos) -> bool {
        let state = self.ranks.speaking(batch.rank.0 as usize);
        let is_another = state.incarnation != Some(batch.incarnation);
        let by_launcher = is_another && incarnations::is_bye_of_launcher(batch);
        if is_another && !by_launcher {
            // Another process has a new clock and counts its collectives from the start.
            let RankState { incarnations, usage, device_errors, lifeline, .. } = std::mem::take(state);
            let incarnation = Some(batch.incarnation);
            *state = RankState {
                incarnations,
                usage,
                device_errors,
                lifeline,
                incarnation,
                ..RankState::default()
            };
            self.begin_attempt(batch);
        }
        if !by_launcher {
            self.hear_lifeline(batch, now);
        }
        by_launcher
    }

    /// Adds the records of a batch to their steps. Returns those of steps that an earlier attempt did already.
    fn add_events(&mut self, rank: Rank, events: Vec<Event>) -> Vec<Event> {
        let state = self.ranks.speaking(rank.0 as usize);
        let samples_per_step = state.workload.as_ref().map_or(0, |workload| workload.samples_per_step);
        let mut repeated = Vec::new();
        for mut event in events {
            if let Event::Step(step) = &mut event
                && step.samples == 0
            {
                step.samples = samples_per_step;
            }
            state.follow(&event);
            if state.lifeline.is_repeated(event.step()) {
                repeated.push(event);
                continue;
            }
            if let Event::Step(step) = &event {
                self.attempts.end(step.step);
            }
            self.incoming.add(rank, &event);
        }
        repeated
    }

    /// Passes on the steps that have become complete.
    fn close_steps(&mut self) {
        self.incoming.set_absent(self.absent_ranks());
        let mut closed = self.incoming.close_ready();
        if self.all_said_bye() {
            closed.extend(self.incoming.close_all());
        }
        self.steps.wait(closed);
    }
}

impl RankState {
    /// Notes how far the rank is.
    fn follow(&mut self, event: &Event) {
        match event {
            Event::Started(started) => self.launched = self.launched.max(Some(started.seq)),
            Event::Bucket(bucket) => self.launched = self.launched.max(Some(bucket.seq)),
            Event::Step(step) => self.last_step = self.last_step.max(Some(step.step)),
            Event::Span(_) => {}
        }
    }
}
