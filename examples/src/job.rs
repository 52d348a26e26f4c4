//! The course of a job, from the first connection to the comparison of parameters.

use std::time::Duration;

use agent::{Agent, Job, Notes};
use anyhow::{Context, Result};
use candle_core::Device;
use reducer::Communicator;
use reducer::ring::{Config, Ring};

use crate::backend::{Backend, Cpu};
use crate::options::{DeviceKind, JobOptions};
use crate::peak;
use crate::trainer::{Plan, Task, Trainer};
use crate::world_rank::WorldRank;

/// Joins the other ranks, prepares the task on the device that `options` name, trains it, compares the parameters of
/// all ranks, and passes the result to `end`, which may send notes. A failure is reported to the other ranks, and they end with it too.
///
/// # Errors
/// Returns the first error, of this rank or another.
pub fn run<T: Task>(
    options: &JobOptions,
    plan: &Plan,
    prepare: impl FnOnce(&Device) -> Result<T>,
    end: impl FnOnce(&T, WorldRank, &Notes) -> Result<()>,
) -> Result<()> {
    let config = Config {
        timeout: seconds(options.timeout_secs, "--timeout-secs")?,
        rendezvous: seconds(options.rendezvous_secs, "--rendezvous-secs")?,
        tcp_only: options.tcp,
        ..Config::from_env()?
    };
    let ring = Ring::connect(&config)?;
    match options.device {
        DeviceKind::Cpu => train(|| Ok(Cpu), ring, options, plan, prepare, end),
        #[cfg(feature = "cuda")]
        DeviceKind::Cuda => train(|| crate::backend::Gpu::open(options), ring, options, plan, prepare, end),
        #[cfg(not(feature = "cuda"))]
        DeviceKind::Cuda => {
            let error = anyhow::anyhow!(
                "--device cuda: this program was built for CPUs only; \
                 `cargo xtask gpu` builds one for GPUs in target/gpu"
            );
            ring.abort_handle().abort(&error.to_string());
            Err(error)
        }
    }
}

fn train<T: Task, B: Backend>(
    open: impl FnOnce() -> Result<B>,
    ring: Ring,
    options: &JobOptions,
    plan: &Plan,
    prepare: impl FnOnce(&Device) -> Result<T>,
    end: impl FnOnce(&T, WorldRank, &Notes) -> Result<()>,
) -> Result<()> {
    let place = WorldRank { rank: ring.rank(), world_size: ring.world_size() };
    let give_up = ring.abort_handle();
    let prepared = open().and_then(|backend| Ok((prepare(&backend.device())?, backend)));
    let (task, backend) = prepared.inspect_err(|error| give_up.abort(&format!("{error:#}")))?;
    let parameters = task.parameters().elements() as u64;
    let job = Job { name: plan.name.into(), sample_unit: plan.sample_unit.into(), parameters };
    let agent = Agent::from_env(job);
    if agent.is_enabled() {
        let workload = peak::workload(task.flops_per_unit(), plan.precision, &backend.device());
        agent.notes().workload(workload.inspect_err(|error| give_up.abort(&format!("{error:#}")))?);
    }
    let trained = Trainer::new(task, backend, plan, options, place, ring, &agent)
        .and_then(|trainer| trainer.train(|task| end(task, place, &agent.notes())));
    agent.finish(trained.as_ref().map(drop).map_err(|error| format!("{error:#}")));
    trained
}

fn seconds(value: f64, flag: &str) -> Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("{flag} {value}"))
}
