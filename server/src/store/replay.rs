//! Replays runs from disk: applies the same batches in the same order through the same code as when they arrived.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use wire::batch::Note;
use wire::ids::{RunId, Step};
use wire::live::Waterfall;

use super::StoreError;
use super::directory::Layout;
use super::files::Files;
use super::folder::RunFolder;
use super::manifest::LogDamage;
use super::segment::Received;
use crate::state::run::Run;

/// The largest number of damaged files that a report names. It counts the rest.
const MAX_NAMED: usize = 5;

/// The key of damage to stored batches in [`Report::missing`](wire::views::Report::missing).
pub const STORED_BATCHES: &str = "stored_batches";

/// All runs of a data directory.
#[derive(Default)]
pub struct Replayed {
    /// The readable runs.
    pub runs: BTreeMap<RunId, Run>,
    /// The unreadable runs, with the reason for each. Their files are left unchanged.
    pub aside: BTreeMap<RunId, String>,
}

/// The condition of a run's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Acknowledged batches that are lost.
    pub damage: Vec<LogDamage>,
    /// The number of segments without checksums, which an older version wrote.
    pub unchecked: usize,
}

impl Condition {
    /// Returns entries for [`Report::missing`](wire::views::Report::missing).
    #[must_use]
    pub fn to_missing(&self) -> BTreeMap<&'static str, String> {
        let mut missing = BTreeMap::new();
        if !self.damage.is_empty() {
            let batches: u64 = self.damage.iter().map(|damage| damage.batches).sum();
            let named = self.damage.iter().take(MAX_NAMED).map(|damage| damage.reason.as_str());
            let named = named.collect::<Vec<_>>().join("; ");
            let more = match self.damage.len().saturating_sub(MAX_NAMED) {
                0 => String::new(),
                more => format!("; and {more} more files"),
            };
            missing.insert(
                STORED_BATCHES,
                format!(
                    "the disk damaged at least {batches} stored {}, which no figure includes ({named}{more}); \
                     the damaged files are kept",
                    if batches == 1 { "batch" } else { "batches" }
                ),
            );
        }
        if self.unchecked > 0 {
            missing.insert(
                "checksums",
                format!(
                    "{} segments have no checksum, because an older version wrote them: damage to them is not detected",
                    self.unchecked
                ),
            );
        }
        missing
    }
}

/// Replays one run. Returns `None` if its directory holds no batch and never did.
///
/// # Errors
/// Returns an error if the run's files cannot be read or have invalid content, or if no batch is left undamaged.
pub fn run(layout: &Layout, id: &RunId) -> Result<Option<Run>, StoreError> {
    let mut replayed: Option<Run> = None;
    let condition = each_batch(&layout.folder(id), |Received { at, batch }| {
        let run = replayed.get_or_insert_with(|| Run::new(id.clone(), batch.world_size, at));
        // Batches that were refused or duplicate when they arrived are so again.
        let _refused_again = run.apply(batch, at);
        Ok::<(), StoreError>(())
    })?;
    if replayed.is_none() && !condition.damage.is_empty() {
        let reasons: Vec<String> = condition.to_missing().into_values().collect();
        return Err(StoreError::content(&layout.run(id), reasons.join("; ")));
    }
    if let Some(run) = &mut replayed {
        run.set_storage_gaps(condition.to_missing());
    }
    Ok(replayed)
}

/// Replays one run and passes the waterfall of every step from `first` to `last` to `visit` as the step closes. This
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
    let mut replayed: Option<Run> = None;
    each_batch(&layout.folder(id), |Received { at, batch }| {
        let run = replayed.get_or_insert_with(|| Run::new(id.clone(), batch.world_size, at));
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

/// The description of a run in its first hello message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The run's name. Runs of one name are compared with each other.
    pub name: String,
    /// The world size.
    pub world_size: u32,
}

/// The number of batches in which the introduction is searched for. Every rank introduces itself in its first batch.
const INTRODUCED_WITHIN: usize = 64;

/// Reads a run's introduction without replaying the run. Returns `None` if its first batches have none.
///
/// # Errors
/// Returns an error if the run's files cannot be read or have invalid content.
pub fn introduction(layout: &Layout, id: &RunId) -> Result<Option<Introduction>, StoreError> {
    enum Found {
        Introduction(Option<Introduction>),
        Failed(StoreError),
    }
    impl From<StoreError> for Found {
        fn from(error: StoreError) -> Self {
            Self::Failed(error)
        }
    }
    let mut seen = 0;
    let looked = each_batch(&layout.folder(id), |Received { batch, .. }| {
        seen += 1;
        let hello = batch.notes.iter().find_map(|note| match note {
            Note::Hello(hello) => Some(hello.name.clone()),
            _ => None,
        });
        match hello {
            Some(name) => Err(Found::Introduction(Some(Introduction { name, world_size: batch.world_size }))),
            None if seen == INTRODUCED_WITHIN => Err(Found::Introduction(None)),
            None => Ok(()),
        }
    });
    match looked {
        Ok(_) => Ok(None),
        Err(Found::Introduction(found)) => Ok(found),
        Err(Found::Failed(error)) => Err(error),
    }
}

/// Passes the batches of a run to `visit` in the order of their arrival. A batch that was stored twice is passed twice.
///
/// # Errors
/// Returns an error if the run's files cannot be listed or its manifest cannot be read, or the error of `visit`.
pub fn each_batch<E: From<StoreError>>(
    folder: &RunFolder,
    mut visit: impl FnMut(Received) -> Result<(), E>,
) -> Result<Condition, E> {
    let mut files = Files::list(folder)?;
    let mut condition = Condition { damage: Vec::new(), unchecked: files.unchecked() };
    for number in files.numbers() {
        let (batches, damage) = files.read(number, None)?;
        condition.damage.extend(damage);
        batches.into_iter().try_for_each(&mut visit)?;
    }
    Ok(condition)
}

/// Replays all runs. A run that cannot be read is set aside, and its files are left unchanged. Other runs are served as
/// before.
///
/// # Errors
/// Returns an error if the runs cannot be listed.
pub fn all(layout: &Layout) -> Result<Replayed, StoreError> {
    let mut all = Replayed::default();
    each(
        layout,
        |id| (id.clone(), guarded_run(layout, id)),
        |(id, replayed)| match replayed {
            Some(Ok(run)) => drop(all.runs.insert(id, run)),
            Some(Err(reason)) => drop(all.aside.insert(id, reason)),
            None => {}
        },
    )?;
    Ok(all)
}

/// Replays one run and catches panics. An error is the reason why the run cannot be read.
#[must_use]
pub fn guarded_run(layout: &Layout, id: &RunId) -> Option<Result<Run, String>> {
    match catch_unwind(AssertUnwindSafe(|| run(layout, id))) {
        Ok(Ok(run)) => run.map(Ok),
        Ok(Err(error)) => Some(Err(error.to_string())),
        Err(_) => Some(Err("reading this run fails: this is a defect of Paceline".into())),
    }
}

/// The largest number of runs replayed at a time when a server starts. Each takes up to the memory of a run.
const AT_ONCE: usize = 4;

/// Runs `work` for every run, a few at a time, and passes the results to `visit` in no particular order.
///
/// # Errors
/// Returns an error if the runs cannot be listed.
pub fn each<T: Send>(
    layout: &Layout,
    work: impl Fn(&RunId) -> T + Sync,
    mut visit: impl FnMut(T),
) -> Result<(), StoreError> {
    let ids = layout.runs()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(AT_ONCE).min(ids.len());
    let (next, work) = (AtomicUsize::new(0), &work);
    std::thread::scope(|scope| {
        // Each thread may have one result that waits for `visit`.
        let (done, results) = sync_channel(threads);
        for _ in 0..threads {
            let (done, ids, next) = (done.clone(), &ids, &next);
            scope.spawn(move || {
                while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if done.send(work(id)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        results.into_iter().for_each(&mut visit);
    });
    Ok(())
}

#[cfg(test)]
mod tests;
