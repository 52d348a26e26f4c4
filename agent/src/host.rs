//! Samples of the host, once per second: how long this process's threads waited for a core, what else ran on its cores,
//! what the hypervisor stole, what the limits of its cgroups cost, and what the process takes of memory, disk and network.
//!
//! The counters are Linux's (proc(5), getrusage(2)). A figure that cannot be read is left out of the sample.

mod cgroup;
mod cores;
mod process;
mod rdma;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use procfs::{Current as _, FromRead as _};
use wire::clock::MonoNanos;
use wire::host::{HostFigure, HostSample};

use self::cgroup::Cgroups;
use self::rdma::Rdma;
use crate::clock;

/// The interval between samples,
const EVERY: Duration = Duration::from_secs(1);
/// which grows if sampling takes more than this share of a processor: a process may have hundreds of threads.
const BUDGET: f64 = 0.001;
/// The longest interval. While memory is short, the kernel reclaims memory in the thread that samples, which makes sampling seem
/// expensive at the very time that the samples are about. The server takes a sample to cover at most 3 s, and a sample that is due may wait for a batch.
const LONGEST: Duration = Duration::from_secs(2);

/// A sampler of the host, owned by the drain thread.
pub(crate) struct HostSampler {
    sources: Sources,
    previous: Option<Counters>,
    next: Instant,
}

/// Where the counters come from.
struct Sources {
    cgroups: Cgroups,
    rdma: Rdma,
    /// Whether the process trains in its main thread, so that the waits of this thread are a figure of their own.
    main_trains: bool,
}

impl HostSampler {
    /// Creates a sampler. `main_trains` says that the process trains in its main thread.
    pub(crate) fn new(main_trains: bool) -> Self {
        Self::with_rdma_of(Path::new(rdma::DEVICES), main_trains)
    }

    /// Creates a sampler that reads the RDMA devices in a folder.
    fn with_rdma_of(devices: &Path, main_trains: bool) -> Self {
        let sources = Sources { cgroups: Cgroups::find(), rdma: Rdma::find(devices), main_trains };
        Self { sources, previous: None, next: Instant::now() }
    }

    /// Returns a sample if it is time for one. The first call starts the first interval.
    pub(crate) fn sample(&mut self) -> Option<HostSample> {
        (Instant::now() >= self.next).then(|| self.sample_now())?
    }

    /// Returns a sample of the time since the last one.
    pub(crate) fn sample_now(&mut self) -> Option<HostSample> {
        let cpu = clock::thread_cpu_nanos();
        let counters = Counters::read(&mut self.sources);
        let levels = || levels(&self.sources.cgroups);
        let sample = self.previous.as_ref().and_then(|previous| counters.sample_since(previous, levels()));
        let cost = Duration::from_nanos(clock::thread_cpu_nanos().saturating_sub(cpu));
        self.next = Instant::now() + interval(cost);
        self.previous = Some(counters);
        sample
    }
}

/// Returns the time from a sample that took `cost` of processor time to the next one.
fn interval(cost: Duration) -> Duration {
    cost.div_f64(BUDGET).clamp(EVERY, LONGEST)
}

type Figures = BTreeMap<HostFigure, u64>;

/// The counters at one time, which only grow.
struct Counters {
    at: MonoNanos,
    cores: Vec<usize>,
    /// The run-queue wait of each thread, in nanoseconds. A sum over threads would fall when one ends.
    waited: BTreeMap<u32, u64>,
    /// The others, in the units of their figures.
    others: Figures,
}

impl Counters {
    fn read(sources: &mut Sources) -> Self {
        let Sources { cgroups, rdma, main_trains } = sources;
        let cores = cores::cores();
        let tasks = process::tasks();
        let mut others = process_figures();
        others.insert(HostFigure::Ran, clock::process_cpu_nanos() + process::children_ran(&tasks));
        if let Some(usage) = cores::Usage::read(&cores) {
            others.extend([(HostFigure::Busy, usage.busy), (HostFigure::Stolen, usage.stolen)]);
        }
        others.extend(cgroups.throttled().map(|nanos| (HostFigure::Throttled, nanos)));
        others.extend(pressure(cgroups));
        others.extend(network());
        if let Some(traffic) = rdma.read() {
            let figures = [
                (HostFigure::RdmaSentBytes, traffic.sent),
                (HostFigure::RdmaReceivedBytes, traffic.received),
            ];
            others.extend(figures);
        }
        let waits = tasks.iter().filter_map(|&task| Some((task, process::run_delay(task)?)));
        let waited: BTreeMap<u32, u64> = waits.collect();
        // The number of a process is that of its main thread.
        let main_nanos = waited.get(&std::process::id()).filter(|_| *main_trains);
        others.extend(main_nanos.map(|&nanos| (HostFigure::MainWaited, nanos)));
        Self { at: clock::now(), waited, others, cores }
    }

    /// Returns the differences since `previous`, and the `levels` now; `None` if the process has moved to other cores.
    fn sample_since(&self, previous: &Self, levels: Figures) -> Option<HostSample> {
        let interval = (self.at - previous.at).unsigned_abs();
        if interval == 0 || self.cores.is_empty() || self.cores != previous.cores {
            return None;
        }
        let grown = self.others.iter().filter_map(|(figure, now)| {
            previous.others.get(figure).map(|previous| (*figure, now.saturating_sub(*previous)))
        });
        let mut figures: Figures = grown.chain(levels).collect();
        figures.insert(HostFigure::Interval, interval);
        figures.insert(HostFigure::Capacity, interval * self.cores.len() as u64);
        if !self.waited.is_empty() {
            let waited = self.waited.iter().map(|(task, waited)| {
                // A new thread has waited since it began.
                waited.saturating_sub(previous.waited.get(task).copied().unwrap_or(0))
            });
            figures.insert(HostFigure::Waited, waited.sum());
        }
        Some(HostSample { at: self.at, cores: cores::list(&self.cores), figures })
    }
}

/// Returns what the kernel counts for this process.
fn process_figures() -> Figures {
    let mut figures = Figures::new();
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let counts = [
            (HostFigure::VoluntarySwitches, usage.voluntary_context_switches()),
            (HostFigure::InvoluntarySwitches, usage.involuntary_context_switches()),
            (HostFigure::MinorFaults, usage.minor_page_faults()),
            (HostFigure::MajorFaults, usage.major_page_faults()),
        ];
        figures.extend(counts.map(|(figure, count)| (figure, count.unsigned_abs())));
    }
    if let Ok(io) = procfs::process::Process::myself().and_then(|process| process.io()) {
        figures.extend([
            (HostFigure::DiskReadBytes, io.read_bytes),
            (HostFigure::DiskWrittenBytes, io.write_bytes),
        ]);
    }
    figures
}

/// Returns the time in which some task was stalled, in nanoseconds.
fn pressure(cgroups: &Cgroups) -> Figures {
    let nanos = |micros: u64| micros.saturating_mul(1_000);
    let cpu = procfs::CpuPressure::from_file(cgroups.pressure("cpu")).map(|cpu| cpu.some.total);
    let memory =
        procfs::MemoryPressure::from_file(cgroups.pressure("memory")).map(|memory| memory.some.total);
    let io = procfs::IoPressure::from_file(cgroups.pressure("io")).map(|io| io.some.total);
    let found =
        [(HostFigure::CpuPressure, cpu), (HostFigure::MemoryPressure, memory), (HostFigure::IoPressure, io)];
    found.into_iter().filter_map(|(figure, micros)| Some((figure, nanos(micros.ok()?)))).collect()
}

/// Returns what all interfaces but the loopback have sent and received, in bytes.
fn network() -> Figures {
    let Ok(interfaces) = procfs::net::dev_status() else { return Figures::new() };
    let real = || interfaces.values().filter(|interface| interface.name != "lo");
    let sent = real().map(|interface| interface.sent_bytes).sum();
    let received = real().map(|interface| interface.recv_bytes).sum();
    BTreeMap::from([(HostFigure::NetworkSentBytes, sent), (HostFigure::NetworkReceivedBytes, received)])
}

/// Returns the age of the process in nanoseconds, its memory, and that of the host within the limits of the cgroups, in
/// bytes.
fn levels(cgroups: &Cgroups) -> Figures {
    let mut figures = Figures::new();
    figures.extend(process::age().map(|nanos| (HostFigure::ProcessAge, nanos)));
    if let Ok(statm) = procfs::process::Process::myself().and_then(|process| process.statm()) {
        let bytes = |pages: u64| pages.saturating_mul(procfs::page_size());
        figures.insert(HostFigure::ResidentBytes, bytes(statm.resident));
        figures.insert(HostFigure::SharedBytes, bytes(statm.shared));
    }
    if let Ok(host) = procfs::Meminfo::current()
        && let Some(available) = host.mem_available
    {
        let (limit, left) = cgroups.memory().unwrap_or((u64::MAX, u64::MAX));
        figures.insert(HostFigure::MemoryTotalBytes, host.mem_total.min(limit));
        figures.insert(HostFigure::MemoryAvailableBytes, available.min(left));
    }
    figures
}

fn nanos_per_tick() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// Takes two samples, with `work` between them.
    fn sample_of(work: impl FnOnce()) -> HostSample {
        let mut sampler = HostSampler::new(true);
        assert_eq!(sampler.sample_now(), None, "there is no interval yet");
        work();
        sampler.sample_now().unwrap()
    }

    #[test]
    fn this_kernel_provides_every_figure_but_those_that_depend_on_its_configuration() {
        let sample = sample_of(|| {});
        let may_lack = [
            HostFigure::Throttled,
            HostFigure::CpuPressure,
            HostFigure::MemoryPressure,
            HostFigure::IoPressure,
            HostFigure::DiskReadBytes,
            HostFigure::DiskWrittenBytes,
            HostFigure::RdmaSentBytes,
            HostFigure::RdmaReceivedBytes,
        ];
        let known = HostFigure::ALL.into_iter().filter(|figure| !may_lack.contains(figure));
        assert!(known.into_iter().all(|figure| sample.get(figure).is_some()), "{sample:?}");
    }

    #[test]
    fn waits_of_the_main_thread_are_a_part_of_all_waits_and_known_where_it_trains() {
        let sample = sample_of(|| {});
        let waited = |figure| sample.get(figure).unwrap();
        assert!(waited(HostFigure::MainWaited) <= waited(HostFigure::Waited), "{sample:?}");
        let mut elsewhere = HostSampler::new(false);
        elsewhere.sample_now();
        assert_eq!(elsewhere.sample_now().unwrap().get(HostFigure::MainWaited), None);
    }

    #[test]
    fn samples_that_cost_more_are_rarer_but_never_so_rare_that_a_lack_of_memory_is_missed() {
        let pause = |micros| interval(Duration::from_micros(micros));
        assert_eq!((pause(100), pause(1_000)), (EVERY, EVERY));
        assert_eq!(pause(1_500), Duration::from_millis(1_500));
        // As measured in a rank whose memory limit was 6 MB above its own memory.
        assert_eq!(pause(51_000), LONGEST);
    }

    #[test]
    fn a_sample_has_the_traffic_of_rdma_in_its_interval_where_there_are_devices() {
        let devices = tempfile::tempdir().unwrap();
        let write = |words| rdma::tests::write_port(devices.path(), "mlx5_0/ports/1", "4: ACTIVE", words);
        let traffic = |sample: HostSample| {
            sample.get(HostFigure::RdmaSentBytes).zip(sample.get(HostFigure::RdmaReceivedBytes))
        };
        write((1_000, 2_000));
        let mut sampler = HostSampler::with_rdma_of(devices.path(), false);
        assert_eq!(sampler.sample_now(), None, "there is no interval yet");
        write((1_001, 2_002));
        assert_eq!(traffic(sampler.sample_now().unwrap()), Some((4, 8)));
        write((1_001, 2_005));
        assert_eq!(traffic(sampler.sample_now().unwrap()), Some((0, 12)));
        std::fs::remove_dir_all(devices.path().join("mlx5_0")).unwrap();
        assert_eq!(traffic(sampler.sample_now().unwrap()), None, "without a device it is missing");
    }

    #[test]
    fn memory_and_page_faults_of_the_process_are_its_own() {
        const BYTES: usize = 64 << 20;
        let before = sample_of(|| {});
        let mut memory = Vec::new();
        let after = sample_of(|| memory = vec![1_u8; BYTES]);
        assert_eq!(black_box(memory).len(), BYTES);
        let figure_of = |sample: &HostSample, figure| sample.get(figure).unwrap();
        let grown = |figure| figure_of(&after, figure).saturating_sub(figure_of(&before, figure));
        assert!(grown(HostFigure::ResidentBytes) >= BYTES as u64 / 2, "{before:?} {after:?}");
        assert!(grown(HostFigure::SharedBytes) < BYTES as u64 / 4, "no file has it: {before:?} {after:?}");
        assert!(
            after.get(HostFigure::MinorFaults) > before.get(HostFigure::MinorFaults),
            "{before:?} {after:?}"
        );
        let total = after.get(HostFigure::MemoryTotalBytes).unwrap();
        assert!((1..total).contains(&after.get(HostFigure::MemoryAvailableBytes).unwrap()), "{after:?}");
    }
}
