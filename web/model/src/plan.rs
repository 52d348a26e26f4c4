//! The training plan: how long a training takes on a number of ranks.

use analysis::plan::efficiency::Efficiency;
use analysis::plan::{Planned, Training};
use wire::views::scaling::ScalingPrediction;

/// A field of the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The key in the address.
    pub key: &'static str,
    /// The name on the page.
    pub name: &'static str,
    /// The unit; empty for a plain number.
    pub unit: &'static str,
    /// The value until the user enters another.
    pub first: &'static str,
    /// What to enter.
    pub means: &'static str,
}

/// The fields, in the order of the form.
pub const FIELDS: [Field; 5] = [
    Field {
        key: "params",
        name: "Parameters",
        unit: "",
        first: "7e9",
        means: "The parameters of the model.",
    },
    Field { key: "tokens", name: "Tokens", unit: "", first: "1e12", means: "The tokens to train on." },
    Field {
        key: "peak",
        name: "Peak of one device",
        unit: "FLOP/s",
        first: "989e12",
        means: "The peak of one device at the precision of the training. 989e12 is an H100 at BF16.",
    },
    Field {
        key: "mfu",
        name: "MFU on one device",
        unit: "%",
        first: "40",
        means: "Model FLOP utilization: the share of the peak that the model reaches on one device.",
    },
    Field {
        key: "world",
        name: "Ranks",
        unit: "",
        first: "1024",
        means: "The devices to train on, one per rank.",
    },
];

/// The world sizes that a plan compares.
const WORLDS: [u32; 12] = [8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];

/// Reads a number above 0. Spaces, commas and underscores may separate its digits.
#[must_use]
pub fn read(text: &str) -> Option<f64> {
    let digits = text.replace(['_', ' ', ','], "");
    digits.parse::<f64>().ok().filter(|value| *value > 0.0 && value.is_finite())
}

/// The plan for one world size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub planned: Planned,
    /// The fewest and the most days, from the error band of the prediction; `None` without a prediction.
    pub days: Option<(f64, f64)>,
    pub efficiency: Efficiency,
}

impl Line {
    fn new(training: &Training, ranks: u32, predictions: &[ScalingPrediction]) -> Self {
        let efficiency = Efficiency::from_predictions(predictions, ranks);
        let days = efficiency.range().map(|range| training.days_range(ranks, range));
        Self { planned: training.planned(ranks, efficiency.value()), days, efficiency }
    }
}

/// The plan for the chosen world size, and for others to compare with.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The plan for the chosen world size.
    pub chosen: Line,
    /// The plans for all world sizes, fewest ranks first. The chosen one is among them.
    pub lines: Vec<Line>,
}

impl Plan {
    /// Plans with the texts of the form, in the order of [`FIELDS`].
    ///
    /// # Errors
    /// Returns a sentence that names the field that is not a number above 0, or too large.
    pub fn new(texts: &[String; 5], predictions: &[ScalingPrediction]) -> Result<Self, String> {
        let mut values = [0.0; 5];
        for ((value, text), field) in values.iter_mut().zip(texts).zip(FIELDS) {
            *value = read(text).ok_or_else(|| {
                format!("{} must be a number above 0, such as {}.", field.name, field.first)
            })?;
        }
        let [parameters, tokens, peak, mfu, ranks] = values;
        if mfu > 100.0 {
            return Err("MFU on one device must be at most 100 %.".into());
        }
        let training = Training { parameters, tokens, peak, mfu: mfu / 100.0 };
        let ranks = ranks.clamp(1.0, f64::from(u32::MAX)) as u32;
        let mut worlds = WORLDS.to_vec();
        worlds.push(ranks);
        worlds.sort_unstable();
        worlds.dedup();
        let line = |ranks| Line::new(&training, ranks, predictions);
        Ok(Self { chosen: line(ranks), lines: worlds.into_iter().map(line).collect() })
    }

    /// Says how long the training takes, and how much of it scaling costs.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Line { planned, days: range, .. } = self.chosen;
        let range =
            range.map_or_else(String::new, |(low, high)| format!(" ({} to {})", days(low), days(high)));
        format!(
            "On {}, the training would take {}{range}; with perfect scaling, {}.",
            units::ranks(planned.ranks),
            days(planned.days),
            days(planned.ideal_days)
        )
    }

    /// Says where the efficiency comes from.
    #[must_use]
    pub fn source(&self, run: Option<&str>) -> String {
        match (self.chosen.efficiency, run) {
            (Efficiency::Predicted(prediction), Some(run)) => format!(
                "The efficiency, {}, is predicted for {} from run {run}.",
                units::percent(prediction.efficiency),
                units::ranks(prediction.ranks)
            ),
            (efficiency, run) => format!(
                "The efficiency, {}, is an assumption: 1 / (1 + 0.04 √ranks), as large jobs often report{}.",
                units::percent(efficiency.value()),
                if run.is_some() { ", because this run has no prediction for it" } else { "" }
            ),
        }
    }
}

/// Formats a number of days; shorter times as hours or less.
#[must_use]
pub fn days(days: f64) -> String {
    if days >= 1.0 { format!("{} days", units::significant(days)) } else { units::clock(days * 86_400.0) }
}

/// Formats a number of days for a tick: `10 d`, `2.4 h`, `1.5 min`.
#[must_use]
pub fn tick(days: f64) -> String {
    let (value, unit) = match days {
        days if days >= 1.0 => (days, "d"),
        days if days * 24.0 >= 1.0 => (days * 24.0, "h"),
        days => (days * 24.0 * 60.0, "min"),
    };
    let is_whole = value >= 10.0 || value.fract() < 0.05;
    format!("{} {unit}", units::fixed(value, if is_whole { 0 } else { 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> [String; 5] {
        FIELDS.map(|field| field.first.to_owned())
    }

    fn prediction(ranks: u32, efficiency: f64) -> ScalingPrediction {
        let (efficiency_low, efficiency_high) = (efficiency / 2.0, efficiency * 1.25);
        ScalingPrediction { ranks, step_nanos: 1e7, efficiency, efficiency_low, efficiency_high }
    }

    #[test]
    fn the_form_as_it_first_stands_has_a_plan() {
        let plan = Plan::new(&texts(), &[]).unwrap();
        assert_eq!(plan.lines.len(), WORLDS.len());
        assert_eq!(
            plan.sentence(),
            "On 1,024 ranks, the training would take 2.74 days; with perfect scaling, 1.20 days."
        );
        assert!(plan.source(None).contains("assumption"), "{}", plan.source(None));
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(
            [1_000.0, 10.0, 1.0, 0.1, 0.001].map(tick),
            ["1,000 d", "10 d", "1 d", "2.4 h", "1.4 min"]
        );
    }

    #[test]
    fn a_wrong_field_is_named() {
        for (at, wrong) in [(0, "x"), (1, ""), (2, "-1"), (3, "0"), (4, "inf")] {
            let mut texts = texts();
            texts[at] = wrong.into();
            let error = Plan::new(&texts, &[]).unwrap_err();
            assert!(error.starts_with(FIELDS[at].name), "{error}");
        }
        let mut texts = texts();
        texts[3] = "140".into();
        assert!(Plan::new(&texts, &[]).is_err());
        assert_eq!(read("1 000_000,000"), Some(1e9));
    }

    #[test]
    fn a_prediction_for_the_next_larger_world_gives_a_range() {
        let mut texts = texts();
        texts[4] = "24".into();
        let plan = Plan::new(&texts, &[prediction(16, 0.9), prediction(32, 0.8)]).unwrap();
        let Line { planned, days, efficiency } = plan.chosen;
        assert_eq!(efficiency, Efficiency::Predicted(prediction(32, 0.8)));
        assert_eq!(days, Some((planned.ideal_days / 1.0, planned.ideal_days / 0.4)));
        assert!(plan.lines.iter().any(|line| line.planned.ranks == 24));
        assert!(
            plan.source(Some("r")).contains("predicted for 32 ranks from run r"),
            "{}",
            plan.source(Some("r"))
        );
        assert!(matches!(Efficiency::from_predictions(&[prediction(32, 0.8)], 64), Efficiency::Usual(_)));
    }
}
