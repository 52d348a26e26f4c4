//! Why a file is not read.

use std::io;

use crate::format::Format;
use crate::pickle::NotPlain;
use crate::pieces::NotATrace;
use crate::unpacked::FarLonger;

/// The largest number of kernels, copies and launches that are kept of one trace. They take at most 48 bytes each, so a
/// trace takes less than 1 GiB.
pub(crate) const MAX_TRACED: usize = 16_000_000;

/// The reason why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is not a trace.
    #[error(transparent)]
    NotATrace(#[from] NotATrace),
    /// It has no events.
    #[error(
        "it has no list of events (traceEvents), so it is not a trace of PyTorch's profiler, and it is not of any other format that is read"
    )]
    NoEvents,
    /// It has events, but nothing that a device ran.
    #[error("no kernel of a device is recorded in it")]
    NoWork,
    /// It has too many events.
    #[error("it has more than {MAX_TRACED} kernels and launches: trace fewer steps")]
    TooManyEvents,
    /// It is a pickle that holds more than plain data.
    #[error("it is a pickle, and {0}")]
    NotPlain(#[from] NotPlain),
    /// Its format is known, and its content is not as that format has it.
    #[error("it looks like {format}, and cannot be read as one: {why}")]
    Malformed {
        /// The format.
        format: Format,
        /// What is wrong, and where.
        why: String,
    },
    /// It is of a known format, and holds no collective.
    #[error("it is {0}, and no collective is recorded in it")]
    NoCollective(Format),
    /// It is too large.
    #[error("it is {format} of more than {most}, which is more than is read of this format")]
    TooLarge {
        /// The format.
        format: Format,
        /// The largest size, with its unit.
        most: String,
    },
    /// Its text is far longer than the file.
    #[error("it is compressed, and {0}")]
    Swollen(FarLonger),
    /// It is of a format that is not read.
    #[error("{0}")]
    Unsupported(&'static str),
}
