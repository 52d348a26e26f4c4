//! One run: its ranks, its clocks, its steps.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use analysis::clocks::ClockFit;
use analysis::hosts::{HostHistory, RankHost};
use analysis::step::StepAnalysis;
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

/// The live report covers this many of the newest steps.
pub const RECENT_STEPS: usize = 512;
/// A rank that was not heard from for so long does not report; agents send a heartbeat every two seconds.
const REPORTING_NANOS: i64 = 10_000_000_000;
/// A run nobody hears from for so long, without a goodbye, has failed.
const LOST_NANOS: i64 = 60_000_000_000;
/// Steps with a missing rank close after this long without a word from it.
const OVERDUE_NANOS: i64 = 10_000_000_000;
/// No run hangs before so long without a step: [`hang::detect`] asks for at least this.
const HANG_NANOS: i64 = 10_000_000_000;

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
    /// Shared with reports, which are made elsewhere.
    host: Arc<HostHistory>,
}

impl RankState {
    /// About how many bytes it takes.
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
    let texts = [&hello.name, &hello.host, &hello.clock, &hello.sample_unit, &hello.origin];
    texts.into_iter().map(String::len).sum()
}

/// Names go into lines and tables of reports.
fn with_printable_names(mut hello: Hello) -> Hello {
    for text in [&mut hello.name, &mut hello.host, &mut hello.sample_unit] {
        if let Cow::Owned(changed) = one_line(text) {
            *text = changed;
        }
    }
    hello
}

/// One run.
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
    /// Suspects whose devices were asked what they do.
    evidence_asked: BTreeSet<u32>,
    /// What the disk lost, for [`Report::missing`].
    storage_gaps: BTreeMap<&'static str, String>,
    refused: Refused,
}

/// Batches that were refused since the server began.
#[derive(Clone, Default)]
struct Refused {
    count: u64,
    last: String,
}

impl Run {
    /// A run as its first batch describes it. `world_size` is what a decoded batch says.
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

    /// What a run of any size refuses.
    ///
    /// # Errors
    /// [`ApplyError::StepNumber`] when a step has an absurd number.
    pub fn check_alone(batch: &Batch) -> Result<(), ApplyError> {
        let steps = batch.events.iter().map(Event::step);
        match steps.max().filter(|step| step.0 > budget::MOST_STEP) {
            Some(step) => Err(ApplyError::StepNumber { run: batch.run.clone(), rank: batch.rank, step }),
            None => Ok(()),
        }
    }

    /// Says whether `batch` may come in now. The server takes batches since `since`. A refusal is counted.
    ///
    /// # Errors
    /// See [`ApplyError`]. Replay does not ask: what was stored was let in when it came.
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

    /// Takes a batch in and analyses the steps that it closed; returns them, newest last.
    ///
    /// # Errors
    /// [`ApplyError::WorldSize`] when it contradicts the run, [`ApplyError::Duplicate`] and [`ApplyError::TooOld`] when
    /// it is not new.
    pub fn apply(&mut self, batch: Batch, now: ServerNanos) -> Result<Vec<Arc<StepAnalysis>>, ApplyError> {
        self.take_in(batch, now)?;
        let mut analysed = Vec::new();
        while let Some(work) = self.next_work() {
            analysed.push(self.finish(work.analyse(), now));
        }
        Ok(analysed)
    }

    /// Takes a batch in. Steps that it closed wait to be analysed ([`Self::next_work`]).
    ///
    /// # Errors
    /// [`ApplyError::WorldSize`] when it contradicts the run, [`ApplyError::Duplicate`] and [`ApplyError::TooOld`] when
    /// it is not new.
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
            // Another process: it has a new clock and launches its collectives from the start.
            let (lives, incarnation) = (std::mem::take(&mut rank.lives), Some(batch.incarnation));
            *rank = RankState { lives, incarnation, ..RankState::default() };
        }
        rank.last_seen = Some(now);
        for note in batch.notes {
            match note {
                Note::Hello(hello) => rank.hello = Some(with_printable_names(hello)),
                // It is on disk for whoever reads segments; no figure needs it.
                Note::Layout(_) => {}
                // The rank's own word comes before its launcher's.
                Note::Bye(bye) if rank.bye.is_none() => {
                    rank.bye = Some(bye.completed);
                    rank.bye_reason = one_line(&bye.reason).into_owned();
                    rank.bye_by_launcher = by_launcher;
                }
                Note::Bye(_) => {}
                Note::Device(sample) => rank.devices.add_look(sample, now),
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

    /// Probes of a rank bear on its clock, and so on all ranks that share it.
    fn add_probes(&mut self, rank: Rank, probes: &[Probe]) {
        if probes.is_empty() {
            return;
        }
        let clock = self.clock_of(rank);
        self.clocks.add(clock, probes);
    }

    /// The number of a rank's clock; a new one for a rank whose clock has no name or an unknown one.
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

    /// Each rank's clock as fitted from probes.
    fn fits(&self) -> Vec<Option<ClockFit>> {
        let fit = |rank: Option<&RankState>| {
            let rank = rank?;
            let device_nanos = rank.devices.clock_bound_nanos();
            Some(ClockFit { device_nanos, ..self.clocks.fit(rank.clock?)? })
        };
        self.ranks.world().map(fit).collect()
    }

    /// What time alone changes: overdue steps close, hangs are seen.
    pub fn tick(&mut self, now: ServerNanos) {
        if self.last_step_at.is_some_and(|at| now - at > OVERDUE_NANOS) {
            let overdue = self.incoming.close_overdue();
            self.steps.wait(overdue);
        }
        self.hang = if self.has_ended() || self.is_lost(now) { None } else { self.detect_hang(now) };
    }

    /// The next step to analyse; `None` while one is under way or none waits.
    pub fn next_work(&mut self) -> Option<Work> {
        if !self.steps.is_ready() {
            return None;
        }
        let placing = (self.fits(), self.is_foreign());
        self.steps.next(|| placing)
    }

    /// Takes a step in that was analysed.
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

    /// True when every closed step is analysed: what a report says then is all there is.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.steps.is_settled()
    }

    /// True when a step waits to be analysed and none is under way.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.steps.is_ready()
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.rank_bytes + self.clocks.bytes() + self.incoming.bytes() + self.steps.bytes()
    }

    /// Gives up the older half of its steps in memory.
    pub fn halve(&mut self) {
        self.steps.halve();
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
        self.ranks.world_size() as u32
    }

    fn hello(&self) -> Option<&Hello> {
        self.ranks.iter().find_map(|(_, rank)| rank.hello.as_ref())
    }

    /// The newest `most` analysed steps, oldest first.
    #[must_use]
    pub fn newest_steps(&self, most: usize) -> Vec<Arc<StepAnalysis>> {
        let analysed = self.steps.analysed();
        analysed.iter().skip(analysed.len().saturating_sub(most)).cloned().collect()
    }

    /// Kept steps from `first` to `last`, oldest first.
    #[must_use]
    pub fn steps_between(&self, first: Step, last: Step) -> Vec<Arc<StepAnalysis>> {
        let analysed = self.steps.analysed();
        let from = analysed.partition_point(|step| step.step < first);
        let past = analysed.partition_point(|step| step.step <= last);
        analysed.range(from..past.max(from)).cloned().collect()
    }

    /// The same run, which keeps `bytes` of records of closed steps in memory instead of [`budget::KEPT_BYTES`].
    #[must_use]
    pub fn keeping(mut self, bytes: usize) -> Self {
        self.steps.keep(bytes);
        self
    }

    /// A step as it was analysed; `None` when that is not in memory.
    #[must_use]
    pub fn analysed(&self, step: Step) -> Option<&Arc<StepAnalysis>> {
        self.steps.find_analysed(step)
    }

    /// The newest step of all ranks that was observed.
    #[must_use]
    pub fn newest_whole(&self) -> Option<Step> {
        let mut analysed = self.steps.analysed().iter().rev();
        analysed.find(|step| step.complete && !step.shadow).map(|step| step.step)
    }

    /// The first and the last analysed step that is in memory.
    #[must_use]
    pub fn analysed_range(&self) -> Option<(Step, Step)> {
        let analysed = self.steps.analysed();
        Some((analysed.front()?.step, analysed.back()?.step))
    }

    /// Takes in a step that was read back from disk.
    pub fn recall(&mut self, closed: Closed) -> Placed {
        let records = self.steps.recall(closed);
        self.place(records)
    }

    /// Notes that the records of these steps cannot be read from disk: no verdict offers one of them as an example, but
    /// for those that are in memory.
    pub fn hide(&mut self, steps: StepRange) {
        self.steps.hide(steps);
    }

    /// True when the records of a step are in memory.
    #[must_use]
    pub fn has_records(&self, step: Step) -> bool {
        self.steps.find(Some(step)).is_some()
    }

    /// One step on the ranks' clocks, or the newest complete one; `None` when its records are not in memory.
    #[must_use]
    pub fn placed(&self, step: Option<Step>) -> Option<Placed> {
        Some(self.place(self.steps.find(step)?.clone()))
    }

    /// The first `most` steps from `first` to `last`, for exports; or all that have left memory and are in `folder`.
    #[must_use]
    pub fn between(&self, first: Step, last: Step, most: usize, folder: Option<RunFolder>) -> Between {
        let is_older = |step: Step| self.steps.kept_from().is_none_or(|from| step < from);
        if let Some(folder) = folder.filter(|_| is_older(first)) {
            let before = self.steps.kept_from().map_or(last, |from| Step(from.0.saturating_sub(1)));
            let steps = StepRange { first, last: last.min(before) };
            let analysed = self.steps_between(steps.first, steps.last).into_iter();
            let incomplete = analysed.filter(|step| !step.complete).collect();
            let (fits, is_foreign) = (self.fits(), self.is_foreign());
            let older = Older { folder, steps, fits, is_foreign, incomplete };
            return Between { placed: Vec::new(), older: Some(older) };
        }
        let kept = self.steps.kept_between(first, last).take(most);
        Between { placed: kept.map(|records| self.place(records.clone())).collect(), older: None }
    }

    fn place(&self, records: Arc<analysis::step::StepRecords>) -> Placed {
        Placed { records, fits: self.fits(), is_foreign: self.is_foreign() }
    }

    /// The waterfall of one step, or of the newest complete one; `None` when its records are not in memory.
    #[must_use]
    pub fn waterfall(&self, step: Option<Step>) -> Option<Waterfall> {
        Some(self.placed(step)?.waterfall())
    }

    /// Ranks that have not said goodbye, and whether each was heard from lately.
    pub fn reporting(&self, now: ServerNanos) -> impl Iterator<Item = (usize, bool)> {
        let is_here = |rank: Option<&RankState>| rank.is_none_or(|rank| rank.bye.is_none());
        let here = self.ranks.world().enumerate().filter(move |(_, rank)| is_here(*rank));
        here.map(move |(rank, state)| {
            let last_seen = state.and_then(|state| state.last_seen);
            (rank, last_seen.is_some_and(|seen| now - seen < REPORTING_NANOS))
        })
    }

    /// What is known of the devices of each rank that has spoken, by rank.
    pub fn devices(&self) -> impl Iterator<Item = (usize, &RankDevices)> {
        self.ranks.iter().map(|(rank, state)| (rank, &state.devices))
    }

    /// Asks ranks (`None`: all) for a burst, with their next batch. False when there is no such rank.
    pub fn ask_for_burst(&mut self, rank: Option<Rank>, request: BurstRequest) -> bool {
        let wanted = |at: usize| rank.is_none_or(|rank| rank.0 as usize == at);
        let ranks = self.ranks.iter_mut().filter(|(at, _)| wanted(*at));
        ranks.map(|(_, state)| state.devices.ask(request)).count() > 0
    }

    /// Asks for what a verdict wants to know of devices; once for each suspect.
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
        let counts = self
            .ranks
            .iter()
            .flat_map(|(rank, state)| DropReason::ALL.map(|reason| (rank, reason, by_reason(state, reason))));
        counts.filter(|&(_, _, count)| count > 0).collect()
    }

    /// Records that came after their step had closed, or that were too many for one step.
    #[must_use]
    pub fn late_records(&self) -> u64 {
        self.incoming.late_records + self.incoming.excess_records
    }

    /// Steps that were not analysed: too few ranks had sent them, or they came faster than this machine analyses them.
    #[must_use]
    pub fn unanalysed_steps(&self) -> u64 {
        self.incoming.sparse_steps + self.steps.given_up()
    }
}

/// What a note adds to its rank's state.
fn note_bytes(note: &Note) -> usize {
    match note {
        Note::Hello(hello) => hello_bytes(hello),
        Note::Bye(bye) => bye.reason.len(),
        Note::Device(_) => devices::LOOK_BYTES,
        Note::Burst(burst) => devices::burst_bytes(burst),
        // Its figures take the place of older ones.
        Note::Host(sample) => sample.cores.len(),
        Note::Layout(_) => 0,
    }
}
