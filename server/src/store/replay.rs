//! Brings runs back from disk: the same batches in the same order through the same code as when they came.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use wire::batch::Note;
use wire::ids::{RunId, Step};
use wire::live::Waterfall;

use super::directory::Layout;
use super::folder::RunFolder;
use super::manifest::{LogDamage, Manifest, Sealed};
use super::segment::Received;
use super::{StoreError, log, segment};
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
    // A server may be sealing. Logs first: what is missing there is in a manifest that is read after it.
    let logs = folder.logs()?;
    let mut manifest = Manifest::read(folder)?;
    let sealed = manifest.segments.iter().map(Sealed::number);
    let numbers: BTreeSet<u32> = logs.into_iter().chain(sealed).collect();
    let newest = numbers.last().copied();
    let mut condition = Condition::default();
    for &number in &numbers {
        let (batches, damage) = read(folder, &mut manifest, number, Some(number) == newest)?;
        condition.damage.extend(damage);
        batches.into_iter().try_for_each(&mut visit)?;
    }
    condition.unchecked = manifest.segments.iter().filter(|sealed| sealed.files.is_empty()).count();
    Ok(condition)
}

/// The batches of one number, from the segment if it is good, else from the log.
fn read(
    folder: &RunFolder,
    manifest: &mut Manifest,
    number: u32,
    is_newest: bool,
) -> Result<(Vec<Received>, Option<LogDamage>), StoreError> {
    let from_segment = |manifest: &Manifest| {
        let sealed = manifest.find(number)?.clone();
        Some(
            segment::read(folder, &sealed)
                .map(|batches| (batches, sealed.damage.clone()))
                .map_err(|error| (sealed, error)),
        )
    };
    let damaged = match from_segment(manifest) {
        Some(Ok(read)) => return Ok(read),
        Some(Err(damaged)) => Some(damaged),
        None => None,
    };
    match (log::read(folder, number, is_newest), damaged) {
        (Ok(read), _) => Ok(read),
        (Err(_), Some((sealed, error))) => {
            let lost = LogDamage { batches: sealed.batches.max(1), reason: error.to_string() };
            Ok((Vec::new(), Some(lost)))
        }
        // It may have been sealed a moment ago.
        (Err(error), None) => {
            *manifest = Manifest::read(folder)?;
            match from_segment(manifest) {
                Some(read) => read.map_err(|(_, error)| error),
                None => Ok((Vec::new(), Some(LogDamage { batches: 1, reason: error.to_string() }))),
            }
        }
    }
}

/// Replays all runs. A run that cannot be read is set aside and left as it is on disk; the others are served.
///
/// # Errors
/// When the list of runs cannot be read.
pub fn all(layout: &Layout) -> Result<Replayed, StoreError> {
    let mut all = Replayed::default();
    each(layout, |id, replayed| match replayed {
        Ok(run) => drop(all.runs.insert(id, run)),
        Err(reason) => drop(all.aside.insert(id, reason)),
    })?;
    Ok(all)
}

/// Replays all runs one after another, so that no more than one has to be in memory; an error says why a run cannot be
/// read.
///
/// # Errors
/// When the list of runs cannot be read.
pub fn each(layout: &Layout, mut visit: impl FnMut(RunId, Result<Run, String>)) -> Result<(), StoreError> {
    for id in layout.runs()? {
        match catch_unwind(AssertUnwindSafe(|| run(layout, &id))) {
            Ok(Ok(Some(run))) => visit(id, Ok(run)),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => visit(id, Err(error.to_string())),
            Err(_) => visit(id, Err("reading it fails: this is a defect of Paceline".into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
