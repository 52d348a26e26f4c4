//! Tests of the files of the log.

use std::slice::from_ref;

use super::*;
use crate::store::{log_format as format, losses};

fn record(text: &str) -> Record {
    Record { received: ServerNanos(1), frame: Bytes::copy_from_slice(text.as_bytes()), decoded_bytes: 1 }
}

fn runs(count: usize) -> Vec<RunId> {
    (0..count).map(|run| RunId::new(format!("r{run}")).unwrap()).collect()
}

/// Returns the number of batches that are lost.
fn batches(lost: &[Loss]) -> u64 {
    lost.iter().map(|loss| loss.batches).sum()
}

/// Returns the frames in each log of a run.
fn frames(layout: &Layout, run: &RunId) -> Vec<Vec<Vec<u8>>> {
    let folder = layout.folder(run);
    let read = |number| format::read(&folder.disk.read(&folder.log(number)).unwrap());
    let frames = |number| read(number).entries.into_iter().map(|entry| entry.frame).collect();
    folder.logs().unwrap().into_iter().map(frames).collect()
}

#[test]
fn many_runs_share_few_open_files_and_each_continues_its_log() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    let mut writer = Writer::new(layout.clone()).holding_open(3);
    let runs = runs(10);
    for round in ["a", "b", "c"] {
        for run in &runs {
            assert_eq!(writer.append(run, &[record(round)]).unwrap(), Appended::default());
            assert!(writer.open_files() <= 3);
        }
    }
    for run in &runs {
        assert_eq!(frames(&layout, run), [[b"a", b"b", b"c"]], "{run}");
        assert_eq!(writer.close(run).unwrap(), Some(Closed { run: run.clone(), last: 1 }));
    }
    assert_eq!((writer.open_files(), writer.logs.len()), (0, 0));
}

#[test]
fn a_log_is_closed_when_its_batches_are_large_once_they_are_decoded() {
    let root = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(Layout::new(root.path()));
    let run = RunId::new("r").unwrap();
    let half = Record { decoded_bytes: ROTATE_DECODED_BYTES / 2, ..record("a") };
    let full = |writer: &mut Writer| writer.append(&run, from_ref(&half)).unwrap().full;
    assert_eq!(full(&mut writer), None);
    assert_eq!(full(&mut writer), Some(Closed { run: run.clone(), last: 1 }));
    assert_eq!(full(&mut writer), None, "a new log");
}

#[test]
fn a_log_whose_length_changed_while_closed_is_not_appended_to() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    let mut writer = Writer::new(layout.clone());
    let [cut, removed, kept] = &runs(3)[..] else { unreachable!() };
    for run in [cut, removed, kept] {
        writer.append(run, &[record("a")]).unwrap();
    }
    writer.rest();
    assert_eq!(writer.open_files(), 3, "all were written to since the last call");
    writer.append(kept, &[record("b")]).unwrap();
    writer.rest();
    assert_eq!(writer.open_files(), 1);
    let log = |run| layout.folder(run).log(1);
    std::fs::write(log(cut), b"").unwrap();
    std::fs::remove_file(log(removed)).unwrap();
    let lost = [cut, removed, kept].map(|run| writer.append(run, &[record("c")]).unwrap().lost);
    assert_eq!(lost.each_ref().map(|lost| batches(lost)), [1, 1, 0]);
    let written = |run| losses::read(&layout.folder(run)).unwrap();
    assert_eq!((written(cut), written(kept)), (lost[0].clone(), vec![]));
    assert_eq!(frames(&layout, cut), [vec![], vec![b"c".to_vec()]]);
    assert_eq!(frames(&layout, removed), [[b"c"]]);
    assert_eq!(frames(&layout, kept), [[b"a", b"b", b"c"]]);
}

#[test]
fn a_batch_is_never_acknowledged_into_a_file_without_a_name() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    let mut writer = Writer::new(layout.clone());
    let [run, ..] = &runs(1)[..] else { unreachable!() };
    writer.append(run, &[record("a"), record("b")]).unwrap();
    std::fs::remove_dir_all(layout.run(run)).unwrap();
    let lost = writer.append(run, &[record("c")]).unwrap().lost;
    assert_eq!((batches(&lost), lost[0].reason.starts_with("log-000001.plog was removed")), (2, true));
    assert_eq!(layout.folder(run).logs().unwrap(), [2]);
    // Somewhere else, the file still has a name.
    std::fs::rename(layout.run(run), root.path().join("elsewhere")).unwrap();
    assert_eq!(batches(&writer.append(run, &[record("d")]).unwrap().lost), 1);
    assert_eq!(frames(&layout, run), [[b"d"]]);
}

/// Appends one batch to the only run, and returns how many batches were found to be lost.
fn lost(writer: &mut Writer, run: &RunId) -> u64 {
    batches(&writer.append(run, &[record("x")]).unwrap().lost)
}

/// Returns how many batches the list of losses on disk counts.
fn listed(layout: &Layout, run: &RunId) -> u64 {
    batches(&losses::read(&layout.folder(run)).unwrap())
}

#[test]
fn what_was_stored_before_the_server_started_is_missed() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    let [run, ..] = &runs(1)[..] else { unreachable!() };
    Writer::new(layout.clone()).append(run, &[record("a"), record("b")]).unwrap();
    let mut writer = Writer::new(layout.clone());
    writer.knows(run.clone(), BTreeMap::from([(1, 2)]), Vec::new());
    std::fs::remove_dir_all(layout.run(run)).unwrap();
    assert_eq!((lost(&mut writer, run), lost(&mut writer, run)), (2, 0), "it is told once");
    assert_eq!(listed(&layout, run), 2);
    assert_eq!(layout.folder(run).logs().unwrap(), [2], "its number is not used again");
}

#[test]
fn logs_and_segments_that_are_not_written_to_are_missed() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    let [run, ..] = &runs(1)[..] else { unreachable!() };
    let mut writer = Writer::new(layout.clone()).rotating_at(1);
    assert_eq!([(); 3].map(|()| lost(&mut writer, run)), [0; 3]);
    let folder = layout.folder(run);
    assert_eq!(folder.logs().unwrap(), [1, 2, 3]);
    // A log that was sealed has its segment.
    std::fs::create_dir(folder.segment(2)).unwrap();
    std::fs::remove_file(folder.log(2)).unwrap();
    assert_eq!(lost(&mut writer, run), 0);
    std::fs::remove_dir(folder.segment(2)).unwrap();
    std::fs::remove_file(folder.log(1)).unwrap();
    assert_eq!((lost(&mut writer, run), listed(&layout, run)), (2, 2));
    assert_eq!(folder.logs().unwrap(), [3, 4, 5]);
    // The list of losses is written again if it goes too.
    std::fs::remove_dir_all(&folder.path).unwrap();
    assert_eq!((lost(&mut writer, run), listed(&layout, run)), (3, 5));
    std::fs::remove_file(folder.path.join("losses.json")).unwrap();
    assert_eq!((lost(&mut writer, run), listed(&layout, run)), (0, 5));
}

#[test]
fn a_batch_that_is_refused_meanwhile_does_not_hide_a_loss() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    let [run, ..] = &runs(1)[..] else { unreachable!() };
    let mut writer = Writer::new(layout.clone());
    lost(&mut writer, run);
    std::fs::remove_dir_all(layout.run(run)).unwrap();
    std::fs::write(layout.run(run), b"a file").unwrap();
    for _ in 0..3 {
        writer.append(run, &[record("b")]).unwrap_err();
    }
    std::fs::remove_file(layout.run(run)).unwrap();
    assert_eq!((lost(&mut writer, run), listed(&layout, run)), (1, 1));
}

#[test]
fn nothing_is_appended_to_a_log_that_was_changed_in_place() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    let zeros = |bytes: Vec<u8>| vec![0; bytes.len()];
    let half = |bytes: Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    type Change<'a> = &'a dyn Fn(Vec<u8>) -> Vec<u8>;
    let changes: [(Change<'_>, u64); 4] =
        [(&zeros, 4), (&half, 2), (&|_| Vec::new(), 4), (&|bytes| bytes, 0)];
    for (run, (change, expected)) in runs(4).iter().zip(changes) {
        let mut writer = Writer::new(layout.clone());
        assert_eq!([(); 4].map(|()| lost(&mut writer, run)), [0; 4]);
        let log = layout.folder(run).log(1);
        // Clocks of file systems are coarse.
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&log, change(std::fs::read(&log).unwrap())).unwrap();
        assert_eq!(lost(&mut writer, run), expected, "{run}");
        let kept = frames(&layout, run);
        assert_eq!(kept.iter().map(Vec::len).sum::<usize>() as u64, 5 - expected, "{run}: {kept:?}");
        assert_eq!(kept.len() == 1, expected == 0, "{run}: a log that is whole goes on");
    }
}

#[test]
fn a_log_that_was_replaced_by_a_copy_or_moved_back_is_not_lost() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    let [copied, moved] = &runs(2)[..] else { unreachable!() };
    let mut writer = Writer::new(layout.clone());
    lost(&mut writer, copied);
    let (log, copy) = (layout.folder(copied).log(1), root.path().join("copy"));
    std::fs::copy(&log, &copy).unwrap();
    std::fs::rename(&copy, &log).unwrap();
    assert_eq!((lost(&mut writer, copied), listed(&layout, copied)), (0, 0));
    lost(&mut writer, moved);
    let (log, away) = (layout.folder(moved).log(1), root.path().join("away"));
    std::fs::rename(&log, &away).unwrap();
    assert_eq!(lost(&mut writer, moved), 1);
    std::fs::rename(&away, &log).unwrap();
    assert_eq!(frames(&layout, moved), [[b"x"], [b"x"]], "it holds what was acknowledged");
}

#[test]
fn a_damaged_list_of_losses_stops_no_batch() {
    let root = tempfile::tempdir().unwrap();
    let layout = Layout::new(root.path());
    let [garbage, folder, unknown] = &runs(3)[..] else { unreachable!() };
    for run in [garbage, folder, unknown] {
        let mut writer = Writer::new(layout.clone());
        if run != unknown {
            lost(&mut writer, run);
            std::fs::remove_file(layout.folder(run).log(1)).unwrap();
        } else {
            std::fs::create_dir_all(layout.run(run)).unwrap();
        }
        let list = layout.run(run).join("losses.json");
        if run == folder {
            std::fs::create_dir(&list).unwrap();
        } else {
            std::fs::write(&list, b"{}").unwrap();
        }
        let known = u64::from(run != unknown);
        assert_eq!(lost(&mut writer, run), known, "{run}");
        if run == unknown {
            std::fs::remove_file(layout.folder(run).log(1)).unwrap();
            assert_eq!(lost(&mut writer, run), 1, "{run}");
        }
        assert_eq!(
            listed(&layout, run),
            1 + u64::from(run == unknown),
            "{run}: what was in it counts as one"
        );
    }
}
