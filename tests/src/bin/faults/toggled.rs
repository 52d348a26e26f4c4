//! What a fault truly costs a step: a run in which it comes and goes every few steps, whose steps with and without
//! it lie side by side.
//!
//! Whole runs with and without a fault, one after the other, do not tell: this kind of machine is some percent faster
//! or slower a minute later, which is as much as a small fault costs.

use std::path::Path;

use analysis::stats;
use anyhow::Context as _;
use paceline::store::directory::Layout;
use paceline::store::replay;

use crate::cases::STEPS;
use crate::kept::Records;

/// The fault comes for so many steps and goes for as many: fewer than a second of them.
const EVERY: usize = 10;
/// The first step of a block does not count: what a slow network delays falls into the step after.
const SKIPPED: usize = 1;
/// It is known well enough when its standard error is this share of it,
const CLOSE: f64 = 0.05;
/// and after so many runs it is as known as it gets.
const MOST_RUNS: u32 = 4;
/// Standard error of the median by that of the mean, for a normal distribution.
const OF_MEDIAN: f64 = 1.253_3;
/// Standard deviation by the median absolute deviation, for a normal distribution.
const OF_MAD: f64 = 1.482_6;

pub struct Toggled {
    /// What it adds to a step that has it.
    pub cost_millis: f64,
    pub standard_error_millis: f64,
    /// A step without it.
    pub usual_millis: f64,
    pub runs: u32,
}

impl Toggled {
    /// `train` runs the job with its fault coming and going every so many steps, and leaves the records in a folder.
    pub fn measure(
        records: &Records,
        mut train: impl FnMut(&Path, &str) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let (mut differences, mut usual) = (Vec::new(), Vec::new());
        let mut runs = 0;
        loop {
            runs += 1;
            let train = |data: &Path| train(data, &EVERY.to_string());
            let blocks = records.with(&format!("toggled-{runs}"), train, blocks)?;
            // The first block with the fault is still warming up.
            for around in blocks.windows(3).skip(1).step_by(2) {
                let without = (around[0] + around[2]) / 2.0;
                differences.push(around[1] - without);
                usual.push(without);
            }
            let measured = Self::of(&differences, &usual, runs).context("too few steps to compare")?;
            if runs == MOST_RUNS || measured.standard_error_millis <= CLOSE * measured.cost_millis {
                return Ok(measured);
            }
        }
    }

    fn of(differences: &[f64], usual: &[f64], runs: u32) -> Option<Self> {
        let cost_millis = stats::median(differences.iter().copied())?;
        let off = stats::median(differences.iter().map(|difference| (difference - cost_millis).abs()))?;
        Some(Self {
            cost_millis,
            standard_error_millis: OF_MEDIAN * OF_MAD * off / (differences.len() as f64).sqrt(),
            usual_millis: stats::median(usual.iter().copied())?,
            runs,
        })
    }
}

/// Mean step time of each whole block, in milliseconds: with the fault, without it, and so on.
fn blocks(data: &Path) -> anyhow::Result<Vec<f64>> {
    let runs = replay::all(&Layout::new(data))?.runs;
    let run = runs.values().next().context("the job left no records")?;
    let mut millis = vec![Vec::new(); STEPS as usize / EVERY];
    for step in run.newest_steps(usize::MAX) {
        let at = step.step.0 as usize;
        if at % EVERY >= SKIPPED
            && let Some(block) = millis.get_mut(at / EVERY)
        {
            block.push(step.local_nanos as f64 / 1e6);
        }
    }
    millis.into_iter().map(|block| stats::mean(block).context("a block of steps has no records")).collect()
}
