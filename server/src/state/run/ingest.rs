//! Batches: which a run accepts, and what it does with their notes and events.

use std::borrow::Cow;
use std::sync::Arc;

use analysis::step::StepAnalysis;
use wire::batch::{Batch, Hello, Note};
use wire::clock::ServerNanos;
use wire::event::Event;
use wire::ids::Rank;
use wire::layout::Layout;
use wire::stacks::{Frame, LongStep, Profile, SpanLine, Stacks, StacksOutcome};
use wire::traces::TraceSummary;
use wire::workload::{MAX_UNIT_BYTES, Workload};

use super::attributes::with_printable_texts;
use super::goodput::process_start;
use super::usage::Sample;
use super::{RankState, Run, hello_bytes};
use crate::printable::one_line;
use crate::state::lives::{self, Denied};
use crate::state::refusal::ApplyError;
use crate::state::{budget, devices};

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

    /// Decides whether `batch` is accepted now, and counts a refusal. The server has accepted batches since `since`.
    /// Replay does not call this: a stored batch was accepted when it arrived.
    ///
    /// # Errors
    /// Returns the reason ([`ApplyError`]) if the batch is not accepted.
    pub fn admit(&mut self, batch: &Batch, now: ServerNanos, since: ServerNanos) -> Result<(), ApplyError> {
        let admitted = Self::check_alone(batch).and_then(|()| {
            self.admit_world(batch, now, since)?;
            let bytes = self.rank_bytes + batch.notes.iter().map(note_bytes).sum::<usize>();
            if bytes > budget::RANK_BYTES {
                return Err(ApplyError::TooMuchSaid { run: self.id.clone(), bytes });
            }
            let lives = &mut self.ranks.speaking(batch.rank.0 as usize).lives;
            lives.admit(batch, now, since).map_err(|denied| self.explain(batch.rank, denied))
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
            Denied::TooManyLives => ApplyError::TooManyLives { run, rank },
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
        Self::check_alone(&batch)?;
        self.enter_world(&batch)?;
        let rank = self.ranks.speaking(batch.rank.0 as usize);
        if let Err(denied) = rank.lives.is_new(&batch) {
            return Err(self.explain(batch.rank, denied));
        }
        self.last_seen = self.last_seen.max(now);
        self.incoming.hear(now);
        let bytes_before = if rank.last_seen.is_some() { rank.bytes() } else { 0 };
        rank.lives.store(&batch, now);
        if rank.lives.is_past(batch.incarnation) && !lives::is_goodbye_by_another(&batch) {
            // Its steps are those of an attempt that has ended, and the rank's state is that of a later process.
            batch.events.iter().for_each(|event| self.incoming.add_late(event));
            return Ok(());
        }
        let is_another = rank.incarnation != Some(batch.incarnation);
        let by_launcher = is_another && lives::is_goodbye_by_another(&batch);
        if is_another && !by_launcher {
            // Another process has a new clock and counts its collectives from the start.
            let RankState { lives, usage, device_errors, lifeline, .. } = std::mem::take(rank);
            let incarnation = Some(batch.incarnation);
            *rank = RankState { lives, usage, device_errors, lifeline, incarnation, ..RankState::default() };
            self.begin_attempt(&batch);
        }
        if !by_launcher {
            self.hear_lifeline(&batch, now);
        }
        let world_size = self.ranks.world_size();
        let rank = self.ranks.speaking(batch.rank.0 as usize);
        rank.last_seen = Some(now);
        let mut samples = Vec::new();
        let mut resumed = None;
        for note in batch.notes {
            match note {
                Note::Hello(hello) => {
                    rank.lifeline.on_clock(&hello.clock);
                    if hello.instrumentation.is_unmodified_job() {
                        rank.lifeline.counts_from_its_start();
                    }
                    rank.hello = Some(with_printable_names(hello));
                }
                Note::Attributes(more) => {
                    rank.attributes.get_or_insert_default().extend(with_printable_texts(more));
                }
                Note::Layout(layout) => rank.layouts.add(batch.rank, with_printable_parameters(layout)),
                // A rank's own end-of-run message takes precedence over its launcher's.
                Note::Bye(bye) if rank.bye.is_none() => {
                    rank.lifeline.end(bye.completed);
                    rank.bye = Some(bye.completed);
                    rank.bye_reason = one_line(&bye.reason).into_owned();
                    rank.bye_by_launcher = by_launcher;
                    rank.seen_to_end = by_launcher.then_some(batch.anchor.unix);
                }
                Note::Bye(_) => {}
                Note::Device(sample) => {
                    samples.push(Sample::Device(sample.clone()));
                    rank.device_errors.add(rank.devices.newest(), &sample, now);
                    rank.devices.add_sample(sample, now);
                }
                Note::Burst(burst) => rank.devices.add_burst(burst, now),
                Note::Stacks(stacks) => rank.stacks.add(with_printable_frames(stacks)),
                Note::LongStep(long) => rank.own_code.add_long_step(with_printable_stacks(long), world_size),
                Note::Line(line) => rank.own_code.add_line(with_printable_line(line)),
                Note::Workload(workload) => rank.workload = Some(with_printable_unit(workload)),
                Note::Resumed { step } => resumed = Some(step),
                Note::Waits { waiting } => rank.wait_in(waiting, batch.anchor.mono, now),
                Note::Traced(summary) => rank.summary = Some(Arc::new(with_printable_rows(summary))),
                Note::Host(sample) => {
                    process_start(&sample).into_iter().for_each(|at| rank.lifeline.began(at));
                    Arc::make_mut(&mut rank.host).add(&sample);
                    samples.push(Sample::Host(sample));
                }
            }
        }
        let mut repeated = Vec::new();
        let samples_per_step = rank.workload.as_ref().map_or(0, |workload| workload.samples_per_step);
        for mut event in batch.events {
            if let Event::Step(step) = &mut event
                && step.samples == 0
            {
                step.samples = samples_per_step;
            }
            match &event {
                Event::Started(started) => rank.launched = rank.launched.max(Some(started.seq)),
                Event::Bucket(bucket) => rank.launched = rank.launched.max(Some(bucket.seq)),
                Event::Step(step) => rank.last_step = rank.last_step.max(Some(step.step)),
                Event::Span(_) => {}
            }
            if rank.lifeline.is_repeated(event.step()) {
                repeated.push(event);
                continue;
            }
            if let Event::Step(step) = &event {
                self.attempts.end(step.step);
            }
            self.incoming.add(batch.rank, &event);
        }
        self.rank_bytes = (self.rank_bytes + rank.bytes()).saturating_sub(bytes_before);
        resumed.into_iter().for_each(|step| self.resume(batch.rank, step));
        repeated.iter().for_each(|event| self.repeat(batch.rank, event, now));
        self.add_probes(batch.rank, &batch.probes);
        self.add_samples(batch.rank, samples, now);
        self.incoming.set_absent(self.absent_ranks());
        let mut closed = self.incoming.close_ready();
        if self.all_said_goodbye() {
            closed.extend(self.incoming.close_all());
        }
        self.steps.wait(closed);
        Ok(())
    }
}

/// Escapes the names, which appear in lines and tables of reports.
fn with_printable_names(mut hello: Hello) -> Hello {
    for text in [&mut hello.name, &mut hello.host, &mut hello.sample_unit] {
        if let Cow::Owned(changed) = one_line(text) {
            *text = changed;
        }
    }
    hello
}

/// Escapes and shortens the unit, which appears in lines of reports.
fn with_printable_unit(mut workload: Workload) -> Workload {
    let unit = one_line(&workload.sample_unit);
    workload.sample_unit = unit[..unit.floor_char_boundary(MAX_UNIT_BYTES)].to_owned();
    workload
}

/// Escapes the names of functions, files and threads, which appear in lines of reports.
fn with_printable_frames(mut stacks: Stacks) -> Stacks {
    match &mut stacks.outcome {
        StacksOutcome::Refused { reason } => escape(reason),
        StacksOutcome::Sampled(profile) => escape_profile(profile),
    }
    stacks
}

fn with_printable_stacks(mut long: LongStep) -> LongStep {
    escape_profile(&mut long.profile);
    long
}

fn with_printable_line(mut line: SpanLine) -> SpanLine {
    escape_frame(&mut line.frame);
    line
}

fn escape_profile(profile: &mut Profile) {
    profile.threads.iter_mut().for_each(|thread| escape(&mut thread.name));
    profile.frames.iter_mut().for_each(escape_frame);
}

fn escape_frame(frame: &mut Frame) {
    escape(&mut frame.function);
    escape(&mut frame.file);
}

fn escape(text: &mut String) {
    if let Cow::Owned(changed) = one_line(text) {
        *text = changed;
    }
}

/// Escapes the names of operators, ranges and kernels, which appear in lines of reports.
fn with_printable_rows(mut summary: TraceSummary) -> TraceSummary {
    for row in &mut summary.rows {
        if let Cow::Owned(changed) = one_line(&row.name) {
            row.name = changed;
        }
    }
    summary
}

/// Escapes the names of parameters and modules, which appear in lines of reports.
fn with_printable_parameters(mut layout: Layout) -> Layout {
    let of_buckets = layout.buckets.iter_mut();
    let of_buckets = of_buckets.flat_map(|bucket| bucket.parameters.iter_mut().chain([&mut bucket.dtype]));
    for text in of_buckets.chain([&mut layout.class]) {
        if let Cow::Owned(changed) = one_line(text) {
            *text = changed;
        }
    }
    layout
}

/// Returns the size that a note adds to its rank's state, in bytes.
fn note_bytes(note: &Note) -> usize {
    match note {
        Note::Hello(hello) => hello_bytes(hello),
        Note::Attributes(attributes) => attributes.bytes(),
        Note::Bye(bye) => bye.reason.len(),
        Note::Device(_) => devices::SAMPLE_BYTES,
        Note::Burst(burst) => devices::burst_bytes(burst),
        Note::Stacks(stacks) => stacks.bytes(),
        Note::LongStep(long) => long.bytes(),
        Note::Line(line) => line.bytes(),
        Note::Workload(workload) => workload.bytes(),
        Note::Resumed { .. } | Note::Waits { .. } => 0,
        Note::Traced(summary) => summary.bytes(),
        // The sample's figures replace older ones.
        Note::Host(sample) => sample.cores.len(),
        Note::Layout(layout) => layout.bytes(),
    }
}
