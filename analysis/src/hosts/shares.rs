//! How the cores and the memory of ranks were used in a window, as shares of the time.

use wire::clock::ServerNanos;
use wire::host::HostFigure;

use super::Hosts;
use crate::finding::{CoreUse, Evidence, Taker};
use crate::stats;

/// The share of the time from which a cause is reported, and can be what a rank loses its time to.
pub(crate) const MIN_SHARE: f64 = 0.05;
/// The major page faults per second from which on the waits for disks count as the rank's own. A process whose pages stay in memory
/// has next to none.
const MIN_MAJOR_FAULTS: f64 = 20.0;
/// The share of a verdict's cost that something must explain to be what the rank loses time to.
pub(crate) const EXPLAINS: f64 = 0.5;
/// The same for the pressure of memory and disks, which counts only a part of what a lack of memory costs: not the time in which the
/// process itself seeks pages to reclaim, for instance.
const MEMORY_EXPLAINS: f64 = 0.3;

/// How the cores of some ranks were used in a window: shares of the time, averaged over these ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    own: f64,
    /// The share used by other ranks of this run on the same cores.
    peers: f64,
    /// The share used by all other processes on these cores.
    pub(crate) others: f64,
    pub(crate) stolen: f64,
    /// The time that the threads of a process waited for a core, in seconds per second.
    pub(crate) waited: f64,
    /// The same of the training thread; `None` if it is not known which one that is.
    pub(crate) training_waited: Option<f64>,
    pub(crate) throttled: f64,
    /// The share of the time in which some task waited for memory.
    pub(crate) short_of_memory: f64,
    /// The page faults of the process that had to read from a disk, per second.
    major_faults: f64,
    /// The share of the time in which some task waited for a disk.
    waited_for_disk: f64,
}

impl Shares {
    pub(crate) fn rank(hosts: &Hosts<'_>, rank: usize, window: (ServerNanos, ServerNanos)) -> Option<Self> {
        let (host, fit) = hosts.get(rank)?;
        let window = (fit.local(window.0), fit.local(window.1));
        let seconds = host.history.sums_within(window);
        let core_share = |figure| seconds.share(figure, HostFigure::Capacity);
        let own = core_share(HostFigure::Ran)?;
        let mut processes = vec![host.pid];
        let mut peers = 0.0;
        for (peer, its_fit) in (0..hosts.ranks.len()).filter_map(|rank| hosts.get(rank)) {
            // Ranks with the same clock are on the same host, so the window holds for both.
            let has_same_cores = its_fit.clock == fit.clock && peer.history.cores == host.history.cores;
            if has_same_cores && !processes.contains(&peer.pid) {
                processes.push(peer.pid);
                peers += peer.history.sums_within(window).share(HostFigure::Ran, HostFigure::Capacity)?;
            }
        }
        Some(Self {
            own,
            peers,
            others: (core_share(HostFigure::Busy)? - own - peers).max(0.0),
            stolen: core_share(HostFigure::Stolen)?,
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

    /// The mean over the ranks whose shares are known.
    pub(crate) fn new(
        hosts: &Hosts<'_>,
        ranks: &[usize],
        window: (ServerNanos, ServerNanos),
    ) -> Option<Self> {
        let known: Vec<Self> = ranks.iter().filter_map(|&rank| Self::rank(hosts, rank, window)).collect();
        let mean = |share: fn(&Self) -> f64| stats::mean(known.iter().map(share));
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
    pub(crate) fn taker(&self, lost_share: f64, usual: f64) -> Option<Taker> {
        let least = MIN_SHARE.max(EXPLAINS * lost_share);
        let least_memory = MIN_SHARE.max(MEMORY_EXPLAINS * lost_share);
        let contended = |share: f64| match self.waited {
            waited if waited - usual >= least => share,
            _ if self.training_waited_at_most() >= least => share.min(MIN_SHARE),
            _ => 0.0,
        };
        let takers = [
            (significant(self.throttled, least), Taker::Limit),
            (significant(self.stolen, least), Taker::Hypervisor),
            (significant(self.short_of_memory, least_memory), Taker::Memory),
            (significant(self.paging(), least_memory), Taker::Paging),
            (contended(self.others), Taker::Processes),
            (contended(self.peers), Taker::Ranks),
        ];
        let (most, taker) = takers.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        (most >= MIN_SHARE).then_some(taker)
    }

    /// Returns the time that the training thread waited for a core, in seconds per second. If it is not known which thread that is, it
    /// waited at most as long as all threads.
    pub(crate) fn training_waited_at_most(&self) -> f64 {
        self.training_waited.unwrap_or(self.waited)
    }

    /// Returns true if the training thread waited for a core for so much longer than `usual`, in seconds per second, that this explains
    /// a loss of `lost_share` of the time.
    pub(crate) fn waits_longer(&self, lost_share: f64, usual: f64) -> bool {
        self.training_waited_at_most() - usual >= MIN_SHARE.max(EXPLAINS * lost_share)
    }

    /// Returns the share of the time that the ranks may have waited for pages to be read from a disk.
    pub(crate) fn paging(&self) -> f64 {
        if self.pages() { self.waited_for_disk } else { 0.0 }
    }

    /// Returns true if the ranks read pages from a disk again and again.
    pub(crate) fn pages(&self) -> bool {
        self.major_faults >= MIN_MAJOR_FAULTS
    }

    /// Returns evidence of who used the cores, which are named if they are those of one rank.
    pub(crate) fn evidence(&self, cores: Option<String>) -> Vec<Evidence> {
        let Self { own, peers, others, stolen, waited, .. } = *self;
        let used = Evidence::CoreUse(CoreUse { cores, own, peers, others, stolen });
        let waited = (waited >= MIN_SHARE)
            .then_some(Evidence::WaitedForCore { seconds: waited, training: self.training_waited });
        [Some(used), waited].into_iter().flatten().chain(self.limits()).collect()
    }

    /// Returns what explains a loss of `lost_share` of the time of all ranks: a CPU limit, or a lack of memory. The kernel reclaims
    /// memory in the threads that ask for it, and counts that as their processor time.
    pub(crate) fn slows(&self, lost_share: f64) -> Option<Taker> {
        let least_memory = MIN_SHARE.max(MEMORY_EXPLAINS * lost_share);
        let takers = [
            (significant(self.throttled, MIN_SHARE.max(EXPLAINS * lost_share)), Taker::Limit),
            (significant(self.short_of_memory, least_memory), Taker::Memory),
            (significant(self.paging(), least_memory), Taker::Paging),
        ];
        let (most, taker) = takers.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        (most > 0.0).then_some(taker)
    }

    /// Returns evidence of a CPU limit and of a lack of memory.
    pub(crate) fn limits(&self) -> Vec<Evidence> {
        let Self { throttled, short_of_memory, .. } = *self;
        let throttled = (throttled >= MIN_SHARE).then_some(Evidence::Throttled { seconds: throttled });
        let memory =
            (short_of_memory >= MIN_SHARE).then_some(Evidence::ShortOfMemory { seconds: short_of_memory });
        let paged = (self.paging() >= MIN_SHARE)
            .then_some(Evidence::Paged { faults: self.major_faults, seconds: self.waited_for_disk });
        [throttled, memory, paged].into_iter().flatten().collect()
    }
}

fn significant(share: f64, least: f64) -> f64 {
    if share >= least { share } else { 0.0 }
}
