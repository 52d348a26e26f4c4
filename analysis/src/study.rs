//! A scaling study (`paceline scale`): a job that ran on several world sizes, each several times. Its efficiencies come with
//! intervals.

use wire::ids::RunId;
use wire::live::Part;
use wire::views::{Missing, Report, ScalingRule, Spread};

use crate::baseline::{self, Work};
use crate::stats;

/// The quantiles of Student's t distribution for two-sided 95 % intervals, by degrees of freedom from 1.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The quantile for more degrees of freedom.
const NORMAL_95: f64 = 1.960;

/// The communication that a step waits for.
const EXPOSED: [Part; 2] = [Part::ExposedWait, Part::ExposedTransfer];
/// What a step waits for its input.
const INPUT: [Part; 2] = [Part::Input, Part::H2d];

/// One run of a study, with what its report says of its steps.
#[derive(Clone, Debug)]
pub struct StudiedRun {
    /// The number of the repeat.
    pub repeat: u32,
    pub report: Report,
    pub step: Spread,
    pub period_nanos: f64,
}

impl StudiedRun {
    /// Returns the run; `None` if it has no observed steps.
    #[must_use]
    pub fn new(repeat: u32, report: Report) -> Option<Self> {
        let (step, period_nanos) = (*report.step_time_nanos.known()?, report.period_nanos.value()?);
        Some(Self { repeat, report, step, period_nanos })
    }

    /// Returns the run as a trial; `None` if the job does not count its samples.
    fn trial(&self) -> Option<Trial> {
        Some(Trial {
            run: self.report.run.clone(),
            ranks: self.report.ranks,
            repeat: self.repeat,
            throughput: self.report.throughput.value()?,
            batch: self.report.batch.value()?,
        })
    }

    /// Returns some parts of the ledger as a share of the step.
    #[must_use]
    pub fn share(&self, parts: &[Part]) -> Option<f64> {
        let whole = self.report.mean_nanos(&Part::ALL).filter(|&whole| whole > 0.0)?;
        Some(self.report.mean_nanos(parts)? / whole)
    }

    /// Returns the share of the step that waits for communication.
    #[must_use]
    pub fn exposed_share(&self) -> Option<f64> {
        self.share(&EXPOSED)
    }

    /// Returns the share of the step that waits for input.
    #[must_use]
    pub fn input_share(&self) -> Option<f64> {
        self.share(&INPUT)
    }
}

/// The runs of a study, and what they say together.
#[derive(Clone, Debug)]
pub struct Study {
    pub runs: Vec<StudiedRun>,
    /// Empty if some runs do not count their samples.
    trials: Vec<Trial>,
    /// What the runs have in common, and the efficiency on each world size, smallest first.
    pub found: Result<(ScalingRule, Vec<Efficiency>), Missing>,
}

impl Study {
    #[must_use]
    pub fn new(runs: Vec<StudiedRun>) -> Self {
        let trials: Option<Vec<Trial>> = runs.iter().map(StudiedRun::trial).collect();
        let found = trials.as_ref().ok_or(Missing::NoSamples).and_then(|trials| efficiencies(trials));
        Self { runs, trials: trials.unwrap_or_default(), found }
    }

    /// Returns the median run on a number of ranks, by its period.
    #[must_use]
    pub fn median(&self, ranks: u32) -> Option<&StudiedRun> {
        let runs = self.runs.iter().filter(|run| run.report.ranks == ranks);
        stats::middle(runs, |run| run.period_nanos)
    }

    /// Returns the fewest ranks, which efficiencies refer to.
    #[must_use]
    pub fn base(&self) -> Option<u32> {
        self.runs.iter().map(|run| run.report.ranks).min()
    }

    /// Returns the rule that the runs follow; `None` without one.
    #[must_use]
    pub fn rule(&self) -> Option<ScalingRule> {
        self.found.as_ref().ok().map(|(rule, _)| *rule)
    }

    /// Returns the mean efficiency on a number of ranks.
    #[must_use]
    pub fn efficiency_on(&self, ranks: u32) -> Option<&Efficiency> {
        let (_, efficiencies) = self.found.as_ref().ok()?;
        efficiencies.iter().find(|efficiency| efficiency.ranks == ranks)
    }

    /// Returns the efficiency of one run.
    #[must_use]
    pub fn efficiency_of(&self, run: &StudiedRun) -> Option<f64> {
        self.rule()?;
        let trial = self.trials.iter().find(|trial| trial.run == run.report.run)?;
        efficiency(&self.trials, trial, self.base()?)
    }
}

/// What counts of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    pub run: RunId,
    pub ranks: u32,
    /// The number of the repeat. Trials of one repeat ran one after the other, so they are compared with each other.
    pub repeat: u32,
    /// Samples per second over all ranks.
    pub throughput: f64,
    /// The samples of one rank in one step.
    pub batch: f64,
}

/// The efficiency on one world size, against the smallest one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Efficiency {
    pub ranks: u32,
    /// The geometric mean over repeats.
    pub mean: f64,
    /// The 95 % interval; `None` with one repeat.
    pub interval: Option<(f64, f64)>,
    /// The share of the work that does not scale, 0 to 1, if the smallest world has one rank: by Karp and Flatt (1990) for
    /// strong scaling, by Gustafson (1988) for weak scaling. Negative if the efficiency is above 1.
    pub serial_fraction: Option<f64>,
}

/// Returns what the runs have in common, and the efficiency on each world size, smallest first. The interval is that of the
/// mean of paired log ratios (Student's t): a disturbance of a whole repeat cancels out.
///
/// # Errors
/// Returns an error if there are fewer than two world sizes, or if the batches follow no common rule.
pub fn efficiencies(trials: &[Trial]) -> Result<(ScalingRule, Vec<Efficiency>), Missing> {
    let mut worlds: Vec<u32> = trials.iter().map(|trial| trial.ranks).collect();
    worlds.sort_unstable();
    worlds.dedup();
    let base = *worlds.first().filter(|_| worlds.len() > 1).ok_or(Missing::NoSmallerRun)?;
    let rule = common_rule(trials, base).ok_or(Missing::OtherBatch)?;
    let world = |ranks: u32| {
        let mine = trials.iter().filter(|trial| trial.ranks == ranks);
        let logs: Vec<f64> = mine.filter_map(|trial| Some(efficiency(trials, trial, base)?.ln())).collect();
        let mean = stats::mean(logs.iter().copied())?;
        let interval = half_width(&logs).map(|half| ((mean - half).exp(), (mean + half).exp()));
        let (mean, n) = (mean.exp(), f64::from(ranks));
        let serial = || match rule {
            ScalingRule::Strong => (1.0 / (mean * n) - 1.0 / n) / (1.0 - 1.0 / n),
            ScalingRule::Weak => (n - mean * n) / (n - 1.0),
        };
        let serial_fraction = (base == 1 && ranks > 1).then(serial);
        // The smallest world is measured against itself.
        let interval = interval.filter(|_| ranks != base);
        Some(Efficiency { ranks, mean, interval, serial_fraction })
    };
    Ok((rule, worlds.into_iter().filter_map(world).collect()))
}

/// Returns the efficiency of a trial against the smallest world in the same repeat.
fn efficiency(trials: &[Trial], trial: &Trial, base: u32) -> Option<f64> {
    let base = trials.iter().find(|other| other.ranks == base && other.repeat == trial.repeat)?;
    Some(baseline::efficiency((trial.throughput, trial.ranks), (base.throughput, base.ranks)))
}

fn common_rule(trials: &[Trial], base: u32) -> Option<ScalingRule> {
    let work = |trial: &Trial| Work { batch: trial.batch, ranks: trial.ranks };
    let base_work = work(trials.iter().find(|trial| trial.ranks == base)?);
    ScalingRule::ALL.into_iter().find(|rule| trials.iter().all(|trial| work(trial).follows(*rule, base_work)))
}

/// Returns half the width of the 95 % interval of the mean; `None` with fewer than two values.
fn half_width(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(1).filter(|&freedom| freedom > 0)?;
    let mean = stats::mean(values.iter().copied())?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let quantile = T_95.get(freedom - 1).copied().unwrap_or(NORMAL_95);
    Some(quantile * (squares / freedom as f64 / values.len() as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(ranks: u32, repeat: u32, throughput: f64, batch: f64) -> Trial {
        Trial { run: RunId::new("r").unwrap(), ranks, repeat, throughput, batch }
    }

    #[test]
    fn a_disturbance_of_a_whole_repeat_cancels_out() {
        // The second repeat ran on a machine of half the speed.
        let trials = [
            trial(1, 0, 100.0, 8.0),
            trial(4, 0, 320.0, 8.0),
            trial(1, 1, 50.0, 8.0),
            trial(4, 1, 160.0, 8.0),
        ];
        let (rule, found) = efficiencies(&trials).unwrap();
        assert_eq!(rule, ScalingRule::Weak);
        assert_eq!(found.iter().map(|found| found.ranks).collect::<Vec<_>>(), [1, 4]);
        assert!((found[1].mean - 0.8).abs() < 1e-12, "{found:?}");
        let (low, high) = found[1].interval.unwrap();
        assert!((high - low).abs() < 1e-9, "{found:?}");
        // Gustafson: a scaled speedup of 3.2 on 4 ranks.
        assert!((found[1].serial_fraction.unwrap() - 0.8 / 3.0).abs() < 1e-12, "{found:?}");
        assert_eq!((found[0].mean, found[0].interval, found[0].serial_fraction), (1.0, None, None));
    }

    #[test]
    fn the_serial_fraction_of_strong_scaling_is_that_of_amdahl() {
        // A tenth of the work is serial: S = 1 / (0.1 + 0.9 / 8).
        let speedup = 1.0 / (0.1 + 0.9 / 8.0);
        let trials = [trial(1, 0, 100.0, 64.0), trial(8, 0, 100.0 * speedup, 8.0)];
        let (rule, found) = efficiencies(&trials).unwrap();
        assert_eq!((rule, found[1].interval), (ScalingRule::Strong, None));
        assert!((found[1].serial_fraction.unwrap() - 0.1).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn the_interval_of_five_repeats_is_that_of_students_t() {
        let ratios = [0.80, 0.82, 0.78, 0.81, 0.79];
        let trials = (0..5)
            .zip(ratios)
            .flat_map(|(repeat, ratio)| [trial(1, repeat, 100.0, 8.0), trial(2, repeat, 200.0 * ratio, 8.0)]);
        let (_, found) = efficiencies(&trials.collect::<Vec<_>>()).unwrap();
        let (low, high) = found[1].interval.unwrap();
        // Mean of logs -0.22330, deviation 0.019768, t = 2.776: half a width of 0.02454.
        assert!((low - 0.78048).abs() < 1e-5 && (high - 0.81975).abs() < 1e-5, "{low} to {high}");
    }

    #[test]
    fn runs_without_a_common_batch_have_no_efficiency() {
        let mixed = [trial(1, 0, 1.0, 8.0), trial(2, 0, 1.0, 8.0), trial(4, 0, 1.0, 2.0)];
        assert_eq!(efficiencies(&mixed), Err(Missing::OtherBatch));
        assert_eq!(efficiencies(&mixed[..1]), Err(Missing::NoSmallerRun));
        assert_eq!(efficiencies(&[]), Err(Missing::NoSmallerRun));
    }
}
