//! Progress of commands that take long, on standard error if it is a terminal.

use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// Returns a progress bar over `count` parts of the work, which is named `what`.
pub(super) fn bar(what: &'static str, count: u64) -> ProgressBar {
    let template = "{msg} {wide_bar} {percent:>3} %, {eta} left";
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    ProgressBar::new(count).with_style(style).with_message(what)
}

/// The progress of parts that take about equally long and print lines of their own.
pub(super) struct Parts {
    count: usize,
    done: usize,
    began: Instant,
}

impl Parts {
    pub(super) fn new(count: usize) -> Self {
        Self { count, done: 0, began: Instant::now() }
    }

    /// Starts the next part. Returns its number and the time left, as in "3 of 12, about 2 minutes left".
    pub(super) fn next(&mut self) -> String {
        let left = time_left(self.began.elapsed(), self.done, self.count);
        self.done += 1;
        let left = left.map_or_else(String::new, |left| format!(", about {} left", HumanDuration(left)));
        format!("{} of {}{left}", self.done, self.count)
    }
}

/// Returns the time that the parts after the first `done` of `count` will take, if each takes as long as those on
/// average. Returns `None` before the first is done.
fn time_left(elapsed: Duration, done: usize, count: usize) -> Option<Duration> {
    (done > 0).then(|| elapsed.mul_f64((count - done) as f64 / done as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_remaining_parts() {
        let minute = Duration::from_secs(60);
        assert_eq!(time_left(Duration::ZERO, 0, 3), None);
        assert_eq!(time_left(minute, 1, 3), Some(2 * minute));
        assert_eq!(time_left(2 * minute, 2, 3), Some(minute));
        let mut parts = Parts::new(2);
        assert_eq!(parts.next(), "1 of 2");
        assert!(parts.next().starts_with("2 of 2, about "));
    }
}
