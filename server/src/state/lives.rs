//! Which batches of a rank came, in which life of its process, and whose turn it is to speak.
//!
//! A batch is a *duplicate* when a batch of the same life and number came before, and never otherwise. Lives are told
//! apart, not ordered: their numbers come from wall clocks, which may go back.
//!
//! A rank has one *speaker* at a time. When another life speaks up, its predecessor has most likely ended; but it may
//! also be a second process that claims to be the same rank. So the claimant waits until the speaker has said goodbye
//! or has been silent for [`SILENT_NANOS`]. If the speaker keeps sending, the claimant is refused.

use wire::batch::{Batch, Drop, Note};
use wire::clock::ServerNanos;
use wire::ids::{BatchSeq, Incarnation};

/// A speaker that has been silent for this long has ended: agents send something every two seconds.
const SILENT_NANOS: i64 = 5_000_000_000;
/// A speaker that is heard this long after a claim is still alive. (What a process sent just before it ended may
/// arrive after the first batch of its successor.)
const GOES_ON_NANOS: i64 = 3_000_000_000;
/// A claim that was not repeated for this long is forgotten. Agents repeat it every second.
const CLAIM_NANOS: i64 = 10_000_000_000;
/// Lives of one rank: a restart every ten minutes for a week. Each takes some 100 bytes.
const MOST_LIVES: usize = 1_024;
/// Gaps in the numbers of one life, 16 bytes each. A gap is a batch that the agent gave up.
const MOST_RANGES: usize = 256;

/// The lives of one rank.
#[derive(Default)]
pub struct Lives {
    lives: Vec<Life>,
    speaker: Option<Speaker>,
    claim: Option<Claim>,
}

struct Life {
    incarnation: Incarnation,
    numbers: Numbers,
    /// What its process lost, as it said last.
    drops: Vec<Drop>,
}

#[derive(Clone, Copy)]
struct Speaker {
    incarnation: Incarnation,
    heard: ServerNanos,
}

/// Lives other than the speaker have spoken.
#[derive(Clone, Copy)]
struct Claim {
    began: ServerNanos,
    last: ServerNanos,
}

/// Why a batch may not come in. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It came before.
    Duplicate,
    /// The speaker may have ended: come again.
    Wait {
        /// When the speaker was last heard from, before now.
        heard_ago: i64,
    },
    /// The speaker is still alive.
    Taken {
        /// When the speaker was last heard from, before now.
        heard_ago: i64,
    },
    /// The rank has had [`MOST_LIVES`] lives.
    TooManyLives,
    /// Its life has too many gaps to tell whether it came before.
    TooOld,
}

impl Lives {
    /// Says whether a batch may come in, and notes that its life has spoken. The server has taken
    /// batches since `since`, and counts no silence before that.
    ///
    /// # Errors
    /// See [`Denied`].
    pub fn admit(&mut self, batch: &Batch, now: ServerNanos, since: ServerNanos) -> Result<(), Denied> {
        self.is_new(batch)?;
        if self.find(batch.incarnation).is_none() && self.lives.len() >= MOST_LIVES {
            return Err(Denied::TooManyLives);
        }
        if is_goodbye_by_another(batch) {
            return Ok(());
        }
        let Some(heard) = self.speaker_other_than(batch.incarnation).map(|heard| heard.max(since)) else {
            self.speaker = Some(Speaker { incarnation: batch.incarnation, heard: now });
            return Ok(());
        };
        let heard_ago = now - heard;
        if heard_ago > SILENT_NANOS {
            self.speaker = Some(Speaker { incarnation: batch.incarnation, heard: now });
            self.claim = None;
            return Ok(());
        }
        let claim = self.claim.filter(|claim| now - claim.last <= CLAIM_NANOS);
        let began = claim.map_or(now, |claim| claim.began);
        self.claim = Some(Claim { began, last: now });
        let goes_on = heard - began > GOES_ON_NANOS;
        Err(if goes_on { Denied::Taken { heard_ago } } else { Denied::Wait { heard_ago } })
    }

    /// When the speaker was last heard from, unless it is this one.
    fn speaker_other_than(&self, incarnation: Incarnation) -> Option<ServerNanos> {
        self.speaker.filter(|speaker| speaker.incarnation != incarnation).map(|speaker| speaker.heard)
    }

    /// Says whether a batch is new, whoever speaks.
    ///
    /// # Errors
    /// [`Denied::Duplicate`] and [`Denied::TooOld`].
    pub fn is_new(&self, batch: &Batch) -> Result<(), Denied> {
        self.find(batch.incarnation).map_or(Ok(()), |life| life.numbers.is_new(batch.seq))
    }

    /// Notes that a new batch is stored.
    pub fn store(&mut self, batch: &Batch, now: ServerNanos) {
        let at = self.lives.iter().position(|life| life.incarnation == batch.incarnation);
        let at = at.unwrap_or_else(|| {
            let (incarnation, numbers) = (batch.incarnation, Numbers::default());
            self.lives.push(Life { incarnation, numbers, drops: Vec::new() });
            self.lives.len() - 1
        });
        let life = &mut self.lives[at];
        life.numbers.add(batch.seq);
        life.drops.clone_from(&batch.drops);
        if batch.notes.iter().any(|note| matches!(note, Note::Bye(_))) {
            self.speaker = None;
        } else {
            self.speaker = Some(Speaker { incarnation: batch.incarnation, heard: now });
        }
    }

    /// What all lives lost, by kind and reason.
    #[must_use]
    pub fn drops(&self) -> Vec<Drop> {
        let mut all: Vec<Drop> = Vec::new();
        for drop in self.lives.iter().flat_map(|life| &life.drops) {
            match all.iter_mut().find(|known| known.kind == drop.kind && known.reason == drop.reason) {
                Some(known) => known.count = known.count.saturating_add(drop.count),
                None => all.push(*drop),
            }
        }
        all
    }

    fn find(&self, incarnation: Incarnation) -> Option<&Life> {
        // The newest life speaks most.
        self.lives.iter().rev().find(|life| life.incarnation == incarnation)
    }
}

/// The launcher's word on a life that ended without one: a goodbye, and nothing that only a rank knows.
#[must_use]
pub fn is_goodbye_by_another(batch: &Batch) -> bool {
    let is_goodbye = |note: &Note| matches!(note, Note::Bye(_));
    !batch.notes.is_empty()
        && batch.notes.iter().all(is_goodbye)
        && batch.seq == BatchSeq(0)
        && batch.events.is_empty()
        && batch.probes.is_empty()
}

/// The numbers that came, as ranges.
#[derive(Default)]
struct Numbers {
    /// First and last of each range, in order, with a gap between two.
    ranges: Vec<(u64, u64)>,
    /// Below this, numbers that did not come cannot be told from those that did.
    unknown_below: u64,
}

impl Numbers {
    fn is_new(&self, BatchSeq(number): BatchSeq) -> Result<(), Denied> {
        let behind = self.ranges.partition_point(|&(first, _)| first <= number);
        let is_known = behind > 0 && number <= self.ranges[behind - 1].1;
        match (is_known, number < self.unknown_below) {
            (true, _) => Err(Denied::Duplicate),
            (false, true) => Err(Denied::TooOld),
            (false, false) => Ok(()),
        }
    }

    fn add(&mut self, BatchSeq(number): BatchSeq) {
        let behind = self.ranges.partition_point(|&(first, _)| first <= number);
        let follows = behind > 0 && self.ranges[behind - 1].1.checked_add(1) == Some(number);
        let precedes =
            self.ranges.get(behind).is_some_and(|&(first, _)| number.checked_add(1) == Some(first));
        match (follows, precedes) {
            (true, true) => {
                self.ranges[behind - 1].1 = self.ranges[behind].1;
                self.ranges.remove(behind);
            }
            (true, false) => self.ranges[behind - 1].1 = number,
            (false, true) => self.ranges[behind].0 = number,
            (false, false) => self.ranges.insert(behind, (number, number)),
        }
        if self.ranges.len() > MOST_RANGES {
            let (_, last) = self.ranges.remove(0);
            self.unknown_below = last.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests;
