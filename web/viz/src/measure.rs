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

/// Where the colour scale of a step-major column ends: a round figure that the slowest rank of most steps
/// stays below. One rank that is always late sets the scale, however many others there are; one odd step does
/// not, and has the last colour. It is at least `floor`, so that noise stays dark.
#[must_use]
pub fn scale_end(values: &[f32], ranks: usize, floor: f32) -> f32 {
    let largest: Vec<f32> =
        values.chunks(ranks.max(1)).map(|step| step.iter().copied().fold(f32::NAN, f32::max)).collect();
    ticks::ceiling(f64::from(exceeded_by(&largest, 5).max(floor))) as f32
}

/// A value that about `percent` in a hundred of the known ones exceed; 0 when none is known.
#[must_use]
pub fn exceeded_by(values: &[f32], percent: usize) -> f32 {
    let mut known: Vec<f32> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    if known.is_empty() {
        return 0.0;
    }
    let at = (known.len() - 1) * (100 - percent) / 100;
    let (_, value, _) = known.select_nth_unstable_by(at, f32::total_cmp);
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
    fn one_odd_step_does_not_set_the_scale_but_one_slow_rank_does() {
        let (steps, ranks) = (100, 64);
        let mut values = vec![3.0; steps * ranks];
        values[17] = 900.0;
        assert_eq!(scale_end(&values, ranks, 0.0), 3.0);
        values.iter_mut().skip(5).step_by(ranks).for_each(|v| *v = 50.0);
        assert_eq!(scale_end(&values, ranks, 0.0), 60.0);
    }

    #[test]
    fn noise_stays_dark() {
        assert_eq!(scale_end(&[0.01, f32::NAN], 1, 3.0), 3.0);
        assert_eq!(scale_end(&[f32::NAN], 1, 0.0), 1.0);
    }
}
