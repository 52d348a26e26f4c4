//! Host samples as evidence: a rank that loses time because other processes use its cores.

use std::sync::Arc;

use wire::clock::{MonoNanos, ServerNanos};
use wire::host::{HostFigure, HostSample};
use wire::views::{Cause, Culprit, Verdict};

use crate::stats;
use crate::verdict::says::{OFF_IN_TURNS, SLOW_COMPUTE, SLOW_PROCESSOR, TO_ITS_HOST, TO_THEIR_HOSTS};
use timing::clocks::ClockFit;

const FIGURES: usize = HostFigure::ALL.len();
/// The number of spans of one length that are stored before the two oldest are merged into one of twice the length. A
/// day takes 68 spans, and the last minute has a resolution of a few seconds.
const SPANS_PER_LEVEL: usize = 4;
/// The share of the time from which a cause is reported, and can be what a rank loses its time to.
const WORTH_TELLING: f64 = 0.05;
/// The share of a verdict's cost that steal must explain to be the cause of slow compute.
const STEAL_EXPLAINS: f64 = 0.5;

/// The figures of one process over a span of time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    from: MonoNanos,
    until: MonoNanos,
    /// The figures in seconds, by figure; NaN if a figure is unknown, which makes every sum with it unknown.
    seconds: [f32; FIGURES],
    /// The span merges two to the power of this many samples.
    level: u8,
}

impl Span {
    fn new(sample: &HostSample) -> Option<Self> {
        let seconds = |figure| sample.get(figure).map_or(f32::NAN, |nanos| (nanos as f64 / 1e9) as f32);
        let interval = i64::try_from(sample.get(HostFigure::Interval)?).ok()?;
        Some(Self {
            from: sample.at + -interval,
            until: sample.at,
            seconds: HostFigure::ALL.map(seconds),
            level: 0,
        })
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
    cores: String,
    spans: Vec<Span>,
}

impl HostHistory {
    /// Adds a sample, which must be newer than all earlier ones.
    pub fn add(&mut self, sample: &HostSample) {
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
        self.cores.len() + self.spans.capacity() * size_of::<Span>()
    }

    /// Sums the figures over a window on the rank's clock.
    fn within(&self, window: (MonoNanos, MonoNanos)) -> Seconds {
        let mut sums = [0.0; FIGURES];
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
struct Seconds([f64; FIGURES]);

impl Seconds {
    fn get(&self, figure: HostFigure) -> Option<f64> {
        let seconds = self.0[figure as usize];
        (!seconds.is_nan()).then_some(seconds)
    }

    /// Returns one figure as a share of another; `None` if either is unknown.
    fn share(&self, figure: HostFigure, of: HostFigure) -> Option<f64> {
        let whole = self.get(of).filter(|whole| *whole > 0.0)?;
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
pub struct Hosts<'a> {
    /// Each rank's host data; `None` if there is none.
    pub ranks: &'a [Option<RankHost>],
    /// Each rank's clock; `None` if it is not aligned.
    pub fits: &'a [Option<ClockFit>],
}

impl<'a> Hosts<'a> {
    fn get(&self, rank: usize) -> Option<(&'a RankHost, &'a ClockFit)> {
        Some((self.ranks.get(rank)?.as_ref()?, self.fits.get(rank)?.as_ref()?))
    }
}

/// How the cores of some ranks were used in a window: shares of the time, averaged over these ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Shares {
    own: f64,
    /// The share used by other ranks of this run on the same cores.
    peers: f64,
    /// The share used by all other processes on these cores.
    others: f64,
    stolen: f64,
    /// The time that the threads of a process waited for a core, in seconds per second.
    waited: f64,
    throttled: f64,
}

impl Shares {
    fn of_rank(hosts: &Hosts<'_>, rank: usize, window: (ServerNanos, ServerNanos)) -> Option<Self> {
        let (host, fit) = hosts.get(rank)?;
        let window = (fit.local(window.0), fit.local(window.1));
        let seconds = host.history.within(window);
        let of_cores = |figure| seconds.share(figure, HostFigure::Capacity);
        let own = of_cores(HostFigure::Ran)?;
        let mut processes = vec![host.pid];
        let mut peers = 0.0;
        for (peer, its_fit) in (0..hosts.ranks.len()).filter_map(|rank| hosts.get(rank)) {
            // Ranks with the same clock are on the same host, so the window holds for both.
            let has_same_cores = its_fit.clock == fit.clock && peer.history.cores == host.history.cores;
            if has_same_cores && !processes.contains(&peer.pid) {
                processes.push(peer.pid);
                peers += peer.history.within(window).share(HostFigure::Ran, HostFigure::Capacity)?;
            }
        }
        Some(Self {
            own,
            peers,
            others: (of_cores(HostFigure::Busy)? - own - peers).max(0.0),
            stolen: of_cores(HostFigure::Stolen)?,
            waited: seconds.share(HostFigure::Waited, HostFigure::Interval)?,
            // Without a CPU limit there is no counter.
            throttled: seconds.share(HostFigure::Throttled, HostFigure::Interval).unwrap_or(0.0),
        })
    }

    fn new(hosts: &Hosts<'_>, ranks: &[usize], window: (ServerNanos, ServerNanos)) -> Option<Self> {
        let known: Vec<Self> = ranks.iter().filter_map(|&rank| Self::of_rank(hosts, rank, window)).collect();
        let mean = |of: fn(&Self) -> f64| stats::mean(known.iter().map(of));
        Some(Self {
            own: mean(|rank| rank.own)?,
            peers: mean(|rank| rank.peers)?,
            others: mean(|rank| rank.others)?,
            stolen: mean(|rank| rank.stolen)?,
            waited: mean(|rank| rank.waited)?,
            throttled: mean(|rank| rank.throttled)?,
        })
    }

    /// Returns what takes the most time from the ranks, or `None` if nothing takes much.
    fn taker(&self) -> Option<Taker> {
        let of_processes = |share: f64| if self.waited >= WORTH_TELLING { share } else { 0.0 };
        let takers = [
            (self.throttled, Taker::Limit),
            (self.stolen, Taker::Hypervisor),
            (of_processes(self.others), Taker::Processes),
            (of_processes(self.peers), Taker::Ranks),
        ];
        let (most, taker) = takers.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        (most >= WORTH_TELLING).then_some(taker)
    }

    /// Returns lines of evidence. `whose` says whose cores they are ("its" or "their"); `own` refers to the ranks
    /// themselves.
    fn evidence(&self, (whose, own): (&str, &str), cores: &str) -> Vec<String> {
        let mut users = vec![format!("{own} {}", percent(self.own))];
        if self.peers > 0.0 {
            users.push(format!("other ranks {}", percent(self.peers)));
        }
        users.push(format!("other processes {}", percent(self.others)));
        users.push(format!("the hypervisor (steal) {}", percent(self.stolen)));
        let mut evidence = vec![format!("{whose} cores{cores} were used by: {}", users.join(", "))];
        if self.waited >= WORTH_TELLING {
            evidence.push(format!(
                "{whose} threads waited for a core {:.2} s per second (sum over all threads of a process)",
                self.waited
            ));
        }
        if self.throttled >= WORTH_TELLING {
            evidence.push(format!(
                "{whose} CPU limit (cgroup) kept a process from running for {:.2} s per second",
                self.throttled
            ));
        }
        evidence
    }
}

/// The causes that take time from ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taker {
    Limit,
    Hypervisor,
    Processes,
    Ranks,
}

impl Taker {
    /// Returns what ranks lose time to, as a noun; `its` says whose cores they are.
    fn name(self, its: &str) -> String {
        match self {
            Self::Limit => format!("{its} CPU limit (cgroup)"),
            Self::Hypervisor => "the hypervisor (steal)".into(),
            Self::Processes => format!("other processes on {its} cores"),
            Self::Ranks => format!("other ranks on {its} cores"),
        }
    }

    /// Returns the verb that agrees with [`Self::name`].
    fn keeps(self) -> &'static str {
        match self {
            Self::Limit | Self::Hypervisor => "keeps",
            Self::Processes | Self::Ranks => "keep",
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Adds evidence of who used the ranks' cores in `window` to a verdict with the cause host or processor. If steal
/// explains slow compute, changes the cause to host. Leaves any other verdict unchanged, because use of the cores is no
/// evidence of, for example, a slow network.
pub fn explain(verdict: &mut Verdict, hosts: &Hosts<'_>, window: (ServerNanos, ServerNanos)) {
    let (suspects, its, own) = match &verdict.culprit {
        Some(Culprit::Rank(rank)) => (vec![*rank as usize], "its", "itself"),
        Some(Culprit::Ranks(ranks)) => {
            (ranks.iter().map(|&rank| rank as usize).collect(), "their", "themselves")
        }
        Some(Culprit::All) => ((0..hosts.ranks.len()).collect(), "their", "themselves"),
        _ => return,
    };
    let Some(shares) = Shares::new(hosts, &suspects, window) else { return };
    if matches!(verdict.cause, Cause::Processor | Cause::Compute)
        && is_stolen(verdict, hosts, &suspects, &shares, window)
    {
        verdict.cause = Cause::Host;
        for said in [SLOW_PROCESSOR, SLOW_COMPUTE] {
            verdict.sentence = verdict.sentence.replace(said, &format!("more slowly while {}", stolen(its)));
        }
    }
    if matches!(verdict.cause, Cause::Host | Cause::Processor) {
        let cores = match suspects[..] {
            [one] => {
                hosts.get(one).map_or_else(String::new, |(host, _)| format!(" ({})", host.history.cores))
            }
            _ => String::new(),
        };
        verdict.evidence.extend(shares.evidence((its, own), &cores));
    }
    if let (Cause::Host, Some(taker)) = (verdict.cause, shares.taker()) {
        let name = taker.name(its);
        let sentence = verdict.sentence.replace(TO_ITS_HOST, &format!("time to {name}"));
        let sentence = sentence.replace(TO_THEIR_HOSTS, &format!("time to {name}"));
        let turns = format!("{name} {} different ranks off their processors in turn", taker.keeps());
        verdict.sentence = sentence.replace(OFF_IN_TURNS, &turns);
    }
}

fn stolen(its: &str) -> String {
    format!("the hypervisor takes time from {its} cores (steal)")
}

/// Returns true if the hypervisor takes so much more of these ranks' cores than of the other ranks' that it explains
/// the cost.
fn is_stolen(
    verdict: &Verdict,
    hosts: &Hosts<'_>,
    suspects: &[usize],
    shares: &Shares,
    window: (ServerNanos, ServerNanos),
) -> bool {
    let others = (0..hosts.ranks.len()).filter(|rank| !suspects.contains(rank));
    let usual = stats::median(others.filter_map(|rank| Some(Shares::of_rank(hosts, rank, window)?.stolen)));
    let more = shares.stolen - usual.unwrap_or(0.0);
    verdict.cost_share > 0.0 && more >= STEAL_EXPLAINS * verdict.cost_share
}

#[cfg(test)]
mod tests;
