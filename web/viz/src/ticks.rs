//! The ticks of an axis, and its end.

use crate::span::Span;

/// A tick with its label.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The position, in data units.
    pub value: f64,
    pub label: String,
}

/// Returns the distance between ticks, which is 1, 2 or 5 times a power of ten, for at most `most` ticks.
#[must_use]
pub fn spacing(len: f64, most: usize) -> f64 {
    let raw = len / most.max(1) as f64;
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= raw * 0.999_999).unwrap_or(raw)
}

/// Returns the end of an axis that starts at 0 and contains `value`. It has few possible values, so that the axis
/// seldom changes.
#[must_use]
pub fn ceiling(value: f64) -> f64 {
    if value.is_nan() || value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0]
        .map(|m| m * power)
        .into_iter()
        .find(|&c| c >= value * 0.999_999)
        .unwrap_or(value)
}

/// The largest number of ticks on an axis.
const MAX_MARKS: usize = 64;

fn values(span: Span, step: f64) -> impl Iterator<Item = f64> {
    let first = (span.start / step - 1e-9).ceil() as i64;
    let last = (span.end / step + 1e-9).floor() as i64;
    // A step too small for a normal number would yield endless ticks.
    let most = if step.is_normal() { MAX_MARKS } else { 0 };
    (first..=last).take(most).map(move |n| n as f64 * step)
}

/// Returns the ticks of an axis in nanoseconds, all in one unit.
#[must_use]
pub fn nanos(span: Span, most: usize) -> Vec<Tick> {
    if span.is_empty() {
        return Vec::new();
    }
    let step = spacing(span.len(), most);
    let (scale, unit) = match units::nanos_scale(span.start.abs().max(span.end.abs())) {
        (_, "min") => (1e9, "s"),
        other => other,
    };
    let decimals = decimals(step / scale);
    values(span, step)
        .map(|value| {
            let label = if value == 0.0 {
                "0".into()
            } else {
                format!("{} {unit}", units::fixed(value / scale, decimals))
            };
            Tick { value, label }
        })
        .collect()
}

/// Returns the ticks of an axis of whole numbers, such as steps and ranks.
#[must_use]
pub fn whole(span: Span, most: usize) -> Vec<Tick> {
    if span.is_empty() {
        return Vec::new();
    }
    values(span, spacing(span.len(), most).max(1.0))
        .map(|value| Tick { value, label: units::count(value.max(0.0) as u64) })
        .collect()
}

/// Returns the ticks of an axis of shares, 0 to 1, in percent.
#[must_use]
pub fn shares(span: Span, most: usize) -> Vec<Tick> {
    if span.is_empty() {
        return Vec::new();
    }
    let step = spacing(span.len(), most);
    let decimals = decimals(step * 100.0);
    let label = |value: f64| format!("{} %", units::fixed(value * 100.0, decimals));
    values(span, step).map(|value| Tick { value, label: label(value) }).collect()
}

/// Returns the ticks of an axis of rates, with decimal prefixes. The caller appends the unit.
#[must_use]
pub fn rates(span: Span, most: usize) -> Vec<Tick> {
    if span.is_empty() {
        return Vec::new();
    }
    let (scale, prefix) = match span.end.abs() {
        v if v < 1e4 => (1.0, ""),
        v if v < 1e7 => (1e3, " k"),
        v if v < 1e10 => (1e6, " M"),
        _ => (1e9, " G"),
    };
    let step = spacing(span.len(), most);
    let decimals = decimals(step / scale);
    values(span, step)
        .map(|value| {
            let label = if value == 0.0 {
                "0".into()
            } else {
                format!("{}{prefix}", units::fixed(value / scale, decimals))
            };
            Tick { value, label }
        })
        .collect()
}

fn decimals(step: f64) -> usize {
    (-(step * 1.000_001).log10().floor()).max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn an_axis_has_one_unit() {
        assert_eq!(labels(&nanos(Span::new(0.0, 40e6), 5)), ["0", "10 ms", "20 ms", "30 ms", "40 ms"]);
        assert_eq!(labels(&nanos(Span::new(1.1e6, 1.4e6), 4)), ["1.1 ms", "1.2 ms", "1.3 ms", "1.4 ms"]);
        assert_eq!(labels(&whole(Span::new(0.0, 3.0), 10)), ["0", "1", "2", "3"]);
        assert_eq!(labels(&rates(Span::new(0.0, 15e3), 3)), ["0", "5 k", "10 k", "15 k"]);
        assert_eq!(labels(&shares(Span::new(0.0, 1.0), 2)), ["0 %", "50 %", "100 %"]);
    }

    #[test]
    fn a_tiny_axis_has_few_ticks() {
        let tiny = Span::new(0.0, 5e-324);
        for marks in [nanos(tiny, 8), whole(tiny, 8), rates(tiny, 8)] {
            assert!(marks.len() <= MAX_MARKS, "{} marks", marks.len());
        }
    }

    #[test]
    fn ceilings_are_round() {
        assert_eq!([3.2e6, 10.0, 0.0, f64::NAN].map(ceiling), [4e6, 10.0, 1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn ticks_are_few_and_visible(start in -1e9..1e9, len in 1.0..1e9, most in 2usize..12) {
            let span = Span::new(start, start + len);
            let marks = nanos(span, most);
            prop_assert!(marks.len() <= most + 1);
            prop_assert!(marks.iter().all(|m| m.value >= span.start - len * 1e-6 && m.value <= span.end + len * 1e-6));
        }

        #[test]
        fn a_ceiling_holds_its_value(value in 1e-6..1e12f64) {
            prop_assert!(ceiling(value) >= value * 0.999_99 && ceiling(value) <= value * 1.51);
        }
    }
}
