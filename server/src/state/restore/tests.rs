//! Tests of data directories of every format version, stored in `server/tests/data/stored`.
//!
//! Each holds two runs of `char_lm` with 24 steps on two ranks. In `both` the server was killed and restarted, and
//! has sealed all logs. In `logs` it was killed and not restarted.

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

/// Returns the directory of a version, as a copy that tests may change.
fn stored(version: &str) -> (tempfile::TempDir, Layout) {
    let directory = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stored").join(version), directory.path());
    let layout = Layout::new(directory.path());
    (directory, layout)
}

/// Returns the number of steps of each run in a data directory. No run may have a gap.
fn steps(layout: &Layout) -> Vec<usize> {
    let all = all(layout).unwrap();
    assert_eq!(all.aside, BTreeMap::new());
    let restored = |(id, run): (RunId, Run)| {
        let condition = each_batch(&layout.folder(&id), |_| Ok::<(), StoreError>(())).unwrap();
        assert_eq!(condition.gaps(None), []);
        run.steps().newest(usize::MAX).len()
    };
    all.runs.into_iter().map(restored).collect()
}

/// Restores a data directory twice, as a server does, and seals all of it in between.
#[test]
fn data_directories_of_every_version_are_read() {
    for (version, expected) in [("v1", [24, 5])] {
        let (_directory, layout) = stored(version);
        assert_eq!(steps(&layout), expected, "{version}");
        for id in layout.runs().unwrap() {
            let folder = layout.folder(&id);
            sealer::seal(&folder, folder.newest().unwrap()).unwrap();
            assert_eq!(folder.logs().unwrap(), [0_u32; 0], "{version}");
        }
        assert_eq!(steps(&layout), expected, "{version}, sealed");
    }
}

/// Without a manifest, damage may not be detected, and the report says so. No damage may end the program.
#[test]
fn a_damaged_segment_without_checksums_is_reported_or_its_run_is_set_aside() {
    let (_directory, layout) = stored("v1");
    let id = layout.runs().unwrap().into_iter().find(|id| id.as_str().starts_with("both")).unwrap();
    std::fs::remove_file(layout.run(&id).join("manifest.json")).unwrap();
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
