//! What decoders of this crate promise for any bytes: an error or a value, within the memory that is declared, and never
//! a value that means something else than the bytes do.
#![cfg(feature = "compress")]

mod codec;
mod live;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fuzz::Verdict;

/// What `work` gives, and the most memory that it held meanwhile.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let mut out = None;
    // The counter must see its own end: a panic that passes it by is counted in for ever.
    let used = allocation_counter::measure(|| out = Some(catch_unwind(AssertUnwindSafe(work))));
    match out.expect("it was called") {
        Ok(given) => (given, used.bytes_max as usize),
        Err(panic) => resume_unwind(panic),
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}
