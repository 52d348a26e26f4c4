//! Restores runs from disk: applies the same batches in the same order through the same code as when they arrived.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use wire::ids::{RunId, Step};
use wire::live::Waterfall;

use super::budget;
use super::run::Run;
use crate::store::StoreError;
use crate::store::batches::{each_batch, visit_runs};
use crate::store::captures::Captures;
use crate::store::directory::Layout;
use crate::store::segment::Received;

/// All runs of a data directory.
#[derive(Default)]
pub struct AllRuns {
    /// The readable runs.
    pub runs: BTreeMap<RunId, Run>,
    /// The unreadable runs, with the reason for each. Their files are left unchanged.
    pub aside: BTreeMap<RunId, String>,
}

/// The number of batches of a run between two looks at the memory of all restored runs.
const LOOK_EVERY: usize = 64;

/// The memory of all runs that are restored for one server, some of them at the same time.
#[derive(Default)]
pub struct Room(AtomicUsize);

/// What one run takes of the room. If the run is not read to its end, the room is free again.
struct Taken<'a> {
    room: &'a Room,
    bytes: usize,
}

impl Taken<'_> {
    /// Notes what the run takes now. Its older half leaves memory if all runs take more than they may.
    fn look_at(&mut self, run: &mut Run) {
        if self.note(run.bytes()) > budget::ALL_BYTES {
            run.halve();
            self.note(run.bytes());
        }
    }

    /// Notes what the run takes now, and returns what all runs take.
    fn note(&mut self, bytes: usize) -> usize {
        let previous = std::mem::replace(&mut self.bytes, bytes);
        let all = self.room.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.room.0.fetch_sub(previous, Ordering::Relaxed);
        all.saturating_sub(previous)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.room.leave(self.bytes);
    }
}

impl Room {
    /// Notes that a restored run of this size has left memory.
    pub fn leave(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Restores one run. Returns `None` if its directory holds no batch and never did.
///
/// # Errors
/// Returns an error if the run's files cannot be read or have invalid content, or if no batch is left undamaged.
pub fn run(layout: &Layout, id: &RunId) -> Result<Option<Run>, StoreError> {
    run_within(layout, id, &Room::default())
}

/// Restores one run like [`run`], within the memory of all that are restored.
fn run_within(layout: &Layout, id: &RunId, room: &Room) -> Result<Option<Run>, StoreError> {
    let mut restored: Option<Run> = None;
    let (mut taken, mut batches) = (Taken { room, bytes: 0 }, 0_usize);
    let condition = each_batch(&layout.folder(id), |Received { at, batch }| {
        let run = restored.get_or_insert_with(|| Run::new(id.clone(), batch.world_size, at));
        // Batches that were refused or duplicate when they arrived are so again.
        let _refused_again = run.apply(batch, at);
        batches += 1;
        if batches.is_multiple_of(LOOK_EVERY) {
            taken.look_at(run);
        }
        Ok::<(), StoreError>(())
    })?;
    restored.iter_mut().for_each(|run| taken.look_at(run));
    // The run stays in memory, so the room stays taken.
    taken.bytes = 0;
    if restored.is_none() && condition.has_lost_batches() {
        let reasons: Vec<String> = condition.gaps(None).into_iter().map(|gap| gap.sentence).collect();
        return Err(StoreError::content(&layout.run(id), reasons.join("; ")));
    }
    if let Some(run) = &mut restored {
        run.set_condition(condition);
        let captures = Captures::new(layout.folder(id));
        captures.newest_comparison().into_iter().for_each(|compared| run.set_traced(compared));
        // A request does not end with the server that made it, as long as it is current.
        if let Some((request, ranks)) = captures.unanswered() {
            run.ask_for_trace(&ranks, request);
        }
    }
    Ok(restored)
}

/// Restores one run and passes the waterfall of every step from `first` to `last` to `visit` as the step closes. This
/// shows steps that are no longer in any server's memory. Clocks are fitted to the probes that had arrived by then.
///
/// # Errors
/// Returns an error if the run's files cannot be read or have invalid content, or the error of `visit`.
pub fn waterfalls<E: From<StoreError>>(
    layout: &Layout,
    id: &RunId,
    (first, last): (Step, Step),
    mut visit: impl FnMut(&Waterfall) -> Result<(), E>,
) -> Result<(), E> {
    let mut restored: Option<Run> = None;
    each_batch(&layout.folder(id), |Received { at, batch }| {
        let run = restored.get_or_insert_with(|| Run::new(id.clone(), batch.world_size, at));
        let closed = run.apply(batch, at).unwrap_or_default();
        for step in closed.iter().map(|closed| closed.step).filter(|step| (first..=last).contains(step)) {
            if let Some(waterfall) = run.waterfall(Some(step)) {
                visit(&waterfall)?;
            }
        }
        Ok::<(), E>(())
    })?;
    Ok(())
}

/// Restores all runs. A run that cannot be read is set aside, and its files are left unchanged. Other runs are served as
/// before.
///
/// # Errors
/// Returns an error if the runs cannot be listed.
pub fn all(layout: &Layout) -> Result<AllRuns, StoreError> {
    let mut all = AllRuns::default();
    visit_runs(
        layout,
        |id| (id.clone(), guarded_run(layout, id, &Room::default())),
        |(id, restored)| match restored {
            Some(Ok(run)) => drop(all.runs.insert(id, run)),
            Some(Err(reason)) => drop(all.aside.insert(id, reason)),
            None => {}
        },
    )?;
    Ok(all)
}

/// Restores one run and catches panics. An error is the reason why the run cannot be read.
#[must_use]
pub fn guarded_run(layout: &Layout, id: &RunId, room: &Room) -> Option<Result<Run, String>> {
    match catch_unwind(AssertUnwindSafe(|| run_within(layout, id, room))) {
        Ok(Ok(run)) => run.map(Ok),
        Ok(Err(error)) => Some(Err(error.to_string())),
        Err(_) => Some(Err("reading this run fails: this is a defect of Paceline".into())),
    }
}

#[cfg(test)]
mod tests;
