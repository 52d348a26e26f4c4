//! A scaling study: a job that ran on several world sizes, each several times. Its efficiencies come with intervals.

use wire::ids::RunId;
use wire::views::{Missing, ScalingRule};

use crate::baseline::{self, Work};
use crate::stats;

/// The quantiles of Student's t distribution for two-sided 95 % intervals, by degrees of freedom from 1.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The quantile for more degrees of freedom.
const NORMAL_95: f64 = 1.960;

/// One run of the study.
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
    let of_world = |ranks: u32| {
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
    Ok((rule, worlds.into_iter().filter_map(of_world).collect()))
}

/// Returns the efficiency of a trial against the smallest world in the same repeat.
#[must_use]
pub fn efficiency(trials: &[Trial], trial: &Trial, base: u32) -> Option<f64> {
    let base = trials.iter().find(|other| other.ranks == base && other.repeat == trial.repeat)?;
    Some(baseline::efficiency((trial.throughput, trial.ranks), (base.throughput, base.ranks)))
}

fn common_rule(trials: &[Trial], base: u32) -> Option<ScalingRule> {
    let work = |trial: &Trial| Work { batch: trial.batch, ranks: trial.ranks };
    let of_base = work(trials.iter().find(|trial| trial.ranks == base)?);
    ScalingRule::ALL.into_iter().find(|rule| trials.iter().all(|trial| work(trial).follows(*rule, of_base)))
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
        assert_eq!(found.iter().map(|one| one.ranks).collect::<Vec<_>>(), [1, 4]);
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
