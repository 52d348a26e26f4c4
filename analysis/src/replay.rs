//! The replay of one step with some durations replaced (`docs/metrics.md`, "What-if").
//!
//! A step is a graph. Each rank works through its phases, and its buckets become ready on the way. A collective begins
//! when the last rank has started it. The optimizer runs when the last collective is done. Replayed with the measured
//! durations, the graph must give the measured step; the difference shows how far its other answers can be trusted.
//!
//! If the ranks' clocks are good enough, each rank begins when it actually began. Otherwise all ranks begin at once,
//! which gives the same result if nothing changes from step to step.

mod graph;
mod horizon;
mod mesh;

use wire::event::SpanKind;
use wire::ids::Bucket;
use wire::views::Missing;
use wire::views::what_if::Phase;

use crate::join::Joined;
use crate::records::StepRecords;
use crate::stats;
use graph::{Durations, Graph, Observed, PHASES};
use horizon::{Horizon, Line};
use mesh::Mesh;
use timing::clocks::ClockFit;

/// The relative error of the simulation beyond which its answers are withheld (`docs/metrics.md`).
pub const MAX_ERROR: f64 = 0.05;
/// The largest number of collectives in a step that is replayed. Each collective is tried in a replay over all of them,
/// so 2,048 take 4 million additions.
const MAX_COLLECTIVES: usize = 2_048;
/// The share of the ranks that count as the slowest. Source: `M_W` in Lin et al., 2025 (`docs/metrics.md`, "What-if").
pub const SLOWEST_SHARE: f64 = 0.03;
/// The share of the step by which ranks that are slow together must be slower than the rest.
const GROUP_GAP_SHARE: f64 = 0.05;

/// The times that one step would take with something fixed, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The measured step time.
    pub measured_nanos: f64,
    /// The step time of the replay with nothing replaced.
    pub simulated_nanos: f64,
    /// The time from the first rank's begin to the last rank's. Steps overlap by this time: the sum of `simulated -
    /// skew` over steps is the run's time, while the sum of `simulated` is larger.
    pub skew_nanos: f64,
    /// The saving with every rank *even*: each compute segment at its mean over all ranks, each transfer at its median.
    /// Negative if these add up to more than the step took.
    pub even_nanos: f32,
    /// The saving with only the slowest [`SLOWEST_SHARE`] of the ranks even, at least one.
    pub even_slowest_nanos: f32,
    /// The saving with every rank *like those placed like it*: each as in `ranks`, but no segment longer than it was. At
    /// least the largest saving from a rank, a phase or the group, and never negative.
    pub alike_nanos: f32,
    /// The saving from fixing each rank: its segments at the mean of the other ranks, its begin and its transfers no
    /// later and no longer than the median rank's. Negative if the mean of the other ranks is slower. As with all
    /// savings here, the saving is of the time that the step adds to the run.
    pub ranks: Vec<f32>,
    /// The saving from evening out each phase over the ranks that are placed alike, indexed by [`Phase`].
    pub phases: [f32; PHASES],
    /// The collectives among all ranks, in launch order.
    pub collectives: Vec<ReplayedCollective>,
    /// The reason why the replay predicts nothing for other world sizes, if so.
    pub unpredictable: Option<Missing>,
    /// The local work before the thread blocks for the last bucket, averaged over ranks.
    pub before_nanos: f32,
    /// The local work after the last bucket, averaged over ranks.
    pub after_nanos: f32,
    /// The ranks that are slow together, if any.
    pub group: Option<SlowGroup>,
}

/// One collective of a replay; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayedCollective {
    pub bucket: Bucket,
    /// The payload in bytes.
    pub bytes: u64,
    /// The saving if its transfer took no time.
    pub saving_nanos: f32,
    /// The local work before the bucket is ready, averaged over ranks.
    pub ready_nanos: f32,
    /// The transfer, the median over ranks.
    pub transfer_nanos: f32,
    /// The time from when the bucket is ready and the communicator free until the start, the median over ranks.
    pub gap_nanos: f32,
}

/// Ranks that are slow together: fixing one of them saves little, fixing all of them saves more.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowGroup {
    /// The ranks, the slowest first.
    pub ranks: Vec<u32>,
    /// The saving from fixing all of them, in nanoseconds.
    pub saving_nanos: f32,
}

impl Replay {
    /// Returns |simulated - measured| / measured.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.simulated_nanos - self.measured_nanos).abs() / self.measured_nanos.max(1.0)
    }

    /// Returns true if the simulation is close enough to the measured step.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.error() <= MAX_ERROR
    }

    /// Raises the saving from fixing all ranks to the largest from fixing some of them. Without this, it can be less for two
    /// reasons. The slow group is compared with the ranks outside it, which are faster than all others of one of its ranks.
    /// And if ranks begin at different times, steps overlap: one that begins earlier takes its time from the step before.
    fn with_largest(mut self) -> Self {
        let group = self.group.iter().map(|group| group.saving_nanos);
        let parts = self.ranks.iter().chain(&self.phases).copied().chain(group);
        self.alike_nanos = parts.fold(self.alike_nanos.max(0.0), f32::max);
        self
    }

    /// Returns the saving from evening out one phase, in nanoseconds.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> f64 {
        f64::from(self.phases[phase as usize])
    }
}

/// Returns the phase of a span; `None` for time blocked in the reducer, which is not work, and for pauses.
pub(crate) fn phase_of(kind: SpanKind) -> Option<Phase> {
    match kind {
        SpanKind::Input | SpanKind::H2d => Some(Phase::Input),
        SpanKind::Forward => Some(Phase::Forward),
        SpanKind::Backward => Some(Phase::Backward),
        SpanKind::Optimizer => Some(Phase::Optimizer),
        SpanKind::Blocked | SpanKind::Unclear => None,
        // What lies within another phase counts as that phase, and what lies between phases as the rest. Idle lies between.
        SpanKind::Checkpoint
        | SpanKind::Evaluation
        | SpanKind::GarbageCollection
        | SpanKind::Compilation
        | SpanKind::Idle => None,
    }
}

/// Replays a step. Returns `None` if a rank or a record is missing, the step was not observed, or the step is too
/// large. A step with collectives among some of the ranks also needs aligned clocks.
pub(crate) fn replay(
    records: &StepRecords,
    fits: &[Option<ClockFit>],
    joined: &Joined<'_>,
) -> Option<Replay> {
    if joined.collectives.len() > MAX_COLLECTIVES {
        return None;
    }
    let observed = Observed::new(records, fits)?;
    let graph = Graph::new(&observed, joined);
    if let Some(graph) = graph.as_ref().filter(|graph| !graph.is_held_up) {
        return Some(replay_graph(graph));
    }
    let by_rank = Mesh::new(&observed, joined).map(|mesh| mesh.replay());
    by_rank.or_else(|| graph.as_ref().map(replay_graph))
}

fn replay_graph(graph: &Graph) -> Replay {
    let usual = Usual::new(graph);
    let ranks = 0..graph.ranks.len();
    let as_measured = |rank: usize| graph.line(rank, &[1.0; PHASES], None);
    let horizon = Horizon::new(ranks.clone().map(as_measured));
    let period = graph.simulate(&horizon.maxima(), None);
    let skew = graph.ranks.iter().map(|rank| rank.begin).fold(0.0, f64::max);
    let saving = |fixed: f64| (period - fixed) as f32;
    let fix = |rank: usize| {
        let line = graph.line(rank, &usual.scale(graph, rank, &[rank]), Some(&usual));
        saving(graph.simulate(&horizon.replaced(rank, &line), None))
    };
    let maxima = horizon.maxima();
    let collectives = graph.collectives.iter().enumerate().map(|(at, collective)| ReplayedCollective {
        bucket: collective.bucket,
        bytes: collective.bytes,
        saving_nanos: saving(graph.simulate(&maxima, Some(at))),
        ready_nanos: usual.ready[at] as f32,
        transfer_nanos: usual.transfers[at] as f32,
        gap_nanos: usual.gaps[at] as f32,
    });
    let own: Vec<f64> = ranks.clone().map(|rank| usual.own(graph, rank)).collect();
    let slowest = slowest(&own);
    let even_if_slow =
        |rank: usize| if slowest.contains(&rank) { usual.even(graph) } else { as_measured(rank) };
    let alike =
        |rank: usize| graph.line(rank, &never_longer(usual.scale(graph, rank, &[rank])), Some(&usual));
    Replay {
        measured_nanos: graph.measured,
        simulated_nanos: period + skew,
        skew_nanos: skew,
        even_nanos: saving(graph.play(|_| usual.even(graph))),
        even_slowest_nanos: saving(graph.play(even_if_slow)),
        alike_nanos: saving(graph.play(alike)),
        ranks: ranks.map(fix).collect(),
        phases: std::array::from_fn(|phase| saving(graph.evened(phase, &usual.means))),
        collectives: collectives.collect(),
        unpredictable: None,
        before_nanos: usual.before as f32,
        after_nanos: usual.after as f32,
        group: slow_together(&own, graph.measured).map(|ranks| SlowGroup {
            saving_nanos: saving(usual.step_with_usual(graph, &ranks)),
            ranks: ranks.into_iter().map(|rank| rank as u32).collect(),
        }),
    }
    .with_largest()
}

/// Returns the slowest ranks, given the time of each.
fn slowest(own: &[f64]) -> Vec<usize> {
    let mut by_own: Vec<usize> = (0..own.len()).collect();
    by_own.sort_by(|&a, &b| own[a].total_cmp(&own[b]));
    let count = ((own.len() as f64 * SLOWEST_SHARE) as usize).max(1);
    by_own.split_off(own.len().saturating_sub(count))
}

/// Returns factors that lengthen nothing.
fn never_longer(scale: Durations) -> Durations {
    scale.map(|factor| factor.min(1.0))
}

/// Returns the ranks above the widest gap in local work, the slowest first; at most half of all ranks. Returns `None`
/// if the gap is narrow, or if only one rank is above it.
fn slow_together(own: &[f64], step_nanos: f64) -> Option<Vec<usize>> {
    let mut by_own: Vec<usize> = (0..own.len()).collect();
    by_own.sort_by(|&a, &b| own[b].total_cmp(&own[a]));
    let gap_below = |size: usize| own[by_own[size - 1]] - own[by_own[size]];
    let size = (1..=own.len() / 2).max_by(|&a, &b| gap_below(a).total_cmp(&gap_below(b)))?;
    let stands_apart = gap_below(size) >= GROUP_GAP_SHARE * step_nanos;
    (size >= 2 && stands_apart).then(|| by_own[..size].to_vec())
}

/// Returns the factors that bring each phase of `rank` to the mean of the ranks that are not in `among`. `totals` are
/// the sums over all ranks.
fn to_others<'a>(
    total: impl Fn(usize) -> &'a Durations,
    ranks: usize,
    totals: &Durations,
    rank: usize,
    among: &[usize],
) -> Durations {
    let others = ranks - among.len();
    std::array::from_fn(|phase| {
        let excluded: f64 = among.iter().map(|&other| total(other)[phase]).sum();
        let own = total(rank)[phase];
        if own > 0.0 && others > 0 { (totals[phase] - excluded).max(0.0) / others as f64 / own } else { 1.0 }
    })
}

/// The usual times among the ranks of a step, in nanoseconds.
struct Usual {
    begin: f64,
    means: Durations,
    transfers: Vec<f64>,
    gaps: Vec<f64>,
    ready: Vec<f64>,
    before: f64,
    after: f64,
}

impl Usual {
    fn new(graph: &Graph) -> Self {
        let over_ranks = |value: &dyn Fn(&graph::RankGraph) -> f64| {
            graph.ranks.iter().map(value).sum::<f64>() / graph.ranks.len() as f64
        };
        let median = |value: &dyn Fn(&graph::RankGraph) -> f64| {
            stats::lower_median(graph.ranks.iter().map(value)).unwrap_or(0.0)
        };
        let all = 0..graph.collectives.len();
        let before = over_ranks(&|rank| rank.before.iter().sum());
        Self {
            begin: median(&|rank| rank.begin),
            means: std::array::from_fn(|phase| over_ranks(&|rank| rank.total[phase])),
            transfers: all.clone().map(|at| median(&|rank| rank.transfer[at])).collect(),
            gaps: all.clone().map(|at| median(&|rank| rank.gap[at])).collect(),
            ready: all.map(|at| over_ranks(&|rank| rank.ready[at].iter().sum())).collect(),
            before,
            after: over_ranks(&|rank| rank.total.iter().sum::<f64>()) - before,
        }
    }

    /// Returns the factors that bring each phase of `rank` to the mean of the ranks that are not in `among`.
    fn scale(&self, graph: &Graph, rank: usize, among: &[usize]) -> Durations {
        let totals = self.means.map(|mean| mean * graph.ranks.len() as f64);
        to_others(|rank| &graph.ranks[rank].total, graph.ranks.len(), &totals, rank, among)
    }

    /// Returns the rank's local work, plus the time that its transfers take beyond the median rank's.
    fn own(&self, graph: &Graph, rank: usize) -> f64 {
        let own = &graph.ranks[rank];
        let late = own.transfer.iter().zip(&self.transfers).map(|(own, usual)| (own - usual).max(0.0));
        own.total.iter().sum::<f64>() + late.sum::<f64>()
    }

    /// Returns the line of an even rank.
    fn even(&self, graph: &Graph) -> Line {
        graph.flatten(self.begin, &self.ready, &self.gaps, &self.transfers, self.before, self.after)
    }

    /// Returns the step time with all of `ranks` at the mean of the other ranks.
    fn step_with_usual(&self, graph: &Graph, ranks: &[usize]) -> f64 {
        graph.play(|rank| {
            if ranks.contains(&rank) {
                graph.line(rank, &self.scale(graph, rank, ranks), Some(self))
            } else {
                graph.line(rank, &[1.0; PHASES], None)
            }
        })
    }
}

#[cfg(test)]
mod tests;
