//! Dumps of PyTorch's flight recorder: one per rank, as a pickle or as JSON, of NCCL or gloo.
//!
//! The recorder keeps the newest collectives of a process in a ring. What it writes of their times differs in worth:
//!
//! - when the host issued a collective is exact, by the host's clock;
//! - when it began and ended is when a thread of the host noticed that, up to its polling interval later. With gloo, it is
//!   not written at all;
//! - how long it took is measured on the device, and only where timing is on (`TORCH_NCCL_ENABLE_TIMING=1`).
//!
//! What dumps tell best is which ranks of a hang are behind ([`findings`]).

mod dump;
mod hang;

use std::io::Read;

use crate::format::Format;
use crate::pickle::{self, Pickle};
use crate::unreadable::Unreadable;
use crate::whole;

pub use dump::{Counted, Dump, Entry, State};
pub use hang::{Findings, Hang, findings};

/// Reads a dump from its plain bytes.
///
/// # Errors
/// Returns an error if it is not a dump as releases from 2.4 of PyTorch write it, or if it neither holds nor counts a collective.
pub(crate) fn read(plain: impl Read) -> Result<Dump, Unreadable> {
    let bytes = whole::read(plain, Format::FlightRecorder)?;
    let malformed = |why: String| Unreadable::Malformed { format: Format::FlightRecorder, why };
    let dump = if bytes.first() == Some(&pickle::FIRST) {
        let pickle = Pickle::parse(&bytes)?;
        Dump::read(pickle.value()).map_err(|error| malformed(error.to_string()))?
    } else {
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        Dump::read(&mut json).map_err(|error| malformed(error.to_string()))?
    };
    if dump.entries.is_empty() && dump.counted.iter().all(|counted| counted.issued == 0) {
        return Err(Unreadable::NoCollective(Format::FlightRecorder));
    }
    Ok(dump)
}
