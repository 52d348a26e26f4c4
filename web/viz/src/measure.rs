//! What a (step, rank) cell can be looked at for.

use wire::live::Part;

use crate::steps::Steps;
use crate::ticks;
use crate::units;

/// A column of [`Steps`] that the heatmap shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// How much later than the median rank it started its collectives.
    Lateness,
    /// Its own step time.
    StepTime,
    /// One part of its ledger.
    Part(Part),
}

impl Measure {
    /// All measures, in the order they are offered.
    pub const ALL: [Self; 10] = [
        Self::Lateness,
        Self::StepTime,
        Self::Part(Part::ExposedWait),
        Self::Part(Part::ExposedTransfer),
        Self::Part(Part::Input),
        Self::Part(Part::H2d),
        Self::Part(Part::Forward),
        Self::Part(Part::Backward),
        Self::Part(Part::Optimizer),
        Self::Part(Part::Other),
    ];

    /// The name as METRICS.md writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lateness => "lateness",
            Self::StepTime => "rank step time",
            Self::Part(part) => part.name(),
        }
    }

    /// The name in a URL.
    #[must_use]
    pub fn key(self) -> String {
        self.name().replace(' ', "-")
    }

    /// The measure of that key.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|measure| measure.key() == key)
    }

    /// One of its values with its unit.
    #[must_use]
    pub fn write(self, value: f32) -> String {
        match self {
            _ if value.is_nan() => "—".into(),
            Self::Lateness => units::signed_nanos(f64::from(value)),
            Self::StepTime | Self::Part(_) => units::nanos(f64::from(value)),
        }
    }

    /// Its values, `step * ranks + rank`.
    #[must_use]
    pub fn column(self, steps: &Steps) -> &[f32] {
        match self {
            Self::Lateness => &steps.lateness,
            Self::StepTime => &steps.rank_nanos,
            Self::Part(part) => &steps.parts[part as usize],
        }
    }
}

/// Where the colour scale of `values` ends: a round figure that at most about one in a hundred exceeds. What
/// exceeds it has the last colour, so an outlier shows without darkening everything else.
#[must_use]
pub fn scale_end(values: &[f32]) -> f32 {
    ticks::ceiling(f64::from(exceeded_by(values, 1))) as f32
}

/// A value that about `percent` in a hundred of the known ones exceed; 0 when none is known.
#[must_use]
pub fn exceeded_by(values: &[f32], percent: usize) -> f32 {
    // A prime stride does not fall into step with the ranks.
    let stride = if values.len() > 20_000 { (values.len() / 20_000) | 1 } else { 1 };
    let mut sample: Vec<f32> = values.iter().copied().step_by(stride).filter(|v| !v.is_nan()).collect();
    if sample.is_empty() {
        return 0.0;
    }
    let at = (sample.len() - 1) * (100 - percent) / 100;
    let (_, value, _) = sample.select_nth_unstable_by(at, f32::total_cmp);
    *value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back() {
        for measure in Measure::ALL {
            assert_eq!(Measure::from_key(&measure.key()), Some(measure));
        }
        assert_eq!(Measure::from_key("nonsense"), None);
    }

    #[test]
    fn one_outlier_does_not_set_the_scale() {
        let mut values = vec![3.0; 1000];
        values[17] = 900.0;
        assert_eq!(scale_end(&values), 3.0);
        assert_eq!(scale_end(&[f32::NAN]), 1.0);
    }
}
