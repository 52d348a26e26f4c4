//! The trace of one rank.

use std::collections::HashMap;
use std::io::Read;

use serde::Deserialize;
use timing::intervals::Interval;
use wire::event::SpanKind;
use wire::traces::TraceRowKind;

use super::event::{Arguments, Written};
use super::host::Ranges;
use super::marked::Marked;
use super::names::{Names, Threads};
use super::self_times::{HostEvent, HostSum, self_times};
use super::work::{Carried, Kind, Work};
use crate::group::Group;
use crate::pieces::{End, Piece, Pieces, plain};
use crate::remarks::Remarks;
use crate::unreadable::{MAX_TRACED, Unreadable};

/// The beginning of the name of the range that the profiler writes around a step.
pub(crate) const STEP: &str = "ProfilerStep#";

/// The largest number of operators, ranges and calls that are summed by name. Until they are, each takes 32 bytes.
const MAX_HOST: usize = 4_000_000;

/// A call that launches work on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// When the call began, in nanoseconds on the trace's clock.
    pub at: i64,
    /// The number that it shares with the work.
    pub correlation: u64,
    /// The phase that launches it, if the trace shows it.
    pub phase: Option<SpanKind>,
}

/// What a trace holds of a rank.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The rank, if the trace says it.
    pub rank: Option<u32>,
    /// The number of ranks of the job, if the trace says it.
    pub world_size: Option<u32>,
    /// The name of the first device that the trace lists.
    pub device: Option<String>,
    /// The release of NCCL.
    pub nccl: Option<String>,
    /// The Unix time at which the clock of the events is zero, in nanoseconds.
    pub base_nanos: i64,
    /// The work of the device, in order of its begin.
    pub work: Vec<Work>,
    /// The launches, in the order of the file.
    pub launches: Vec<Launch>,
    /// When the host waited for the next batch of a data loader, in nanoseconds on the trace's clock.
    pub input: Vec<Interval>,
    /// The marked steps, in order of time.
    pub steps: Vec<Marked>,
    /// What the host ran, in sums by step and name.
    pub host: Vec<HostSum>,
    /// The names of what the host and the device ran.
    pub names: Vec<Box<str>>,
    /// What collectives carry.
    pub carried: Vec<Carried>,
    /// The groups of collectives.
    pub groups: Vec<Group>,
    /// The number of all-to-alls that the host issued, as its ranges name them.
    pub all_to_alls: u64,
    /// The number of messages that it issued, or of groups of calls that may have some.
    pub messages: u64,
    /// The number of events in the file.
    pub events: u64,
    /// What is damaged, missing, or left out.
    pub remarks: Remarks,
}

/// The field `distributedInfo`.
#[derive(Deserialize)]
struct DistributedInfo {
    rank: Option<u32>,
    world_size: Option<u32>,
    nccl_version: Option<String>,
}

/// An element of the field `deviceProperties`.
#[derive(Deserialize)]
struct DeviceProperties {
    #[serde(default)]
    name: String,
}

/// Reads a trace, which may be compressed.
///
/// # Errors
/// Returns an error if nothing of the file can be read. A file that is damaged gives what it holds, with remarks.
pub fn read(file: impl Read) -> Result<Trace, Unreadable> {
    let mut reading = Reading::default();
    let damage = reading.all(&mut Pieces::new(plain(file)?))?;
    let Reading { mut trace, mut ranges, names, launched_by, host, .. } = reading;
    if trace.events == 0 {
        return Err(Unreadable::NoEvents);
    }
    trace.input = std::mem::take(&mut ranges.input);
    let phases = ranges.phases();
    for (launch, thread) in trace.launches.iter_mut().zip(launched_by) {
        launch.phase = phases.at(thread, launch.at);
    }
    damage.into_iter().for_each(|damage| trace.remarks.add(damage));
    trace.work.sort_by_key(|work| (work.begin, work.end));
    trace.steps.sort_by_key(|step| (step.begin, step.end));
    trace.steps.dedup_by_key(|step| step.number);
    // Sums of a part of them would be too small.
    if host.len() < MAX_HOST {
        trace.host = self_times(host, &trace.steps);
    } else {
        trace.remarks.add(format!(
            "{MAX_HOST} operators and calls or more are recorded: only kernels are summed by name"
        ));
    }
    trace.names = names.into_texts();
    Ok(trace)
}

#[derive(Default)]
struct Reading {
    trace: Trace,
    groups: HashMap<Group, u32>,
    ranges: Ranges,
    names: Names,
    threads: Threads,
    /// The thread of each launch.
    launched_by: Vec<u32>,
    host: Vec<HostEvent>,
}

impl Reading {
    /// Reads all pieces. Returns what is damaged, if the text does not end as it should. What lies before the damage counts.
    fn all<R: Read>(&mut self, pieces: &mut Pieces<R>) -> Result<Option<String>, Unreadable> {
        loop {
            match pieces.piece() {
                Ok(Some(Piece::Event(event))) => self.event(event)?,
                Ok(Some(Piece::Field(key, value))) => self.field(key, value),
                Ok(None) => break,
                Err(damage) if self.trace.events > 0 => {
                    return Ok(Some(format!("the file is damaged, and the rest of it left out: {damage}")));
                }
                Err(damage) => return Err(damage.into()),
            }
        }
        let End::Early { at, error } = pieces.end() else { return Ok(None) };
        let why = error.map(|error| format!(" ({error})")).unwrap_or_default();
        Ok(Some(format!("the file ends early, at byte {at} of its text{why}: what follows is missing")))
    }

    fn field(&mut self, key: &[u8], value: &[u8]) {
        let trace = &mut self.trace;
        match key {
            b"baseTimeNanoseconds" => {
                trace.base_nanos = serde_json::from_slice(value).unwrap_or_default();
            }
            b"distributedInfo" => {
                if let Ok(info) = serde_json::from_slice::<DistributedInfo>(value) {
                    (trace.rank, trace.world_size, trace.nccl) =
                        (info.rank, info.world_size, info.nccl_version);
                }
            }
            b"deviceProperties" => {
                let devices = serde_json::from_slice::<Vec<DeviceProperties>>(value).unwrap_or_default();
                trace.device = devices.into_iter().next().map(|device| device.name);
            }
            _ => {}
        }
    }

    fn event(&mut self, text: &[u8]) -> Result<(), Unreadable> {
        self.trace.events += 1;
        let Ok(event) = serde_json::from_slice::<Written<'_>>(text) else {
            self.trace.remarks.add("an event is damaged, and left out");
            return Ok(());
        };
        if event.ph != "X" {
            return Ok(());
        }
        match &*event.cat {
            "kernel" | "gpu_memcpy" | "gpu_memset" | "Kernel" | "Memcpy" | "Memset" => self.work(&event),
            "cuda_runtime" | "cuda_driver" | "Runtime" | "user_annotation" | "cpu_op" | "Operator" => {
                self.host(&event);
            }
            _ => {}
        }
        let kept = self.trace.work.len() + self.trace.launches.len();
        if kept > MAX_TRACED { Err(Unreadable::TooManyEvents) } else { Ok(()) }
    }

    fn work(&mut self, event: &Written<'_>) {
        let Some((begin, end)) = event.times() else {
            self.trace.remarks.add("a kernel or copy has no usable time, and is left out");
            return;
        };
        let args = Arguments::read(event.args);
        let Some(stream) = args.stream().or_else(|| event.stream()) else { return };
        let kind = Kind::of(&event.name);
        let carried = kind.is_collective().then(|| self.carried(&args));
        let (correlation, name) = (args.correlation(), self.names.number(&event.name));
        self.trace.work.push(Work { kind, begin, end, stream, correlation, name, carried });
    }

    fn carried(&mut self, args: &Arguments<'_>) -> u32 {
        let group = args.group().map(|group| {
            let next = self.trace.groups.len() as u32;
            *self.groups.entry(group).or_insert_with_key(|group| {
                self.trace.groups.push(group.clone());
                next
            })
        });
        self.trace.carried.push(Carried { bytes: args.bytes(), group, function: args.function() });
        self.trace.carried.len() as u32 - 1
    }

    /// Adds what ran on the host.
    fn host(&mut self, event: &Written<'_>) {
        let Some((begin, end)) = event.times() else { return };
        let thread = self.threads.number(event);
        let kind = match &*event.cat {
            "cuda_runtime" | "cuda_driver" | "Runtime" => {
                self.launch(event, thread, begin);
                TraceRowKind::Runtime
            }
            _ if event.name.starts_with(STEP) => {
                self.step(event, (begin, end));
                TraceRowKind::Outside
            }
            category => {
                match event.name.strip_prefix("nccl:").filter(|_| category == "user_annotation") {
                    Some(name) => self.issued(name),
                    None => self.ranges.add(event, thread, (begin, end)),
                }
                if category == "user_annotation" { TraceRowKind::Range } else { TraceRowKind::Operator }
            }
        };
        if self.host.len() < MAX_HOST {
            let name = self.names.number(&event.name);
            self.host.push(HostEvent { kind, name, thread, begin, end });
        }
    }

    fn launch(&mut self, event: &Written<'_>, thread: u32, at: i64) {
        let correlation = Arguments::read(event.args).correlation();
        if correlation != 0 {
            self.trace.launches.push(Launch { at, correlation, phase: None });
            self.launched_by.push(thread);
        }
    }

    /// Counts what the host issued. The kernels of all-to-alls and of messages have the same name.
    fn issued(&mut self, name: &str) {
        let begins_with = |prefixes: [&str; 3]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        self.trace.all_to_alls += u64::from(begins_with(["all_to_all", "alltoall", "_all_to_all"]));
        self.trace.messages += u64::from(begins_with(["send", "recv", "coalesced"]));
    }

    fn step(&mut self, event: &Written<'_>, (begin, end): Interval) {
        if let Ok(number) = event.name[STEP.len()..].trim().parse() {
            self.trace.steps.push(Marked { number, begin, end });
        }
    }
}
