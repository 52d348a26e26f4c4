//! Imports of recorded traces. They are not part of the repository; without them, there is nothing to check.

mod names;
mod reference;
mod truncated;

use std::path::{Path, PathBuf};

/// Returns the folder of the recorded traces, if it is there.
#[allow(clippy::print_stderr, reason = "says that nothing is checked")]
fn traces() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces");
    if !folder.is_dir() {
        eprintln!("SKIP: no recorded traces at {}", folder.display());
        return None;
    }
    Some(folder)
}
