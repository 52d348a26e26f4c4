//! Imports: files of other tools become a run. The crate `import` reads what a file holds; what a server and a command line do
//! with it is here, and `http/imports.rs` and `cli/imports.rs` only translate.
//!
//! * [`paths`] finds and reads the files that a command line names, and [`arriving`] reads files while a server receives them.
//! * [`Files::join`] makes a run of them, and [`summary`] says what became of each.
//! * [`storing`] stores the run's batches, here or on another server.
//! * [`places`] limits how many imports a server makes at a time.

pub mod arriving;
pub mod paths;
pub mod places;
pub mod storing;
mod text;

use import::job::{self, ImportedRank, Job, NotAJob, Round};
use import::{RankRecording, Source, Unreadable};
use wire::ids::{Rank, RunId};
use wire::views::imports::{ImportedFile, ImportedRun, SkippedFile};

use crate::printable::one_line;

pub use text::summary;

/// The number of skipped files whose reasons an error lists.
const REASONS_SHOWN: usize = 5;

/// The files of an import that have been read so far.
#[derive(Debug, Default)]
pub struct Files {
    sources: Vec<Source>,
    skipped: Vec<SkippedFile>,
}

/// A run that is read but not stored.
#[derive(Debug)]
pub struct Read {
    /// What became of the files.
    pub imported: ImportedRun,
    /// The batches to store, packed. A round is to be stored whole before the next one.
    pub rounds: Vec<Round>,
}

/// The reason why files do not become a run.
#[derive(Debug, thiserror::Error)]
pub enum NotImported {
    /// No file can be read.
    #[error("{}{}", nothing_imported(.0.len()), reasons(.0))]
    Nothing(Vec<SkippedFile>),
    /// The files are not of one job.
    #[error(transparent)]
    NotAJob(#[from] NotAJob),
}

impl Files {
    /// Adds what [`import::read`] returned for a file. A file that cannot be read is skipped, and the others count.
    pub fn add(&mut self, file: &str, read: Result<Source, Unreadable>) {
        match read {
            Ok(source) => self.sources.push(source),
            Err(error) => self.skipped.push(SkippedFile {
                file: file.to_owned(),
                // It may quote what is in the file.
                reason: one_line(&error.to_string()).into_owned(),
            }),
        }
    }

    /// Returns the number of files, with those that are skipped.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sources.len() + self.skipped.len()
    }

    /// Returns a name for the run of these files, without those that are skipped ([`name_of`]).
    #[must_use]
    pub fn name(&self) -> String {
        name_of(&self.sources.iter().map(|source| source.file.as_str()).collect::<Vec<_>>())
    }

    /// Returns the number of kernels, copies, launches and collectives that are held in memory.
    #[must_use]
    pub fn held(&self) -> usize {
        self.sources.iter().flat_map(|source| &source.ranks).map(RankRecording::held).sum()
    }

    /// Joins the files as the run `run`, of this name.
    ///
    /// # Errors
    /// Returns an error if no file could be read, or if they are not of one job.
    pub fn join(self, run: &RunId, name: &str) -> Result<Read, NotImported> {
        let Self { sources, skipped } = self;
        if sources.is_empty() {
            return Err(NotImported::Nothing(skipped));
        }
        let Job { ranks, world_size, rounds, remarks } = job::join(run, name, sources)?;
        let remarks = remarks.into_iter().chain(remarks_with_ranks(&ranks)).collect();
        let imported = ImportedRun {
            run: run.clone(),
            name: name.to_owned(),
            world_size,
            ranks: ranks.into_iter().map(file).collect(),
            skipped,
            remarks,
        };
        Ok(Read { imported, rounds })
    }
}

fn file(rank: ImportedRank) -> ImportedFile {
    let ImportedRank { rank, file, steps, kernels, collectives, .. } = rank;
    ImportedFile { rank: Rank(rank), file, steps, kernels, collectives }
}

/// Returns the remarks on files, each once, with the ranks that it concerns.
fn remarks_with_ranks(ranks: &[ImportedRank]) -> Vec<String> {
    let mut by_text: Vec<(&str, Vec<&ImportedRank>)> = Vec::new();
    for rank in ranks {
        for remark in &rank.remarks {
            match by_text.iter_mut().find(|(text, _)| text == remark) {
                Some((_, ranks)) => ranks.push(rank),
                None => by_text.push((remark, vec![rank])),
            }
        }
    }
    let line = |(text, concerned): (&str, Vec<&ImportedRank>)| match &concerned[..] {
        all if all.len() == ranks.len() => text.to_owned(),
        [rank] => format!("rank {} ({}): {text}", rank.rank, rank.file),
        some => {
            let numbers: Vec<String> = some.iter().map(|rank| rank.rank.to_string()).collect();
            format!("ranks {}: {text}", numbers.join(", "))
        }
    };
    by_text.into_iter().map(line).collect()
}

fn nothing_imported(files: usize) -> String {
    match files {
        1 => "the file cannot be imported".into(),
        _ => format!("none of the {files} files can be imported"),
    }
}

fn reasons(skipped: &[SkippedFile]) -> String {
    let listed = skipped.iter().take(REASONS_SHOWN).map(|file| format!("{}: {}", file.file, file.reason));
    let more = skipped.len().saturating_sub(REASONS_SHOWN);
    let more = (more > 0).then(|| format!("and {more} more"));
    let all = listed.chain(more).collect::<Vec<_>>().join("; ");
    if all.is_empty() { all } else { format!(": {all}") }
}

/// Returns a name for the run of files with these names: the part before the first dot that they begin with alike. Numbers
/// at its end count ranks, so they are left out, unless there is only one file.
fn name_of(files: &[&str]) -> String {
    let mut stems = files.iter().map(|file| file.split('.').next().unwrap_or_default());
    let Some(first) = stems.next() else { return "imported".into() };
    let mut common = first.to_owned();
    for stem in stems {
        let same = common.chars().zip(stem.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a);
        common = same.collect();
    }
    let name = match files {
        [_] => common.as_str(),
        _ => common.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '-' | '_')),
    };
    if name.is_empty() { "imported".into() } else { name.to_owned() }
}

#[cfg(test)]
mod tests;
