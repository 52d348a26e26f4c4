//! What host samples say of the ranks: how their cores and memory were used, for as long as they run.

mod shares;

use std::sync::Arc;

use timing::clocks::ClockFit;
use wire::clock::MonoNanos;
use wire::host::{HostFigure, HostSample};

use crate::memory::Levels;
pub(crate) use shares::{EXPLAINS, MIN_SHARE, Shares};

/// The figures that are stored: how the cores were used, and how long tasks waited for memory and disks.
const FIGURES: [HostFigure; 11] = [
    HostFigure::Interval,
    HostFigure::Capacity,
    HostFigure::Ran,
    HostFigure::Waited,
    HostFigure::Busy,
    HostFigure::Stolen,
    HostFigure::Throttled,
    HostFigure::MemoryPressure,
    HostFigure::IoPressure,
    HostFigure::MajorFaults,
    HostFigure::MainWaited,
];
/// The number of spans of one length that are stored before the two oldest are merged into one of twice the length. A
/// day takes 68 spans, and the last minute has a resolution of a few seconds.
const SPANS_PER_LEVEL: usize = 4;
/// The figures of one process over a span of time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    from: MonoNanos,
    until: MonoNanos,
    /// The figures in seconds or, of counts, in billions; by figure. NaN if a figure is unknown, which makes every sum with it
    /// unknown.
    seconds: [f32; FIGURES.len()],
    /// The span merges two to the power of this many samples.
    level: u8,
}

impl Span {
    fn new(sample: &HostSample) -> Option<Self> {
        let seconds = |figure| sample.get(figure).map_or(f32::NAN, |nanos| (nanos as f64 / 1e9) as f32);
        let interval = i64::try_from(sample.get(HostFigure::Interval)?).ok()?;
        Some(Self { from: sample.at + -interval, until: sample.at, seconds: FIGURES.map(seconds), level: 0 })
    }

    fn joined(&self, next: &Self) -> Self {
        Self {
            from: self.from,
            until: next.until,
            seconds: std::array::from_fn(|figure| self.seconds[figure] + next.seconds[figure]),
            level: self.level + 1,
        }
    }

    /// Returns the share of the span that lies within the window.
    fn share_within(&self, (from, until): (MonoNanos, MonoNanos)) -> f64 {
        let length = self.until - self.from;
        let inside = self.until.min(until) - self.from.max(from);
        if length > 0 { (inside as f64 / length as f64).max(0.0) } else { 0.0 }
    }
}

/// The history of one rank's process on its host since its start; recent spans are finer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostHistory {
    /// The cores that the process may run on, as its newest sample names them.
    pub(crate) cores: String,
    spans: Vec<Span>,
    /// The memory of the process.
    pub(crate) memory: Levels,
}

impl HostHistory {
    /// Adds a sample, which must be newer than all earlier ones.
    pub fn add(&mut self, sample: &HostSample) {
        self.memory.add_host(sample);
        let Some(span) = Span::new(sample) else { return };
        self.cores.clone_from(&sample.cores);
        self.spans.push(span);
        // Levels decrease from the oldest span to the newest.
        let mut end = self.spans.len();
        while let Some(level) = self.spans[..end].last().map(|span| span.level)
            && level < u8::MAX
        {
            let begin = self.spans[..end].partition_point(|span| span.level > level);
            if end - begin <= SPANS_PER_LEVEL {
                break;
            }
            let joined = self.spans[begin].joined(&self.spans[begin + 1]);
            self.spans.splice(begin..begin + 2, [joined]);
            end = begin + 1;
        }
    }

    /// Returns the approximate memory use of the history, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.cores.len() + self.spans.capacity() * size_of::<Span>() + self.memory.bytes()
    }

    /// Sums the figures over a window on the rank's clock.
    fn sums_within(&self, window: (MonoNanos, MonoNanos)) -> Seconds {
        let mut sums = [0.0; FIGURES.len()];
        for span in &self.spans {
            let share = span.share_within(window);
            if share > 0.0 {
                sums.iter_mut().zip(span.seconds).for_each(|(sum, more)| *sum += share * f64::from(more));
            }
        }
        Seconds(sums)
    }
}

/// Sums over a window, by figure, in seconds.
struct Seconds([f64; FIGURES.len()]);

impl Seconds {
    fn get(&self, figure: HostFigure) -> Option<f64> {
        let at = FIGURES.into_iter().position(|known| known == figure)?;
        Some(self.0[at]).filter(|seconds| !seconds.is_nan())
    }

    /// Returns one figure as a share of another; `None` if either is unknown.
    fn share(&self, figure: HostFigure, whole_figure: HostFigure) -> Option<f64> {
        let whole = self.get(whole_figure).filter(|whole| *whole > 0.0)?;
        Some(self.get(figure)? / whole)
    }
}

/// The host data of one rank.
#[derive(Clone, Debug)]
pub struct RankHost {
    /// The process id; several ranks may share a process.
    pub pid: u32,
    /// The history from its samples.
    pub history: Arc<HostHistory>,
}

/// The hosts and clocks of all ranks, indexed by rank.
#[derive(Clone, Copy)]
pub(crate) struct Hosts<'a> {
    /// Each rank's host data; `None` if there is none.
    pub(crate) ranks: &'a [Option<RankHost>],
    /// Each rank's clock; `None` if it is not aligned.
    pub(crate) fits: &'a [Option<ClockFit>],
}

impl<'a> Hosts<'a> {
    /// Returns true if all ranks run on the same cores of the same host.
    pub(crate) fn share_cores(&self) -> bool {
        let cores = |rank| self.get(rank).map(|(host, fit)| (&fit.clock, &host.history.cores));
        let first = cores(0);
        first.is_some() && (1..self.ranks.len()).all(|rank| cores(rank) == first)
    }

    pub(crate) fn get(&self, rank: usize) -> Option<(&'a RankHost, &'a ClockFit)> {
        Some((self.ranks.get(rank)?.as_ref()?, self.fits.get(rank)?.as_ref()?))
    }
}

#[cfg(test)]
mod tests {
    use HostFigure::{Busy, Ran};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// A sample of the second that ends at `at` on one core, of which the process used half.
    fn sample(at: i64) -> HostSample {
        let figures = [(HostFigure::Interval, 1_000), (HostFigure::Capacity, 1_000), (Ran, 500)];
        HostSample {
            at: MonoNanos(at * SECOND),
            cores: "0".into(),
            figures: figures.map(|(figure, millis)| (figure, millis * 1_000_000)).into(),
        }
    }

    #[test]
    fn window_sums_are_exact_however_old_the_samples_are() {
        let mut history = HostHistory::default();
        for at in 1..=100_000 {
            history.add(&sample(at));
        }
        assert!(history.spans.len() <= SPANS_PER_LEVEL * 18, "{}", history.spans.len());
        let all = history.sums_within((MonoNanos(0), MonoNanos(100_000 * SECOND)));
        assert_eq!(all.share(Ran, HostFigure::Capacity), Some(0.5));
        assert_eq!(all.get(HostFigure::Interval), Some(100_000.0));
        let recent = history.sums_within((MonoNanos(99_999 * SECOND), MonoNanos(100_000 * SECOND)));
        assert_eq!(recent.get(HostFigure::Interval), Some(1.0), "the newest second is a span of its own");
        assert_eq!(recent.get(Busy), None, "no sample has this figure");
    }
}
