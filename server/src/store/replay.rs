//! Brings runs back from disk: the same batches in the same order through the same code as when they came.

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

/// Damaged files that a report names; of more it gives the number.
const MOST_NAMED: usize = 5;

/// Damage, among what is missing from a report.
pub const STORED_BATCHES: &str = "stored_batches";

/// All runs of a data directory.
#[derive(Default)]
pub struct Replayed {
    /// Those that could be read.
    pub runs: BTreeMap<RunId, Run>,
    /// Those that could not, and why. They are left as they are.
    pub aside: BTreeMap<RunId, String>,
}

/// Which of a run's files cannot be read or checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// What was acknowledged and is lost.
    pub damage: Vec<LogDamage>,
    /// Segments that an older program wrote without checksums.
    pub unchecked: usize,
}

impl Condition {
    /// Entries for [`Report::missing`](wire::views::Report::missing).
    #[must_use]
    pub fn to_missing(&self) -> BTreeMap<&'static str, String> {
        let mut missing = BTreeMap::new();
        if !self.damage.is_empty() {
            let batches: u64 = self.damage.iter().map(|damage| damage.batches).sum();
            let named = self.damage.iter().take(MOST_NAMED).map(|damage| damage.reason.as_str());
            let named = named.collect::<Vec<_>>().join("; ");
            let more = match self.damage.len().saturating_sub(MOST_NAMED) {
                0 => String::new(),
                more => format!("; and {more} more files"),
            };
            missing.insert(
                STORED_BATCHES,
                format!(
                    "the disk damaged at least {batches} stored batches, which no figure includes ({named}{more}); the \
                     damaged files are kept"
                ),
            );
        }
        if self.unchecked > 0 {
            missing.insert(
                "checksums",
                format!(
                    "{} segments have no checksum, since an older version wrote them: damage to them would not be noticed",
                    self.unchecked
                ),
            );
        }
        missing
    }
}

/// Replays one run; `None` when its directory holds no batch and never did.
///
/// # Errors
/// When its files cannot be read or hold something else.
pub fn run(layout: &Layout, id: &RunId) -> Result<Option<Run>, StoreError> {
    let mut replayed: Option<Run> = None;
    let condition = each_batch(&layout.folder(id), |Received { at, batch }| {
        let run = replayed.get_or_insert_with(|| Run::new(id.clone(), batch.world_size, at));
        // What was refused or repeated when it came is refused or repeated again.
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

/// Replays one run and shows every step from `first` to `last` as it closes, so that steps which are no longer
/// in the memory of any server can be shown as well. Clocks are as well known as they were then.
///
/// # Errors
/// When the run's files cannot be read or hold something else, and whatever `visit` fails with.
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

/// What a run says of itself at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Its name; runs of one name are compared.
    pub name: String,
    /// How many ranks it has.
    pub world_size: u32,
}

/// The introduction is looked for in this many batches: every rank introduces itself in its first.
const INTRODUCED_WITHIN: usize = 64;

/// Reads a run's introduction without replaying the run; `None` when its first batches have none.
///
/// # Errors
/// When its files cannot be read or hold something else.
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

/// The batches of a run, in the order they came; a batch that was stored twice comes twice.
///
/// # Errors
/// When the run's files cannot be listed, its manifest cannot be read, and whatever `visit` fails with.
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

/// Replays all runs. A run that cannot be read is set aside and left as it is on disk; the others are served.
///
/// # Errors
/// When the list of runs cannot be read.
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

/// Replays one run, whatever is on disk; an error says why it cannot be read.
#[must_use]
pub fn guarded_run(layout: &Layout, id: &RunId) -> Option<Result<Run, String>> {
    match catch_unwind(AssertUnwindSafe(|| run(layout, id))) {
        Ok(Ok(run)) => run.map(Ok),
        Ok(Err(error)) => Some(Err(error.to_string())),
        Err(_) => Some(Err("reading it fails: this is a defect of Paceline".into())),
    }
}

/// Runs that are replayed at a time when a server starts: each takes up to what a run may take in memory.
const AT_ONCE: usize = 4;

/// Does some work for every run, for a few at a time, and hands over what comes of it, in no particular order.
///
/// # Errors
/// When the list of runs cannot be read.
pub fn each<T: Send>(
    layout: &Layout,
    work: impl Fn(&RunId) -> T + Sync,
    mut visit: impl FnMut(T),
) -> Result<(), StoreError> {
    let ids = layout.runs()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(AT_ONCE).min(ids.len());
    let (next, work) = (AtomicUsize::new(0), &work);
    std::thread::scope(|scope| {
        // One of each thread may wait to be taken.
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
