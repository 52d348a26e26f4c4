//! The replay of one step with some durations replaced (METRICS.md, "what-if").
//!
//! A step is a graph: each rank works through its phases, its buckets become ready on the way, a collective
//! begins when the last rank has started it, and the optimizer runs when the last one is done. Played with the
//! durations that were measured it must give the step that was measured; how far it is off says how much its
//! other answers are worth. Where the ranks' clocks are good enough, ranks begin when they truly began; else
//! all begin at once, which is the same where nothing changes from step to step.

mod graph;
mod horizon;
mod mesh;

use wire::event::SpanKind;
use wire::ids::Bucket;
use wire::views::what_if::Phase;

use crate::clocks::ClockFit;
use crate::join::Joined;
use crate::stats;
use crate::step::{RankStep, StepRecords};
use graph::{Durations, Graph, PHASES};
use horizon::{Horizon, Line};
use mesh::Mesh;

/// Beyond this relative error of the simulation its answers are withheld (METRICS.md).
pub const MOST_ERROR: f64 = 0.05;
/// Collectives of a step that are tried one by one: each is a play over all of them, so that 2,048 take 4 million
/// additions.
const MOST_COLLECTIVES: usize = 2_048;
/// Looks that are taken at what a rank does until each of its collectives, over all ranks: about half a second.
const MOST_LOOKS: usize = 200_000_000;
/// Ranks that are slow together stand apart from the rest by this share of the step.
const GROUP_GAP_SHARE: f64 = 0.05;

/// What one step would take if something were fixed; times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The step time that was measured.
    pub measured_nanos: f64,
    /// The step time that the replay gives with nothing replaced.
    pub simulated_nanos: f64,
    /// How much later than the first rank the last one began. Steps overlap by this: `simulated - skew` adds
    /// up to the run's time over the steps, `simulated` to more.
    pub skew_nanos: f64,
    /// `T_ideal`: every compute segment at its mean over ranks, every transfer at its median.
    pub ideal_nanos: f64,
    /// Saving from fixing each rank: its segments at the mean of the others, its begin and its transfers at no
    /// more than the median rank's. Negative where the mean of the others is slower. Like all savings, of what
    /// the step adds to the run's time.
    pub ranks: Vec<f32>,
    /// Saving from evening out each phase, by [`Phase`].
    pub phases: [f32; PHASES],
    /// Those among all ranks, in launch order.
    pub collectives: Vec<ReplayedCollective>,
    /// Why nothing is predicted from it for other world sizes, if so.
    pub unpredictable: Option<&'static str>,
    /// Own work before the thread blocks for the last bucket, the mean over ranks.
    pub before_nanos: f32,
    /// Own work after the last bucket, the mean over ranks.
    pub after_nanos: f32,
    /// Ranks that are slow together, if there are such.
    pub group: Option<Group>,
}

/// One collective of a replay; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayedCollective {
    /// Its bucket.
    pub bucket: Bucket,
    /// Its payload.
    pub bytes: u64,
    /// Saving if its transfer took no time.
    pub saving_nanos: f32,
    /// Own work before it is ready, the mean over ranks.
    pub ready_nanos: f32,
    /// Its transfer, the median over ranks.
    pub transfer_nanos: f32,
    /// From ready and free to started, the median over ranks.
    pub gap_nanos: f32,
}

/// Ranks that are slow together: fixing one of them saves little, fixing all does.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Who, the slowest first.
    pub ranks: Vec<u32>,
    /// Saving from fixing all of them, in nanoseconds.
    pub saving_nanos: f32,
}

impl Replay {
    /// |simulated - measured| / measured.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.simulated_nanos - self.measured_nanos).abs() / self.measured_nanos.max(1.0)
    }

    /// True when the simulation is close enough to what was measured.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.error() <= MOST_ERROR
    }

    /// The saving from evening out one phase, in nanoseconds.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> f64 {
        f64::from(self.phases[phase as usize])
    }
}

/// Which phase a span belongs to; `None` for time blocked in the reducer, which is no work.
pub(crate) fn phase_of(kind: SpanKind) -> Option<Phase> {
    match kind {
        SpanKind::Input | SpanKind::H2d => Some(Phase::Input),
        SpanKind::Forward => Some(Phase::Forward),
        SpanKind::Backward => Some(Phase::Backward),
        SpanKind::Optimizer => Some(Phase::Optimizer),
        SpanKind::Blocked => None,
    }
}

/// Replays a step; `None` when a rank or a record is missing, or the step was not observed; where collectives are among
/// some of the ranks also when clocks are not aligned, or there is too much of it.
pub(crate) fn replay(
    records: &StepRecords,
    fits: &[Option<ClockFit>],
    joined: &Joined<'_>,
) -> Option<Replay> {
    if !is_affordable(records, joined) {
        return None;
    }
    let graph = Graph::of(records, fits, joined);
    if let Some(graph) = graph.as_ref().filter(|graph| !graph.is_held_up) {
        return Some(replay_graph(graph));
    }
    let by_rank = Mesh::of(records, fits, joined).map(|mesh| mesh.replay());
    by_rank.or_else(|| graph.as_ref().map(replay_graph))
}

/// Whether a replay takes less than about a second.
fn is_affordable(records: &StepRecords, joined: &Joined<'_>) -> bool {
    let looks = |step: &RankStep| {
        let blocked = step.spans.iter().filter(|span| span.kind == SpanKind::Blocked).count();
        step.buckets.len().saturating_mul(2 * step.spans.len() + 1).saturating_mul(blocked + 1)
    };
    let looks = records.ranks.iter().flatten().map(looks).fold(0, usize::saturating_add);
    joined.collectives.len() <= MOST_COLLECTIVES && looks <= MOST_LOOKS
}

fn replay_graph(graph: &Graph) -> Replay {
    let usual = Usual::of(graph);
    let lines: Vec<Line> =
        (0..graph.ranks.len()).map(|rank| graph.line(rank, &[1.0; PHASES], None)).collect();
    let horizon = Horizon::of(&lines);
    let period = graph.simulate(&horizon.maxima(), None);
    let skew = graph.ranks.iter().map(|rank| rank.begin).fold(0.0, f64::max);
    let saving = |fixed: f64| (period - fixed) as f32;
    let fix = |rank: usize| {
        let line = graph.line(rank, &usual.scale(graph, rank, &[rank]), Some(&usual));
        saving(graph.simulate(&horizon.replaced(rank, &line), None))
    };
    let phases = std::array::from_fn(|phase| saving(graph.evened(phase, &usual.means)));
    let maxima = horizon.maxima();
    let collectives = graph.collectives.iter().enumerate().map(|(at, collective)| ReplayedCollective {
        bucket: collective.bucket,
        bytes: collective.bytes,
        saving_nanos: saving(graph.simulate(&maxima, Some(at))),
        ready_nanos: usual.ready[at] as f32,
        transfer_nanos: usual.transfers[at] as f32,
        gap_nanos: usual.gaps[at] as f32,
    });
    let own: Vec<f64> = (0..graph.ranks.len()).map(|rank| usual.own(graph, rank)).collect();
    Replay {
        measured_nanos: graph.measured,
        simulated_nanos: period + skew,
        skew_nanos: skew,
        ideal_nanos: graph.simulate(&usual.ideal(graph), None),
        ranks: (0..graph.ranks.len()).map(fix).collect(),
        phases,
        collectives: collectives.collect(),
        unpredictable: None,
        before_nanos: usual.before as f32,
        after_nanos: usual.after as f32,
        group: slow_together(&own, graph.measured).map(|ranks| {
            let fixed = usual.without(graph, &ranks);
            Group { saving_nanos: saving(fixed), ranks: ranks.into_iter().map(|rank| rank as u32).collect() }
        }),
    }
}

/// The ranks above the widest gap in own work, the slowest first, if the gap is wide and they are two or more,
/// but not more than half.
fn slow_together(own: &[f64], step_nanos: f64) -> Option<Vec<usize>> {
    let mut by_own: Vec<usize> = (0..own.len()).collect();
    by_own.sort_by(|&a, &b| own[b].total_cmp(&own[a]));
    let gap_below = |size: usize| own[by_own[size - 1]] - own[by_own[size]];
    let size = (1..=own.len() / 2).max_by(|&a, &b| gap_below(a).total_cmp(&gap_below(b)))?;
    let stands_apart = gap_below(size) >= GROUP_GAP_SHARE * step_nanos;
    (size >= 2 && stands_apart).then(|| by_own[..size].to_vec())
}

/// What brings each phase of `rank` to the mean of the ranks that are not `among`; `totals` are sums over all ranks.
fn to_others<'a>(
    total: impl Fn(usize) -> &'a Durations,
    ranks: usize,
    totals: &Durations,
    rank: usize,
    among: &[usize],
) -> Durations {
    let others = ranks - among.len();
    std::array::from_fn(|phase| {
        let those: f64 = among.iter().map(|&one| total(one)[phase]).sum();
        let own = total(rank)[phase];
        if own > 0.0 && others > 0 { (totals[phase] - those).max(0.0) / others as f64 / own } else { 1.0 }
    })
}

/// What is usual among the ranks of a step, in nanoseconds.
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
    fn of(graph: &Graph) -> Self {
        let over_ranks = |of: &dyn Fn(&graph::RankGraph) -> f64| {
            graph.ranks.iter().map(of).sum::<f64>() / graph.ranks.len() as f64
        };
        let median = |of: &dyn Fn(&graph::RankGraph) -> f64| {
            stats::lower_median(graph.ranks.iter().map(of)).unwrap_or(0.0)
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

    /// What brings each phase of `rank` to the mean of the ranks that are not `among`.
    fn scale(&self, graph: &Graph, rank: usize, among: &[usize]) -> Durations {
        let totals = self.means.map(|mean| mean * graph.ranks.len() as f64);
        to_others(|rank| &graph.ranks[rank].total, graph.ranks.len(), &totals, rank, among)
    }

    /// The rank's own work, with what its transfers take beyond the median rank's.
    fn own(&self, graph: &Graph, rank: usize) -> f64 {
        let own = &graph.ranks[rank];
        let late = own.transfer.iter().zip(&self.transfers).map(|(own, usual)| (own - usual).max(0.0));
        own.total.iter().sum::<f64>() + late.sum::<f64>()
    }

    /// Every rank as the usual one.
    fn ideal(&self, graph: &Graph) -> Vec<f64> {
        graph.flatten(0.0, &self.ready, &self.gaps, &self.transfers, self.before, self.after).0
    }

    /// The step with all of `ranks` as the mean of the others.
    fn without(&self, graph: &Graph, ranks: &[usize]) -> f64 {
        let lines: Vec<Line> = (0..graph.ranks.len())
            .map(|rank| {
                if ranks.contains(&rank) {
                    graph.line(rank, &self.scale(graph, rank, ranks), Some(self))
                } else {
                    graph.line(rank, &[1.0; PHASES], None)
                }
            })
            .collect();
        graph.simulate(&Horizon::of(&lines).maxima(), None)
    }
}

#[cfg(test)]
mod tests;
