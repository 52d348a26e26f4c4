//! One run: its ranks, its clocks, its steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use analysis::clocks::{self, AlignedCollective, ClockFit};
use analysis::failure::{self, Ended, RankEnd};
use analysis::hang::{self, Progress};
use analysis::report::{self, RunFacts};
use analysis::step::{StepAnalysis, StepRecords};
use analysis::{stats, waterfall};
use wire::batch::{BY_REDUCER, Batch, DropReason, Hello, Layout, Note, is_foreign};
use wire::burst::BurstRequest;
use wire::clock::{Probe, ServerNanos};
use wire::device::DeviceFigure;
use wire::event::{BucketRecord, Event, Function, Source};
use wire::ids::{Incarnation, Rank, RunId, Seq, Step};
use wire::live::Waterfall;
use wire::views::{Failure, Hang, RankDrops, Report, RunState, RunSummary};

use super::devices::{self, RankDevices};
use super::incoming::{Closed, Incoming, Kept};
use super::lives::{self, Denied, Lives};
use crate::settings;

/// Probes kept per clock: with eight ranks on it, each asking twice a second, four minutes.
const MOST_PROBES: usize = 4_096;
/// Analysed steps kept per run: 1.1 KB each with four ranks, 250 KB each with 1,024.
const MOST_ANALYSED: usize = 20_000;
/// And the cells (ranks x steps) they may have: 4 M x 240 bytes is 1 GB at the very most.
const MOST_CELLS: usize = 4_000_000;
/// The live report covers this many of the newest steps.
pub const RECENT_STEPS: usize = 512;
/// A rank that was not heard from for so long does not report; agents send a heartbeat every two seconds.
const REPORTING_NANOS: i64 = 10_000_000_000;
/// A run nobody hears from for so long, without a goodbye, has failed.
const LOST_NANOS: i64 = 60_000_000_000;
/// Collectives of the newest step that tighten the clocks.
const TIGHTEN_WITH: usize = 16;
/// Steps with a missing rank close after this long without a word from it.
const OVERDUE_NANOS: i64 = 10_000_000_000;

/// What is known of one rank.
#[derive(Default)]
struct RankState {
    hello: Option<Hello>,
    /// The life that all this is of.
    incarnation: Option<Incarnation>,
    lives: Lives,
    last_seen: Option<ServerNanos>,
    /// Which of the run's clocks it stamps with.
    clock: Option<u32>,
    launched: Option<Seq>,
    bye: Option<bool>,
    bye_reason: String,
    /// The goodbye is its launcher's: it ended without a word.
    bye_by_launcher: bool,
    last_step: Option<Step>,
    devices: RankDevices,
}

/// A clock that one or more ranks stamp with: those of one host share it, and their probes.
#[derive(Default)]
struct Clock {
    name: String,
    probes: VecDeque<Probe>,
    fit: Option<ClockFit>,
}

/// Why a batch was not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// It came before: acknowledged again, applied once.
    #[error("duplicate")]
    Duplicate,
    /// The server has as many runs as it takes.
    #[error("this server holds {0} runs, the most it takes: remove old ones from its data directory")]
    TooManyRuns(usize),
    /// Another process has the rank, or may have ended a moment ago: the same batch may come in later.
    #[error(
        "rank {rank} of run {run} is taken by a process that was heard from {heard_ago_millis} ms ago; \
         if that process has ended, rank {rank} is free in some seconds"
    )]
    Wait {
        /// The run.
        run: RunId,
        /// The rank that both claim.
        rank: Rank,
        /// How long ago the other was heard from, in milliseconds.
        heard_ago_millis: i64,
    },
    /// Another process has the rank and goes on.
    #[error(
        "two processes say that they are rank {rank} of run {run}: the first of them was heard from \
         {heard_ago_millis} ms ago and goes on, so this one is refused. Give each process a rank of its own (RANK), and \
         each job a run id of its own (PACELINE_RUN_ID)"
    )]
    Taken {
        /// The run.
        run: RunId,
        /// The rank that both claim.
        rank: Rank,
        /// How long ago the other was heard from, in milliseconds.
        heard_ago_millis: i64,
    },
    /// The rank was restarted too often.
    #[error(
        "rank {rank} of run {run} was restarted too often for one run: start the job with another PACELINE_RUN_ID"
    )]
    TooManyLives {
        /// The run.
        run: RunId,
        /// The rank.
        rank: Rank,
    },
    /// Nobody knows whether it came before.
    #[error(
        "this batch of rank {rank} of run {run} comes so late that the server cannot tell whether it came before"
    )]
    TooOld {
        /// The run.
        run: RunId,
        /// The rank.
        rank: Rank,
    },
    /// The run was set aside when the server started.
    #[error(
        "run {run} cannot be read from disk, so nothing is added to it: {reason}. Mend or move its directory and start the \
         server again, or give the job another PACELINE_RUN_ID"
    )]
    Aside {
        /// The run.
        run: RunId,
        /// Why it cannot be read.
        reason: String,
    },
    /// Its world size is not the run's.
    #[error(
        "rank {rank} says that run {run} has {said} ranks, the first batch of the run said {known}: \
         give every job a run id of its own"
    )]
    WorldSize {
        /// The run.
        run: RunId,
        /// Who speaks.
        rank: Rank,
        /// What it says.
        said: u32,
        /// What the run has.
        known: u32,
    },
}

impl ApplyError {
    /// True when the batch is not stored and never will be.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Duplicate | Self::Wait { .. })
    }
}

/// One run.
pub struct Run {
    id: RunId,
    ranks: Vec<RankState>,
    clocks: Vec<Clock>,
    first_seen: ServerNanos,
    last_seen: ServerNanos,
    incoming: Incoming,
    kept: Kept,
    analysed: VecDeque<Arc<StepAnalysis>>,
    completed_steps: u64,
    last_step_at: Option<ServerNanos>,
    layouts: BTreeMap<u32, Layout>,
    hang: Option<Hang>,
    /// Suspects whose devices were asked what they do.
    evidence_asked: BTreeSet<u32>,
    /// What the disk lost, for [`Report::missing`].
    storage_gaps: BTreeMap<&'static str, String>,
    refused: Refused,
}

/// Batches that were refused since the server began.
#[derive(Default)]
struct Refused {
    count: u64,
    last: String,
}

impl Run {
    /// A run as its first batch describes it. `world_size` is what a decoded batch says.
    #[must_use]
    pub fn new(id: RunId, world_size: u32, now: ServerNanos) -> Self {
        let ranks = (0..world_size).map(|_| RankState::default()).collect::<Vec<_>>();
        Self {
            id,
            incoming: Incoming::new(ranks.len()),
            ranks,
            clocks: Vec::new(),
            first_seen: now,
            last_seen: now,
            kept: Kept::default(),
            analysed: VecDeque::new(),
            completed_steps: 0,
            last_step_at: None,
            layouts: BTreeMap::new(),
            hang: None,
            evidence_asked: BTreeSet::new(),
            storage_gaps: BTreeMap::new(),
            refused: Refused::default(),
        }
    }

    /// Says whether `batch` may come in now. The server takes batches since `since`. A refusal is counted.
    ///
    /// # Errors
    /// See [`ApplyError`]. Replay does not ask: what was stored was let in when it came.
    pub fn admit(&mut self, batch: &Batch, now: ServerNanos, since: ServerNanos) -> Result<(), ApplyError> {
        let admitted = self.agrees(batch).and_then(|()| {
            let lives = &mut self.ranks[batch.rank.0 as usize].lives;
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
        if batch.world_size as usize == self.ranks.len() {
            return Ok(());
        }
        Err(ApplyError::WorldSize {
            run: self.id.clone(),
            rank: batch.rank,
            said: batch.world_size,
            known: self.ranks.len() as u32,
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

    /// Takes a batch in; returns the steps it closed, newest last.
    ///
    /// # Errors
    /// [`ApplyError::WorldSize`] when it contradicts the run, [`ApplyError::Duplicate`] and [`ApplyError::TooOld`] when
    /// it is not new.
    pub fn apply(&mut self, batch: Batch, now: ServerNanos) -> Result<Vec<Arc<StepAnalysis>>, ApplyError> {
        self.agrees(&batch)?;
        let rank = &mut self.ranks[batch.rank.0 as usize];
        if let Err(denied) = rank.lives.is_new(&batch) {
            return Err(self.explain(batch.rank, denied));
        }
        self.last_seen = self.last_seen.max(now);
        rank.lives.store(&batch, now);
        let is_another = rank.incarnation != Some(batch.incarnation);
        let by_launcher = is_another && lives::is_goodbye_by_another(&batch);
        if is_another && !by_launcher {
            // Another process: it has a new clock and launches its collectives from the start.
            let (lives, incarnation) = (std::mem::take(&mut rank.lives), Some(batch.incarnation));
            *rank = RankState { lives, incarnation, ..RankState::default() };
        }
        rank.last_seen = Some(now);
        for note in batch.notes {
            match note {
                Note::Hello(hello) => rank.hello = Some(hello),
                Note::Layout(layout) => drop(self.layouts.insert(layout.generation, layout)),
                // The rank's own word comes before its launcher's.
                Note::Bye(bye) if rank.bye.is_none() => {
                    rank.bye = Some(bye.completed);
                    rank.bye_reason = bye.reason;
                    rank.bye_by_launcher = by_launcher;
                }
                Note::Bye(_) => {}
                Note::Device(sample) => rank.devices.add_look(sample, now),
                Note::Burst(burst) => rank.devices.add_burst(burst, now),
            }
        }
        self.add_probes(batch.rank, &batch.probes);
        let rank = &mut self.ranks[batch.rank.0 as usize];
        for event in &batch.events {
            match event {
                Event::Started(started) => rank.launched = rank.launched.max(Some(started.seq)),
                Event::Bucket(bucket) => rank.launched = rank.launched.max(Some(bucket.seq)),
                Event::Step(step) => rank.last_step = rank.last_step.max(Some(step.step)),
                Event::Span(_) => {}
            }
            self.incoming.add(batch.rank, event);
        }
        let mut closed = self.incoming.close_ready();
        if self.has_ended() {
            closed.extend(self.incoming.close_all());
        }
        Ok(self.take_closed(closed, now))
    }

    /// Probes of a rank bear on its clock, and so on all ranks that share it.
    fn add_probes(&mut self, rank: Rank, probes: &[Probe]) {
        let Some(first) = probes.first() else { return };
        let clock = self.clock_of(rank);
        let known = &mut self.clocks[clock as usize];
        // Ranks of one clock send in any order; the fit wants the newest last, roughly.
        let at = known.probes.partition_point(|probe| probe.sent <= first.sent);
        let newer = known.probes.split_off(at);
        known.probes.extend(probes.iter().copied().chain(newer));
        let excess = known.probes.len().saturating_sub(MOST_PROBES);
        known.probes.drain(..excess);
        known.fit = clocks::fit(clock, known.probes.make_contiguous());
    }

    /// The number of a rank's clock; a new one for a rank whose clock has no name or an unknown one.
    fn clock_of(&mut self, rank: Rank) -> u32 {
        let state = &self.ranks[rank.0 as usize];
        if let Some(clock) = state.clock {
            return clock;
        }
        let name = state.hello.as_ref().map_or("", |hello| hello.clock.as_str()).to_owned();
        let known = self.clocks.iter().position(|clock| !name.is_empty() && clock.name == name);
        let clock = known.unwrap_or_else(|| {
            self.clocks.push(Clock { name, ..Clock::default() });
            self.clocks.len() - 1
        }) as u32;
        self.ranks[rank.0 as usize].clock = Some(clock);
        clock
    }

    /// Each rank's clock as fitted from probes.
    fn fits(&self) -> Vec<Option<ClockFit>> {
        let fit = |rank: &RankState| {
            let device_nanos = rank.devices.clock_bound_nanos();
            Some(ClockFit { device_nanos, ..self.clocks[rank.clock? as usize].fit? })
        };
        self.ranks.iter().map(fit).collect()
    }

    /// What time alone changes: overdue steps close, hangs are seen. Returns the steps that closed.
    pub fn tick(&mut self, now: ServerNanos) -> Vec<Arc<StepAnalysis>> {
        let overdue = self.last_step_at.is_some_and(|at| now - at > OVERDUE_NANOS);
        let closed = if overdue { self.incoming.close_overdue() } else { Vec::new() };
        let closed = self.take_closed(closed, now);
        self.hang = if self.has_ended() || self.is_lost(now) { None } else { self.detect_hang(now) };
        closed
    }

    fn take_closed(&mut self, closed: Vec<Closed>, now: ServerNanos) -> Vec<Arc<StepAnalysis>> {
        closed.into_iter().map(|closed| self.take_step(closed, now)).collect()
    }

    fn take_step(&mut self, closed: Closed, now: ServerNanos) -> Arc<StepAnalysis> {
        let fits = self.tightened(&closed.records);
        let analysis = Arc::new(analysis::step::analyse(&closed.records, &fits));
        if analysis.complete {
            self.completed_steps += 1;
            self.last_step_at = Some(now);
            self.hang = None;
        }
        self.kept.push(closed);
        self.analysed.push_back(analysis.clone());
        let most = MOST_ANALYSED.min(MOST_CELLS / self.ranks.len()).max(RECENT_STEPS / 4);
        let excess = self.analysed.len().saturating_sub(most);
        self.analysed.drain(..excess);
        analysis
    }

    /// The ranks' clocks, tightened by the step's own collectives.
    fn tightened(&self, records: &StepRecords) -> Vec<Option<ClockFit>> {
        let mut fits = self.fits();
        let mut joined: BTreeMap<_, AlignedCollective> = BTreeMap::new();
        let foreign = self.is_foreign();
        // Where only enqueueing is known, and where no rank waits for all others, it proves nothing.
        let proves = |bucket: &&BucketRecord| {
            bucket.source != Source::Derived && (!foreign || Function::of(bucket.seq).waits_for_all())
        };
        for (rank, step) in records.ranks.iter().enumerate() {
            for bucket in step.iter().flat_map(|step| step.buckets.iter().filter(proves).take(TIGHTEN_WITH)) {
                if let Some(fit) = fits[rank] {
                    let times = (rank, fit.align(bucket.start), fit.align(bucket.end));
                    joined.entry((bucket.comm, bucket.seq)).or_default().push(times);
                }
            }
        }
        clocks::tighten(&mut fits, &joined.into_values().collect::<Vec<_>>());
        fits
    }

    fn has_ended(&self) -> bool {
        self.ranks.iter().all(|rank| rank.bye.is_some())
    }

    fn is_lost(&self, now: ServerNanos) -> bool {
        now - self.last_seen > LOST_NANOS
    }

    fn detect_hang(&self, now: ServerNanos) -> Option<Hang> {
        let since = now - self.last_step_at?;
        let progress = |rank: &RankState| Progress {
            launched: rank.launched,
            silent_seconds: rank
                .last_seen
                .map_or(0, |seen| (now - seen).max(0).unsigned_abs() / 1_000_000_000),
        };
        let ranks: Vec<Progress> = self.ranks.iter().map(progress).collect();
        let median = self.recent_median_nanos().map(|nanos| nanos / 1e9);
        hang::detect(since as f64 / 1e9, median, &ranks)
    }

    fn failure(&self, now: ServerNanos) -> Option<Failure> {
        if self.state(now) != RunState::Failed {
            return None;
        }
        let is_silent = |rank: &RankState| rank.last_seen.is_none_or(|seen| now - seen > REPORTING_NANOS);
        let end = |rank: &RankState| RankEnd {
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
        };
        failure::failure(&self.ranks.iter().map(end).collect::<Vec<_>>())
    }

    fn recent_median_nanos(&self) -> Option<f64> {
        let recent = self.analysed.iter().rev().take(RECENT_STEPS);
        stats::median(recent.filter(|step| report::is_observed(step)).map(|step| step.step_nanos() as f64))
    }

    /// Where the run is in its life.
    #[must_use]
    pub fn state(&self, now: ServerNanos) -> RunState {
        if self.ranks.iter().any(|rank| rank.bye == Some(false)) {
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

    /// A foreign job of which no steps are known, since nothing tells of any or they are not found yet, whose devices work.
    fn is_busy_without_steps(&self) -> bool {
        let is_busy = |rank: &RankState| {
            let look = rank.devices.newest();
            look.and_then(|look| look.get(DeviceFigure::UtilizationPercent))
                .is_some_and(|percent| percent > 0)
        };
        self.is_foreign() && self.ranks.iter().any(is_busy)
    }

    fn is_foreign(&self) -> bool {
        self.hello().is_some_and(|hello| is_foreign(&hello.origin))
    }

    /// True when nothing more is to be expected.
    #[must_use]
    pub fn is_over(&self, now: ServerNanos) -> bool {
        self.has_ended() || self.is_lost(now)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// When its first batch came.
    #[must_use]
    pub fn first_seen(&self) -> ServerNanos {
        self.first_seen
    }

    /// The name its ranks gave it; the run id until one has spoken.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hello().map_or(self.id.as_str(), |hello| hello.name.as_str())
    }

    /// How many ranks it has.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.ranks.len() as u32
    }

    fn hello(&self) -> Option<&Hello> {
        self.ranks.iter().find_map(|rank| rank.hello.as_ref())
    }

    fn facts(&self, now: ServerNanos) -> RunFacts {
        let drops = |(rank, state): (usize, &RankState)| RankDrops {
            rank: Rank(rank as u32),
            drops: state.lives.drops(),
        };
        RunFacts {
            run: self.id.clone(),
            name: self.name().to_owned(),
            state: self.state(now),
            ranks: self.world_size(),
            sample_unit: self.hello().map_or("samples", |hello| hello.sample_unit.as_str()).to_owned(),
            origin: self.hello().map_or(BY_REDUCER, |hello| hello.origin.as_str()).to_owned(),
            fits: self.fits(),
            drops: self.ranks.iter().enumerate().map(drops).filter(|rank| !rank.drops.is_empty()).collect(),
            hang: self.hang.clone(),
            failure: self.failure(now),
            looks: self.devices().map(RankDevices::looks).collect(),
            bursts: self.devices().map(|devices| devices.activity(now)).collect(),
            notable_share: settings::notable_share(),
        }
    }

    /// The report over the newest `most` kept steps.
    #[must_use]
    pub fn report(&self, most: usize, now: ServerNanos) -> Report {
        let skipped = self.analysed.len().saturating_sub(most);
        let steps: Vec<&StepAnalysis> = self.analysed.iter().skip(skipped).map(Arc::as_ref).collect();
        self.with_gaps(report::report(&self.facts(now), &steps))
    }

    /// Adds what the server knows to be missing from what it stored.
    fn with_gaps(&self, mut report: Report) -> Report {
        let gaps = self.storage_gaps.iter().map(|(&name, reason)| (name.to_owned(), reason.clone()));
        report.missing.extend(gaps);
        let Refused { count, last } = &self.refused;
        if *count > 0 {
            let refused =
                format!("{count} batches were refused since the server began, the last one because: {last}");
            report.missing.insert("refused_batches".into(), refused);
        }
        report
    }

    /// Says what of the run's files cannot be read or checked: entries for [`Report::missing`].
    pub fn set_storage_gaps(&mut self, gaps: BTreeMap<&'static str, String>) {
        self.storage_gaps = gaps;
    }

    /// Batches refused since the server began.
    #[must_use]
    pub fn refused_batches(&self) -> u64 {
        self.refused.count
    }

    /// The line of the list of runs; figures are of `report`, which must be this run's.
    #[must_use]
    pub fn summary(&self, report: &Report, now: ServerNanos) -> RunSummary {
        let over = self.is_over(now);
        let reports = |rank: &&RankState| {
            rank.last_seen.is_some_and(|seen| over || (rank.bye.is_none() && now - seen < REPORTING_NANOS))
        };
        let failure = report.failure.as_ref().map(|failure| failure.sentence.clone());
        let verdict = || report.verdicts.first().map(|verdict| verdict.sentence.clone());
        RunSummary {
            run: self.id.clone(),
            name: report.name.clone(),
            state: report.state,
            started_unix_millis: millis(self.first_seen),
            last_seen_unix_millis: millis(self.last_seen),
            ranks_expected: self.world_size(),
            ranks_reporting: self.ranks.iter().filter(reports).count() as u32,
            steps: self.completed_steps,
            last_step: self.analysed.back().map(|step| step.step.0),
            step_time_nanos: report.period_ns.map(|mean| mean as u64),
            throughput: report.throughput,
            batch: report.batch,
            sample_unit: report.sample_unit.clone(),
            overlap_ratio: report.overlap_ratio,
            efficiency_implied: report.scaling_efficiency.implied,
            verdict: failure.or_else(verdict),
            hang: self.hang.clone(),
        }
    }

    /// The newest `most` analysed steps, oldest first.
    #[must_use]
    pub fn newest_steps(&self, most: usize) -> Vec<Arc<StepAnalysis>> {
        self.analysed.iter().skip(self.analysed.len().saturating_sub(most)).cloned().collect()
    }

    /// Kept steps from `first` to `last`, oldest first.
    #[must_use]
    pub fn steps_between(&self, first: Step, last: Step) -> Vec<Arc<StepAnalysis>> {
        let from = self.analysed.partition_point(|step| step.step < first);
        let past = self.analysed.partition_point(|step| step.step <= last);
        self.analysed.range(from..past.max(from)).cloned().collect()
    }

    /// The report over the `most` kept steps up to `last`: what was known when that step was the newest.
    #[must_use]
    pub fn report_at(&self, last: Step, most: usize, now: ServerNanos) -> Report {
        let past = self.analysed.partition_point(|step| step.step <= last);
        let steps: Vec<&StepAnalysis> =
            self.analysed.range(past.saturating_sub(most)..past).map(Arc::as_ref).collect();
        let facts = RunFacts { hang: None, failure: None, ..self.facts(now) };
        self.with_gaps(report::report(&facts, &steps))
    }

    /// The waterfall of one step, or of the newest complete one; `None` when its records are not in memory.
    #[must_use]
    pub fn waterfall(&self, step: Option<Step>) -> Option<Waterfall> {
        let records = self.kept.find(step)?;
        Some(waterfall::waterfall(records, &self.tightened(records)))
    }

    /// The waterfalls of all kept steps from `first` to `last`, for exports.
    #[must_use]
    pub fn waterfalls(&self, first: Step, last: Step) -> Vec<Waterfall> {
        let wanted = self.kept.iter().filter(|records| first <= records.step && records.step <= last);
        wanted.map(|records| waterfall::waterfall(records, &self.tightened(records))).collect()
    }

    /// Ranks that have not said goodbye, and whether each was heard from lately.
    pub fn reporting(&self, now: ServerNanos) -> impl Iterator<Item = (usize, bool)> {
        let here = self.ranks.iter().enumerate().filter(|(_, rank)| rank.bye.is_none());
        here.map(move |(rank, state)| {
            (rank, state.last_seen.is_some_and(|seen| now - seen < REPORTING_NANOS))
        })
    }

    /// What is known of each rank's devices, by rank.
    pub fn devices(&self) -> impl Iterator<Item = &RankDevices> {
        self.ranks.iter().map(|rank| &rank.devices)
    }

    /// Asks ranks (`None`: all) for a burst, with their next batch. False when there is no such rank.
    pub fn ask_for_burst(&mut self, rank: Option<Rank>, request: BurstRequest) -> bool {
        let wanted = |at: usize| rank.is_none_or(|rank| rank.0 as usize == at);
        let ranks = self.ranks.iter_mut().enumerate().filter(|(at, _)| wanted(*at));
        ranks.map(|(_, state)| state.devices.ask(request)).count() > 0
    }

    /// Asks for what a verdict wants to know of devices; once for each suspect.
    pub fn want_evidence(&mut self, report: &Report, now: ServerNanos) {
        let known: Vec<bool> = self.devices().map(|devices| devices.newest().is_some()).collect();
        let Some((suspect, peer)) = devices::to_compare(report, &known) else { return };
        if self.evidence_asked.insert(suspect) {
            let request = devices::request_of_evidence(now);
            self.ask_for_burst(Some(Rank(suspect)), request);
            self.ask_for_burst(Some(Rank(peer)), request);
        }
    }

    /// The burst that a rank is asked for.
    #[must_use]
    pub fn burst_asked(&self, rank: Rank, now: ServerNanos) -> Option<BurstRequest> {
        self.ranks.get(rank.0 as usize)?.devices.asked(now)
    }

    /// Error bound of each rank's clock, in nanoseconds.
    pub fn clock_bounds(&self) -> impl Iterator<Item = (usize, u64)> {
        self.fits().into_iter().enumerate().filter_map(|(rank, fit)| Some((rank, fit?.bound())))
    }

    /// What each rank lost since its process began, by reason.
    #[must_use]
    pub fn drop_counts(&self) -> Vec<(usize, DropReason, u64)> {
        let by_reason = |state: &RankState, reason| {
            state.lives.drops().iter().filter(|drop| drop.reason == reason).map(|drop| drop.count).sum()
        };
        let counts =
            self.ranks.iter().enumerate().flat_map(|(rank, state)| {
                DropReason::ALL.map(|reason| (rank, reason, by_reason(state, reason)))
            });
        counts.filter(|&(_, _, count)| count > 0).collect()
    }

    /// Records that came for steps that had closed.
    #[must_use]
    pub fn late_records(&self) -> u64 {
        self.incoming.late_records
    }
}

fn millis(time: ServerNanos) -> u64 {
    time.0.max(0).unsigned_abs() / 1_000_000
}
