//! A run: its ranks, its clocks and its steps.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use analysis::hosts::{HostHistory, RankHost};
use analysis::step::StepAnalysis;
use timing::clocks::ClockFit;
use wire::batch::{Batch, DropReason, Hello, Note};
use wire::burst::BurstRequest;
use wire::clock::{Probe, ServerNanos};
use wire::event::Event;
use wire::ids::{Incarnation, Rank, RunId, Seq, Step};
use wire::live::Waterfall;
use wire::views::{Hang, Report};

use super::budget;
use super::clocks::Clocks;
use super::devices::{self, RankDevices};
use super::incoming::{Closed, Incoming};
use super::lives::{self, Denied, Lives};
use super::older::{Between, Older};
use super::ranks::Ranks;
use super::refusal::ApplyError;
use super::steps::{Done, Placed, Steps, Work};
use crate::printable::one_line;
use crate::store::StepRange;
use crate::store::folder::RunFolder;

mod life;
mod reports;

pub use reports::ReportWork;

/// The number of newest steps that the live report covers.
pub const RECENT_STEPS: usize = 512;
/// The silence after which a rank no longer reports, in nanoseconds. Agents send a heartbeat every two seconds.
const REPORTING_NANOS: i64 = 10_000_000_000;
/// The silence after which a run without end-of-run messages has failed, in nanoseconds.
const LOST_NANOS: i64 = 60_000_000_000;
/// The time without a complete step after which steps with missing ranks close, in nanoseconds.
const OVERDUE_NANOS: i64 = 10_000_000_000;
/// The shortest time without a complete step that counts as a hang, in nanoseconds. [`hang::detect`] requires at least
/// this.
const HANG_NANOS: i64 = 10_000_000_000;

/// The state of one rank.
#[derive(Default)]
struct RankState {
    hello: Option<Hello>,
    /// The incarnation that this state belongs to.
    incarnation: Option<Incarnation>,
    lives: Lives,
    last_seen: Option<ServerNanos>,
    /// The index of the rank's clock among the run's clocks.
    clock: Option<u32>,
    launched: Option<Seq>,
    bye: Option<bool>,
    bye_reason: String,
    /// Whether the end-of-run message is from the launcher, because the rank ended without one.
    bye_by_launcher: bool,
    last_step: Option<Step>,
    devices: RankDevices,
    /// The host history, shared with reports, which are made on another thread.
    host: Arc<HostHistory>,
}

impl RankState {
    /// Returns the approximate size, in bytes.
    fn bytes(&self) -> usize {
        let texts = self.hello.as_ref().map_or(0, hello_bytes) + self.bye_reason.len();
        size_of::<Self>()
            + texts
            + self.lives.drops().len() * size_of::<wire::batch::Drop>()
            + self.devices.bytes()
            + self.host.bytes()
    }

    fn host(&self) -> Option<RankHost> {
        Some(RankHost { pid: self.hello.as_ref()?.pid, history: self.host.clone() })
    }
}

fn hello_bytes(hello: &Hello) -> usize {
    let texts = [&hello.name, &hello.host, &hello.clock, &hello.sample_unit];
    texts.into_iter().map(String::len).sum()
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

/// A run.
pub struct Run {
    id: RunId,
    ranks: Ranks<RankState>,
    rank_bytes: usize,
    clocks: Clocks,
    first_seen: ServerNanos,
    last_seen: ServerNanos,
    incoming: Incoming,
    steps: Steps,
    completed_steps: u64,
    last_step_at: Option<ServerNanos>,
    hang: Option<Hang>,
    /// Ranks for which device evidence was requested.
    evidence_asked: BTreeSet<u32>,
    /// The losses on disk, for [`Report::missing`].
    storage_gaps: BTreeMap<&'static str, String>,
    refused: Refused,
}

/// The batches refused since the server started.
#[derive(Clone, Default)]
struct Refused {
    count: u64,
    last: String,
}

impl Run {
    /// Creates the run that its first batch describes. `world_size` is from a decoded batch.
    #[must_use]
    pub fn new(id: RunId, world_size: u32, now: ServerNanos) -> Self {
        Self {
            id,
            incoming: Incoming::new(world_size as usize),
            ranks: Ranks::new(world_size),
            rank_bytes: 0,
            clocks: Clocks::default(),
            first_seen: now,
            last_seen: now,
            steps: Steps::default(),
            completed_steps: 0,
            last_step_at: None,
            hang: None,
            evidence_asked: BTreeSet::new(),
            storage_gaps: BTreeMap::new(),
            refused: Refused::default(),
        }
    }

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
        let admitted = self.agrees(batch).and_then(|()| {
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

    fn agrees(&self, batch: &Batch) -> Result<(), ApplyError> {
        Self::check_alone(batch)?;
        if batch.world_size == self.world_size() {
            return Ok(());
        }
        Err(ApplyError::WorldSize {
            run: self.id.clone(),
            rank: batch.rank,
            said: batch.world_size,
            known: self.world_size(),
        })
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
    /// Returns [`ApplyError::WorldSize`] if the batch contradicts the run, [`ApplyError::StepNumber`] if a step number
    /// is too large, and [`ApplyError::Duplicate`] or [`ApplyError::TooOld`] if the batch is not new.
    pub fn apply(&mut self, batch: Batch, now: ServerNanos) -> Result<Vec<Arc<StepAnalysis>>, ApplyError> {
        self.take_in(batch, now)?;
        let mut analysed = Vec::new();
        while let Some(work) = self.next_work() {
            analysed.push(self.finish(work.analyse(), now));
        }
        Ok(analysed)
    }

    /// Applies a batch. Steps that it closes wait for analysis ([`Self::next_work`]).
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Self::apply`].
    pub fn take_in(&mut self, batch: Batch, now: ServerNanos) -> Result<(), ApplyError> {
        self.agrees(&batch)?;
        let rank = self.ranks.speaking(batch.rank.0 as usize);
        if let Err(denied) = rank.lives.is_new(&batch) {
            return Err(self.explain(batch.rank, denied));
        }
        self.last_seen = self.last_seen.max(now);
        let bytes_before = if rank.last_seen.is_some() { rank.bytes() } else { 0 };
        rank.lives.store(&batch, now);
        let is_another = rank.incarnation != Some(batch.incarnation);
        let by_launcher = is_another && lives::is_goodbye_by_another(&batch);
        if is_another && !by_launcher {
            // Another process has a new clock and counts its collectives from the start.
            let (lives, incarnation) = (std::mem::take(&mut rank.lives), Some(batch.incarnation));
            *rank = RankState { lives, incarnation, ..RankState::default() };
        }
        rank.last_seen = Some(now);
        for note in batch.notes {
            match note {
                Note::Hello(hello) => rank.hello = Some(with_printable_names(hello)),
                // Layouts stay on disk for readers of segments. No figure needs them.
                Note::Layout(_) => {}
                // A rank's own end-of-run message takes precedence over its launcher's.
                Note::Bye(bye) if rank.bye.is_none() => {
                    rank.bye = Some(bye.completed);
                    rank.bye_reason = one_line(&bye.reason).into_owned();
                    rank.bye_by_launcher = by_launcher;
                }
                Note::Bye(_) => {}
                Note::Device(sample) => rank.devices.add_sample(sample, now),
                Note::Burst(burst) => rank.devices.add_burst(burst, now),
                Note::Host(sample) => Arc::make_mut(&mut rank.host).add(&sample),
            }
        }
        for event in &batch.events {
            match event {
                Event::Started(started) => rank.launched = rank.launched.max(Some(started.seq)),
                Event::Bucket(bucket) => rank.launched = rank.launched.max(Some(bucket.seq)),
                Event::Step(step) => rank.last_step = rank.last_step.max(Some(step.step)),
                Event::Span(_) => {}
            }
            self.incoming.add(batch.rank, event);
        }
        self.rank_bytes = (self.rank_bytes + rank.bytes()).saturating_sub(bytes_before);
        self.add_probes(batch.rank, &batch.probes);
        let mut closed = self.incoming.close_ready();
        if self.all_said_goodbye() {
            closed.extend(self.incoming.close_all());
        }
        self.steps.wait(closed);
        Ok(())
    }

    /// Adds probes to a rank's clock, and so to the clock of all ranks that share it.
    fn add_probes(&mut self, rank: Rank, probes: &[Probe]) {
        if probes.is_empty() {
            return;
        }
        let clock = self.clock_of(rank);
        self.clocks.add(clock, probes);
    }

    /// Returns the index of a rank's clock. A rank whose clock is unnamed or unknown gets a new one.
    fn clock_of(&mut self, rank: Rank) -> u32 {
        let state = self.ranks.get(rank.0 as usize);
        if let Some(clock) = state.and_then(|state| state.clock) {
            return clock;
        }
        let name = state.and_then(|state| state.hello.as_ref()).map_or("", |hello| hello.clock.as_str());
        let used: Vec<Option<u32>> = self.ranks.iter().map(|(_, rank)| rank.clock).collect();
        let clock = self.clocks.number(name, used.into_iter());
        self.ranks.speaking(rank.0 as usize).clock = Some(clock);
        clock
    }

    /// Returns the fit of each rank's clock to its probes.
    fn fits(&self) -> Vec<Option<ClockFit>> {
        let fit = |rank: Option<&RankState>| {
            let rank = rank?;
            let device_nanos = rank.devices.clock_bound_nanos();
            Some(ClockFit { device_nanos, ..self.clocks.fit(rank.clock?)? })
        };
        self.ranks.world().map(fit).collect()
    }

    /// Applies the changes that time alone causes: overdue steps close, and hangs are detected.
    pub fn tick(&mut self, now: ServerNanos) {
        if self.last_step_at.is_some_and(|at| now - at > OVERDUE_NANOS) {
            let overdue = self.incoming.close_overdue();
            self.steps.wait(overdue);
        }
        self.hang = if self.has_ended() || self.is_lost(now) { None } else { self.detect_hang(now) };
    }

    /// Returns the next step to analyze, or `None` while a step is being analyzed or if no step waits.
    pub fn next_work(&mut self) -> Option<Work> {
        if !self.steps.is_ready() {
            return None;
        }
        let placing = (self.fits(), self.is_unmodified_job());
        self.steps.next(|| placing)
    }

    /// Stores an analyzed step.
    pub fn finish(&mut self, done: Done, now: ServerNanos) -> Arc<StepAnalysis> {
        let analysis = done.analysis.clone();
        self.steps.finish(done);
        if analysis.complete {
            self.completed_steps += 1;
            self.last_step_at = Some(now);
            self.hang = None;
        }
        analysis
    }

    /// Returns true if every closed step is analyzed, so that a report covers all closed steps.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.steps.is_settled()
    }

    /// Returns true if a step waits for analysis and none is being analyzed.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.steps.is_ready()
    }

    /// Returns the approximate size of the run, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.rank_bytes + self.clocks.bytes() + self.incoming.bytes() + self.steps.bytes()
    }

    /// Drops the older half of the run's steps from memory.
    pub fn halve(&mut self) {
        self.steps.halve();
    }

    /// Returns the run's id.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns the time when the first batch arrived.
    #[must_use]
    pub fn first_seen(&self) -> ServerNanos {
        self.first_seen
    }

    /// Returns the name that the ranks gave the run, or the run id before the first hello message.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hello().map_or(self.id.as_str(), |hello| hello.name.as_str())
    }

    /// Returns the world size.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.ranks.world_size() as u32
    }

    fn hello(&self) -> Option<&Hello> {
        self.ranks.iter().find_map(|(_, rank)| rank.hello.as_ref())
    }

    /// Returns the newest `most` analyzed steps, oldest first.
    #[must_use]
    pub fn newest_steps(&self, most: usize) -> Vec<Arc<StepAnalysis>> {
        let analysed = self.steps.analysed();
        analysed.iter().skip(analysed.len().saturating_sub(most)).cloned().collect()
    }

    /// Returns the analyzed steps in memory from `first` to `last`, oldest first.
    #[must_use]
    pub fn steps_between(&self, first: Step, last: Step) -> Vec<Arc<StepAnalysis>> {
        let analysed = self.steps.analysed();
        let from = analysed.partition_point(|step| step.step < first);
        let past = analysed.partition_point(|step| step.step <= last);
        analysed.range(from..past.max(from)).cloned().collect()
    }

    /// Sets the largest size of the records of closed steps in memory, in bytes, in place of
    /// [`budget::KEPT_BYTES`].
    #[must_use]
    pub fn keeping(mut self, bytes: usize) -> Self {
        self.steps.keep(bytes);
        self
    }

    /// Returns the analysis of a step, or `None` if it is not in memory.
    #[must_use]
    pub fn analysed(&self, step: Step) -> Option<&Arc<StepAnalysis>> {
        self.steps.find_analysed(step)
    }

    /// Returns the newest complete step that is not a shadow step.
    #[must_use]
    pub fn newest_whole(&self) -> Option<Step> {
        let mut analysed = self.steps.analysed().iter().rev();
        analysed.find(|step| step.complete && !step.shadow).map(|step| step.step)
    }

    /// Returns the first and the last analyzed step in memory.
    #[must_use]
    pub fn analysed_range(&self) -> Option<(Step, Step)> {
        let analysed = self.steps.analysed();
        Some((analysed.front()?.step, analysed.back()?.step))
    }

    /// Stores a step that was read back from disk, and returns it.
    pub fn recall(&mut self, closed: Closed) -> Placed {
        let records = self.steps.recall(closed);
        self.place(records)
    }

    /// Marks the records of these steps as unreadable on disk. Verdicts no longer offer one of the steps as an example,
    /// unless its records are in memory.
    pub fn hide(&mut self, steps: StepRange) {
        self.steps.hide(steps);
    }

    /// Returns true if the records of a step are in memory.
    #[must_use]
    pub fn has_records(&self, step: Step) -> bool {
        self.steps.find(Some(step)).is_some()
    }

    /// Returns one step on the ranks' clocks, or the newest complete one if `step` is `None`. Returns `None` if its
    /// records are not in memory.
    #[must_use]
    pub fn placed(&self, step: Option<Step>) -> Option<Placed> {
        Some(self.place(self.steps.find(step)?.clone()))
    }

    /// Returns the first `most` steps from `first` to `last`, for exports. If older steps of the range are in `folder`,
    /// returns only those.
    #[must_use]
    pub fn between(&self, first: Step, last: Step, most: usize, folder: Option<RunFolder>) -> Between {
        let is_older = |step: Step| self.steps.kept_from().is_none_or(|from| step < from);
        if let Some(folder) = folder.filter(|_| is_older(first)) {
            let before = self.steps.kept_from().map_or(last, |from| Step(from.0.saturating_sub(1)));
            let steps = StepRange { first, last: last.min(before) };
            let analysed = self.steps_between(steps.first, steps.last).into_iter();
            let incomplete = analysed.filter(|step| !step.complete).collect();
            let (fits, is_unmodified_job) = (self.fits(), self.is_unmodified_job());
            let older = Older { folder, steps, fits, is_unmodified_job, incomplete };
            return Between { placed: Vec::new(), older: Some(older) };
        }
        let kept = self.steps.kept_between(first, last).take(most);
        Between { placed: kept.map(|records| self.place(records.clone())).collect(), older: None }
    }

    fn place(&self, records: Arc<analysis::step::StepRecords>) -> Placed {
        Placed { records, fits: self.fits(), is_unmodified_job: self.is_unmodified_job() }
    }

    /// Returns the waterfall of one step, or of the newest complete one if `step` is `None`. Returns `None` if its
    /// records are not in memory.
    #[must_use]
    pub fn waterfall(&self, step: Option<Step>) -> Option<Waterfall> {
        Some(self.placed(step)?.waterfall())
    }

    /// Returns the ranks without an end-of-run message, and whether each was heard from recently.
    pub fn reporting(&self, now: ServerNanos) -> impl Iterator<Item = (usize, bool)> {
        let is_here = |rank: Option<&RankState>| rank.is_none_or(|rank| rank.bye.is_none());
        let here = self.ranks.world().enumerate().filter(move |(_, rank)| is_here(*rank));
        here.map(move |(rank, state)| {
            let last_seen = state.and_then(|state| state.last_seen);
            (rank, last_seen.is_some_and(|seen| now - seen < REPORTING_NANOS))
        })
    }

    /// Returns the devices of each rank that has sent a batch, by rank.
    pub fn devices(&self) -> impl Iterator<Item = (usize, &RankDevices)> {
        self.ranks.iter().map(|(rank, state)| (rank, &state.devices))
    }

    /// Asks ranks (`None`: all) for a burst, in the answer to their next batch. Returns false if there is no such rank.
    pub fn ask_for_burst(&mut self, rank: Option<Rank>, request: BurstRequest) -> bool {
        let wanted = |at: usize| rank.is_none_or(|rank| rank.0 as usize == at);
        let ranks = self.ranks.iter_mut().filter(|(at, _)| wanted(*at));
        ranks.map(|(_, state)| state.devices.ask(request)).count() > 0
    }

    /// Asks for the device evidence that a verdict needs, once per culprit.
    pub fn want_evidence(&mut self, report: &Report, now: ServerNanos) {
        let has_device = |rank: Option<&RankState>| rank.is_some_and(|rank| rank.devices.newest().is_some());
        let known: Vec<bool> = self.ranks.world().map(has_device).collect();
        let Some((suspect, peer)) = devices::to_compare(report, &known) else { return };
        if self.evidence_asked.insert(suspect) {
            let request = devices::request_of_evidence(now);
            self.ask_for_burst(Some(Rank(suspect)), request);
            self.ask_for_burst(Some(Rank(peer)), request);
        }
    }

    /// Returns the burst that a rank is asked for.
    #[must_use]
    pub fn burst_asked(&self, rank: Rank, now: ServerNanos) -> Option<BurstRequest> {
        self.ranks.get(rank.0 as usize)?.devices.asked(now)
    }

    /// Returns the error bound of each rank's clock, in nanoseconds.
    pub fn clock_bounds(&self) -> impl Iterator<Item = (usize, u64)> {
        self.fits().into_iter().enumerate().filter_map(|(rank, fit)| Some((rank, fit?.bound())))
    }

    /// Returns the records that each rank dropped, over all its incarnations, by reason.
    #[must_use]
    pub fn drop_counts(&self) -> Vec<(usize, DropReason, u64)> {
        let by_reason = |state: &RankState, reason| {
            state.lives.drops().iter().filter(|drop| drop.reason == reason).map(|drop| drop.count).sum()
        };
        let counts = self
            .ranks
            .iter()
            .flat_map(|(rank, state)| DropReason::ALL.map(|reason| (rank, reason, by_reason(state, reason))));
        counts.filter(|&(_, _, count)| count > 0).collect()
    }

    /// Returns the number of records that arrived after their step had closed, or that were too many for one step.
    #[must_use]
    pub fn late_records(&self) -> u64 {
        self.incoming.late_records + self.incoming.excess_records
    }

    /// Returns the number of steps that were not analyzed: too few ranks had sent them, or they arrived faster than
    /// this machine analyzes them.
    #[must_use]
    pub fn unanalysed_steps(&self) -> u64 {
        self.incoming.sparse_steps + self.steps.given_up()
    }
}

/// Returns the size that a note adds to its rank's state, in bytes.
fn note_bytes(note: &Note) -> usize {
    match note {
        Note::Hello(hello) => hello_bytes(hello),
        Note::Bye(bye) => bye.reason.len(),
        Note::Device(_) => devices::SAMPLE_BYTES,
        Note::Burst(burst) => devices::burst_bytes(burst),
        // The sample's figures replace older ones.
        Note::Host(sample) => sample.cores.len(),
        Note::Layout(_) => 0,
    }
}
