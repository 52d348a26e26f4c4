//! A median with a confidence interval that assumes no distribution.

use std::fmt;

use analysis::stats;
use serde_json::{Value, json};

/// Returns the median; NaN of no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    stats::median(values.iter().copied()).unwrap_or(f64::NAN)
}

/// The spread of some numbers.
pub struct Spread {
    pub median: f64,
    p10: f64,
    p90: f64,
    /// The interval that contains the true median with a confidence of at least 95 %, by the sign test; `None` with
    /// fewer than six numbers.
    interval: Option<(f64, f64)>,
}

impl Spread {
    /// Computes the spread of `values`.
    ///
    /// # Panics
    /// Panics if `values` is empty.
    #[must_use]
    pub fn from_values(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        let at = |share: f64| values[(share * last as f64).round() as usize];
        let interval = outside(values.len()).map(|out| (values[out], values[last - out]));
        Self { median: median(&values), p10: at(0.1), p90: at(0.9), interval }
    }

    /// Returns the spread in the form of a line of results.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "median": self.median, "p10": self.p10, "p90": self.p90,
            "interval_95": self.interval.map(|(low, high)| [low, high]),
        })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |value: f64| value * 100.0;
        write!(f, "{:+7.3}", percent(self.median))?;
        match self.interval {
            Some((low, high)) => write!(f, "  [{:+.3}, {:+.3}]", percent(low), percent(high))?,
            None => write!(f, "  [too few pairs]")?,
        }
        write!(f, "  {:+.3} to {:+.3}", percent(self.p10), percent(self.p90))
    }
}

/// Returns how many of `count` sorted numbers may lie outside a 95 % interval of the median, on either side. This is
/// the largest number of heads such that `count` fair coins show so few heads, or so few tails, in less than 5 % of the
/// cases.
fn outside(count: usize) -> Option<usize> {
    let mut probability = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut tail = 0.0;
    let mut found = None;
    for heads in 0..count / 2 {
        tail += probability;
        if 2.0 * tail > 0.05 {
            break;
        }
        found = Some(heads);
        probability *= (count - heads) as f64 / (heads + 1) as f64;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the tables of the sign test (for instance Conover 1999, table A3 with p = 0.5).
    #[test]
    fn the_interval_matches_the_sign_test() {
        assert_eq!(outside(5), None);
        assert_eq!(outside(6), Some(0));
        assert_eq!(outside(20), Some(5));
        assert_eq!(outside(25), Some(7));
        assert_eq!(outside(40), Some(13));
    }

    #[test]
    fn the_median_of_an_even_count_is_between_the_middle_two() {
        assert_eq!(Spread::from_values(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::from_values(vec![3.0, 1.0, 2.0]).median, 2.0);
    }
}
