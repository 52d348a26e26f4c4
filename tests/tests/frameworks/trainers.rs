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
    is_observed(&Job { script: "hf_trainer.py", steps: 260, more: &[], observed: 0.8 })
}

#[test]
fn accelerate() -> anyhow::Result<()> {
    is_observed(&Job { script: "accelerate_loop.py", steps: 260, more: &[], observed: 0.8 })
}

#[test]
fn lightning() -> anyhow::Result<()> {
    is_observed(&Job { script: "lightning_fit.py", steps: 260, more: &[], observed: 0.8 })
}
