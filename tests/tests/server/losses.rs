//! Tests of what others do to a data directory while a server runs, and of disks that cannot be written: nothing is lost silently.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::Context as _;
use paceline::store::directory::Layout;
use paceline::store::folder::RunFolder;
use paceline::store::segment::Received;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use testkit::programs::{Server, gap, get, get_json, paceline, report, said as printed, wait_until};
use testkit::small_disk::SmallDisk;
use testkit::stored::{one_step, one_step_and_goodbye, store};
use wire::batch::Batch;
use wire::clock::ServerNanos;
use wire::ids::RunId;

fn folder(data: &Path) -> anyhow::Result<RunFolder> {
    Ok(Layout::new(data).folder(&RunId::new("r")?))
}

/// Waits until the report of the run says something of this kind, and returns it.
fn said(server: &Server, kind: &str) -> anyhow::Result<String> {
    wait_until("a line in the report", || {
        let report = get_json(&format!("{}/api/v1/runs/r", server.address)).ok()?;
        gap(&report, kind).map(str::to_owned)
    })
}

#[test]
fn a_run_whose_directory_is_removed_says_what_is_lost_live_and_from_disk() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let server = Server::start(data.path())?;
    server.send((0..30).map(|seq| one_step(&run, seq)))?;
    std::fs::remove_dir_all(folder(data.path())?.path)?;
    server.send((30..60).map(|seq| one_step(&run, seq)))?;
    let lost =
        "at least 30 stored batches were removed from the disk while the run was recorded (log-000001.plog";
    let live = said(&server, "stored_batches")?;
    assert!(live.starts_with(lost), "{live}");
    server.send([one_step_and_goodbye(&run, 60)])?;
    server.kill()?;
    let report = report(data.path(), "r")?;
    assert!(
        gap(&report, "stored_batches").is_some_and(|line| line.starts_with(lost)),
        "{:#}",
        report["gaps"]
    );
    assert_eq!(report["steps"], 31, "those that were sent afterwards are on disk: {report:#}");
    Ok(())
}

#[test]
fn a_silent_run_whose_directory_is_removed_says_so_and_is_not_brought_back() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let server = Server::start(data.path())?;
    server.send((0..30).map(|seq| one_step(&run, seq)))?;
    let folder = folder(data.path())?;
    std::fs::remove_dir_all(&folder.path)?;
    let line = said(&server, "stored_batches")?;
    assert!(line.starts_with("at least 30 stored batches were removed from the disk"), "{line}");
    assert!(line.ends_with("only as long as this server has them in memory"), "{line}");
    assert!(!folder.path.exists(), "whoever deleted the run meant it");
    // A batch that follows begins the run on disk again, with what it has lost.
    server.send([one_step_and_goodbye(&run, 30)])?;
    server.kill()?;
    let report = report(data.path(), "r")?;
    assert!(
        gap(&report, "stored_batches").is_some_and(|line| line.contains("30 stored batches")),
        "{report:#}"
    );
    Ok(())
}

#[test]
fn a_log_that_is_cut_while_its_run_is_silent_has_a_line_live_and_after_a_kill() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let server = Server::start(data.path())?;
    server.send((0..30).map(|seq| one_step(&run, seq)))?;
    let log = folder(data.path())?.log(1);
    let half = std::fs::metadata(&log)?.len() / 2;
    std::fs::File::options().write(true).open(&log)?.set_len(half)?;
    let line = said(&server, "stored_batches")?;
    assert!(line.contains("log-000001.plog was removed or changed while it was written to"), "{line}");
    let list = folder(data.path())?.path.join("losses.json");
    wait_until("the loss on disk", || list.exists().then_some(()))?;
    server.kill()?;
    let report = report(data.path(), "r")?;
    assert!(
        gap(&report, "stored_batches")
            .is_some_and(|line| line.contains("log-000001.plog was removed or changed")),
        "{report:#}"
    );
    Ok(())
}

#[test]
fn a_server_whose_data_directory_is_removed_accepts_no_batches_and_says_so() -> anyhow::Result<()> {
    let parent = tempfile::tempdir()?;
    let data = parent.path().join("data");
    let run = RunId::new("r")?;
    let server = Server::start(&data)?;
    server.send([one_step(&run, 0)])?;
    assert_eq!(get(&format!("{}/readyz", server.address))?.0, 200);
    std::fs::remove_dir_all(&data)?;
    let (status, why) = server.post(&one_step(&run, 1))?;
    assert!(status == 503 && why.contains("the data directory was removed or replaced"), "{status} {why}");
    let (status, why) = get(&format!("{}/readyz", server.address))?;
    assert!(status == 503 && why.contains("the data directory was removed or replaced"), "{status} {why}");
    assert!(!data.exists(), "another server may be about to use this name");
    Ok(())
}

#[test]
fn sealed_steps_are_served_although_the_manifest_is_gone() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let folder = folder(data.path())?;
    let server = Server::start(data.path())?;
    server.send((0..29).map(|seq| one_step(&run, seq)))?;
    server.send([one_step_and_goodbye(&run, 29)])?;
    let is_sealed =
        || folder.path.join("manifest.json").exists() && folder.logs().is_ok_and(|logs| logs.is_empty());
    wait_until("the run to be sealed", || is_sealed().then_some(()))?;
    server.kill()?;
    std::fs::remove_file(folder.path.join("manifest.json"))?;
    let is_told = |report: &Value| {
        report["steps"] == 28
            && gap(report, "checksums")
                .is_some_and(|line| line.starts_with("manifest.json is missing or does not name 1 segment"))
    };
    let from_disk = report(data.path(), "r")?;
    assert!(is_told(&from_disk), "{from_disk:#}");
    let server = Server::start(data.path())?;
    let live = get_json(&format!("{}/api/v1/runs/r", server.address))?;
    assert!(is_told(&live), "{live:#}");
    // A process of the same run that comes later continues it.
    server.send([Batch { incarnation: wire::ids::Incarnation(2), ..one_step(&run, 30) }])?;
    let log = folder.logs()?;
    assert_eq!(log, [2], "a log never takes the number of a segment");
    Ok(())
}

#[test]
fn nothing_outside_of_the_data_directory_is_touched_through_a_link() -> anyhow::Result<()> {
    let (data, outside) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let run = RunId::new("r")?;
    let log = store(data.path(), &[Received { at: ServerNanos(0), batch: one_step(&run, 0) }])?;
    // A torn tail, which a server cuts at its start.
    let victim = outside.path().join("victim");
    let torn = [std::fs::read(&log)?, b"precious".to_vec()].concat();
    std::fs::write(&victim, &torn)?;
    std::fs::remove_file(&log)?;
    symlink(&victim, &log)?;
    symlink(outside.path(), data.path().join("runs/linked"))?;
    symlink(&victim, data.path().join("lock"))?;
    let server = std::process::Command::new(testkit::programs::program("paceline"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .output()?;
    let complaints = String::from_utf8_lossy(&server.stderr);
    assert!(!server.status.success() && complaints.contains("symbolic link"), "{complaints}");
    std::fs::remove_file(data.path().join("lock"))?;
    let server = Server::start(data.path())?;
    let (status, why) = server.post(&one_step(&RunId::new("linked")?, 0))?;
    assert!(status != 200 && why.contains("symbolic link"), "{status} {why}");
    let (status, why) = server.post(&one_step(&run, 1))?;
    assert!(status != 200 && why.contains("symbolic link"), "{status} {why}");
    server.kill()?;
    assert_eq!(std::fs::read(&victim)?, torn);
    assert_eq!(std::fs::read_dir(outside.path())?.count(), 1);
    Ok(())
}

#[test]
fn pipes_and_second_names_in_a_data_directory_neither_stop_the_server_nor_are_written_through()
-> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let runs = ["log", "manifest", "sealed", "whole"]
        .map(|name| RunId::new(name).unwrap_or_else(|_| unreachable!()));
    for run in &runs {
        store(data.path(), &[Received { at: ServerNanos(0), batch: one_step(run, 0) }])?;
    }
    let precious = data.path().join("precious");
    std::fs::write(&precious, b"precious")?;
    std::fs::hard_link(&precious, data.path().join("server.tmp"))?;
    for pipe in [
        "server.json",
        "runs/log/log-000001.plog",
        "runs/manifest/manifest.json",
        "runs/segment/segment-000001/steps.parquet",
    ] {
        let path = data.path().join(pipe);
        let _none_yet = std::fs::remove_file(&path);
        std::fs::create_dir_all(path.parent().context("a pipe has a folder")?)?;
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0)?;
    }
    let server = Server::start(data.path())?;
    let served = get_json(&format!("{}/api/v1/runs", server.address))?;
    assert!(served.to_string().contains("whole"), "{served}");
    server.kill()?;
    assert!(std::fs::read(&precious)? == b"precious");
    let listed = paceline(&["runs", "--data", data.path().to_str().context("not UTF-8")?])?;
    let (listed, complaints) = printed(&listed);
    for said in
        ["whole   ", "runs/log/log-000001.plog: it is a pipe", "runs/manifest/manifest.json: it is a pipe"]
    {
        assert!(listed.contains(said) || complaints.contains(said), "{said}: {listed}{complaints}");
    }
    Ok(())
}

#[test]
fn a_data_directory_that_others_may_write_is_closed_to_them() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    std::fs::set_permissions(data.path(), std::fs::Permissions::from_mode(0o777))?;
    let _server = Server::start(data.path())?;
    let mode = |path: &Path| anyhow::Ok(std::fs::metadata(path)?.permissions().mode() & 0o777);
    assert_eq!((mode(data.path())?, mode(&data.path().join("runs"))?), (0o755, 0o700));
    Ok(())
}

#[test]
fn a_disk_that_cannot_be_written_is_served_and_the_server_says_so() -> anyhow::Result<()> {
    for start in [SmallDisk::start_full, SmallDisk::start_read_only] {
        let data = tempfile::tempdir()?;
        let run = RunId::new("r")?;
        let batches = (0..30).map(|seq| Received { at: ServerNanos(seq), batch: one_step(&run, seq as u64) });
        store(data.path(), &batches.collect::<Vec<_>>())?;
        let Some(disk) = start(data.path())? else { return Ok(()) };
        let report = get_json(&format!("{}/api/v1/runs/r", disk.server.address))?;
        assert_eq!(report["steps"], 28, "{report:#}");
        let (status, why) = get(&format!("{}/readyz", disk.server.address))?;
        assert!(status == 503 && why.contains("cannot store batches: cannot"), "{status} {why}");
        let (status, why) = disk.server.post(&one_step(&RunId::new("new")?, 0))?;
        assert!(status == 503 && why.contains("cannot"), "{status} {why}");
        let complaints = disk.complaints()?;
        assert!(complaints.contains("accepts no batches until it can write"), "{complaints}");
    }
    Ok(())
}

#[test]
fn steps_that_arrive_in_falling_order_are_named_live_and_from_disk() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let server = Server::start(data.path())?;
    let falling = |seq: u64| Batch { events: one_step(&run, 99 - seq).events, ..one_step(&run, seq) };
    server.send((0..100).map(falling))?;
    let line = "99 records of steps 0 to 98 arrived after this step or a later one had closed";
    // The report grows while the batches arrive.
    wait_until("all late records in the report", || {
        said(&server, "stored_records").ok().filter(|said| said.starts_with(line))
    })?;
    server.kill()?;
    let report = report(data.path(), "r")?;
    assert!(
        gap(&report, "stored_records").is_some_and(|said| said.starts_with(line)),
        "{:#}",
        report["gaps"]
    );
    Ok(())
}

/// Checks that the report from disk has a gap in what is stored that begins with `line`, and returns its steps.
fn steps_beside_a_gap(data: &Path, line: &str) -> anyhow::Result<u64> {
    let report = report(data, "r")?;
    let is_told = gap(&report, "stored_batches").is_some_and(|said| said.starts_with(line));
    anyhow::ensure!(is_told, "{line}: {:#}", report["gaps"]);
    report["steps"].as_u64().context("a report has steps")
}

#[test]
fn what_an_earlier_server_stored_is_missed_when_it_is_removed() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let server = Server::start(data.path())?;
    server.send((0..30).map(|seq| one_step(&run, seq)))?;
    server.kill()?;
    let server = Server::start(data.path())?;
    std::fs::remove_dir_all(folder(data.path())?.path)?;
    server.send((30..60).map(|seq| one_step(&run, seq)))?;
    let line = "at least 30 stored batches were removed from the disk while the run was recorded";
    let live = said(&server, "stored_batches")?;
    assert!(live.starts_with(line) && live.contains("as long as this server has them"), "{live}");
    server.kill()?;
    assert_eq!(steps_beside_a_gap(data.path(), line)?, 30);
    let server = Server::start(data.path())?;
    let again = said(&server, "stored_batches")?;
    assert!(again.starts_with(line) && again.ends_with("no figure includes them"), "{again}");
    Ok(())
}

/// Checks that the report says so with this line, live and from disk.
fn half_of_60_steps_are_lost(server: Server, data: &Path, line: &str) -> anyhow::Result<()> {
    let live = said(&server, "stored_batches")?;
    assert!(live.starts_with(line), "{live}");
    server.kill()?;
    assert_eq!(steps_beside_a_gap(data, line)?, 30);
    Ok(())
}

#[test]
fn batches_that_no_server_saw_removed_are_missing_between_those_that_are_stored() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let server = Server::start(data.path())?;
    server.send((0..30).map(|seq| one_step(&run, seq)))?;
    std::fs::remove_dir_all(folder(data.path())?.path)?;
    server.kill()?;
    let server = Server::start(data.path())?;
    server.send((30..60).map(|seq| one_step(&run, seq)))?;
    let line = "30 batches of rank 0 are missing among those that are stored";
    half_of_60_steps_are_lost(server, data.path(), line)
}

#[test]
fn a_segment_that_was_removed_with_the_manifest_has_a_line() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let folder = folder(data.path())?;
    let server = Server::start(data.path())?;
    server.send((0..29).map(|seq| one_step(&run, seq)))?;
    server.send([one_step_and_goodbye(&run, 29)])?;
    wait_until("the run to be sealed", || folder.logs().is_ok_and(|logs| logs.is_empty()).then_some(()))?;
    let second = |seq| Batch { incarnation: wire::ids::Incarnation(2), ..one_step(&run, seq) };
    server.send((0..30).map(|seq| Batch { events: one_step(&run, 30 + seq).events, ..second(seq) }))?;
    server.kill()?;
    std::fs::remove_dir_all(folder.segment(1))?;
    std::fs::remove_file(folder.path.join("manifest.json"))?;
    let line = "segment-000001 may have been removed together with manifest.json";
    assert_eq!(steps_beside_a_gap(data.path(), line)?, 30);
    Ok(())
}

#[test]
fn a_log_that_is_emptied_in_place_is_not_written_to_any_more() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let server = Server::start(data.path())?;
    server.send((0..30).map(|seq| one_step(&run, seq)))?;
    std::fs::write(folder(data.path())?.log(1), b"")?;
    server.send((30..60).map(|seq| one_step(&run, seq)))?;
    let line = "at least 30 stored batches were removed from the disk while the run was recorded";
    half_of_60_steps_are_lost(server, data.path(), line)
}

#[test]
fn a_log_that_comes_back_is_no_longer_lost() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let (folder, away) = (folder(data.path())?, data.path().join("away"));
    let server = Server::start(data.path())?;
    server.send((0..30).map(|seq| one_step(&run, seq)))?;
    std::fs::rename(&folder.path, &away)?;
    server.send((30..60).map(|seq| one_step(&run, seq)))?;
    server.kill()?;
    steps_beside_a_gap(data.path(), "at least 30 stored batches were removed")?;
    std::fs::rename(away.join("log-000001.plog"), folder.log(1))?;
    let report = report(data.path(), "r")?;
    assert_eq!((&report["steps"], gap(&report, "stored_batches")), (&58.into(), None), "{report:#}");
    Ok(())
}

#[test]
fn a_damaged_list_of_losses_takes_no_run_away() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let run = RunId::new("r")?;
    let list = folder(data.path())?.path.join("losses.json");
    let server = Server::start(data.path())?;
    server.send((0..30).map(|seq| one_step(&run, seq)))?;
    server.kill()?;
    std::fs::write(&list, b"{}")?;
    let line = "which batches were removed from the disk before is not known";
    assert_eq!(steps_beside_a_gap(data.path(), line)?, 28);
    let server = Server::start(data.path())?;
    server.send((30..60).map(|seq| one_step(&run, seq)))?;
    let live = said(&server, "stored_batches")?;
    assert!(live.starts_with(line), "{live}");
    Ok(())
}

#[test]
fn a_data_directory_that_was_replaced_by_a_copy_is_not_written_to() -> anyhow::Result<()> {
    let parent = tempfile::tempdir()?;
    let (data, away) = (parent.path().join("data"), parent.path().join("away"));
    let run = RunId::new("r")?;
    let server = Server::start(&data)?;
    server.send((0..30).map(|seq| one_step(&run, seq)))?;
    std::fs::rename(&data, &away)?;
    let copied = std::process::Command::new("cp").arg("-a").args([&away, &data]).status()?;
    anyhow::ensure!(copied.success(), "cp: {copied}");
    let second = Server::start(&data)?;
    for seq in 30..33 {
        let (status, why) = server.post(&one_step(&run, seq))?;
        assert!(status == 503 && why.contains("was removed or replaced"), "{status} {why}");
    }
    assert_eq!(get(&format!("{}/readyz", server.address))?.0, 503);
    second.send((30..60).map(|seq| one_step(&run, seq)))?;
    second.kill()?;
    let report = report(&data, "r")?;
    assert_eq!((&report["steps"], gap(&report, "stored_batches")), (&58.into(), None), "{report:#}");
    Ok(())
}

/// Waits until `/readyz` and the gauge say whether batches can be stored.
fn wait_until_ready(server: &Server, is_ready: bool) -> anyhow::Result<()> {
    wait_until("/readyz and the gauge", || {
        let ready = get(&format!("{}/readyz", server.address)).ok()?.0 == 200;
        let metrics = get(&format!("{}/metrics", server.address)).ok()?.1;
        let gauge = metrics.contains("paceline_server_can_store 1\n");
        ((ready, gauge) == (is_ready, is_ready)).then_some(())
    })
}

#[test]
fn a_server_is_ready_if_a_new_run_can_be_stored() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let (run, other) = (RunId::new("r")?, RunId::new("other")?);
    let (runs, away) = (data.path().join("runs"), data.path().join("away"));
    let server = Server::start(data.path())?;
    server.send([one_step(&run, 0), one_step(&other, 0)])?;
    // One run cannot be stored.
    std::fs::remove_dir_all(runs.join("r"))?;
    std::fs::write(runs.join("r"), b"a file")?;
    let (status, why) = server.post(&one_step(&run, 1))?;
    assert!(status == 503 && why.contains("runs/r"), "{status} {why}");
    server.send([one_step(&other, 1)])?;
    assert_eq!(get(&format!("{}/readyz", server.address))?.0, 200);
    wait_until_ready(&server, true)?;
    // No run can be stored, although the data directory can be written.
    std::fs::rename(&runs, &away)?;
    std::fs::write(&runs, b"a file")?;
    let (status, why) = server.post(&one_step(&other, 2))?;
    assert!(status == 503 && why.contains("cannot"), "{status} {why}");
    wait_until_ready(&server, false)?;
    std::fs::remove_file(&runs)?;
    std::fs::rename(&away, &runs)?;
    wait_until_ready(&server, true)?;
    server.send([one_step(&other, 2)])?;
    Ok(())
}
