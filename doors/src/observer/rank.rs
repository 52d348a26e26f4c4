//! One rank: from what was told of it to its records.

use agent::{Agent, Notes, Recorder};
use gpu::cupti::on_demand::{self, Every, OnDemand};
use gpu::nvml::sampler::{Wanted, Watch};
use wire::event::{Event, EventKind, Source};
use wire::ids::Rank;

use super::Communicator;
use crate::collect::{Collective, Collector, Ran, Timed};
use crate::gpu_clock::GpuClock;
use crate::place::Placer;
use crate::sampling::Steps;
use crate::trail::Entry;

/// Communicators of one rank that are remembered, by which its number is found.
const MOST_JOINED: usize = 256;

/// Records of a rank whose number is not known; more are not kept.
const MOST_FOUND: usize = 65_536;

/// A rank that is observed.
#[derive(Default)]
pub(super) struct Observed {
    collector: Collector,
    clock: GpuClock,
    placer: Placer,
    /// As [`Self::joined`].
    joined: Vec<Communicator>,
    /// What was found and not recorded yet.
    found: Vec<Event>,
    /// Collectives that were given up, and entries that had no room, since the process began.
    lost: u64,
    /// `None` until its number is known.
    recorded: Option<Recorded>,
}

/// Where records go.
struct Recorded {
    rank: Rank,
    world_size: u32,
    recorder: Recorder,
    agent: Agent,
    _watch: Option<Watch>,
    _bursts: OnDemand,
    told_lost: u64,
}

impl Observed {
    /// From now on its records go somewhere. With `ordinal` a burst is of that device only, since the process uses
    /// others.
    pub(super) fn begin(
        &mut self,
        (rank, world_size): (Rank, u32),
        agent: Agent,
        bus_id: Option<String>,
        ordinal: Option<u32>,
    ) {
        self.recorded = Some(Recorded {
            rank,
            world_size,
            recorder: agent.recorder(),
            _watch: bus_id.map(|bus_id| watch(bus_id, agent.notes())),
            _bursts: bursts(agent.notes(), ordinal),
            agent,
            told_lost: 0,
        });
        let is_world = |communicator: &&Communicator| communicator.size == world_size;
        if let Some(world) = self.joined.iter().find(is_world) {
            self.placer.name_world(world.number);
        }
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// The size of the world in which it is recorded.
    pub(super) fn world_size(&self) -> Option<u32> {
        Some(self.recorded.as_ref()?.world_size)
    }

    /// Something was found, and it is not known which rank this is.
    pub(super) fn is_unrecorded(&self) -> bool {
        !self.found.is_empty() && !self.is_recorded()
    }

    /// The communicators that it was in first.
    pub(super) fn joined(&self) -> &[Communicator] {
        &self.joined
    }

    /// Takes in that it is in a communicator.
    pub(super) fn join(&mut self, communicator: Communicator) {
        self.collector.name_size(communicator.number, communicator.size);
        if self.world_size() == Some(communicator.size) {
            self.placer.name_world(communicator.number);
        }
        if self.joined.len() < MOST_JOINED {
            self.joined.push(communicator);
        }
    }

    /// Takes in that so many entries were lost, each of which may cost a collective.
    pub(super) fn lose(&mut self, entries: u64) {
        self.lost += entries;
    }

    pub(super) fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Began { gpu: Some(gpu), at, .. } | Entry::Ended { gpu: Some(gpu), at, .. } => {
                self.clock.seen(gpu, at);
            }
            Entry::Phase { phase, begin, end } => self.placer.take_phase(phase, begin, end),
            _ => {}
        }
        self.collector.take(entry);
    }

    /// Makes records of what has ended.
    pub(super) fn place(&mut self) {
        for collective in self.collector.ended() {
            if let Some(timed) = timed(collective, &self.clock) {
                self.placer.take(&timed, |event| {
                    self.found.extend(Some(event).filter(|_| self.found.len() < MOST_FOUND));
                });
            }
        }
    }

    /// The collectives that make up a step, once that is known.
    pub(super) fn steps(&self) -> Option<Steps> {
        self.placer.steps()
    }

    /// Records what was found; what was found before its number was known is recorded then.
    pub(super) fn record(&mut self) {
        let Some(recorded) = &mut self.recorded else { return };
        self.found.drain(..).for_each(|event| recorded.recorder.record(event));
        let lost = self.lost + self.collector.lost();
        let newly = lost - std::mem::replace(&mut recorded.told_lost, lost);
        recorded.recorder.lose(EventKind::Bucket, newly);
    }

    /// Sends what is left.
    pub(super) fn finish(self, outcome: impl Fn(Rank) -> Result<(), String>) {
        if let Some(Recorded { agent, rank, _watch, _bursts, .. }) = self.recorded {
            drop((_watch, _bursts));
            agent.finish(outcome(rank));
        }
    }
}

/// On the host's clock.
fn timed(collective: Collective, clock: &GpuClock) -> Option<Timed> {
    let (start, end, source) = match collective.ran {
        Ran::Gpu { begin, end } => (clock.to_host(begin)?, clock.to_host(end)?, Source::DeviceEvent),
        Ran::Events { begin, end } => (begin, end, Source::DeviceEvent),
        Ran::Host { begin, end } => (begin, end, Source::HostClock),
        Ran::Unknown { issued } => (collective.launch, issued, Source::Derived),
    };
    Some(Timed { collective, start, end, source })
}

/// Tells the server once a second what the device does.
fn watch(pci_bus_id: String, notes: Notes) -> Watch {
    Watch::start(Wanted { pci_bus_id, file: None, now: agent::clock::now }, move |sample| {
        notes.device(sample)
    })
}

/// Records what the devices do when the server asks for it.
fn bursts(notes: Notes, device: Option<u32>) -> OnDemand {
    let (asking, stepping) = (notes.clone(), notes.clone());
    OnDemand::start(
        on_demand::Wanted {
            device,
            every: Every::from_env(agent::warn),
            newest_step: Box::new(move || stepping.newest_step()),
            ..on_demand::Wanted::when_asked(None, agent::clock::now)
        },
        move |done| asking.burst_asked(done),
        move |burst| notes.burst(burst),
    )
}
