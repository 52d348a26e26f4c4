//! The step times of several runs in one chart.

use viz::steps::Steps;
use wire::live::FLAG_SHADOW;

/// What the horizontal axis counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeAxis {
    #[default]
    Steps,
    /// Time since the run's first stored step began.
    Clock,
}

impl TimeAxis {
    /// Returns the name in the address.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Clock => "clock",
        }
    }

    /// Parses what [`Self::key`] returns; steps if it is something else.
    #[must_use]
    pub fn read(text: Option<&str>) -> Self {
        if text == Some(Self::Clock.key()) { Self::Clock } else { Self::Steps }
    }
}

/// The step times of a run over both axes: (position, nanoseconds), left to right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    by_step: Vec<(f64, f64)>,
    by_clock: Vec<(f64, f64)>,
}

impl Times {
    /// Returns the step times of stored steps. Shadow steps are left out. Steps without aligned clocks have no place in
    /// time.
    #[must_use]
    pub fn new(steps: &Steps) -> Self {
        let mut times = Self::default();
        let mut began = None;
        for (row, &nanos) in steps.step_nanos.iter().enumerate() {
            let (nanos, ended) = (f64::from(nanos), steps.ended_unix_nanos[row]);
            if !nanos.is_finite() || steps.flags[row] & FLAG_SHADOW != 0 {
                continue;
            }
            times.by_step.push((steps.step[row] as f64, nanos));
            if ended > 0 {
                let start = *began.get_or_insert(ended.saturating_sub(nanos as u64));
                times.by_clock.push((ended.saturating_sub(start) as f64, nanos));
            }
        }
        times
    }

    /// Returns the points over an axis.
    #[must_use]
    pub fn points(&self, axis: TimeAxis) -> &[(f64, f64)] {
        match axis {
            TimeAxis::Steps => &self.by_step,
            TimeAxis::Clock => &self.by_clock,
        }
    }
}

/// Returns the first and the last position of all runs; `None` without points.
#[must_use]
pub fn ends(runs: &[&[(f64, f64)]]) -> Option<(f64, f64)> {
    let all = || runs.iter().filter_map(|points| Some((points.first()?.0, points.last()?.0)));
    let first = all().map(|(first, _)| first).reduce(f64::min)?;
    let last = all().map(|(_, last)| last).reduce(f64::max)?;
    Some((first, last))
}

/// The number of columns per axis, and the column of a position.
#[derive(Clone, Copy)]
struct Columns {
    first: f64,
    width: f64,
    count: usize,
}

impl Columns {
    fn new((first, last): (f64, f64), count: usize) -> Self {
        Self { first, width: ((last - first) / count as f64).max(f64::MIN_POSITIVE), count }
    }

    fn place(self, x: f64) -> usize {
        (((x - self.first) / self.width) as usize).min(self.count - 1)
    }
}

/// Thins a line to the lowest and the highest point of each of `columns` columns between `ends`, so that no spike
/// disappears. A line with fewer points is returned unchanged.
#[must_use]
pub fn thin(points: &[(f64, f64)], ends: (f64, f64), columns: usize) -> Vec<(f64, f64)> {
    if points.len() <= columns * 2 {
        return points.to_vec();
    }
    let columns = Columns::new(ends, columns);
    let mut out = Vec::new();
    for column in points.chunk_by(|a, b| columns.place(a.0) == columns.place(b.0)) {
        let (mut low, mut high) = (0, 0);
        for (at, point) in column.iter().enumerate() {
            if point.1 < column[low].1 {
                low = at;
            }
            if point.1 > column[high].1 {
                high = at;
            }
        }
        out.push(column[low.min(high)]);
        if low != high {
            out.push(column[low.max(high)]);
        }
    }
    out
}

/// The longest step of each run in one column of the chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The first and the last position in the column that has a point.
    pub from_to: (f64, f64),
    /// For each run its longest step: (position, nanoseconds).
    pub longest: Vec<Option<(f64, f64)>>,
}

/// Returns what the pointer reads from `columns` columns, left to right. Columns without points are left out.
#[must_use]
pub fn readings(runs: &[&[(f64, f64)]], columns: usize) -> Vec<Reading> {
    let Some(ends) = ends(runs) else { return Vec::new() };
    let columns = Columns::new(ends, columns);
    let mut found: Vec<Option<Reading>> = vec![None; columns.count];
    for (run, points) in runs.iter().enumerate() {
        for &(x, y) in *points {
            let reading = found[columns.place(x)]
                .get_or_insert_with(|| Reading { from_to: (x, x), longest: vec![None; runs.len()] });
            reading.from_to = (reading.from_to.0.min(x), reading.from_to.1.max(x));
            if reading.longest[run].is_none_or(|(_, longest)| y > longest) {
                reading.longest[run] = Some((x, y));
            }
        }
    }
    found.into_iter().flatten().collect()
}

/// Returns the largest value on the vertical axis, and whether steps are longer. The axis covers every step, unless a
/// few steps in a hundred are so long that the others would be flat.
#[must_use]
pub fn top(runs: &[&[(f64, f64)]]) -> (f64, bool) {
    let (mut most, mut usual) = (0.0f64, 0.0f64);
    for points in runs {
        let mut nanos: Vec<f64> = points.iter().map(|point| point.1).collect();
        nanos.sort_by(f64::total_cmp);
        let Some(&longest) = nanos.last() else { continue };
        most = most.max(longest);
        usual = usual.max(nanos[(nanos.len() - 1) * 97 / 100]);
    }
    if most > usual * 3.0 { (usual * 1.5, true) } else { (most, false) }
}

/// Returns a short name for the run at this place: `A` to `Z`, then `A2` and so on.
#[must_use]
pub fn tag(at: usize) -> String {
    let letter = char::from(b'A' + (at % 26) as u8);
    match at / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{}", round + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::live::StepColumns;

    fn steps() -> Steps {
        let mut steps = Steps::default();
        steps.apply(&StepColumns {
            reset: true,
            ranks: 2,
            step: vec![10, 11, 12, 13],
            ended_unix_nanos: vec![1_000, 0, 1_250, 1_400],
            step_nanos: vec![100.0, 120.0, 150.0, 140.0],
            samples: vec![1; 4],
            overlap: vec![0.0; 4],
            parts: std::array::from_fn(|_| vec![0.0; 4]),
            flags: vec![0, 0, 0, FLAG_SHADOW],
        });
        steps
    }

    #[test]
    fn time_begins_with_the_first_stored_step() {
        let times = Times::new(&steps());
        assert_eq!(times.points(TimeAxis::Steps), [(10.0, 100.0), (11.0, 120.0), (12.0, 150.0)]);
        assert_eq!(times.points(TimeAxis::Clock), [(100.0, 100.0), (350.0, 150.0)], "one step has no time");
    }

    #[test]
    fn a_thinned_line_keeps_its_extremes_in_order() {
        let mut points: Vec<(f64, f64)> = (0..1_000).map(|x| (f64::from(x), 10.0)).collect();
        points[503].1 = 99.0;
        points[507].1 = 1.0;
        let thin = thin(&points, (0.0, 999.0), 20);
        assert!(thin.len() <= 40);
        assert!(thin.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(thin.contains(&(503.0, 99.0)) && thin.contains(&(507.0, 1.0)));
        assert_eq!(super::thin(&points[..30], (0.0, 999.0), 20), points[..30]);
    }

    #[test]
    fn the_pointer_reads_the_longest_step_of_each_run() {
        let a: Vec<(f64, f64)> = (0..8).map(|x| (f64::from(x), f64::from(x % 2))).collect();
        let b = [(6.0, 5.0)];
        let found = readings(&[&a, &b], 2);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], Reading { from_to: (0.0, 3.0), longest: vec![Some((1.0, 1.0)), None] });
        assert_eq!(found[1].longest, [Some((5.0, 1.0)), Some((6.0, 5.0))]);
        assert_eq!(readings(&[&[]], 2), []);
    }

    #[test]
    fn the_axis_covers_all_steps_unless_a_few_would_flatten_the_rest() {
        let mut points: Vec<(f64, f64)> = (0..100).map(|x| (f64::from(x), 10.0)).collect();
        assert_eq!(top(&[&points]), (10.0, false));
        points[0].1 = 25.0;
        assert_eq!(top(&[&points]), (25.0, false));
        points[0].1 = 900.0;
        assert_eq!(top(&[&points]), (15.0, true));
        assert_eq!(top(&[]), (0.0, false));
    }

    #[test]
    fn many_runs_have_different_tags() {
        let mut tags: Vec<String> = (0..80).map(tag).collect();
        assert_eq!([&tags[0], &tags[25], &tags[26]], ["A", "Z", "A2"]);
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), 80);
    }

    #[test]
    fn the_axis_is_in_the_address() {
        assert_eq!(TimeAxis::read(Some(TimeAxis::Clock.key())), TimeAxis::Clock);
        assert_eq!([None, Some("steps"), Some("x")].map(TimeAxis::read), [TimeAxis::Steps; 3]);
    }
}
