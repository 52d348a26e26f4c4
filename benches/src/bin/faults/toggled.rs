//! The true cost of a fault per step, from a run in which the fault turns on and off every few steps. Steps with and
//! without the fault are close together in time.
//!
//! Whole runs with and without a fault, one after the other, cannot measure it: machines of this kind get some percent
//! faster or slower within a minute, which is as much as a small fault costs.

use std::path::Path;

use analysis::stats;
use anyhow::Context as _;
use paceline::state::restore;
use paceline::store::directory::Layout;

use crate::cases::STEPS;
use crate::kept::Records;

/// The fault is on for this many steps and off for as many. These steps take less than a second.
const EVERY: usize = 10;
/// The number of steps skipped at the start of a block, because a slow network delays the step after.
const SKIPPED: usize = 1;
/// The standard error, as a share of the cost, at which the measurement is precise enough.
const CLOSE: f64 = 0.05;
/// The number of runs after which the measurement ends in any case.
const MAX_RUNS: u32 = 4;
/// The ratio of the standard errors of median and mean, for a normal distribution.
const OF_MEDIAN: f64 = 1.253_3;
/// The ratio of the standard deviation and the median absolute deviation, for a normal distribution.
const OF_MAD: f64 = 1.482_6;

pub struct Toggled {
    /// The extra time of a step with the fault.
    pub cost_millis: f64,
    pub standard_error_millis: f64,
    /// The time of a step without the fault.
    pub usual_millis: f64,
    pub runs: u32,
}

impl Toggled {
    /// Measures the cost of a fault. `train` runs the job with the fault turning on and off every given number of
    /// steps, and writes the records to a folder.
    pub fn measure(
        records: &Records,
        mut train: impl FnMut(&Path, &str) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let (mut differences, mut usual) = (Vec::new(), Vec::new());
        let mut runs = 0;
        loop {
            runs += 1;
            let train = |data: &Path| train(data, &EVERY.to_string());
            let blocks = records.read_or_train(&format!("toggled-{runs}"), train, blocks)?;
            // The first block with the fault still belongs to the warm-up.
            for triple in blocks.windows(3).skip(1).step_by(2) {
                let healthy = (triple[0] + triple[2]) / 2.0;
                differences.push(triple[1] - healthy);
                usual.push(healthy);
            }
            let measured = Self::new(&differences, &usual, runs).context("too few steps to compare")?;
            if runs == MAX_RUNS || measured.standard_error_millis <= CLOSE * measured.cost_millis {
                return Ok(measured);
            }
        }
    }

    fn new(differences: &[f64], usual: &[f64], runs: u32) -> Option<Self> {
        let cost_millis = stats::median(differences.iter().copied())?;
        let deviation = stats::median(differences.iter().map(|difference| (difference - cost_millis).abs()))?;
        Some(Self {
            cost_millis,
            standard_error_millis: OF_MEDIAN * OF_MAD * deviation / (differences.len() as f64).sqrt(),
            usual_millis: stats::median(usual.iter().copied())?,
            runs,
        })
    }
}

/// Returns the mean step time of each block in milliseconds: with the fault, without it, and so on.
fn blocks(data: &Path) -> anyhow::Result<Vec<f64>> {
    let runs = restore::all(&Layout::new(data))?.runs;
    let run = runs.values().next().context("the job wrote no records")?;
    let mut millis = vec![Vec::new(); STEPS as usize / EVERY];
    for step in run.steps().newest(usize::MAX) {
        let at = step.step.0 as usize;
        if at % EVERY >= SKIPPED
            && let Some(block) = millis.get_mut(at / EVERY)
        {
            block.push(step.local_nanos as f64 / 1e6);
        }
    }
    millis.into_iter().map(|block| stats::mean(block).context("a block of steps has no records")).collect()
}
