//! Fuzz tests of everything the server reads: from the network, and from its own disk after damage.

mod http;
mod live;
mod log;
mod manifest;
mod memory;
mod odd;
mod segment;
mod server;

use fuzz::Verdict;

/// Files that released versions wrote.
const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/stored");
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
