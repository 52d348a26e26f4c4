//! One run of the job, with or without an observer.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::{Value, json};
use testkit::programs::{Server, get_json, program, wait_until};

use testkit::spread::Spread;

/// The number of steps between two lines of the job. A line is timed when it arrives here, because the job itself
/// prints times to a tenth of a millisecond only.
pub const GROUP: u64 = 5;

/// The size of the job.
#[derive(Clone, Copy)]
pub struct Shape {
    pub ranks: u32,
    pub steps: u64,
}

/// An arm: with an observer or without.
#[derive(Clone, Copy, Debug)]
pub enum Arm {
    On,
    Off,
    OffAgain,
}

/// The measurements of one run.
pub struct Measured {
    /// The median over the groups of steps, without the first group.
    pub step_seconds: f64,
    /// The user and system time of all ranks, from start to end.
    pub cpu_seconds: f64,
    /// The user and system time of the server, from start to end; 0 without a server.
    pub server_cpu_seconds: f64,
    groups: Vec<f64>,
}

impl Measured {
    pub fn to_json(&self) -> Value {
        json!({
            "median_step_seconds": self.step_seconds, "rank_cpu_seconds": self.cpu_seconds,
            "server_cpu_seconds": self.server_cpu_seconds, "step_seconds_by_group": self.groups,
        })
    }
}

impl Arm {
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::OffAgain => "off_again",
        }
    }

    /// Runs the job to its end.
    pub fn run(self, shape: Shape, round: usize) -> anyhow::Result<Measured> {
        let data = tempfile::tempdir()?;
        let server = matches!(self, Self::On).then(|| Server::start(data.path())).transpose()?;
        let address = server.as_ref().map(|server| server.address.as_str());
        let port = free_port()?;
        let before = children_cpu_seconds()?;
        let run = format!("overhead-{round}");
        let mut ranks = (0..shape.ranks)
            .map(|rank| start(shape, rank, port, &run, address))
            .collect::<Result<Vec<_>, _>>()?;
        let groups = step_times(&mut ranks[0])?;
        for (rank, child) in ranks.iter_mut().enumerate() {
            let status = child.wait()?;
            ensure!(status.success(), "rank {rank}: {status}");
        }
        let after = children_cpu_seconds()?;
        if let Some(server) = &server {
            check_complete(server, &run, shape)?;
        }
        // Stops the server, so that its processor time is counted.
        drop(server);
        let server_cpu_seconds = children_cpu_seconds()? - after;
        let step_seconds = Spread::from_values(groups.clone()).median;
        Ok(Measured { step_seconds, cpu_seconds: after - before, server_cpu_seconds, groups })
    }
}

/// Starts a rank with the environment of a launcher. The code is the same with and without a server.
fn start(shape: Shape, rank: u32, port: u16, run: &str, server: Option<&str>) -> anyhow::Result<Child> {
    let mut command = Command::new(program("char_lm"));
    command
        .args(["--steps", &shape.steps.to_string(), "--log-every", &GROUP.to_string(), "--seed", "1"])
        .args(["--batch", "8", "--strong"])
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("WORLD_SIZE", shape.ranks.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .env("PACELINE_RUN_ID", run)
        .env("PACELINE_SHADOW_EVERY", "0")
        .env_remove("PACELINE_SERVER")
        .stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() });
    if let Some(server) = server {
        command.env("PACELINE_SERVER", server);
    }
    command.spawn().with_context(|| format!("rank {rank}"))
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Returns the seconds per step of each group of steps after the first.
fn step_times(rank: &mut Child) -> anyhow::Result<Vec<f64>> {
    let stdout = rank.stdout.take().context("stdout is not piped")?;
    let mut stamps = Vec::new();
    for line in BufReader::new(stdout).lines() {
        if line?.starts_with("step ") {
            stamps.push(Instant::now());
        }
    }
    ensure!(stamps.len() >= 2, "the job printed only {} progress lines", stamps.len());
    Ok(stamps.windows(2).map(|two| (two[1] - two[0]).as_secs_f64() / GROUP as f64).collect())
}

/// Returns the processor time of all children that have ended and were waited for.
fn children_cpu_seconds() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 * 1e-6)
}

/// Returns an error unless the server has all steps. An arm that was not observed would seem to have little overhead.
fn check_complete(server: &Server, run: &str, shape: Shape) -> anyhow::Result<()> {
    let url = format!("{}/api/v1/runs/{run}/summary", server.address);
    wait_until("the server to have all steps", || {
        let summary = get_json(&url).ok()?;
        (summary["steps"].as_u64() == Some(shape.steps)).then_some(())
    })
}
