//! One observed rank: from its entries in the call log to its records.

use agent::{Agent, Notes, Recorder};
use background::Background;
use gpu::cupti::on_demand::{self, BurstSchedule, OnDemand};
use gpu::driver::UsedDevice;
use gpu::nvml::sampler::{SamplerSettings, Watch};
use wire::batch::Waiting;
use wire::device::DeviceSample;
use wire::event::{Event, EventKind, Source};
use wire::ids::Rank;

use super::Communicator;
use crate::call_log::Entry;
use crate::infer::collect::Collector;
use crate::infer::collective::{Collective, Ran, Timed};
use crate::infer::gpu_clock::GpuClock;
use crate::infer::phases::Timing;
use crate::infer::place::Placer;
use crate::labels;
use crate::layouts;
use crate::lines;
use crate::memory;
use crate::python_stacks;
use crate::resumed;
use crate::sampling::Steps;
use crate::software;
use crate::traces;
use crate::workload;

/// The largest number of communicators remembered per rank. They determine its rank number.
const MAX_JOINED: usize = 256;

/// The largest number of records held while the rank number is unknown. Later records are dropped.
const MAX_FOUND: usize = 65_536;

/// The time after which an unfinished collective is reported as started, in nanoseconds. If the job hangs, the ranks
/// that have not started it are the ones that the others wait for.
const OVERDUE_NANOS: i64 = 2_000_000_000;

#[derive(Default)]
pub(super) struct Observed {
    collector: Collector,
    clock: GpuClock,
    placer: Placer,
    /// See [`Self::joined`].
    joined: Vec<Communicator>,
    /// Events that are not recorded yet.
    found: Vec<Event>,
    /// Entries dropped for lack of space since the process started. The collector counts abandoned collectives itself.
    lost: u64,
    /// The destination of the records; `None` until the rank number is known.
    recorded: Option<Recorded>,
}

/// The destination of a rank's records.
struct Recorded {
    rank: Rank,
    world_size: u32,
    recorder: Recorder,
    agent: Agent,
    _watch: Option<Watch>,
    _bursts: OnDemand,
    _stacks: Background,
    _long_steps: Option<Background>,
    _traces: Option<traces::OnDemand>,
    reported_lost: u64,
    /// How much was learned of the software when its versions were last sent.
    software: u64,
    /// The number of the workload that was last sent.
    workload: u64,
    /// How often the job had stated a label when its labels were last sent.
    labels: u64,
    /// The number of lines of code that were sent.
    lines: usize,
    /// True once the step that the job resumes was sent.
    sent_resumed: bool,
    /// The collective that was last sent as awaited.
    waits: Option<Waiting>,
}

impl Observed {
    /// Starts recording. With `burst_of`, a burst covers that device only, since the process uses other devices too.
    pub(super) fn begin(
        &mut self,
        (rank, world_size): (Rank, u32),
        agent: Agent,
        device: Option<UsedDevice>,
        burst_of: Option<u32>,
    ) {
        let learned = software::learned();
        agent.notes().software(software::known());
        self.recorded = Some(Recorded {
            rank,
            world_size,
            recorder: agent.recorder(),
            _watch: device.map(|device| watch(device, agent.notes())),
            _bursts: bursts(agent.notes(), burst_of),
            _stacks: python_stacks::answer_requests(agent.notes()),
            _long_steps: python_stacks::sample_long_steps(agent.notes()),
            _traces: agent.uploads().map(|uploads| traces::answer_requests(agent.notes(), uploads)),
            agent,
            reported_lost: 0,
            software: learned,
            workload: 0,
            labels: 0,
            lines: 0,
            sent_resumed: false,
            waits: None,
        });
        let is_world = |communicator: &&Communicator| communicator.size == world_size;
        if let Some(world) = self.joined.iter().find(is_world) {
            self.placer.name_world(world.number);
        }
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Returns the size of the world in which the rank is recorded; `None` before recording starts.
    pub(super) fn world_size(&self) -> Option<u32> {
        Some(self.recorded.as_ref()?.world_size)
    }

    /// Returns whether events wait to be recorded because the rank number is unknown.
    pub(super) fn is_unrecorded(&self) -> bool {
        !self.found.is_empty() && !self.is_recorded()
    }

    pub(super) fn joined(&self) -> &[Communicator] {
        &self.joined
    }

    /// Adds a communicator that the rank is a member of.
    pub(super) fn join(&mut self, communicator: Communicator) {
        self.collector.name_size(communicator.number, communicator.size);
        if self.world_size() == Some(communicator.size) {
            self.placer.name_world(communicator.number);
        }
        if self.joined.len() < MAX_JOINED {
            self.joined.push(communicator);
        }
    }

    /// Adds dropped entries to the count of losses. Each may cost a collective.
    pub(super) fn lose(&mut self, entries: u64) {
        self.lost += entries;
    }

    pub(super) fn ingest(&mut self, entry: Entry) {
        match entry {
            Entry::Began { gpu: Some(gpu), at, .. } | Entry::Ended { gpu: Some(gpu), at, .. } => {
                self.clock.seen(gpu, at);
            }
            Entry::Phase { phase, enqueued, begin, end, used } => {
                self.placer.ingest_phase(Timing { phase, enqueued, begin, end, used });
            }
            _ => {}
        }
        self.collector.ingest(entry);
    }

    /// Turns the steps whose collectives have ended into events. Called a turn after these ends were read, because the
    /// phases that other threads reported at the same time have been read by then.
    pub(super) fn settle(&mut self) {
        let found = &mut self.found;
        self.placer.settle(|event| found.extend(Some(event).filter(|_| found.len() < MAX_FOUND)));
    }

    /// Turns finished collectives into events.
    pub(super) fn place(&mut self) {
        self.settle();
        for collective in self.collector.ended() {
            if let Some(timed) = timed(collective, &self.clock) {
                self.placer.ingest(&timed, |event| {
                    self.found.extend(Some(event).filter(|_| self.found.len() < MAX_FOUND));
                });
            }
        }
        for collective in self.collector.overdue(agent::clock::now() + -OVERDUE_NANOS) {
            let started = self.placer.started(&collective).map(Event::Started);
            self.found.extend(started.filter(|_| self.found.len() < MAX_FOUND));
        }
    }

    /// Returns the collectives that make up a step; `None` until they are known.
    pub(super) fn steps(&self) -> Option<Steps> {
        self.placer.steps()
    }

    /// Returns the collective that the rank waits in while its steps are not known. Once they are, [`Event::Started`] says it.
    fn awaited(&self) -> Option<Waiting> {
        let world = self.placer.world().filter(|_| self.steps().is_none())?;
        let Collective { function, seq, launch, .. } =
            self.collector.awaited(world, agent::clock::now() + -OVERDUE_NANOS)?;
        Some(Waiting { seq: function.numbered(seq), launch })
    }

    /// Records all pending events, including those from before the rank number was known.
    pub(super) fn record(&mut self) {
        let awaited = self.awaited();
        let Some(recorded) = &mut self.recorded else { return };
        if awaited != std::mem::replace(&mut recorded.waits, awaited) {
            recorded.agent.notes().waits(awaited);
        }
        // Before the records, whose numbers depend on it.
        recorded.send_resumed();
        self.found.drain(..).for_each(|event| recorded.recorder.record(event));
        let lost = self.lost + self.collector.lost();
        let newly = lost - std::mem::replace(&mut recorded.reported_lost, lost);
        recorded.recorder.lose(EventKind::Bucket, newly);
        recorded.send_software();
        recorded.send_workload();
        recorded.send_labels();
        recorded.send_lines();
    }

    /// Sends a layout that the process has reported, if there is one and the rank is known.
    pub(super) fn send_layout(&self) -> Option<()> {
        let recorded = self.recorded.as_ref()?;
        recorded.agent.notes().layout(layouts::take()?);
        Some(())
    }

    /// Sends the remaining records and ends the agent.
    pub(super) fn finish(self, outcome: impl Fn(Rank) -> Result<(), String>) {
        if let Some(Recorded { agent, rank, _watch, _bursts, _stacks, _long_steps, _traces, .. }) =
            self.recorded
        {
            drop((_watch, _bursts, _stacks, _long_steps, _traces));
            agent.finish(outcome(rank));
        }
    }
}

impl Recorded {
    /// Sends the versions of the software again if more is known since.
    fn send_software(&mut self) {
        let learned = software::learned();
        if learned != self.software {
            self.software = learned;
            self.agent.notes().software(software::known());
        }
    }

    /// Sends the step that the job resumes, once.
    fn send_resumed(&mut self) {
        if let Some(step) = resumed::stated().filter(|_| !self.sent_resumed) {
            self.sent_resumed = true;
            self.agent.notes().resumed(step);
        }
    }

    /// Sends the workload, if the job has stated another one since.
    fn send_workload(&mut self) {
        if let Some((number, workload)) = workload::newer_than(self.workload) {
            self.workload = number;
            self.agent.notes().workload(workload);
        }
    }

    /// Sends the lines of code that became known since.
    fn send_lines(&mut self) {
        for line in lines::newer_than(self.lines) {
            self.lines += 1;
            self.agent.notes().line(line);
        }
    }

    /// Sends the labels that the job states, if it has stated one since.
    fn send_labels(&mut self) {
        if let Some((times, labels)) = labels::newer_than(self.labels) {
            self.labels = times;
            // Only labels were remembered, so there is no error.
            let _sent = self.agent.notes().labels(&labels);
        }
    }
}

/// Converts a collective's times to the host's clock. Returns `None` while the GPU's clock is unknown.
fn timed(collective: Collective, clock: &GpuClock) -> Option<Timed> {
    let (start, end, source) = match collective.ran {
        Ran::Gpu { begin, end } => (clock.to_host(begin)?, clock.to_host(end)?, Source::DeviceEvent),
        Ran::Events { begin, end } => (begin, end, Source::DeviceEvent),
        Ran::Host { begin, end } => (begin, end, Source::HostClock),
        Ran::Unknown { issued } => (collective.launch, issued, Source::Derived),
    };
    Some(Timed { collective, start, end, source })
}

/// Starts sampling the device once per second and sending the samples to the server, with what PyTorch's allocator
/// reports of the device.
fn watch(device: UsedDevice, notes: Notes) -> Watch {
    let UsedDevice { ordinal, bus_id } = device;
    let settings = SamplerSettings { pci_bus_id: bus_id, file: None, now: agent::clock::now };
    let drivers = notes.clone();
    let with_memory = move |mut sample: DeviceSample| {
        sample.figures.extend(memory::device_figures(ordinal));
        notes.device(sample)
    };
    Watch::start(settings, move |release| drivers.driver(release), with_memory)
}

/// Starts recording bursts when the server requests them.
fn bursts(notes: Notes, device: Option<u32>) -> OnDemand {
    let (asking, stepping) = (notes.clone(), notes.clone());
    OnDemand::start(
        on_demand::BurstSettings {
            device,
            schedule: BurstSchedule::from_env(agent::warn),
            newest_step: Box::new(move || stepping.newest_step()),
            ..on_demand::BurstSettings::when_asked(None, agent::clock::now)
        },
        move |done| asking.burst_asked(done),
        move |burst| notes.burst(burst),
    )
}
