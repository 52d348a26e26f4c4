//! Fuzz targets for the decoders of this crate. For any bytes, a decoder returns an error or a value, stays within its
//! memory limit, and never misreads the bytes as another value.
#![cfg(feature = "compress")]

mod codec;
mod live;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fuzz::Verdict;

/// Returns the result of `work` and the most memory that it held.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let mut out = None;
    // The counter must end regularly. Memory of a panic that unwinds past it would be counted forever.
    let used = allocation_counter::measure(|| out = Some(catch_unwind(AssertUnwindSafe(work))));
    match out.expect("it was called") {
        Ok(given) => (given, used.bytes_max as usize),
        Err(panic) => resume_unwind(panic),
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}
