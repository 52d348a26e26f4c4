//! What decoders of this crate promise for any bytes: an error or a value, within the memory that is declared, and never
//! a value that means something else than the bytes do.
#![cfg(feature = "compress")]

mod codec;
mod live;

use fuzz::Verdict;

/// What `work` gives, and the most memory that it held meanwhile.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let mut out = None;
    let used = allocation_counter::measure(|| out = Some(work()));
    (out.expect("it was called"), used.bytes_max as usize)
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}
