//! Host samples as evidence: a rank that loses time because other processes use its cores, or because memory is short.

use std::sync::Arc;

use wire::clock::{MonoNanos, ServerNanos};
use wire::host::{HostFigure, HostSample};
use wire::views::{Cause, Culprit, Persistence, Verdict};

use crate::finding::{CoreUse, Evidence, Finding, Reason, Statement, Taker};
use crate::memory::Levels;
use crate::stats;
use timing::clocks::ClockFit;

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
/// The share of the time from which a cause is reported, and can be what a rank loses its time to.
const MIN_SHARE: f64 = 0.05;
/// The major page faults per second from which on the waits for disks count as the rank's own. A process whose pages stay in memory
/// has next to none.
const MIN_MAJOR_FAULTS: f64 = 20.0;
/// The share of a verdict's cost that something must explain to be what the rank loses time to.
const EXPLAINS: f64 = 0.5;
/// The same for the pressure of memory and disks, which counts only a part of what a lack of memory costs: not the time in which the
/// process itself seeks pages to reclaim, for instance.
const MEMORY_EXPLAINS: f64 = 0.3;

/// The largest share of a step that slower compute on contended cores costs. Of two hardware threads of a core, each runs at half the
/// speed of one alone, or faster.
const CONTENTION: f64 = 0.5;

/// The largest factor by which contended cores make something take longer on one rank than on the others, which wait for cores too.
const STRETCHES_BY: f64 = 4.0;

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
    cores: String,
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
    fn within(&self, window: (MonoNanos, MonoNanos)) -> Seconds {
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
        let at = FIGURES.into_iter().position(|one| one == figure)?;
        Some(self.0[at]).filter(|seconds| !seconds.is_nan())
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
    /// Returns true if all ranks run on the same cores of the same host.
    fn share_cores(&self) -> bool {
        let of_rank = |rank| self.get(rank).map(|(host, fit)| (&fit.clock, &host.history.cores));
        let first = of_rank(0);
        first.is_some() && (1..self.ranks.len()).all(|rank| of_rank(rank) == first)
    }

    /// Returns what slows all ranks for all of a window, if something does: each of them loses time to it.
    pub(crate) fn slow_all(&self, ranks: usize, window: (ServerNanos, ServerNanos)) -> Option<SlowHosts> {
        let of_rank = |rank| Shares::of_rank(self, rank, window);
        let all: Vec<Shares> = (0..ranks).map(of_rank).collect::<Option<_>>()?;
        // The pressure may be that of the whole host. If some ranks read pages back from a disk and others do not, it is theirs.
        let is_of_some = all.iter().any(Shares::pages) && !all.iter().all(Shares::pages);
        let taken = |(taker, of): (Taker, ShareOf)| {
            if taker == Taker::Memory && is_of_some {
                return None;
            }
            let least = all.iter().map(of).fold(f64::INFINITY, f64::min);
            let share = stats::median(all.iter().map(of))?;
            (least >= MIN_SHARE).then_some((taker, share))
        };
        let takers: [(Taker, ShareOf); 3] = [
            (Taker::Limit, |rank| rank.throttled),
            (Taker::Memory, |rank| rank.short_of_memory),
            (Taker::Paging, Shares::paging),
        ];
        let (taker, share) = takers.into_iter().filter_map(taken).max_by(|a, b| a.1.total_cmp(&b.1))?;
        let everyone: Vec<usize> = (0..ranks).collect();
        Some(SlowHosts { taker, share, evidence: Shares::new(self, &everyone, window)?.evidence(None) })
    }

    /// Returns how long the threads of the usual rank waited for cores; `None` if that is not known of every rank and its
    /// training thread.
    pub(crate) fn waits_for_cores(
        &self,
        ranks: usize,
        window: (ServerNanos, ServerNanos),
    ) -> Option<WaitsForCores> {
        let of_rank = |rank| {
            let shares = Shares::of_rank(self, rank, window)?;
            Some((shares.training_waited?, shares.waited))
        };
        let all: Vec<(f64, f64)> = (0..ranks).map(of_rank).collect::<Option<_>>()?;
        Some(WaitsForCores {
            training_thread: stats::median(all.iter().map(|(training, _)| *training))?,
            all_threads: stats::median(all.iter().map(|(_, all)| *all))?,
        })
    }

    fn get(&self, rank: usize) -> Option<(&'a RankHost, &'a ClockFit)> {
        Some((self.ranks.get(rank)?.as_ref()?, self.fits.get(rank)?.as_ref()?))
    }
}

/// How long threads were ready to run and no core ran them, in seconds per second: medians over ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WaitsForCores {
    /// The training thread.
    pub(crate) training_thread: f64,
    /// The sum over all threads of a process.
    pub(crate) all_threads: f64,
}

/// Returns one of the shares.
type ShareOf = fn(&Shares) -> f64;

/// What takes time from the hosts of all ranks.
#[derive(Clone, Debug)]
pub(crate) struct SlowHosts {
    /// What it is.
    pub(crate) taker: Taker,
    /// The time that it takes from a rank, as a share of the time: the median over ranks.
    pub(crate) share: f64,
    /// What the samples show.
    pub(crate) evidence: Vec<Evidence>,
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
    /// The same of the training thread; `None` if it is not known which one that is.
    training_waited: Option<f64>,
    throttled: f64,
    /// The share of the time in which some task waited for memory.
    short_of_memory: f64,
    /// The page faults of the process that had to read from a disk, per second.
    major_faults: f64,
    /// The share of the time in which some task waited for a disk.
    waited_for_disk: f64,
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
            training_waited: seconds.share(HostFigure::MainWaited, HostFigure::Interval),
            // Without a CPU limit there is no counter.
            throttled: seconds.share(HostFigure::Throttled, HostFigure::Interval).unwrap_or(0.0),
            // Not every kernel counts pressure.
            short_of_memory: seconds.share(HostFigure::MemoryPressure, HostFigure::Interval).unwrap_or(0.0),
            major_faults: 1e9 * seconds.share(HostFigure::MajorFaults, HostFigure::Interval).unwrap_or(0.0),
            waited_for_disk: seconds.share(HostFigure::IoPressure, HostFigure::Interval).unwrap_or(0.0),
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
            training_waited: stats::mean(known.iter().filter_map(|rank| rank.training_waited)),
            throttled: mean(|rank| rank.throttled)?,
            short_of_memory: mean(|rank| rank.short_of_memory)?,
            major_faults: mean(|rank| rank.major_faults)?,
            waited_for_disk: mean(|rank| rank.waited_for_disk)?,
        })
    }

    /// Returns what takes the most time from the ranks, or `None` if nothing takes enough to explain a loss of
    /// `lost_share` of the time. A thread that sleeps or waits for a lock loses no time to others, however busy its cores
    /// are. `usual` is the time that the threads of the other ranks waited for a core. If these ranks wait no longer, anything else
    /// that explains the loss comes first, and the training thread itself must have waited that long.
    fn taker(&self, lost_share: f64, usual: f64) -> Option<Taker> {
        let least = MIN_SHARE.max(EXPLAINS * lost_share);
        let of_memory = MIN_SHARE.max(MEMORY_EXPLAINS * lost_share);
        let of_processes = |share: f64| match self.waited {
            waited if waited - usual >= least => share,
            waited if self.training_waited.unwrap_or(waited) >= least => share.min(MIN_SHARE),
            _ => 0.0,
        };
        let takers = [
            (at_least(self.throttled, least), Taker::Limit),
            (at_least(self.stolen, least), Taker::Hypervisor),
            (at_least(self.short_of_memory, of_memory), Taker::Memory),
            (at_least(self.paging(), of_memory), Taker::Paging),
            (of_processes(self.others), Taker::Processes),
            (of_processes(self.peers), Taker::Ranks),
        ];
        let (most, taker) = takers.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        (most >= MIN_SHARE).then_some(taker)
    }

    /// Returns the share of the time that the ranks may have waited for pages to be read from a disk.
    fn paging(&self) -> f64 {
        if self.pages() { self.waited_for_disk } else { 0.0 }
    }

    /// Returns true if the ranks read pages from a disk again and again.
    fn pages(&self) -> bool {
        self.major_faults >= MIN_MAJOR_FAULTS
    }

    /// Returns evidence of who used the cores, which are named if they are those of one rank.
    fn evidence(&self, cores: Option<String>) -> Vec<Evidence> {
        let Self { own, peers, others, stolen, waited, .. } = *self;
        let used = Evidence::CoreUse(CoreUse { cores, own, peers, others, stolen });
        let waited = (waited >= MIN_SHARE)
            .then_some(Evidence::WaitedForCore { seconds: waited, training: self.training_waited });
        [Some(used), waited].into_iter().flatten().chain(self.of_limits()).collect()
    }

    /// Returns what explains a loss of `lost_share` of the time of all ranks: a CPU limit, or a lack of memory. The kernel reclaims
    /// memory in the threads that ask for it, and counts that as their processor time.
    fn slows(&self, lost_share: f64) -> Option<Taker> {
        let of_memory = MIN_SHARE.max(MEMORY_EXPLAINS * lost_share);
        let takers = [
            (at_least(self.throttled, MIN_SHARE.max(EXPLAINS * lost_share)), Taker::Limit),
            (at_least(self.short_of_memory, of_memory), Taker::Memory),
            (at_least(self.paging(), of_memory), Taker::Paging),
        ];
        let (most, taker) = takers.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        (most > 0.0).then_some(taker)
    }

    /// Returns evidence of a CPU limit and of a lack of memory.
    fn of_limits(&self) -> Vec<Evidence> {
        let Self { throttled, short_of_memory, .. } = *self;
        let throttled = (throttled >= MIN_SHARE).then_some(Evidence::Throttled { seconds: throttled });
        let memory =
            (short_of_memory >= MIN_SHARE).then_some(Evidence::ShortOfMemory { seconds: short_of_memory });
        let paged = (self.paging() >= MIN_SHARE)
            .then_some(Evidence::Paged { faults: self.major_faults, seconds: self.waited_for_disk });
        [throttled, memory, paged].into_iter().flatten().collect()
    }
}

/// Adds evidence of who used the ranks' cores in `window` to a finding with the cause host or processor. If steal
/// explains slow compute, changes the cause to host. Leaves any other finding unchanged, because use of the cores is no
/// evidence of, for example, a slow network.
pub(crate) fn explain(finding: &mut Finding, hosts: &Hosts<'_>, window: (ServerNanos, ServerNanos)) {
    let suspects: Vec<usize> = match &finding.verdict.culprit {
        None => return,
        Some(Culprit::All) => (0..hosts.ranks.len()).collect(),
        Some(named) => named.ranks().iter().map(|&rank| rank as usize).collect(),
    };
    let Some(shares) = Shares::new(hosts, &suspects, window) else { return };
    correct_turns(finding, &shares);
    let Verdict { cost_share, persistence, .. } = finding.verdict;
    // A recurring fault has only some of the steps between its first and its last one.
    let lost_share = match persistence {
        Some(Persistence::Recurring) => {
            finding.verdict.lost_nanos() as f64 / (window.1 - window.0).max(1) as f64
        }
        _ => cost_share,
    };
    if matches!(finding.verdict.cause, Cause::Processor | Cause::Compute)
        && is_stolen(cost_share, hosts, &suspects, &shares, window)
    {
        finding.verdict.cause = Cause::Host;
        finding.reason = Some(Reason::Steal);
    }
    let is_of_all = finding.verdict.culprit == Some(Culprit::All);
    if is_of_all
        && matches!(finding.verdict.cause, Cause::Processor | Cause::Compute)
        && matches!(finding.statement, Statement::Slower { .. })
        && let Some(taker) = shares.slows(lost_share)
    {
        (finding.verdict.cause, finding.reason) = (Cause::Host, Some(Reason::CoresTaken(taker)));
    }
    if is_of_all && !matches!(finding.verdict.cause, Cause::Host | Cause::Processor) {
        finding.evidence.extend(shares.of_limits());
    }
    if finding.evidence.iter().any(|one| matches!(one, Evidence::CoreUse(_))) {
        // The finding was made from the same samples.
        return;
    }
    let is_unexplained = |finding: &Finding| finding.verdict.cause == Cause::Host && finding.reason.is_none();
    if is_unexplained(finding) && finding.is_outside_phases() {
        finding.reason = Some(Reason::OutsidePhases);
    }
    let comes_and_goes = match finding.statement {
        Statement::Slower { .. } => true,
        // Ranks on the same cores have no network of their own.
        _ if finding.verdict.cause == Cause::Network => true,
        _ => persistence.is_some_and(|persistence| persistence != Persistence::Persistent),
    };
    let shares_cores = comes_and_goes && hosts.share_cores();
    finding.is_scatter |= shares_cores && is_slowed_by_others(finding, &shares, lost_share);
    if matches!(finding.verdict.cause, Cause::Host | Cause::Processor) || finding.is_scatter {
        let cores = match suspects[..] {
            [one] => hosts.get(one).map(|(host, _)| host.history.cores.clone()),
            _ => None,
        };
        finding.evidence.extend(shares.evidence(cores));
    }
    if is_unexplained(finding) && !finding.stops_in_code() {
        let usual = of_others(hosts, &suspects, window, |rank| rank.waited).unwrap_or(0.0);
        finding.reason = shares.taker(lost_share, usual).map(Reason::CoresTaken);
    }
    // Others that use the cores of all ranks do not explain why the same rank should be late.
    let is_taken = matches!(finding.reason, Some(Reason::CoresTaken(Taker::Processes | Taker::Ranks)));
    finding.is_scatter |= is_taken && shares_cores;
}

/// Corrects a finding that ranks are kept off their processors in turn, if their training threads waited for no core: then they were off
/// the processors for another reason.
fn correct_turns(finding: &mut Finding, shares: &Shares) {
    let is_kept_off = finding.statement == Statement::Turns { kept_off_processors: true };
    if is_kept_off && shares.training_waited.is_some_and(|waited| waited < MIN_SHARE) {
        finding.statement = Statement::Turns { kept_off_processors: false };
        finding.verdict.cause = Cause::Unknown;
        finding.evidence.retain(|evidence| !matches!(evidence, Evidence::RanksOffProcessor { .. }));
    }
}

/// Returns true if other processes use so much of the cores that a rank may be slow for it, although it is on a processor: two
/// threads that share a core, its caches or its memory slow each other. A line of the rank's own code is a better reason.
fn is_slowed_by_others(finding: &Finding, shares: &Shares, lost_share: f64) -> bool {
    let (verdict, least) = (&finding.verdict, MIN_SHARE.max(EXPLAINS * lost_share));
    let may_be = match (verdict.cause, finding.reason) {
        (Cause::Processor | Cause::Network, None) => true,
        (Cause::Compute, None) => verdict.cost_share <= CONTENTION,
        // How much of this time the thread was on a processor is not measured. A rank that sleeps waits for no core.
        (Cause::Host, Some(Reason::OutsidePhases)) | (Cause::Input, None) => {
            let is_late = matches!(finding.statement, Statement::Late { .. });
            is_late
                && !finding.names_own_line()
                && finding.is_stretched(STRETCHES_BY)
                && shares.waited >= least
        }
        _ => false,
    };
    may_be && shares.others >= least
}

/// Returns the median of a share over the ranks that are not suspected; `None` if it is known of none.
fn of_others(
    hosts: &Hosts<'_>,
    suspects: &[usize],
    window: (ServerNanos, ServerNanos),
    share: fn(&Shares) -> f64,
) -> Option<f64> {
    let others = (0..hosts.ranks.len()).filter(|rank| !suspects.contains(rank));
    stats::median(others.filter_map(|rank| Shares::of_rank(hosts, rank, window).as_ref().map(share)))
}

/// Returns `share` if it is at least `least`, and 0 otherwise.
fn at_least(share: f64, least: f64) -> f64 {
    if share >= least { share } else { 0.0 }
}

/// Returns true if the hypervisor takes so much more of these ranks' cores than of the other ranks' that it explains
/// the cost.
fn is_stolen(
    cost_share: f64,
    hosts: &Hosts<'_>,
    suspects: &[usize],
    shares: &Shares,
    window: (ServerNanos, ServerNanos),
) -> bool {
    let usual = of_others(hosts, suspects, window, |rank| rank.stolen);
    let more = shares.stolen - usual.unwrap_or(0.0);
    cost_share > 0.0 && more >= EXPLAINS * cost_share
}

#[cfg(test)]
mod tests;
