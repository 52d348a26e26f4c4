//! Tests of data directories of every format version, stored in `server/tests/data/stored`.
//!
//! Each holds a run of `char_lm` with 24 steps on two ranks. In `sealed` the run ended. In `logs` the server was killed
//! and not restarted. In `both` it was killed and restarted.

use std::path::Path;

use wire::views::GapKind;

use super::*;
use crate::store::sealer;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Returns the number of steps of the only run in a data directory, and the kinds of its gaps.
fn steps(layout: &Layout) -> (usize, Vec<GapKind>) {
    let mut all = all(layout).unwrap();
    assert_eq!(all.aside, BTreeMap::new());
    let (id, run) = all.runs.pop_first().unwrap();
    let condition = each_batch(&layout.folder(&id), |_| Ok::<(), StoreError>(())).unwrap();
    (run.steps().newest(usize::MAX).len(), condition.to_gaps(None).into_iter().map(|gap| gap.kind).collect())
}

/// Restores a data directory twice, as a server does, and seals all of it in between.
fn check(name: &str, expected: usize, gaps: &[GapKind]) {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stored").join(name);
    let directory = tempfile::tempdir().unwrap();
    copy(&stored, directory.path());
    let layout = Layout::new(directory.path());
    assert_eq!(steps(&layout), (expected, gaps.to_vec()), "{name}");
    let folder = layout.folder(&layout.runs().unwrap()[0]);
    sealer::seal(&folder, folder.newest().unwrap()).unwrap();
    assert_eq!(folder.logs().unwrap(), [0_u32; 0], "{name}");
    assert_eq!(steps(&layout), (expected, gaps.to_vec()), "{name}, sealed");
}

#[test]
fn data_directories_of_every_version_are_read() {
    check("v1/logs", 6, &[]);
    check("v1/sealed", 24, &[GapKind::Checksums]);
    check("v1/both", 24, &[GapKind::Checksums]);
    check("v2/logs", 2, &[]);
    check("v2/sealed", 24, &[]);
    check("v2/both", 24, &[]);
    check("v3/logs", 7, &[]);
    check("v3/sealed", 24, &[]);
    check("v3/both", 24, &[]);
    check("v4/logs", 5, &[]);
    check("v4/sealed", 24, &[]);
    check("v4/both", 24, &[]);
}

/// Without checksums, damage may not be detected, and the report says so. No damage may end the program.
#[test]
fn a_damaged_segment_without_checksums_is_reported_or_its_run_is_set_aside() {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stored/v1/sealed");
    let directory = tempfile::tempdir().unwrap();
    copy(&stored, directory.path());
    let layout = Layout::new(directory.path());
    let id = layout.runs().unwrap().remove(0);
    for file in ["steps.parquet", "batches.parquet", "notes.json"] {
        let path = layout.folder(&id).segment(1).join(file);
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(23) {
            let mut spoilt = whole.clone();
            spoilt[at] ^= 1 << (at % 8);
            std::fs::write(&path, &spoilt).unwrap();
            let AllRuns { mut runs, aside } = all(&layout).unwrap();
            match runs.remove(&id) {
                Some(run) => {
                    let gaps = run.report(1, run.first_seen()).gaps;
                    assert!(gaps.iter().any(|gap| gap.kind == GapKind::Checksums));
                }
                None => assert!(aside.contains_key(&id), "{file} at {at}"),
            }
        }
        std::fs::write(&path, &whole).unwrap();
    }
}
