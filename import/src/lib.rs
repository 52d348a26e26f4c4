//! Reads what other tools recorded of a job, and turns it into Paceline's records.
//!
//! A file is read as a stream ([`pieces`]), because a trace may be larger than memory. What it holds becomes the trace of
//! one rank ([`kineto`]). The traces of several ranks become a job ([`job`]): ranks get their numbers, collectives are
//! matched, and what the device ran becomes the records ([`records`]) that an agent would have sent.
//!
//! Nothing is guessed without being said: a file that is damaged gives what it holds, and its [`kineto::Trace::remarks`]
//! say what is missing.

pub mod job;
pub mod kineto;
mod number;
pub mod pieces;
pub mod records;
mod remarks;

use std::io::Read;

pub use job::Source;
pub use kineto::Unreadable;
pub use remarks::Remarks;

/// Reads a file, which may be compressed. What it holds decides its format, not its name.
///
/// # Errors
/// Returns an error if nothing of the file can be read, or if it holds no work of a device.
pub fn read(file: &str, bytes: impl Read) -> Result<Source, Unreadable> {
    let trace = kineto::read(bytes)?;
    if trace.work.is_empty() {
        return Err(Unreadable::NoWork);
    }
    Ok(Source { file: file.to_owned(), trace })
}
