//! The versions of the job's software, learned before its ranks are known.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use wire::attributes::{MAX_ATTRIBUTES, MAX_NAME_BYTES, MAX_VALUE_BYTES};

/// The version of each component that a hook reported, by name.
static KNOWN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// The number of versions learned so far.
static LEARNED: AtomicU64 = AtomicU64::new(0);

/// Remembers the version of a component. A name or version that is too long is ignored, and so are components beyond
/// [`MAX_ATTRIBUTES`].
pub(crate) fn learn(name: &str, version: &str) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = name.len() <= MAX_NAME_BYTES && version.len() <= MAX_VALUE_BYTES;
    if fits && known.len() < MAX_ATTRIBUTES {
        known.insert(name.to_owned(), version.to_owned());
        LEARNED.fetch_add(1, Ordering::Release);
    }
}

/// Returns a number that grows whenever more is known.
pub(crate) fn learned() -> u64 {
    LEARNED.load(Ordering::Acquire)
}

/// Returns the versions known so far, with that of the NCCL that the process has loaded.
pub(crate) fn known() -> BTreeMap<String, String> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    known.extend(gpu::nccl::mapped().map(|nccl| ("nccl".to_owned(), nccl.version.to_string())));
    known
}
