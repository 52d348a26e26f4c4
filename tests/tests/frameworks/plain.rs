//! Jobs that need PyTorch alone: a loop as in TorchTitan, and FSDP2.

use testkit::torch;

use super::job::Job;

#[test]
fn a_train_step_with_accumulation_clipping_and_a_scheduler() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    // Steps are known after four seconds of updates, which are up to 100 steps of this job.
    let job = Job { script: "own_loop.py", steps: 400, more: &[], observed: 0.7 };
    let report = job.run(&torch::program("python"))?;
    job.is_understood(&report)?;
    Job::has_phases(&report, &["input", "forward", "backward", "optimizer"])
}

#[test]
fn fsdp2() -> anyhow::Result<()> {
    if !torch::is_installed()? {
        return Ok(());
    }
    let job = Job { script: "fsdp2.py", steps: 300, more: &[], observed: 0.7 };
    let report = job.run(&torch::program("python"))?;
    job.is_understood(&report)?;
    Job::has_phases(&report, &["input", "backward", "optimizer"])
}
