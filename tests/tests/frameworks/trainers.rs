//! Hugging Face's Trainer, Accelerate and Lightning.

use testkit::frameworks::TRAINERS;

use super::job::Job;

const PHASES: [&str; 4] = ["input", "forward", "backward", "optimizer"];

fn is_observed(job: &Job) -> anyhow::Result<()> {
    if !TRAINERS.is_installed()? {
        return Ok(());
    }
    let report = job.run(&TRAINERS.program("python"))?;
    job.is_understood(&report)?;
    Job::has_phases(&report, &PHASES)
}

#[test]
fn hugging_faces_trainer() -> anyhow::Result<()> {
    // It gathers figures in steps of its own now and then, so its steps are found later than others.
    is_observed(&Job { script: "hf_trainer.py", steps: 300, more: &[], observed: 0.6 })
}

#[test]
fn accelerate() -> anyhow::Result<()> {
    is_observed(&Job { script: "accelerate_loop.py", steps: 300, more: &[], observed: 0.7 })
}

#[test]
fn lightning() -> anyhow::Result<()> {
    is_observed(&Job { script: "lightning_fit.py", steps: 300, more: &[], observed: 0.7 })
}
