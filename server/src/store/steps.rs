//! Steps whose records have left memory, read back from the files of their run.
//!
//! Only files that may hold a record of the steps are read: the [manifest](super::manifest) says which steps a segment
//! holds. A log that is not sealed yet is read as a whole, 16 MiB at most. Of a segment only the rows of these steps
//! are kept, and every checksum is verified, as everywhere.
//!
//! Records are gathered by the code that gathers them when they come ([`Incoming`]), in the same order: a step that is
//! read back is the step that was closed. Only the records of other steps are left out, so that a step which closed
//! incomplete may have records here that came too late for it. Whoever knows the step as it was analysed leaves those
//! out.

use std::collections::BTreeSet;
use std::time::Instant;

use wire::ids::{BatchSeq, Incarnation, Rank, Step};

use super::files::Files;
use super::folder::RunFolder;
use super::manifest::LogDamage;
use super::segment::Received;
use super::{StepRange, StoreError};
use crate::state::incoming::{Closed, Incoming};

/// What reading steps back may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of records of steps that are not whole yet.
    pub bytes: usize,
    /// When to give up.
    pub until: Instant,
}

/// Damage in a file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// What and where.
    pub damage: LogDamage,
    /// The steps that the file has records of, where that is known.
    pub steps: Option<StepRange>,
}

/// Why steps cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    /// It does not fit into memory.
    #[error("the records of step {step} take more than {} MiB", bytes >> 20)]
    TooLarge {
        /// Which step.
        step: Step,
        /// How many bytes it may take.
        bytes: usize,
    },
    /// It is not done in time.
    #[error("the records of step {step} lie in too many files: {read} of {all} were read in time")]
    TooLong {
        /// The first step that was sought.
        step: Step,
        /// Files that were read.
        read: usize,
        /// Files that may hold records of the steps.
        all: usize,
    },
    /// The run's files cannot be listed, or its manifest cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads the steps of a run of `world_size` ranks back and hands them over in order, each as soon as it is whole.
/// Returns the damage in the files that were read.
///
/// # Errors
/// See [`NotRead`], and whatever `visit` fails with.
pub fn each<E: From<NotRead>>(
    folder: &RunFolder,
    steps: StepRange,
    world_size: u32,
    limits: &Limits,
    mut visit: impl FnMut(Closed) -> Result<(), E>,
) -> Result<Vec<Lost>, E> {
    let mut files = Files::list(folder).map_err(NotRead::from)?;
    let numbers: Vec<u32> =
        files.numbers().into_iter().filter(|&number| files.may_hold(number, steps)).collect();
    let mut gathered = Gathered::new(world_size);
    let mut lost = Vec::new();
    for (read, &number) in numbers.iter().enumerate() {
        if Instant::now() >= limits.until {
            return Err(NotRead::TooLong { step: steps.first, read, all: numbers.len() }.into());
        }
        let (batches, damage) = files.read(number, Some(steps)).map_err(NotRead::from)?;
        lost.extend(damage.map(|damage| Lost { damage, steps: files.steps(number) }));
        for received in batches {
            for closed in gathered.add(&received, limits)? {
                let is_last = closed.records.step >= steps.last;
                visit(closed)?;
                if is_last {
                    return Ok(lost);
                }
            }
        }
    }
    gathered.incoming.close_all().into_iter().try_for_each(visit)?;
    Ok(lost)
}

/// One step, if any of the run's files has it, and the damage in those that were read.
///
/// # Errors
/// See [`NotRead`].
pub fn one(
    folder: &RunFolder,
    step: Step,
    world_size: u32,
    limits: &Limits,
) -> Result<(Option<Closed>, Vec<Lost>), NotRead> {
    let mut found = None;
    let lost = each(folder, StepRange { first: step, last: step }, world_size, limits, |closed| {
        found = Some(closed);
        Ok::<(), NotRead>(())
    })?;
    Ok((found, lost))
}

/// Steps under way.
struct Gathered {
    world_size: u32,
    incoming: Incoming,
    /// Batches may be stored twice.
    known: BTreeSet<(Rank, Incarnation, BatchSeq)>,
}

impl Gathered {
    fn new(world_size: u32) -> Self {
        Self { world_size, incoming: Incoming::new(world_size as usize), known: BTreeSet::new() }
    }

    /// Adds what a batch has; returns the steps that it closes. What was refused when it came is refused again.
    fn add(&mut self, received: &Received, limits: &Limits) -> Result<Vec<Closed>, NotRead> {
        let batch = &received.batch;
        let is_new = batch.world_size == self.world_size
            && self.known.insert((batch.rank, batch.incarnation, batch.seq));
        if is_new {
            batch.events.iter().for_each(|event| self.incoming.add(batch.rank, event));
        }
        match self.incoming.only_open() {
            Some(step) if self.incoming.bytes() > limits.bytes => {
                Err(NotRead::TooLarge { step, bytes: limits.bytes })
            }
            _ => Ok(self.incoming.close_ready()),
        }
    }
}

#[cfg(test)]
pub mod tests;
