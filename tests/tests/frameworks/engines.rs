//! Frameworks that `cargo xtask test --all-frameworks` tests: DeepSpeed, Ray Train and torchft.

use testkit::frameworks::DEEPSPEED;

use super::job::{Job, is_wanted};

fn deepspeed(stage: &'static str) -> anyhow::Result<()> {
    if !is_wanted(DEEPSPEED)? {
        return Ok(());
    }
    let job = Job { script: "deepspeed_zero.py", steps: 260, more: stages(stage), observed: 0.8 };
    let report = job.run(&DEEPSPEED.program("python"))?;
    job.is_understood(&report)?;
    Job::has_phases(&report, &["input", "forward", "backward", "optimizer"])
}

fn stages(stage: &'static str) -> &'static [&'static str] {
    match stage {
        "1" => &["1"],
        "2" => &["2"],
        _ => &["3"],
    }
}

#[test]
fn deepspeed_zero_1() -> anyhow::Result<()> {
    deepspeed("1")
}

#[test]
fn deepspeed_zero_2() -> anyhow::Result<()> {
    deepspeed("2")
}

#[test]
fn deepspeed_zero_3() -> anyhow::Result<()> {
    deepspeed("3")
}
