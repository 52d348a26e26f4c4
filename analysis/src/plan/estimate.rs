//! The days of a training on some ranks with everything that it loses, and what limits it.

use super::efficiency::Efficiency;
use super::memory::{OnRank, Shape};
use super::{Planned, Training, bubble};
use crate::checkpoints::Failures;

/// Less of the time than this share is compute if communication limits a training.
const BOUND_BY_COMMUNICATION: f64 = 0.5;

/// What is planned, whatever the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    pub training: Training,
    pub pipeline: Option<Pipeline>,
    pub failures: Option<DeviceFailures>,
    pub device_bytes: Option<f64>,
    /// The shape of the model, which says how much memory its activations take.
    pub shape: Option<Shape>,
}

/// A pipeline of stages, each of which has a part of the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    pub stages: u32,
    /// The micro-batches of a step that go through it.
    pub micro_batches: u32,
}

impl Pipeline {
    /// Returns the share of the step in which the stages are idle.
    #[must_use]
    pub fn idle(self) -> f64 {
        bubble(self.stages, self.micro_batches)
    }
}

/// How often devices fail, and what that costs; times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceFailures {
    /// The mean time between failures of one device.
    pub device_between: f64,
    /// The time that training waits for a checkpoint.
    pub checkpoint: f64,
    /// The time from a failure to the next step.
    pub restart: f64,
}

/// The checkpoints that lose the least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checkpoints {
    /// The seconds between two of them.
    pub interval: f64,
    /// The share of the time that failures and checkpoints take.
    pub lost: f64,
}

/// What limits a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// It does not fit, however its states are split.
    Memory,
    /// Less than half of the time is compute.
    Communication,
    /// Neither.
    Compute,
}

impl Bound {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Communication => "communication",
            Self::Compute => "compute",
        }
    }
}

/// The plan for one number of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The plan with the scaling efficiency alone.
    pub planned: Planned,
    /// The days with the pipeline's bubble and with failures.
    pub days: f64,
    /// The fewest and the most days, with the band of the efficiency. `None` if the efficiency is assumed.
    pub days_range: Option<(f64, f64)>,
    pub efficiency_range: Option<(f64, f64)>,
    /// The checkpoints; `None` if failures are not planned for.
    pub checkpoints: Option<Checkpoints>,
    pub bound: Bound,
}

impl Plan {
    #[must_use]
    pub fn estimate(&self, ranks: u32, efficiency: Efficiency) -> Estimate {
        let planned = self.training.planned(ranks, efficiency.value());
        let checkpoints = self.failures.map(|costs| {
            let failures = Failures::new(ranks, costs.device_between, costs.checkpoint);
            Checkpoints { interval: failures.interval(), lost: failures.lost(costs.restart) }
        });
        let works = 1.0 - self.pipeline.map_or(0.0, Pipeline::idle);
        let remains = 1.0 - checkpoints.map_or(0.0, |checkpoints| checkpoints.lost);
        let days = |days: f64| days / works / remains;
        let efficiency_range = efficiency.range();
        let days_range = efficiency_range.map(|range| self.training.days_range(ranks, range));
        Estimate {
            planned,
            days: days(planned.days),
            days_range: days_range.map(|(fewest, most)| (days(fewest), days(most))),
            efficiency_range,
            checkpoints,
            bound: self.bound(&planned),
        }
    }

    #[must_use]
    pub fn model_on(&self, ranks: u32) -> OnRank {
        let stages = self.pipeline.map_or(1, |pipeline| pipeline.stages);
        OnRank {
            parameters: self.training.parameters / f64::from(stages),
            replicas: ranks / stages,
            shape: self.shape,
        }
    }

    fn bound(&self, planned: &Planned) -> Bound {
        match self.device_bytes {
            Some(memory) if self.model_on(planned.ranks).least_bytes() > memory => Bound::Memory,
            _ if planned.efficiency < BOUND_BY_COMMUNICATION => Bound::Communication,
            _ => Bound::Compute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let training = Training { parameters: 7e9, tokens: 1e12, peak: 1e15, mfu: 0.4 };
        Plan { training, pipeline: None, failures: None, device_bytes: None, shape: None }
    }

    #[test]
    fn a_pipeline_and_failures_make_a_training_longer() {
        let alone = plan().estimate(64, Efficiency::Usual(0.5));
        assert_eq!((alone.days, alone.days_range), (alone.planned.days, None));
        let pipeline = Some(Pipeline { stages: 4, micro_batches: 12 });
        let failures =
            Some(DeviceFailures { device_between: 64.0 * 86_400.0, checkpoint: 60.0, restart: 300.0 });
        let estimate = Plan { pipeline, failures, ..plan() }.estimate(64, Efficiency::Usual(0.5));
        let lost = estimate.checkpoints.unwrap().lost;
        assert!(lost > 0.0 && lost < 0.1, "{lost}");
        let days = alone.days / 0.8 / (1.0 - lost);
        assert!((estimate.days / days - 1.0).abs() < 1e-12, "{estimate:?}");
    }

    #[test]
    fn a_model_that_does_not_fit_is_bound_by_memory_before_anything_else() {
        let bound = |device_bytes, efficiency| {
            Plan { device_bytes, ..plan() }.estimate(64, Efficiency::Usual(efficiency)).bound
        };
        assert_eq!(bound(None, 0.5), Bound::Compute);
        assert_eq!(bound(None, 0.49), Bound::Communication);
        // All states are 16 bytes per parameter, split over 64 ranks.
        assert_eq!(bound(Some(16.0 * 7e9 / 64.0), 0.5), Bound::Compute);
        assert_eq!(bound(Some(16.0 * 7e9 / 64.0 - 1.0), 0.49), Bound::Memory);
    }
}
