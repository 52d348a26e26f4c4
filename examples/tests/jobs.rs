//! Runs the example jobs as users start them: real processes, one per rank.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const CHAR_LM: &str = env!("CARGO_BIN_EXE_char_lm");
const DIGITS: &str = env!("CARGO_BIN_EXE_digits");

/// The options of a model that trains in a second.
const TINY: [&str; 8] = ["--dim", "32", "--layers", "2", "--ctx", "32", "--bucket-cap", "0.02"];

/// Runs a program on `ranks` ranks and returns their outputs. One rank gets the arguments in `extra` in addition.
fn run(program: &str, ranks: u32, arguments: &[&str], extra: Option<(u32, &[&str])>) -> Vec<Output> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |rank: u32| {
        let own = extra.filter(|(chosen, _)| *chosen == rank).map_or(&[][..], |(_, extra)| extra);
        Command::new(program)
            .args(arguments)
            .args(own)
            .envs(
                [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", ranks)]
                    .map(|(k, v)| (k, v.to_string())),
            )
            .envs([("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port.to_string())])
            .env_remove("PACELINE_SERVER")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let processes: Vec<_> = (0..ranks).map(start).collect();
    processes.into_iter().map(|process| process.wait_with_output().unwrap()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the parameter hash that all ranks print, which must be the same.
fn hash(outputs: &[Output]) -> String {
    let mut hashes = outputs.iter().enumerate().map(|(rank, output)| {
        assert!(output.status.success(), "rank {rank}: {}", text(&output.stderr));
        let line = format!("rank {rank}: parameters ");
        let text = text(&output.stdout);
        text.lines().find_map(|text| text.strip_prefix(&line)).unwrap_or_else(|| panic!("{text}")).to_owned()
    });
    let first = hashes.next().unwrap();
    assert!(hashes.all(|hash| hash == first), "the ranks' parameters differ");
    first
}

fn losses(path: &Path) -> Vec<f64> {
    let file = std::fs::read_to_string(path).unwrap();
    let mut lines = file.lines();
    assert_eq!(lines.next(), Some("step,loss"));
    let loss = |(step, line): (usize, &str)| {
        let (number, loss) = line.split_once(',').unwrap();
        assert_eq!(number.parse(), Ok(step));
        loss.parse().unwrap()
    };
    lines.enumerate().map(loss).collect()
}

/// Trains on one rank and on several. The loss curves must agree, and must fall.
fn check(program: &str, arguments: &[&str], worlds: &[u32], falls_by: f64) {
    let directory = tempfile::tempdir().unwrap();
    let curve = |ranks: u32| {
        let path = directory.path().join(format!("{ranks}.csv"));
        let outputs =
            run(program, ranks, &[arguments, &["--loss-out", path.to_str().unwrap()]].concat(), None);
        hash(&outputs);
        losses(&path)
    };
    let alone = curve(1);
    let ends: f64 = alone[alone.len() - 5..].iter().sum::<f64>() / 5.0;
    assert!(ends < alone[0] - falls_by, "the loss went from {} to {ends}", alone[0]);
    for &ranks in worlds {
        let together = curve(ranks);
        assert_eq!(together.len(), alone.len());
        for (step, (together, alone)) in together.iter().zip(&alone).enumerate() {
            let error = (together - alone).abs() / alone;
            // Rounding differences grow, because training is a chaotic system.
            let tolerance = if step < 10 { 2e-6 } else { 2e-4 };
            assert!(
                error < tolerance,
                "{ranks} ranks, step {step}: loss {together}, but {alone} on one rank ({error:.1e} off)"
            );
        }
    }
}

#[test]
fn char_lm_learns_the_same_on_any_number_of_ranks() {
    // 10 sequences over 4 ranks give uneven shares in every step.
    check(
        CHAR_LM,
        &[&TINY[..], &["--steps", "40", "--batch", "10", "--strong", "--lr", "0.003"]].concat(),
        &[2, 4],
        0.8,
    );
}

/// In 16 bits, the model trains as well and the same on all ranks, which `hash` asserts. A loss scale that makes
/// gradients infinite is halved until they are finite, and those steps are skipped.
#[test]
fn char_lm_learns_in_sixteen_bits_and_skips_steps_that_overflow() {
    let directory = tempfile::tempdir().unwrap();
    for (precision, scale, left_out) in
        [("bf16", "1", None), ("fp16", "65536", None), ("fp16", "1e12", Some(5))]
    {
        let path = directory.path().join(format!("{precision}-{scale}.csv"));
        let more = ["--steps", "60", "--batch", "5", "--lr", "0.003", "--precision", precision];
        let more = [&more[..], &["--loss-scale", scale, "--loss-out", path.to_str().unwrap()]].concat();
        let outputs = run(CHAR_LM, 2, &[&TINY[..], &more].concat(), None);
        hash(&outputs);
        let curve = losses(&path);
        let ends = curve[curve.len() - 5..].iter().sum::<f64>() / 5.0;
        assert!(ends < curve[0] - 0.6, "{precision}, {scale}: the loss went from {} to {ends}", curve[0]);
        let said = text(&outputs[0].stdout);
        let skipped = said.lines().find_map(|line| line.split_once(" steps skipped")?.0.parse::<u64>().ok());
        match left_out {
            None => assert_eq!(skipped, None, "{precision}, {scale}: {said}"),
            Some(least) => assert!(skipped >= Some(least), "{precision}, {scale}: {said}"),
        }
    }
}

#[test]
fn digits_learns_the_same_on_any_number_of_ranks_across_epochs() {
    // 1,437 images make 4 steps of at most 400. The last has 237, an uneven number, in both epochs.
    check(DIGITS, &["--epochs", "2", "--batch", "400", "--strong"], &[3], 0.1);
}

#[test]
fn digits_classifies_held_out_images() {
    let outputs = run(DIGITS, 2, &["--epochs", "6"], None);
    hash(&outputs);
    let text = text(&outputs[0].stdout);
    let (_, percent) = text.trim_end().rsplit_once(" correct, ").unwrap_or_else(|| panic!("{text}"));
    let percent: f64 = percent.trim_end_matches(" %").parse().unwrap();
    assert!(percent >= 95.0, "{percent} %");
}

#[test]
fn the_same_command_gives_the_same_bits() {
    let arguments = [&TINY[..], &["--steps", "10"]].concat();
    let runs = [0, 0, 0].map(|_: u32| hash(&run(CHAR_LM, 2, &arguments, None)));
    assert!(runs[0] == runs[1] && runs[1] == runs[2], "{runs:?}");
    let tcp = hash(&run(CHAR_LM, 2, &[&arguments[..], &["--tcp"]].concat(), None));
    assert_eq!(tcp, runs[0], "over TCP");
}

fn check_failure(ranks: u32, arguments: &[&str], extra: (u32, &[&str]), expected: &[&str]) {
    for (rank, output) in run(CHAR_LM, ranks, arguments, Some(extra)).into_iter().enumerate() {
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "rank {rank}: {error}");
        assert_eq!(error.lines().count(), 1, "rank {rank}: {error}");
        assert!(error.starts_with(&format!("rank {rank}: error: ")), "rank {rank}: {error}");
        for expected in expected {
            assert!(error.contains(expected), "rank {rank}: {error} lacks {expected:?}");
        }
    }
}

#[test]
fn every_rank_reports_the_error_of_one_rank() {
    let arguments = [&TINY[..], &["--steps", "5"]].concat();
    check_failure(2, &arguments, (1, &["--corpus", "/nowhere"]), &["--corpus /nowhere: ", "No such file"]);
}

#[test]
fn ranks_with_different_models_are_rejected() {
    let arguments = ["--steps", "5", "--layers", "1", "--ctx", "32", "--heads", "2"];
    check_failure(
        2,
        &arguments,
        (1, &["--dim", "64"]),
        &["the ranks do not have the same model", "rank 1: parameter 0 is \"token\" with shape"],
    );
}

/// Returns one task of a job that `srun` or `mpirun` starts: with their variables and none of torchrun's.
fn task(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(CHAR_LM);
    command.args(TINY).args(["--steps", "3"]).envs(variables.iter().copied());
    for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"] {
        if variables.iter().all(|(set, _)| *set != name) {
            command.env_remove(name);
        }
    }
    command.env_remove("PACELINE_SERVER").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn ranks_of_every_launcher_train_together() {
    let launchers: [[&str; 2]; 3] = [
        ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
        ["PMI_RANK", "PMI_SIZE"],
    ];
    for [rank, size] in launchers {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let meet = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &*port)];
        let start = |number| task(&[&[(rank, number), (size, "2")], &meet[..]].concat()).spawn().unwrap();
        let outputs: Vec<Output> =
            ["0", "1"].map(start).into_iter().map(|process| process.wait_with_output().unwrap()).collect();
        hash(&outputs);
        let printed = text(&outputs[0].stdout);
        assert!(printed.contains("2 ranks"), "{rank}: {printed}");
    }
}

/// Tests a server that is not there and one that never answers. The job succeeds and reports how many records are lost.
#[test]
fn a_job_without_its_server_reports_the_number_of_lost_records() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for port in [1, silent.local_addr().unwrap().port()] {
        let server = format!("http://127.0.0.1:{port}");
        let mut job = task(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("PACELINE_RUN_ID", "lost")]);
        let output = job.env("PACELINE_SERVER", &server).output().unwrap();
        let complaint = text(&output.stderr);
        let says = format!("records of rank 0 did not reach {server} and are lost");
        assert!(output.status.success() && complaint.contains(&says), "{complaint}");
    }
}

#[test]
fn a_rank_that_cannot_meet_the_others_does_not_train_alone() {
    for (variables, says) in [
        (&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "16")][..], "scontrol show hostnames"),
        (&[("JOB_COMPLETION_INDEX", "0")], "set WORLD_SIZE too"),
        (
            &[("RANK", "0"), ("WORLD_SIZE", "1"), ("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "16")],
            "contradicts Slurm",
        ),
    ] {
        let output = task(variables).output().unwrap();
        let complaint = text(&output.stderr);
        assert!(!output.status.success() && complaint.contains(says), "{variables:?}: {complaint}");
        assert!(!text(&output.stdout).contains("step"), "it trained: {}", text(&output.stdout));
    }
}
