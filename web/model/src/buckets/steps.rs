//! The steps that are worth a look.

/// Returns the longest step of (step, step time in nanoseconds).
#[must_use]
pub fn worst(steps: &[(u64, f64)]) -> Option<u64> {
    measured(steps).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(step, _)| step)
}

/// Returns the step whose time is the median; the lower one of two in the middle.
#[must_use]
pub fn typical(steps: &[(u64, f64)]) -> Option<u64> {
    let mut by_time: Vec<(u64, f64)> = measured(steps).collect();
    by_time.sort_by(|a, b| a.1.total_cmp(&b.1));
    by_time.get(by_time.len().checked_sub(1)? / 2).map(|(step, _)| *step)
}

fn measured(steps: &[(u64, f64)]) -> impl Iterator<Item = (u64, f64)> {
    steps.iter().copied().filter(|(_, nanos)| !nanos.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_step_is_the_longest_and_the_typical_one_the_median() {
        let steps = [(10, 5.0), (11, f64::NAN), (12, 9.0), (13, 4.0), (14, 7.0)];
        assert_eq!((worst(&steps), typical(&steps)), (Some(12), Some(10)));
        assert_eq!((worst(&[]), typical(&[(3, f64::NAN)])), (None, None));
    }
}
