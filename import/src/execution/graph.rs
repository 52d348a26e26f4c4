//! The nodes of an execution trace, and the trace of a device that they make.

use std::collections::HashMap;

use wire::event::{Function, SpanKind};

use super::NO_TIMES;
use crate::format::Format;
use crate::group::Group;
use crate::kineto::{BACKWARD, Carried, INPUT, Kind, Launch, Marked, Names, OPTIMIZER, STEP, Trace, Work};
use crate::remarks::Remarks;
use crate::unreadable::Unreadable;

/// The largest number of nodes of the host. One takes at most 100 bytes.
const MAX_HOST: usize = 3_000_000;
/// The largest number of nodes of the device. One takes at most 150 bytes.
const MAX_DEVICE: usize = 4_000_000;
/// The largest number of nodes around a node of the device that are looked at.
const MAX_DEPTH: usize = 64;

/// A node. Times are in nanoseconds.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) id: u64,
    /// The node of the host that it is within, or that launched it.
    pub(super) parent: Option<u64>,
    pub(super) name: &'a str,
    pub(super) begin: Option<i64>,
    pub(super) took: i64,
    /// What it is on the device, if it ran there.
    pub(super) device_node: Option<DeviceNode>,
}

/// What a node is on the device.
#[derive(Debug)]
pub(super) struct DeviceNode {
    pub(super) kind: Kind,
    pub(super) stream: i64,
    /// What a collective carries.
    pub(super) bytes: Option<u64>,
    pub(super) group: Option<Group>,
    pub(super) function: Option<Function>,
}

/// A node of the host.
#[derive(Clone, Copy, Debug)]
struct Host {
    parent: Option<u64>,
    begin: Option<i64>,
    phase: Option<SpanKind>,
}

/// The nodes of a trace.
#[derive(Debug, Default)]
pub(super) struct Graph {
    trace: Trace,
    hosts: HashMap<u64, Host>,
    groups: HashMap<Group, u32>,
    names: Names,
    /// The node that launched each work of the device, by the number of the work.
    parents: Vec<(u64, u64)>,
}

impl Graph {
    /// Adds a node.
    ///
    /// # Errors
    /// Returns an error if there are too many.
    pub(super) fn add(&mut self, node: Node<'_>) -> Result<(), Unreadable> {
        self.trace.events += 1;
        let times = node.begin.and_then(|begin| Some((begin, begin.checked_add(node.took.max(0))?)));
        match (node.device_node, times) {
            (Some(device_node), Some(times)) => {
                let name = self.names.number(node.name);
                self.work((node.id, node.parent), name, times, device_node);
            }
            (Some(_), None) => {
                self.trace.remarks.add("a node of the device has no start time, and is left out");
            }
            (None, times) => {
                self.named(node.name, times);
                let phase = phase(node.name);
                self.hosts.insert(node.id, Host { parent: node.parent, begin: node.begin, phase });
            }
        }
        if self.hosts.len() > MAX_HOST || self.trace.work.len() > MAX_DEVICE {
            return Err(Unreadable::TooLarge {
                format: Format::Execution,
                most: format!("{MAX_HOST} nodes of the host and {MAX_DEVICE} of the device"),
            });
        }
        Ok(())
    }

    /// Returns what is said about the file.
    pub(super) fn remarks(&mut self) -> &mut Remarks {
        &mut self.trace.remarks
    }

    /// Takes note of a group, with its ranks as far as they are known.
    pub(super) fn group(&mut self, group: Group) -> u32 {
        let next = self.trace.groups.len() as u32;
        *self.groups.entry(group).or_insert_with_key(|group| {
            self.trace.groups.push(group.clone());
            next
        })
    }

    /// Sets the number of ranks of the job.
    pub(super) fn world_size(&mut self, ranks: u32) {
        self.trace.world_size = self.trace.world_size.max(Some(ranks));
    }

    fn work(
        &mut self,
        (id, parent): (u64, Option<u64>),
        name: u32,
        (begin, end): (i64, i64),
        device_node: DeviceNode,
    ) {
        let DeviceNode { kind, stream, bytes, group, function } = device_node;
        let group = group.filter(|_| kind.is_collective()).map(|group| self.group(group));
        let carried = kind.is_collective().then(|| {
            self.trace.carried.push(Carried { bytes, group, function });
            self.trace.carried.len() as u32 - 1
        });
        // 0 says that there is no launch.
        let correlation = id.saturating_add(1);
        self.parents.extend(parent.map(|parent| (correlation, parent)));
        self.trace.work.push(Work { kind, begin, end, stream, correlation, name, carried });
    }

    /// Takes note of a node whose name says something about the work of others.
    fn named(&mut self, name: &str, times: Option<(i64, i64)>) {
        if let Some(issued) = name.strip_prefix("nccl:") {
            self.trace.all_to_alls += u64::from(issued.contains("all_to_all") || issued.contains("alltoall"));
            self.trace.messages += u64::from(issued.starts_with("send") || issued.starts_with("recv"));
        }
        let Some((begin, end)) = times else { return };
        if name.starts_with(INPUT) {
            self.trace.input.push((begin, end));
        }
        if let Some(number) = name.strip_prefix(STEP).and_then(|number| number.trim().parse().ok()) {
            self.trace.steps.push(Marked { number, begin, end });
        }
    }

    /// Returns the phase of the nodes that a node is within.
    fn phase_of(&self, parent: u64) -> SpanKind {
        let host = |id: u64| self.hosts.get(&id);
        let ancestors = std::iter::successors(host(parent), |node| host(node.parent?));
        ancestors.take(MAX_DEPTH).find_map(|node| node.phase).unwrap_or(SpanKind::Forward)
    }

    /// Returns the trace.
    ///
    /// # Errors
    /// Returns an error if no node of the device has a start time.
    pub(super) fn trace(mut self) -> Result<Trace, Unreadable> {
        if self.trace.work.is_empty() {
            return Err(Unreadable::Unsupported(NO_TIMES));
        }
        let launch = |&(correlation, parent): &(u64, u64)| {
            let at = self.hosts.get(&parent)?.begin?;
            Some(Launch { at, correlation, phase: Some(self.phase_of(parent)) })
        };
        self.trace.launches = self.parents.iter().filter_map(launch).collect();
        self.trace.names = self.names.into_texts();
        self.trace.work.sort_by_key(|work| (work.begin, work.end));
        self.trace.steps.sort_by_key(|step| (step.begin, step.end));
        self.trace.steps.dedup_by_key(|step| step.number);
        Ok(self.trace)
    }
}

/// Returns the phase that a node of the host is, if its name says it.
fn phase(name: &str) -> Option<SpanKind> {
    match name {
        _ if name.starts_with(BACKWARD) => Some(SpanKind::Backward),
        _ if name.starts_with(OPTIMIZER) => Some(SpanKind::Optimizer),
        _ => None,
    }
}
