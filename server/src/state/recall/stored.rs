//! Reads steps whose records have left memory back from the files of their run.
//!
//! Only files that may hold a record of the steps are read: the [manifest](crate::store::manifest) says which steps a segment
//! holds. A log that is not sealed yet is read as a whole, 16 MiB at most. Of a segment, only the rows of these steps
//! are held in memory. Every checksum is verified.
//!
//! Records are gathered by the same code ([`Incoming`]) and in the same order as when they arrived, so a step that is
//! read back equals the step that closed. There is one exception: records of other steps are left out, so a step that
//! closed incomplete may include records here that arrived too late for it. A caller that knows the analyzed step
//! removes them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use wire::ids::{BatchSeq, Incarnation, Rank, Step};

use crate::state::steps::incoming::{Closed, Incoming};
use crate::store::files::Files;
use crate::store::folder::RunFolder;
use crate::store::manifest::LogDamage;
use crate::store::segment::Received;
use crate::store::{StepRange, StoreError};

/// The limits of reading steps back.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest size of the records of incomplete steps, in bytes.
    pub bytes: usize,
    /// The deadline.
    pub deadline: Instant,
}

/// Damage in a file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The damage and its place.
    pub damage: LogDamage,
    /// The steps that the file has records of, if known.
    pub steps: Option<StepRange>,
}

/// The reason why steps cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    /// The step does not fit into memory.
    #[error("the records of step {step} take more than {} MiB", bytes >> 20)]
    TooLarge {
        step: Step,
        /// The limit, in bytes.
        bytes: usize,
    },
    /// The deadline passed.
    #[error("the records of step {step} are in too many files: {read} of {all} were read in time")]
    TooLong {
        /// The first requested step.
        step: Step,
        /// The number of files that were read.
        read: usize,
        /// The number of files that may hold records of the steps.
        all: usize,
    },
    /// The run's files cannot be listed, or its manifest cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads the steps of a run and passes them to `visit` in order, each as soon as it is complete. Returns the damage in the
/// files that were read.
///
/// # Errors
/// Returns an error if the steps cannot be read ([`NotRead`]), or the error of `visit`.
pub fn visit<E: From<NotRead>>(
    folder: &RunFolder,
    steps: StepRange,
    limits: &Limits,
    mut visit: impl FnMut(Closed) -> Result<(), E>,
) -> Result<Vec<Lost>, E> {
    let mut files = Files::list(folder).map_err(NotRead::from)?;
    let numbers: Vec<u32> =
        files.numbers().into_iter().filter(|&number| files.may_hold(number, steps)).collect();
    let mut gathered = Gathered::default();
    let mut lost = Vec::new();
    for (read, &number) in numbers.iter().enumerate() {
        if Instant::now() >= limits.deadline {
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
    gathered.close_all().into_iter().try_for_each(visit)?;
    Ok(lost)
}

/// Reads one step. Returns the step, if any file has records of it, and the damage in the files that were read.
///
/// # Errors
/// Returns an error if the step cannot be read ([`NotRead`]).
pub fn read_step(
    folder: &RunFolder,
    step: Step,
    limits: &Limits,
) -> Result<(Option<Closed>, Vec<Lost>), NotRead> {
    let mut found = None;
    let lost = visit(folder, StepRange { first: step, last: step }, limits, |closed| {
        found = Some(closed);
        Ok::<(), NotRead>(())
    })?;
    Ok((found, lost))
}

/// The open steps of a world.
struct OpenSteps {
    world_size: u32,
    incoming: Incoming,
}

/// The steps that are being gathered.
#[derive(Default)]
struct Gathered {
    /// `None` before the first batch.
    open: Option<OpenSteps>,
    /// The batches that were added, because a batch may be stored twice.
    known: BTreeSet<(Rank, Incarnation, BatchSeq)>,
    /// The process that speaks for each rank.
    speakers: BTreeMap<Rank, Incarnation>,
}

impl Gathered {
    /// Adds a batch. Returns the steps that it closes. A batch that was refused when it arrived is refused again.
    fn add(&mut self, received: &Received, limits: &Limits) -> Result<Vec<Closed>, NotRead> {
        let batch = &received.batch;
        let first =
            || OpenSteps { world_size: batch.world_size, incoming: Incoming::new(batch.world_size as usize) };
        let OpenSteps { world_size, incoming } = self.open.get_or_insert_with(first);
        incoming.hear(received.at);
        let is_another = self.speakers.get(&batch.rank) != Some(&batch.incarnation);
        let mut closed = Vec::new();
        if is_another && batch.world_size != *world_size {
            *world_size = batch.world_size;
            closed = incoming.change_world(batch.world_size as usize);
        }
        let is_new =
            batch.world_size == *world_size && self.known.insert((batch.rank, batch.incarnation, batch.seq));
        if is_new {
            if self
                .speakers
                .insert(batch.rank, batch.incarnation)
                .is_some_and(|speaker| speaker != batch.incarnation)
            {
                incoming.restart(batch.rank);
            }
            batch.events.iter().for_each(|event| incoming.add(batch.rank, event));
        }
        match incoming.only_open() {
            Some(step) if incoming.bytes() > limits.bytes => {
                Err(NotRead::TooLarge { step, bytes: limits.bytes })
            }
            _ => {
                closed.extend(incoming.close_ready());
                Ok(closed)
            }
        }
    }

    fn close_all(&mut self) -> Vec<Closed> {
        self.open.as_mut().map(|open| open.incoming.close_all()).unwrap_or_default()
    }
}

#[cfg(test)]
pub mod tests;
