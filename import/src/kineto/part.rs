//! What a part of a trace's text holds, and how parts become a whole.

use serde::Deserialize;
use timing::intervals::Interval;
use wire::event::Function;
use wire::traces::TraceRowKind;

use super::event::{Arguments, Written};
use super::host::Ranges;
use super::marked::Marked;
use super::names::{Groups, Names, Threads};
use super::self_times::HostEvent;
use super::work::{Carried, Kind, Launch, Work};
use crate::chunks::Chunk;
use crate::pieces::Piece;
use crate::remarks::Remarks;
use crate::unreadable::{MAX_TRACED, Unreadable};

/// The beginning of the name of the range that the profiler writes around a step.
pub(crate) const STEP: &str = "ProfilerStep#";

/// What is said of collectives of libraries that are not known by the names of their kernels.
const OTHER_LIBRARIES: &str = "a kernel counts as a collective because its arguments name one: its own name is of no library that is known";

/// The largest number of operators, ranges and calls that are summed by name. Until they are, each takes 32 bytes.
pub(super) const MAX_HOST: usize = 4_000_000;

/// What the fields beside the events say.
#[derive(Debug, Default)]
pub(super) struct FileFields {
    pub(super) rank: Option<u32>,
    pub(super) world_size: Option<u32>,
    pub(super) nccl: Option<String>,
    pub(super) device: Option<String>,
    pub(super) base_nanos: Option<i64>,
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

impl FileFields {
    fn field(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"baseTimeNanoseconds" => self.base_nanos = serde_json::from_slice(value).ok(),
            b"distributedInfo" => {
                if let Ok(info) = serde_json::from_slice::<DistributedInfo>(value) {
                    (self.rank, self.world_size, self.nccl) = (info.rank, info.world_size, info.nccl_version);
                }
            }
            b"deviceProperties" => {
                let devices = serde_json::from_slice::<Vec<DeviceProperties>>(value).unwrap_or_default();
                self.device = devices.into_iter().next().map(|device| device.name);
            }
            _ => {}
        }
    }

    /// Adds what fields say that come later. A later one counts.
    fn append(&mut self, later: Self) {
        self.rank = later.rank.or(self.rank);
        self.world_size = later.world_size.or(self.world_size);
        self.nccl = later.nccl.or(self.nccl.take());
        self.device = later.device.or(self.device.take());
        self.base_nanos = later.base_nanos.or(self.base_nanos);
    }
}

/// What a part of the text holds. Names, threads, groups and [`Self::carried`] are numbered in the part.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) fields: FileFields,
    pub(super) events: u64,
    pub(super) work: Vec<Work>,
    pub(super) launches: Vec<Launch>,
    /// The thread of each launch.
    pub(super) launched_by: Vec<u32>,
    pub(super) ranges: Ranges,
    pub(super) steps: Vec<Marked>,
    /// What the host ran, at most [`MAX_HOST`] of it.
    pub(super) host: Vec<HostEvent>,
    pub(super) names: Names,
    threads: Threads,
    pub(super) carried: Vec<Carried>,
    pub(super) groups: Groups,
    pub(super) all_to_alls: u64,
    pub(super) messages: u64,
    pub(super) remarks: Remarks,
}

impl Part {
    /// Reads the pieces of a part of the text.
    pub(super) fn read(chunk: &Chunk) -> Self {
        let mut part = Self::default();
        for piece in chunk.pieces() {
            match piece {
                Piece::Event(event) => part.event(event),
                Piece::Field(key, value) => part.fields.field(key, value),
            }
        }
        part
    }

    /// Adds what the part holds that follows in the text.
    ///
    /// # Errors
    /// Returns an error if the trace has too many events.
    pub(super) fn append(&mut self, next: Self) -> Result<(), Unreadable> {
        let names = self.names.append(next.names);
        let threads = self.threads.append(next.threads);
        let groups = self.groups.append(next.groups);
        let carried_before = self.carried.len() as u32;
        self.fields.append(next.fields);
        self.events += next.events;
        self.work.extend(next.work.into_iter().map(|work| Work {
            name: names[work.name as usize],
            carried: work.carried.map(|at| at + carried_before),
            ..work
        }));
        self.launches.extend(next.launches);
        self.launched_by.extend(next.launched_by.into_iter().map(|thread| threads[thread as usize]));
        self.ranges.append(next.ranges, &threads);
        self.steps.extend(next.steps);
        let host = next.host.into_iter().take(MAX_HOST - self.host.len());
        self.host.extend(host.map(|event| HostEvent {
            name: names[event.name as usize],
            thread: threads[event.thread as usize],
            ..event
        }));
        let group = |group: u32| groups[group as usize];
        self.carried.extend(
            next.carried.into_iter().map(|carried| Carried { group: carried.group.map(group), ..carried }),
        );
        self.all_to_alls += next.all_to_alls;
        self.messages += next.messages;
        self.remarks.append(next.remarks);
        let kept = self.work.len() + self.launches.len();
        if kept > MAX_TRACED { Err(Unreadable::TooManyEvents) } else { Ok(()) }
    }

    fn event(&mut self, text: &[u8]) {
        self.events += 1;
        let Ok(event) = serde_json::from_slice::<Written<'_>>(text) else {
            self.remarks.add("an event is damaged, and left out");
            return;
        };
        if event.ph != "X" {
            return;
        }
        match &*event.cat {
            "kernel" | "gpu_memcpy" | "gpu_memset" | "Kernel" | "Memcpy" | "Memset" => self.work(&event),
            "cuda_runtime" | "cuda_driver" | "Runtime" | "user_annotation" | "cpu_op" | "Operator" => {
                self.host(&event);
            }
            _ => {}
        }
    }

    fn work(&mut self, event: &Written<'_>) {
        let Some((begin, end)) = event.times() else {
            self.remarks.add("a kernel or copy has no usable time, and is left out");
            return;
        };
        let args = Arguments::read(event.args);
        let Some(stream) = args.stream().or_else(|| event.stream()) else { return };
        let kind = match Kind::from_name(&event.name) {
            // A kernel of a library that is not known by its names.
            Kind::Compute if args.is_of_collective() => {
                self.remarks.add(OTHER_LIBRARIES);
                Kind::Collective(args.function().unwrap_or(Function::Other))
            }
            kind => kind,
        };
        let carried = kind.is_collective().then(|| self.carried(&args));
        let (correlation, name) = (args.correlation(), self.names.number(&event.name));
        self.work.push(Work { kind, begin, end, stream, correlation, name, carried });
    }

    fn carried(&mut self, args: &Arguments<'_>) -> u32 {
        let group = args.group().map(|group| self.groups.number(group));
        self.carried.push(Carried { bytes: args.bytes(), group, function: args.function() });
        self.carried.len() as u32 - 1
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
        let name = self.names.number(&event.name);
        self.host.push(HostEvent { kind, name, thread, begin, end });
    }

    fn launch(&mut self, event: &Written<'_>, thread: u32, at: i64) {
        let correlation = Arguments::read(event.args).correlation();
        if correlation != 0 {
            self.launches.push(Launch { at, correlation, phase: None });
            self.launched_by.push(thread);
        }
    }

    /// Counts what the host issued. The kernels of all-to-alls and of messages have the same name.
    fn issued(&mut self, name: &str) {
        let begins_with = |prefixes: [&str; 3]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        self.all_to_alls += u64::from(begins_with(["all_to_all", "alltoall", "_all_to_all"]));
        self.messages += u64::from(begins_with(["send", "recv", "coalesced"]));
    }

    fn step(&mut self, event: &Written<'_>, (begin, end): Interval) {
        if let Ok(number) = event.name[STEP.len()..].trim().parse() {
            self.steps.push(Marked { number, begin, end });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_whose_arguments_name_a_collective_is_one_whatever_its_own_name() {
        let kernel = |name: &str, args: &str| {
            format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "ts": 1, "dur": 2, "args": {{"stream": 7{args}}}}}"#
            )
        };
        let named = r#", "Collective name": "allreduce", "Process Group Name": "0""#;
        let other = r#", "Collective name": "dispatch""#;
        let events =
            [kernel("acme::fast_sum_over_ranks", named), kernel("acme::dispatch", other), kernel("gemm", "")];
        let pieces: Vec<Piece<'_>> = events.iter().map(|event| Piece::Event(event.as_bytes())).collect();
        let part = Part::read(&Chunk::new(&pieces));
        let kinds: Vec<Kind> = part.work.iter().map(|work| work.kind).collect();
        let expected =
            [Kind::Collective(Function::AllReduce), Kind::Collective(Function::Other), Kind::Compute];
        assert_eq!(kinds, expected);
        assert_eq!(part.remarks.iter().collect::<Vec<_>>(), [(OTHER_LIBRARIES, 2)]);
    }
}
