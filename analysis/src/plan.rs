//! How long a training takes (METRICS.md, "plan"): days = 6 P D / (N peak MFU) / 86,400, ideal and with the
//! efficiency of a scaling model.

/// A training to plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// Parameters of the model, P.
    pub parameters: f64,
    /// Tokens to train on, D.
    pub tokens: f64,
    /// Peak of one device, in FLOP/s.
    pub peak: f64,
    /// Model FLOP utilisation of one device, 0 to 1.
    pub mfu: f64,
}

/// One world size of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// N.
    pub ranks: u32,
    /// Days if N ranks were N times as fast as one.
    pub ideal_days: f64,
    /// Scaling efficiency, 0 to 1.
    pub efficiency: f64,
    /// Days at that efficiency.
    pub days: f64,
    /// How many times as fast as one rank.
    pub speed_up: f64,
}

const SECONDS_A_DAY: f64 = 86_400.0;
/// Forward and backward of a dense transformer take 6 FLOPs per parameter and token (Kaplan et al. 2020).
const FLOPS_PER_PARAMETER_AND_TOKEN: f64 = 6.0;

impl Training {
    /// The training on `ranks` ranks that scale with `efficiency`.
    #[must_use]
    pub fn on(&self, ranks: u32, efficiency: f64) -> Planned {
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
}

/// The efficiency that is assumed without a run: 1 / (1 + 0.04 sqrt(ranks)), what large jobs often report.
#[must_use]
pub fn usual_efficiency(ranks: u32) -> f64 {
    1.0 / (1.0 + 0.04 * f64::from(ranks).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_billion_parameters_on_a_trillion_tokens() {
        let training = Training { parameters: 7e9, tokens: 1e12, peak: 1e15, mfu: 0.4 };
        let days: Vec<String> = [8, 64, 256, 1_024]
            .map(|ranks| format!("{:.2}", training.on(ranks, usual_efficiency(ranks)).days))
            .to_vec();
        assert_eq!(days, ["169.10", "25.07", "7.79", "2.71"]);
        let planned = training.on(64, 0.5);
        assert_eq!(planned.speed_up, 32.0);
        assert_eq!(planned.days, 2.0 * planned.ideal_days);
    }
}
