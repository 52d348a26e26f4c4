//! The step time over the course of a run as a small line.

use std::fmt::Write as _;

/// The largest multiple of the median at which the line is still drawn true to scale.
const TALLEST: f32 = 2.5;

/// Returns the line as an SVG path in a box of this size, from 0 at the bottom. Values far above the median are cut off
/// at the top, so that one of them does not flatten the rest. Returns `None` for fewer than two values.
#[must_use]
pub fn path(nanos: &[f32], width: f64, height: f64) -> Option<String> {
    let mut sorted = nanos.to_vec();
    sorted.sort_by(f32::total_cmp);
    let most = *sorted.last().filter(|_| nanos.len() > 1)?;
    let top = most.min(sorted[nanos.len() / 2] * TALLEST);
    if !(top.is_finite() && top > 0.0) {
        return None;
    }
    let across = width / (nanos.len() - 1) as f64;
    let mut path = String::new();
    for (at, &nanos) in nanos.iter().enumerate() {
        let (x, y) = (across * at as f64, height * (1.0 - f64::from(nanos.min(top) / top)));
        let command = if at == 0 { 'M' } else { 'L' };
        let _infallible = write!(path, "{command}{} {}", units::decimal(x, 1), units::decimal(y, 1));
    }
    Some(path)
}

/// Returns the line in words.
#[must_use]
pub fn words(nanos: &[f32]) -> String {
    let (Some(first), Some(last)) = (nanos.first(), nanos.last()) else { return String::new() };
    let most = nanos.iter().copied().fold(0.0, f32::max);
    let [first, last, most] = [*first, *last, most].map(|nanos| units::nanos(nanos.into()));
    format!("Step time over the run: {first} at first, {most} at most, {last} last")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_begins_at_zero_and_ends_at_the_right() {
        assert_eq!(path(&[1.0, 2.0, 1.0], 20.0, 10.0).unwrap(), "M0.0 5.0L10.0 0.0L20.0 5.0");
        assert_eq!(path(&[4.0, 4.0], 20.0, 10.0).unwrap(), "M0.0 0.0L20.0 0.0");
    }

    #[test]
    fn one_extreme_value_does_not_flatten_the_rest() {
        let line = path(&[100.0, 2.0, 2.0, 1.0], 30.0, 10.0).unwrap();
        assert_eq!(line, "M0.0 0.0L10.0 6.0L20.0 6.0L30.0 8.0");
    }

    #[test]
    fn a_line_needs_two_known_values() {
        assert_eq!(
            [path(&[], 9.0, 9.0), path(&[1.0], 9.0, 9.0), path(&[0.0, 0.0], 9.0, 9.0)],
            [None, None, None]
        );
        assert_eq!(path(&[f32::NAN, f32::NAN], 9.0, 9.0), None);
    }

    #[test]
    fn words_name_both_ends_and_the_longest() {
        let said = words(&[1e6, 5e6, 2e6]);
        assert_eq!(said, "Step time over the run: 1.00 ms at first, 5.00 ms at most, 2.00 ms last");
        assert_eq!(words(&[]), "");
    }
}
