//! Truncated copies of recorded traces import what they hold, and say that the rest is missing.

use std::path::{Path, PathBuf};

use import::job::{self, ImportedRank};
use wire::ids::RunId;

/// The shares of a file that are kept.
const KEPT: [f64; 3] = [0.3, 0.75, 0.99];

/// Returns all files in a folder and the folders in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.to_string_lossy().contains(".json") {
            found.push(path);
        }
    }
    found
}

/// Imports the begin of a file, and returns what it holds; `None` if it is refused.
fn imported(path: &Path, bytes: &[u8]) -> Option<ImportedRank> {
    let source = import::read(&path.to_string_lossy(), bytes).ok()?;
    let job = job::join(&RunId::new("cut").unwrap(), "cut", vec![source]).unwrap();
    job.ranks.into_iter().next()
}

#[test]
fn a_truncated_trace_imports_what_it_holds() {
    let Some(folder) = super::traces() else { return };
    let mut cut_traces = 0;
    for path in files(&folder) {
        let bytes = std::fs::read(&path).unwrap();
        let Some(whole) = imported(&path, &bytes) else { continue };
        let mut most = 0;
        for kept in KEPT {
            let cut = &bytes[..(bytes.len() as f64 * kept) as usize];
            // The events of some files begin after their first third.
            let Some(part) = imported(&path, cut) else { continue };
            let remarks = &part.remarks;
            let says = remarks.iter().any(|said| said.contains("ends early") || said.contains("damaged"));
            assert!(says, "{} cut to {kept}: {remarks:?}", path.display());
            assert!(part.kernels >= most && part.kernels <= whole.kernels, "{}", path.display());
            most = part.kernels;
            cut_traces += 1;
        }
        assert!(2 * most > whole.kernels, "{}: {most} of {} kernels", path.display(), whole.kernels);
    }
    assert!(cut_traces > 40, "{cut_traces} traces");
}
