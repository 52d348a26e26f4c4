//! Batches on disk as a server leaves them, for tests and benches that read a data directory.

use std::fs;
use std::path::{Path, PathBuf};

use paceline::store::directory::Layout;
use paceline::store::log_format::write_entry;
use paceline::store::segment::Received;
use wire::batch::{Batch, Bye, Note};
use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};
use wire::event::{Event, StepRecord};
use wire::fixtures;
use wire::ids::{BatchSeq, RunId, Step};

/// Returns a log as the server writes it.
#[must_use]
pub fn log(batches: &[Received], frames: &[Vec<u8>]) -> Vec<u8> {
    let mut log = Vec::new();
    for (Received { at, .. }, frame) in batches.iter().zip(frames) {
        let offset = log.len() as u64;
        write_entry(&mut log, offset, *at, frame);
    }
    log
}

/// Writes the batches of one run into a data directory. Returns the path of the log.
///
/// # Errors
/// Returns an error if the log cannot be written.
///
/// # Panics
/// Panics if there is no batch, or if a batch is too large, which simulated batches are not.
pub fn store(data: &Path, batches: &[Received]) -> std::io::Result<PathBuf> {
    let frames: Vec<Vec<u8>> = batches
        .iter()
        .map(|received| wire::codec::encode(&received.batch).expect("a simulated batch is valid"))
        .collect();
    let run = Layout::new(data).run(&batches[0].batch.run);
    fs::create_dir_all(&run)?;
    let path = run.join("log-000001.plog");
    fs::write(&path, log(batches, &frames))?;
    Ok(path)
}

/// Returns batch `seq` of a run of one rank. It has one step with index `seq`, of 0.9 ms.
#[must_use]
pub fn one_step(run: &RunId, seq: u64) -> Batch {
    let at = MonoNanos(seq as i64 * 1_000_000);
    let record = StepRecord { step: Step(seq), begin: at, end: at + 900_000, samples: 1, shadow: false };
    Batch {
        run: run.clone(),
        seq: BatchSeq(seq),
        anchor: ClockAnchor { mono: at, unix: UnixNanos(0) },
        events: vec![Event::Step(record)],
        ..fixtures::batch()
    }
}

/// Returns the same batch with the end-of-run message.
#[must_use]
pub fn one_step_and_goodbye(run: &RunId, seq: u64) -> Batch {
    let bye = Note::Bye(Bye { completed: true, reason: String::new() });
    Batch { notes: vec![bye], ..one_step(run, seq) }
}
