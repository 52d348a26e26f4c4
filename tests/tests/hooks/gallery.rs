//! A few jobs of the gallery of troubles, as a newcomer would run them. `cargo xtask bench gallery` runs all of them.

use anyhow::ensure;
use testkit::gallery::{judge, scripts};
use testkit::torch;

/// Runs a job, and checks that the first verdict is right: who, why, how often, in which line, and at what cost.
fn is_right(name: &str) -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let [script] = &scripts(Some(name))?[..] else { anyhow::bail!("not one job is called {name}") };
    let judged = judge(script)?;
    ensure!(judged["right"] == true, "{judged:#}");
    Ok(())
}

#[test]
fn a_disk_that_is_slow_on_all_ranks() -> anyhow::Result<()> {
    is_right("input_slow_read")
}

#[test]
fn a_checkpoint_that_rank_0_writes_while_others_wait() -> anyhow::Result<()> {
    is_right("checkpoint_barrier")
}

#[test]
fn a_late_rank_of_a_model_with_buffers() -> anyhow::Result<()> {
    is_right("buffers_rank_1")
}

#[test]
fn metrics_that_all_ranks_write_now_and_then() -> anyhow::Result<()> {
    is_right("log_all")
}

/// What the all-reduces take is not judged: on a busy machine, they also wait for the slower rank.
#[test]
fn all_reduces_that_a_loop_without_ddp_waits_for() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let [script] = &scripts(Some("communication_all"))?[..] else { anyhow::bail!("not one job") };
    let judged = judge(script)?;
    ensure!(judged["checks"]["who"] == true && judged["checks"]["cause"] == true, "{judged:#}");
    Ok(())
}

#[test]
fn a_rank_that_mp_spawn_started() -> anyhow::Result<()> {
    is_right("spawn_spin_rank_1")
}

#[test]
fn a_rank_that_is_late_between_the_passes_of_two_models() -> anyhow::Result<()> {
    is_right("gan_spin_rank_0")
}

#[test]
fn a_batch_that_all_ranks_read_between_forward_and_backward() -> anyhow::Result<()> {
    is_right("prefetch_all")
}
