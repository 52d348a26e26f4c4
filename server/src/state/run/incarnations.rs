//! The batches of a rank that have arrived, by incarnation, and the incarnation that may send.
//!
//! A batch is a *duplicate* if and only if a batch of the same incarnation and sequence number arrived before.
//! Incarnations are distinguished, not ordered: they are made from wall clocks, which may go back.
//!
//! A rank has one *speaker* at a time, the incarnation whose batches are accepted. If another incarnation sends a
//! batch, the speaker has most likely ended. But the sender may also be a second process that claims the same rank. The
//! claimant therefore waits until the speaker has sent its end-of-run message or has been silent for [`SILENT_NANOS`].
//! If the speaker keeps sending, the claimant is refused.

use wire::batch::{Batch, Drop, DropReason, Note, total};
use wire::clock::ServerNanos;
use wire::ids::{BatchSeq, Incarnation};

/// The silence after which a speaker has ended, in nanoseconds. Agents send something every two seconds.
const SILENT_NANOS: i64 = 5_000_000_000;
/// The time after the start of a claim from which a batch of the speaker proves that the speaker is alive, in
/// nanoseconds. An earlier batch may have been sent just before the speaker ended, and have arrived after the first
/// batch of its successor.
const GOES_ON_NANOS: i64 = 3_000_000_000;
/// The time after which a claim that is not repeated is forgotten, in nanoseconds. Agents repeat it every second.
const CLAIM_NANOS: i64 = 10_000_000_000;
/// The largest number of claims to one place, 24 bytes each.
const MAX_CLAIMS: usize = 64;
/// The largest number of incarnations of one rank: a restart every ten minutes for a week. Each takes about 100 bytes.
const MAX_INCARNATIONS: usize = 1_024;
/// The largest number of ranges of sequence numbers per incarnation, 24 bytes each. The gap between two ranges is a
/// batch that the agent dropped, or that was stored and lost.
const MAX_RANGES: usize = 256;

/// The incarnations of one rank.
#[derive(Default)]
pub struct Incarnations {
    incarnations: Vec<Arrivals>,
    speaker: Option<Speaker>,
    claims: Claims,
}

/// What has arrived of one incarnation.
struct Arrivals {
    incarnation: Incarnation,
    /// When its first batch arrived; `None` for a launcher, which says bye for a rank.
    began: Option<ServerNanos>,
    numbers: Numbers,
    /// The records that the process dropped, as its newest batch reports them.
    drops: Vec<Drop>,
}

#[derive(Clone, Copy)]
struct Speaker {
    incarnation: Incarnation,
    heard: ServerNanos,
}

/// The claims of new processes to a place that others had: a rank, or a whole run.
#[derive(Default)]
pub struct Claims(Vec<Claim>);

#[derive(Clone, Copy)]
struct Claim {
    process: Incarnation,
    began: ServerNanos,
    last: ServerNanos,
}

impl Claims {
    /// Decides whether `process` gets the place. Those that had it were last heard from at `heard`.
    ///
    /// # Errors
    /// Returns [`Denied::Wait`] while they may have ended, and [`Denied::Taken`] if they are still alive.
    pub fn judge(
        &mut self,
        process: Incarnation,
        heard: ServerNanos,
        now: ServerNanos,
    ) -> Result<(), Denied> {
        let heard_ago = now - heard;
        if heard_ago > SILENT_NANOS {
            self.0.clear();
            return Ok(());
        }
        self.0.retain(|claim| now - claim.last <= CLAIM_NANOS);
        if !self.0.iter().any(|claim| claim.process == process) && self.0.len() < MAX_CLAIMS {
            self.0.push(Claim { process, began: now, last: now });
        }
        // Beyond the limit, the oldest claim stands for all.
        let own = self.0.iter().position(|claim| claim.process == process).unwrap_or(0);
        let Some(claim) = self.0.get_mut(own) else { return Err(Denied::Wait { heard_ago }) };
        claim.last = now;
        let began = claim.began;
        let goes_on = heard - began > GOES_ON_NANOS;
        Err(if goes_on { Denied::Taken { heard_ago } } else { Denied::Wait { heard_ago } })
    }
}

/// The reason why a batch is not accepted. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The batch arrived before.
    Duplicate,
    /// The speaker may have ended. The claimant is to send the batch again.
    Wait {
        /// The time since the speaker was last heard from.
        heard_ago: i64,
    },
    /// The speaker is still alive.
    Taken {
        /// The time since the speaker was last heard from.
        heard_ago: i64,
    },
    /// The rank has had [`MAX_INCARNATIONS`] incarnations.
    TooManyIncarnations,
    /// The batch's incarnation has too many gaps to tell whether the batch is a duplicate.
    TooOld,
}

impl Incarnations {
    /// Decides whether a batch is accepted, and records that its incarnation has sent. The server has accepted batches
    /// since `accepting_since`, and silence before that does not count.
    ///
    /// # Errors
    /// Returns the reason ([`Denied`]) if the batch is not accepted.
    pub fn admit(
        &mut self,
        batch: &Batch,
        now: ServerNanos,
        accepting_since: ServerNanos,
    ) -> Result<(), Denied> {
        self.is_new(batch)?;
        if self.find(batch.incarnation).is_none() && self.incarnations.len() >= MAX_INCARNATIONS {
            return Err(Denied::TooManyIncarnations);
        }
        if is_bye_of_launcher(batch) || self.is_past(batch.incarnation) {
            return Ok(());
        }
        let Some(heard) = self.speaker_other_than(batch.incarnation).map(|heard| heard.max(accepting_since))
        else {
            self.speaker = Some(Speaker { incarnation: batch.incarnation, heard: now });
            return Ok(());
        };
        self.claims.judge(batch.incarnation, heard, now)?;
        self.speaker = Some(Speaker { incarnation: batch.incarnation, heard: now });
        Ok(())
    }

    /// Returns true if a batch of this incarnation is stored.
    #[must_use]
    pub fn knows(&self, incarnation: Incarnation) -> bool {
        self.find(incarnation).is_some()
    }

    /// Returns true for a process that has sent before and that another one has succeeded: what it could not send while it ran
    /// arrives now.
    #[must_use]
    pub fn is_past(&self, incarnation: Incarnation) -> bool {
        let mut newest_first = self.incarnations.iter().rev().filter(|arrived| arrived.began.is_some());
        newest_first.next().is_some_and(|newest| newest.incarnation != incarnation)
            && newest_first.any(|arrived| arrived.incarnation == incarnation)
    }

    /// Returns the time when the speaker was last heard from, or `None` if there is none or no batch of it is stored yet.
    #[must_use]
    pub fn heard(&self) -> Option<ServerNanos> {
        self.speaker.filter(|speaker| self.knows(speaker.incarnation)).map(|speaker| speaker.heard)
    }

    /// Returns the time when the speaker was last heard from, or `None` if there is none or `incarnation` is the speaker.
    fn speaker_other_than(&self, incarnation: Incarnation) -> Option<ServerNanos> {
        self.speaker.filter(|speaker| speaker.incarnation != incarnation).map(|speaker| speaker.heard)
    }

    /// Checks that a batch is new, whichever incarnation is the speaker.
    ///
    /// # Errors
    /// Returns [`Denied::Duplicate`] or [`Denied::TooOld`] if the batch is not known to be new.
    pub fn is_new(&self, batch: &Batch) -> Result<(), Denied> {
        self.find(batch.incarnation).map_or(Ok(()), |arrived| arrived.numbers.is_new(batch.seq))
    }

    /// Records that a new batch is stored.
    pub fn store(&mut self, batch: &Batch, now: ServerNanos) {
        let at = self.incarnations.iter().position(|arrived| arrived.incarnation == batch.incarnation);
        let at = at.unwrap_or_else(|| {
            let (incarnation, numbers) = (batch.incarnation, Numbers::default());
            let began = (!is_bye_of_launcher(batch)).then_some(now);
            self.incarnations.push(Arrivals { incarnation, began, numbers, drops: Vec::new() });
            self.incarnations.len() - 1
        });
        let is_past = self.is_past(batch.incarnation);
        let arrived = &mut self.incarnations[at];
        arrived.numbers.add(batch.seq, given_up(&batch.drops));
        arrived.drops.clone_from(&batch.drops);
        if is_past {
            return;
        }
        if batch.notes.iter().any(|note| matches!(note, Note::Bye(_))) {
            self.speaker = None;
        } else {
            self.speaker = Some(Speaker { incarnation: batch.incarnation, heard: now });
        }
    }

    /// Returns when each process after the first one sent its first batch.
    pub fn restarts(&self) -> impl Iterator<Item = ServerNanos> + '_ {
        self.incarnations.iter().filter_map(|arrived| arrived.began).skip(1)
    }

    /// Returns the drops of all incarnations, summed by kind and reason.
    #[must_use]
    pub fn drops(&self) -> Vec<Drop> {
        let mut all: Vec<Drop> = Vec::new();
        for drop in self.incarnations.iter().flat_map(|arrived| &arrived.drops) {
            match all.iter_mut().find(|known| known.kind == drop.kind && known.reason == drop.reason) {
                Some(known) => known.count = known.count.saturating_add(drop.count),
                None => all.push(*drop),
            }
        }
        all
    }

    /// Returns the number of batches that are missing between those of each process, or before the first, and that the process did not
    /// say to have given up.
    #[must_use]
    pub fn missing(&self) -> u64 {
        total(self.incarnations.iter().map(|arrived| arrived.numbers.missing()))
    }

    fn find(&self, incarnation: Incarnation) -> Option<&Arrivals> {
        // Most batches are from the newest incarnation.
        self.incarnations.iter().rev().find(|arrived| arrived.incarnation == incarnation)
    }
}

/// Returns whether a batch is an end-of-run message that the launcher sent for a rank that ended without one: it has no
/// data that only a rank can know.
#[must_use]
pub fn is_bye_of_launcher(batch: &Batch) -> bool {
    let is_bye = |note: &Note| matches!(note, Note::Bye(_));
    !batch.notes.is_empty()
        && batch.notes.iter().all(is_bye)
        && batch.seq == BatchSeq(0)
        && batch.events.is_empty()
        && batch.probes.is_empty()
}

/// Returns the number of records that a process gave up with whole batches. A full ring loses records before they are in a batch.
fn given_up(drops: &[Drop]) -> u64 {
    let whole_batches = drops.iter().filter(|drop| drop.reason != DropReason::RingFull);
    total(whole_batches.map(|drop| drop.count))
}

/// A range of sequence numbers that have arrived.
#[derive(Clone, Copy)]
struct Range {
    first: u64,
    last: u64,
    /// The records that the process had given up by the last batch before the range. If it has given up more since then, the gap before
    /// the range may be that.
    given_up_before: u64,
}

/// The sequence numbers that have arrived, as ranges.
#[derive(Default)]
struct Numbers {
    /// In order, with a gap between any two ranges.
    ranges: Vec<Range>,
    /// Below this number, the numbers that have not arrived are no longer distinguished from those that have.
    unknown_below: u64,
    /// The number of those that are missing below it.
    missing_below: u64,
    /// The records that the process has given up with whole batches.
    given_up: u64,
}

impl Numbers {
    fn is_new(&self, BatchSeq(number): BatchSeq) -> Result<(), Denied> {
        let next = self.ranges.partition_point(|range| range.first <= number);
        let is_known = next > 0 && number <= self.ranges[next - 1].last;
        match (is_known, number < self.unknown_below) {
            (true, _) => Err(Denied::Duplicate),
            (false, true) => Err(Denied::TooOld),
            (false, false) => Ok(()),
        }
    }

    /// Adds the number of a batch by which the process had given up so many records.
    fn add(&mut self, BatchSeq(number): BatchSeq, given_up: u64) {
        let next = self.ranges.partition_point(|range| range.first <= number);
        let follows = next > 0 && self.ranges[next - 1].last.checked_add(1) == Some(number);
        let precedes = self.ranges.get(next).is_some_and(|range| number.checked_add(1) == Some(range.first));
        match (follows, precedes) {
            (true, true) => {
                self.ranges[next - 1].last = self.ranges[next].last;
                self.ranges.remove(next);
            }
            (true, false) => self.ranges[next - 1].last = number,
            (false, true) => self.ranges[next].first = number,
            (false, false) => {
                let given_up_before =
                    self.ranges.get(next).map_or(self.given_up, |range| range.given_up_before);
                self.ranges.insert(next, Range { first: number, last: number, given_up_before });
            }
        }
        self.given_up = self.given_up.max(given_up);
        if self.ranges.len() > MAX_RANGES {
            self.missing_below = self.missing_below.saturating_add(self.missing_before(0));
            let range = self.ranges.remove(0);
            self.unknown_below = range.last.saturating_add(1);
        }
    }

    /// Returns the number of missing batches that the process did not say to have given up.
    fn missing(&self) -> u64 {
        let known = (0..self.ranges.len()).fold(0_u64, |sum, at| sum.saturating_add(self.missing_before(at)));
        self.missing_below.saturating_add(known)
    }

    /// Returns the number of batches that are missing before a range.
    fn missing_before(&self, at: usize) -> u64 {
        let range = self.ranges[at];
        let first_missing =
            if at == 0 { self.unknown_below } else { self.ranges[at - 1].last.saturating_add(1) };
        if self.given_up > range.given_up_before { 0 } else { range.first.saturating_sub(first_missing) }
    }
}

#[cfg(test)]
mod tests;
