//! A directory of Chrome traces with one file per rank, `rank-N.json.gz`, as HolisticTraceAnalysis expects.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use wire::live::Waterfall;
use wire::views::RunSummary;

use super::{Events, TAIL, head};
use crate::export::model;

/// The amount of text per rank that is compressed at once, in bytes. With 4,096 ranks it takes at most 256 MiB.
const CHUNK: usize = 64 << 10;

/// A writer of all ranks. No file stays open, because a run may have more ranks than a process may open files.
pub struct Directory {
    ranks: Vec<RankFile>,
    world_size: u32,
}

struct RankFile {
    path: PathBuf,
    waiting: Vec<u8>,
    launches: u64,
}

impl Directory {
    /// Creates the directory and begins the file of each rank.
    ///
    /// # Errors
    /// Returns an error if the directory or a file cannot be written.
    pub fn begin(path: &Path, run: &RunSummary) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let begin = |rank: u32| {
            let path = path.join(format!("rank-{rank}.json.gz"));
            // An older file is replaced. Otherwise the new trace would be appended to it.
            fs::write(&path, b"")?;
            Ok(RankFile { path, waiting: head(run, &[rank]).into_bytes(), launches: 0 })
        };
        let ranks = (0..run.most_ranks).map(begin).collect::<io::Result<_>>()?;
        Ok(Self { ranks, world_size: run.ranks_expected })
    }

    /// Adds a step.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn step(&mut self, step: &Waterfall) -> io::Result<()> {
        for rank in model::ranks(step, None) {
            let Some(file) = self.ranks.get_mut(rank.rank as usize) else { continue };
            let (out, launches, world_size) = (&mut file.waiting, &mut file.launches, self.world_size);
            Events { out, launches, world_size }.rank(&rank)?;
            if file.waiting.len() >= CHUNK {
                file.write_out()?;
            }
        }
        Ok(())
    }

    /// Ends all files and returns their number.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn finish(mut self) -> io::Result<usize> {
        for file in &mut self.ranks {
            file.waiting.extend_from_slice(TAIL.as_bytes());
            file.write_out()?;
        }
        Ok(self.ranks.len())
    }
}

impl RankFile {
    /// Compresses the waiting text and appends it as a gzip member. Readers treat several members as one file.
    fn write_out(&mut self) -> io::Result<()> {
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(&self.waiting)?;
        self.waiting.clear();
        OpenOptions::new().append(true).open(&self.path)?.write_all(&member.finish()?)
    }
}
