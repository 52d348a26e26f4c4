//! The labels that the job states, until the observer thread sends them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use wire::attributes::{MAX_ATTRIBUTES, label};

/// The value of each label by its key.
static STATED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// How often a label was stated.
static TIMES: AtomicU64 = AtomicU64::new(0);

/// Remembers a label. A text that is not that of a label is ignored, and so are keys beyond [`MAX_ATTRIBUTES`].
pub(crate) fn learn(key: &str, value: &str) {
    let Ok((key, value)) = label(key, value) else { return };
    let mut stated = STATED.lock().unwrap_or_else(PoisonError::into_inner);
    if stated.len() < MAX_ATTRIBUTES || stated.contains_key(&key) {
        stated.insert(key, value);
        TIMES.fetch_add(1, Ordering::Release);
    }
}

/// Returns how often a label was stated, and the labels, if that is more than `times`.
pub(crate) fn newer_than(times: u64) -> Option<(u64, BTreeMap<String, String>)> {
    let now = TIMES.load(Ordering::Acquire);
    (now > times).then(|| (now, STATED.lock().unwrap_or_else(PoisonError::into_inner).clone()))
}
