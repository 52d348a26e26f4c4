//! Plans a training before it runs (`docs/metrics.md`, "One run"): days = 6 P D / (N peak MFU) / 86,400, ideal and with the
//! efficiency of a scaling model. `paceline plan` and the page's training plan print what is computed here.
//!
//! * [`efficiency`] says how a job scales, and [`checkpoints`](crate::checkpoints) what failures cost it.
//! * [`memory`] says what the model takes on a device.
//! * [`estimate`] puts them together.

pub mod efficiency;
pub mod estimate;
pub mod memory;

/// The tokens per parameter with which a given compute trains the best model (Hoffmann et al., 2022, "Chinchilla").
pub const TOKENS_PER_PARAMETER: f64 = 20.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// The parameters of the model, P.
    pub parameters: f64,
    /// The tokens to train on, D.
    pub tokens: f64,
    /// The peak of one device, in FLOP/s.
    pub peak: f64,
    /// The model FLOP utilization of one device, 0 to 1.
    pub mfu: f64,
}

/// The plan for one world size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// The number of ranks, N.
    pub ranks: u32,
    /// The days if N ranks were N times as fast as one.
    pub ideal_days: f64,
    /// The scaling efficiency, 0 to 1.
    pub efficiency: f64,
    /// The days at that efficiency.
    pub days: f64,
    /// The speed relative to one rank.
    pub speed_up: f64,
}

const SECONDS_A_DAY: f64 = 86_400.0;
/// The FLOPs per parameter and token of forward and backward of a dense transformer (Kaplan et al. 2020).
const FLOPS_PER_PARAMETER_AND_TOKEN: f64 = 6.0;

impl Training {
    #[must_use]
    pub fn planned(&self, ranks: u32, efficiency: f64) -> Planned {
        let flops = FLOPS_PER_PARAMETER_AND_TOKEN * self.parameters * self.tokens;
        let ideal_days = flops / (f64::from(ranks) * self.peak * self.mfu) / SECONDS_A_DAY;
        Planned {
            ranks,
            ideal_days,
            efficiency,
            days: ideal_days / efficiency,
            speed_up: f64::from(ranks) * efficiency,
        }
    }

    /// Returns the fewest and the most days on `ranks` ranks that scale with an efficiency between these two.
    #[must_use]
    pub fn days_range(&self, ranks: u32, (low, high): (f64, f64)) -> (f64, f64) {
        (self.planned(ranks, high).days, self.planned(ranks, low).days)
    }
}

/// Returns the share of a step in which the stages of a pipeline are idle, the *bubble*: (S - 1) / (M + S - 1) for S stages
/// and M micro-batches (Huang et al., 2019, GPipe).
#[must_use]
pub fn bubble(stages: u32, micro_batches: u32) -> f64 {
    let filling = f64::from(stages) - 1.0;
    filling / (f64::from(micro_batches) + filling)
}

#[cfg(test)]
mod tests {
    use super::efficiency::Efficiency;
    use super::*;

    #[test]
    fn a_plan_for_seven_billion_parameters_and_a_trillion_tokens() {
        let training = Training { parameters: 7e9, tokens: 1e12, peak: 1e15, mfu: 0.4 };
        let days: Vec<String> = [8, 64, 256, 1_024]
            .map(|ranks| format!("{:.2}", training.planned(ranks, Efficiency::usual(ranks).value()).days))
            .to_vec();
        assert_eq!(days, ["169.10", "25.07", "7.79", "2.71"]);
        assert_eq!([bubble(1, 4), bubble(4, 12)], [0.0, 0.2]);
        let planned = training.planned(64, 0.5);
        assert_eq!(planned.speed_up, 32.0);
        assert_eq!(planned.days, 2.0 * planned.ideal_days);
    }
}
