//! Brings runs back from disk: the same batches in the same order through the same code as when they came.

use std::collections::BTreeMap;

use wire::batch::Note;
use wire::ids::{RunId, Step};
use wire::live::Waterfall;

use super::directory::Layout;
use super::{StoreError, log, segment};
use crate::state::run::Run;

/// Replays one run; `None` when its directory holds no batch.
///
/// # Errors
/// When its files cannot be read or hold something else.
pub fn run(layout: &Layout, id: &RunId) -> Result<Option<Run>, StoreError> {
    let mut replayed: Option<Run> = None;
    each_batch(layout, id, |segment::Received { at, batch }| {
        let run = replayed.get_or_insert_with(|| Run::new(id.clone(), batch.world_size, at));
        // What was refused or repeated when it came is refused or repeated again.
        let _refused_again = run.apply(batch, at);
        Ok::<(), StoreError>(())
    })?;
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
    each_batch(layout, id, |segment::Received { at, batch }| {
        let run = replayed.get_or_insert_with(|| Run::new(id.clone(), batch.world_size, at));
        let closed = run.apply(batch, at).unwrap_or_default();
        for step in closed.iter().map(|closed| closed.step).filter(|step| (first..=last).contains(step)) {
            if let Some(waterfall) = run.waterfall(Some(step)) {
                visit(&waterfall)?;
            }
        }
        Ok(())
    })
}

/// What a run says of itself at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Its name; runs of one name are compared.
    pub name: String,
    /// How many ranks it has.
    pub world_size: u32,
}

/// How far the introduction of a run is looked for: every rank introduces itself in its first batch.
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
    let looked = each_batch(layout, id, |segment::Received { batch, .. }| {
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
        Ok(()) => Ok(None),
        Err(Found::Introduction(found)) => Ok(found),
        Err(Found::Failed(error)) => Err(error),
    }
}

/// The batches of a run, in the order they came.
fn each_batch<E: From<StoreError>>(
    layout: &Layout,
    id: &RunId,
    mut visit: impl FnMut(segment::Received) -> Result<(), E>,
) -> Result<(), E> {
    let path = layout.run(id);
    let manifest = segment::manifest(&path)?;
    for name in &manifest.segments {
        segment::read(&path.join(name))?.into_iter().try_for_each(&mut visit)?;
    }
    for log_path in log::logs(&path)? {
        if !is_sealed(&manifest, &log_path) {
            segment::read_log(&log_path)?.into_iter().try_for_each(&mut visit)?;
        }
    }
    Ok(())
}

/// A log whose segment counts was only not deleted yet.
fn is_sealed(manifest: &segment::Manifest, log_path: &std::path::Path) -> bool {
    let stem = log_path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    manifest.segments.contains(&stem.replace("log-", "segment-"))
}

/// Replays all runs. A run that cannot be read is reported and left as it is on disk; the others are served.
///
/// # Errors
/// When the list of runs cannot be read.
pub fn all(layout: &Layout) -> Result<BTreeMap<RunId, Run>, StoreError> {
    let mut runs = BTreeMap::new();
    for id in layout.runs()? {
        match run(layout, &id) {
            Ok(Some(run)) => drop(runs.insert(id, run)),
            Ok(None) => {}
            Err(error) => tracing::error!(run = %id, %error, "this run cannot be read and is not shown"),
        }
    }
    Ok(runs)
}

/// Seals every log of runs that are over; called when no log is being written yet.
///
/// # Errors
/// When a segment cannot be written; its log is then still there.
pub fn seal_ended(layout: &Layout, ended: impl IntoIterator<Item = RunId>) -> Result<(), StoreError> {
    for id in ended {
        let path = layout.run(&id);
        for log_path in log::logs(&path)? {
            segment::seal(&path, &log_path)?;
        }
    }
    Ok(())
}
