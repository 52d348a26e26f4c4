//! Goodput: what a run used its wall time for, on all ranks and over all attempts (`docs/metrics.md`, "Goodput").
//!
//! Each rank has a [`Lifeline`]: the attempts of its processes, and in each the time by use. Within an attempt all times
//! are differences on the clock of its process. The server's clock only says where attempts begin. So the uses of a rank
//! sum to the wall time of the run exactly.

mod attempt;

use std::collections::BTreeMap;

use wire::batch::total;
use wire::clock::{MonoNanos, ServerNanos};
use wire::ids::Step;
use wire::views::Missing;
use wire::views::goodput::{self as views, Goodput, TimeUse, Uses};

use crate::step::RankAnalysis;
use attempt::Attempt;

type Nanos = [u64; TimeUse::COUNT];
/// The server's clock less each named clock, in nanoseconds. Processes on one host share a clock, and so do attempts. The
/// batches of a single attempt may all arrive late, because its processes wait until their predecessors are known to have
/// ended.
type Offsets<'a> = BTreeMap<&'a str, i64>;

/// The attempts of one rank, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Lifeline {
    attempts: Vec<Attempt>,
}

/// The end of a step on the process's clock, and where its time went.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    pub step: Step,
    pub begin: MonoNanos,
    pub end: MonoNanos,
    /// Its parts; `None` if only its length is known.
    pub parts: Option<&'a RankAnalysis>,
}

impl Lifeline {
    /// Begins attempt `number` of the job: another process speaks for the rank. Steps up to `done` were done before.
    pub fn begin(&mut self, number: u32, done: Option<Step>) {
        self.attempts.push(Attempt::new(number, done));
    }

    /// Notes that the newest process was alive at `at` on its clock. The server received this at `received`.
    pub fn hear(&mut self, at: MonoNanos, received: ServerNanos) {
        self.newest().into_iter().for_each(|attempt| attempt.hear(at, received));
    }

    /// Notes the name of the newest process's clock.
    pub fn set_clock(&mut self, name: &str) {
        self.newest().into_iter().for_each(|attempt| name.clone_into(&mut attempt.clock));
    }

    /// Notes that the newest process counts its steps from the one that it resumes, or else from the first one after those that
    /// were done before, whether it is recorded or not.
    pub fn counts_from_its_start(&mut self) {
        self.newest().into_iter().for_each(|attempt| attempt.counts_from_its_start = true);
    }

    /// Notes the step that the newest process resumes. Only the first one counts.
    pub fn resumes(&mut self, step: Step) {
        self.newest().into_iter().for_each(|attempt| attempt.resumed = attempt.resumed.or(Some(step)));
    }

    /// Notes that the newest process began at `at` on its clock.
    pub fn began(&mut self, at: MonoNanos) {
        self.newest().into_iter().for_each(|attempt| attempt.began(at));
    }

    /// Notes that the newest process said goodbye.
    pub fn end(&mut self, completed: bool) {
        self.newest().into_iter().for_each(|attempt| attempt.completed = Some(completed));
    }

    /// Returns true if an earlier attempt did this step of the newest process.
    #[must_use]
    pub fn is_repeated(&self, step: Step) -> bool {
        self.attempts.last().is_some_and(|attempt| attempt.is_repeated(step))
    }

    /// Adds a step that an earlier attempt did already, of the newest process.
    pub fn repeat(&mut self, step: Step, begin: MonoNanos, end: MonoNanos) {
        let typical = self.typical_nanos();
        self.newest().into_iter().for_each(|attempt| attempt.repeat(step, begin, end, typical));
    }

    /// Adds a step for the first time, of the newest attempt that can have done it. Steps are added in order.
    pub fn count(&mut self, counted: &Counted<'_>) {
        let typical = self.typical_nanos();
        let attempt = self.attempts.iter_mut().rev().find(|attempt| !attempt.is_repeated(counted.step));
        attempt.into_iter().for_each(|attempt| attempt.count(counted, typical));
    }

    /// Returns the number of the attempt after the newest one of this rank.
    #[must_use]
    pub fn next_attempt(&self) -> usize {
        self.attempts.last().map_or(0, |attempt| attempt.number as usize + 1)
    }

    /// Returns true if the newest process has ended a step.
    #[must_use]
    pub fn has_steps(&self) -> bool {
        self.attempts.last().is_some_and(|attempt| attempt.steps.is_some())
    }

    /// Returns the size of the lifeline, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.attempts.iter().map(|attempt| size_of::<Attempt>() + attempt.clock.len()).sum()
    }

    fn newest(&mut self) -> Option<&mut Attempt> {
        self.attempts.last_mut()
    }

    /// Returns the mean length of ordinary steps so far; 0 before the first.
    fn typical_nanos(&self) -> u64 {
        let (nanos, steps) = self.attempts.iter().fold((0, 0), |(nanos, steps), attempt| {
            (attempt.ordinary_nanos.saturating_add(nanos), steps + attempt.ordinary_steps)
        });
        nanos.checked_div(steps).unwrap_or(0)
    }
}

/// The state of a run that decides what the time after its last step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Now {
    /// The run is over.
    Over,
    /// The run continues, and its last step is recent.
    Running,
    /// The run continues, and at this time its last step is long ago: it hangs, or its newest attempt has no step yet.
    Waiting(ServerNanos),
}

/// Returns the goodput of a run from the lifeline of each rank, `None` for a rank that was never heard from. `worlds` is the
/// number of ranks of each attempt: a rank counts from the first to the last attempt to which it belongs, and not between.
///
/// # Errors
/// Returns the reason if no rank has ended a step.
pub fn goodput(ranks: &[Option<&Lifeline>], worlds: &[u32], now: Now) -> Result<Goodput, Missing> {
    let attempts = || ranks.iter().flatten().flat_map(|lifeline| &lifeline.attempts);
    if !attempts().any(|attempt| attempt.steps.is_some()) {
        return Err(Missing::NoObservedStep);
    }
    let offsets = offsets(attempts());
    let begin = attempts().map(|attempt| attempt.began_at(&offsets)).min().unwrap_or_default();
    let mut booked: Vec<Booked> = ranks
        .iter()
        .enumerate()
        .map(|(rank, lifeline)| {
            let member = Member { rank: rank as u32, worlds };
            Booked::new(*lifeline, member, &offsets, begin, now)
        })
        .collect();
    let newest = booked.iter().map(|rank| rank.reached).max().unwrap_or(begin);
    let end = if let Now::Waiting(at) = now { newest.max(at) } else { newest };
    let mut uses: Nanos = [0; TimeUse::COUNT];
    let mut listed: Vec<views::Attempt> = Vec::new();
    for (rank, lifeline) in booked.iter_mut().zip(ranks) {
        rank.fill(end, now);
        for (attempt, nanos) in lifeline.iter().flat_map(|lifeline| &lifeline.attempts).zip(&rank.attempts) {
            list(&mut listed, attempt, attempt.began_at(&offsets), nanos);
        }
        for nanos in rank.attempts.iter().chain([&rank.unheard]) {
            uses.iter_mut().zip(nanos).for_each(|(sum, nanos)| *sum = sum.saturating_add(*nanos));
        }
    }
    listed.sort_by_key(|attempt| attempt.number);
    let total_nanos = total(uses).max(1) as f64;
    let productive = TimeUse::ALL.into_iter().filter(|time_use| time_use.is_productive());
    Ok(Goodput {
        ratio: productive.map(|time_use| uses[time_use as usize] as f64).sum::<f64>() / total_nanos,
        compute_ratio: uses[TimeUse::Compute as usize] as f64 / total_nanos,
        wall_nanos: (end - begin).max(0).unsigned_abs(),
        ranks: worlds.last().copied().unwrap_or(ranks.len() as u32),
        uses: named(&uses),
        repeated_steps: listed.iter().map(|attempt| attempt.repeated_steps).sum(),
        knows_start: attempts().all(|attempt| attempt.knows_start),
        attempts: listed.split_off(listed.len().saturating_sub(Goodput::MAX_ATTEMPTS)),
    })
}

fn offsets<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> Offsets<'a> {
    let mut offsets = Offsets::new();
    for attempt in attempts.filter(|attempt| !attempt.clock.is_empty()) {
        if let Some(nanos) = attempt.offset_nanos {
            offsets.entry(&*attempt.clock).and_modify(|known| *known = nanos.min(*known)).or_insert(nanos);
        }
    }
    offsets
}

/// Adds the attempt of one rank to the attempts of the job.
fn list(listed: &mut Vec<views::Attempt>, attempt: &Attempt, began: ServerNanos, nanos: &Nanos) {
    let began_unix_millis = began.0.max(0).unsigned_abs() / 1_000_000;
    let at = listed.iter().position(|known| known.number == attempt.number).unwrap_or_else(|| {
        let uses = Uses::new();
        let (number, repeated_steps) = (attempt.number, 0);
        listed.push(views::Attempt {
            number,
            began_unix_millis,
            ranks: 0,
            steps: None,
            repeated_steps,
            uses,
        });
        listed.len() - 1
    });
    let known = &mut listed[at];
    known.began_unix_millis = known.began_unix_millis.min(began_unix_millis);
    known.ranks += 1;
    known.repeated_steps = known.repeated_steps.max(attempt.repeated_steps());
    if let Some((first, last)) = attempt.steps {
        let (known_first, known_last) = known.steps.unwrap_or((first.0, last.0));
        known.steps = Some((known_first.min(first.0), known_last.max(last.0)));
    }
    for (time_use, nanos) in named(nanos) {
        let sum = known.uses.entry(time_use).or_default();
        *sum = sum.saturating_add(nanos);
    }
}

fn named(nanos: &Nanos) -> Uses {
    TimeUse::ALL.into_iter().zip(*nanos).filter(|(_, nanos)| *nanos > 0).collect()
}

/// To which attempts a rank belongs.
#[derive(Clone, Copy)]
struct Member<'a> {
    rank: u32,
    /// The number of ranks of each attempt.
    worlds: &'a [u32],
}

impl Member<'_> {
    /// Returns true if the rank belongs to all attempts with these numbers.
    fn is_in(self, mut attempts: std::ops::Range<u32>) -> bool {
        attempts.all(|number| self.worlds.get(number as usize).is_none_or(|&ranks| self.rank < ranks))
    }

    /// Returns the number of attempts.
    fn attempts(self) -> u32 {
        self.worlds.len() as u32
    }
}

/// The time of one rank by use, up to a time.
struct Booked {
    reached: ServerNanos,
    /// By attempt. The recovery before an attempt is part of it.
    attempts: Vec<Nanos>,
    /// The time of a rank without attempts.
    unheard: Nanos,
    /// What the time after the last attempt's records is, if the run continues.
    open: TimeUse,
    /// Whether the rank belongs to the newest attempt.
    is_member: bool,
}

impl Booked {
    fn new(
        lifeline: Option<&Lifeline>,
        member: Member<'_>,
        offsets: &Offsets<'_>,
        begin: ServerNanos,
        now: Now,
    ) -> Self {
        let next = lifeline.map_or(0, Lifeline::next_attempt) as u32;
        let mut booked = Self {
            reached: begin,
            attempts: Vec::new(),
            unheard: [0; TimeUse::COUNT],
            open: TimeUse::Launch,
            is_member: member.is_in(next..member.attempts()),
        };
        let typical = lifeline.map_or(0, Lifeline::typical_nanos);
        let attempts = lifeline.map_or(&[][..], |lifeline| &lifeline.attempts);
        let mut has_steps = false;
        for (at, attempt) in attempts.iter().enumerate() {
            booked.attempts.push(attempt.nanos);
            let time_use = if at == 0 { TimeUse::Launch } else { TimeUse::Recovery };
            let began = attempt.began_at(offsets).max(booked.reached);
            let first_number = at.checked_sub(1).map_or(0, |at| attempts[at].number + 1);
            if member.is_in(first_number..attempt.number) {
                booked.book(time_use, (began - booked.reached).unsigned_abs());
            }
            // All further times are differences on one clock.
            booked.reached = began + total(attempt.nanos) as i64;
            let (launch, setup) = attempt.startup_nanos();
            booked.advance(if at == 0 { TimeUse::Launch } else { TimeUse::Recovery }, launch);
            let (repeated, others) = attempt.missing_at_start();
            let repeated = repeated.saturating_mul(typical).min(setup);
            let others = others.saturating_mul(typical).min(setup - repeated);
            booked.advance(TimeUse::Repeated, repeated);
            booked.advance(TimeUse::OtherInSteps, others);
            booked
                .advance(if at == 0 { TimeUse::Setup } else { TimeUse::Recovery }, setup - repeated - others);
            has_steps |= attempt.steps.is_some();
            let is_last = at + 1 == attempts.len() && booked.is_member;
            let rest = attempt.rest_nanos();
            let is_hang = attempt.completed != Some(true) && attempt::is_hang(rest, typical);
            let time_use = match (is_hang, is_last) {
                (true, _) => TimeUse::Hang,
                (false, false) => TimeUse::Recovery,
                (false, true) => TimeUse::Ending,
            };
            // While a process runs, the time since its last step is part of its next step.
            if !is_last || now == Now::Over {
                booked.advance(time_use, rest);
            }
            booked.open = match attempt.steps {
                Some(_) => TimeUse::OtherInSteps,
                None if has_steps || at > 0 => TimeUse::Recovery,
                None => TimeUse::Setup,
            };
        }
        booked
    }

    fn book(&mut self, time_use: TimeUse, nanos: u64) {
        let booked = self.attempts.last_mut().unwrap_or(&mut self.unheard);
        booked[time_use as usize] = booked[time_use as usize].saturating_add(nanos);
    }

    fn advance(&mut self, time_use: TimeUse, nanos: u64) {
        self.book(time_use, nanos);
        self.reached = self.reached + nanos as i64;
    }

    /// Books the time until `end`, at which the run ends or at which it is seen.
    fn fill(&mut self, end: ServerNanos, now: Now) {
        if !self.is_member {
            return;
        }
        let nanos = (end - self.reached).max(0).unsigned_abs();
        let time_use = match now {
            _ if self.attempts.is_empty() => TimeUse::Launch,
            Now::Over => TimeUse::Ending,
            Now::Waiting(_) if self.open == TimeUse::OtherInSteps => TimeUse::Hang,
            Now::Running | Now::Waiting(_) => self.open,
        };
        self.advance(time_use, nanos);
    }
}

#[cfg(test)]
mod tests;
