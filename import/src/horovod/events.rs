//! The events of a timeline, put together to operations.
//!
//! A "process" is a tensor. Its events are a negotiation (`NEGOTIATE_ALLREDUCE`) in which each rank that is ready has an entry
//! with its number as the name, and then the operation (`ALLREDUCE`) with what rank 0 does in it (`NCCL_ALLREDUCE`).

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use timing::intervals::Interval;
use wire::event::Function;

use super::entries::{Entry, What, entries};
use super::passes::Passes;
use super::tensor;
use crate::chunks::parse_all;
use crate::pieces::{End, Pieces};
use crate::remarks::Remarks;
use crate::unreadable::Unreadable;

/// The largest number of entries of ranks that are ready. One takes 16 bytes, at most as many again while it waits for others, and at
/// most 60 once it is packed.
const MAX_NOTICED: usize = 8_000_000;
/// The largest number of operations on tensors. One takes at most 150 bytes.
const MAX_OPERATIONS: usize = 2_000_000;
/// The largest number of tensors whose names are kept.
const MAX_NAMES: usize = 65_536;
/// The remark on an entry that should have a time.
const UNTIMED: &str = "an event without a time is left out";
/// The largest number of fused operations whose parts may still end.
const MAX_FUSED: usize = 1_024;

/// An operation on one tensor, or on tensors that were fused. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    /// The number of its tensor, or of the first of them.
    pub(super) tensor: u64,
    pub(super) function: Function,
    /// When each rank was ready for it, in ascending order of ranks. Empty if the timeline does not say it.
    pub(super) ready: Vec<(u32, i64)>,
    /// From the first to the last rank that was ready, whichever these were.
    pub(super) negotiated: Option<Interval>,
    pub(super) begin: i64,
    pub(super) end: i64,
    /// What a rank passes to it, in bytes.
    pub(super) bytes: Option<u64>,
}

impl Operation {
    /// Returns when a rank was ready.
    pub(super) fn ready_on(&self, rank: u32) -> Option<i64> {
        // Most operations are of all ranks, and then a rank is in its own place.
        let own_place = self.ready.get(rank as usize).filter(|(first, _)| *first == rank);
        let search = || {
            let at = self.ready.binary_search_by_key(&rank, |&(rank, _)| rank).ok()?;
            self.ready.get(at)
        };
        own_place.or_else(search).map(|&(_, time)| time)
    }

    /// Adds an operation that was fused with this one: a rank is ready when it is ready for both.
    fn fuse(&mut self, other: &Self) {
        self.ready.retain_mut(|(rank, time)| {
            let also = other.ready_on(*rank);
            *time = also.map_or(*time, |also| also.max(*time));
            also.is_some()
        });
        self.negotiated = self
            .negotiated
            .zip(other.negotiated)
            .map(|(own, other)| (own.0.max(other.0), own.1.max(other.1)));
        (self.begin, self.end) = (self.begin.min(other.begin), self.end.max(other.end));
        self.bytes = self.bytes.zip(other.bytes).map(|(own, other)| own.saturating_add(other));
    }
}

/// A tensor over the whole timeline.
#[derive(Clone, Debug, Default)]
pub(super) struct Tensor {
    /// When the operations on it ended, in nanoseconds.
    pub(super) ends: Vec<i64>,
    /// The highest rank that was ready for it.
    highest: Option<u32>,
}

/// A tensor that some ranks were ready for when the timeline ended.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) name: String,
    pub(super) ready: Vec<u32>,
}

/// What a timeline holds.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// The operations, in the order in which they ended.
    pub(super) operations: Vec<Operation>,
    pub(super) tensors: HashMap<u64, Tensor>,
    /// The tensors that waited for ranks when the timeline ended, the oldest first.
    pub(super) open: Vec<Open>,
    /// The highest rank in it.
    highest: Option<u32>,
    /// The usual length of a cycle of rank 0, in nanoseconds.
    pub(super) cycle_nanos: u64,
    pub(super) remarks: Remarks,
}

impl Recorded {
    /// Returns the number of ranks of the job; `None` if the timeline shows none.
    pub(super) fn world_size(&self) -> Option<u32> {
        self.highest.map(|highest| highest + 1)
    }

    /// Leaves out operations of process sets, and returns how many. No rank beyond some number is ever ready for their tensors,
    /// because a set numbers its ranks by itself.
    pub(super) fn leave_out_process_sets(&mut self) -> usize {
        let count = self.operations.len();
        let (tensors, highest) = (&self.tensors, self.highest);
        self.operations.retain(|operation| {
            let tensor_highest = tensors.get(&operation.tensor).and_then(|tensor| tensor.highest);
            tensor_highest.is_none() || tensor_highest >= highest
        });
        count - self.operations.len()
    }
}

/// Reads the events of a timeline from its plain bytes.
///
/// # Errors
/// Returns an error if it is not a list of events.
pub(super) fn read(plain: impl Read) -> Result<Recorded, Unreadable> {
    let mut pieces = Pieces::new(plain);
    let mut reading = Reading::default();
    let Ok(damage) = parse_all(&mut pieces, entries, |entries| reading.all(entries)) else {
        reading.recorded.remarks.add(format!(
            "the timeline is longer than is read of one ({MAX_NOTICED} entries of ranks, {MAX_OPERATIONS} operations): the rest of it is left out"
        ));
        // What waits for ranks here may go on in the rest.
        return Ok(Recorded { open: Vec::new(), ..reading.finished() });
    };
    let damage = match (damage, pieces.end()) {
        (Some(damage), _) if reading.recorded.operations.is_empty() => return Err(damage.into()),
        (Some(damage), _) => Some(damage.to_string()),
        // Horovod closes the list after each event since 0.20.1, and never before.
        (None, End::Early { error, .. }) => error,
        (None, End::Whole | End::Followed { .. }) => None,
    };
    if let Some(damage) = damage {
        reading.recorded.remarks.add(format!("the file is damaged, and the rest of it left out: {damage}"));
    }
    Ok(reading.finished())
}

/// As much was read as is kept of a timeline.
struct Full;

/// How far a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not all ranks are known to be ready.
    Negotiating,
    /// All ranks are ready.
    Agreed,
    /// Rank 0 runs the operation, and in it so many activities.
    Running { activities: u32 },
}

/// A tensor on its way from the first rank that is ready to the end of the operation.
#[derive(Debug)]
struct Pending {
    stage: Stage,
    /// The function, if it is known and one of a collective.
    function: Option<Function>,
    ready: Vec<(u32, i64)>,
    asked: Option<i64>,
    agreed: Option<i64>,
    begin: i64,
    /// The number of the order that runs it. Fused tensors have one order.
    order: u64,
    is_fused: bool,
}

impl Pending {
    fn new(stage: Stage, asked: Option<i64>) -> Self {
        Self {
            stage,
            function: None,
            ready: Vec::new(),
            asked,
            agreed: None,
            begin: 0,
            order: 0,
            is_fused: false,
        }
    }
}

#[derive(Default)]
struct Reading {
    recorded: Recorded,
    passes: Passes,
    /// What to add to times, in microseconds since 1970.
    start_micros: i64,
    names: HashMap<u64, String>,
    pending: HashMap<u64, Pending>,
    /// The number of entries of ranks that are held.
    noticed: usize,
    /// The number of operations on tensors.
    ended: usize,
    order: u64,
    /// The function of the tensors of the newest order, while others may follow.
    open_order: Option<Function>,
    /// The fused operations by order, as indices.
    fused: BTreeMap<u64, usize>,
}

impl Reading {
    fn is_full(&self) -> bool {
        self.noticed >= MAX_NOTICED
            || self.ended >= MAX_OPERATIONS
            || self.pending.len() >= MAX_OPERATIONS
            || self.recorded.tensors.len() >= MAX_OPERATIONS
    }

    fn all(&mut self, entries: Vec<Entry>) -> Result<(), Full> {
        for entry in entries {
            self.entry(entry);
            if self.is_full() {
                return Err(Full);
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: Entry) {
        match entry {
            Entry::Damaged => self.recorded.remarks.add("an event is damaged and left out"),
            Entry::Untimed => self.recorded.remarks.add(UNTIMED),
            Entry::Start { micros } => self.start_micros = micros,
            Entry::Name { tensor, name } => {
                if self.names.len() < MAX_NAMES {
                    self.names.insert(tensor, name);
                }
            }
            Entry::Timed { tensor, nanos, what } => match self.time(nanos) {
                Some(time) => self.happened(tensor, what, time),
                None => self.recorded.remarks.add(UNTIMED),
            },
        }
    }

    /// Returns a time in nanoseconds since 1970; `None` if it does not fit.
    fn time(&self, nanos: i64) -> Option<i64> {
        nanos.checked_add(self.start_micros.checked_mul(1_000)?)
    }

    fn happened(&mut self, tensor: u64, what: What, time: i64) {
        match what {
            What::Negotiate(function) => self.negotiate(tensor, function, time),
            What::Ready { rank } => self.notice(tensor, rank, time),
            What::Begin { function, is_fusion } => self.begin(tensor, function, is_fusion, time),
            What::End { output } => self.end(tensor, output, time),
            What::Cycle => self.passes.mark(time),
        }
    }

    fn begin(&mut self, tensor: u64, function: Option<Function>, is_fusion: bool, time: i64) {
        let pending = self.pending.entry(tensor).or_insert_with(|| Pending::new(Stage::Agreed, None));
        if let Stage::Running { activities } = &mut pending.stage {
            *activities = activities.saturating_add(1);
            pending.is_fused |= is_fusion;
            // Rank 0 begins activities when it has begun all operations of an order.
            if pending.order == self.order {
                self.open_order = None;
            }
            return;
        }
        if function.is_none() || self.open_order != function {
            self.order += 1;
            self.open_order = function;
        }
        (pending.stage, pending.begin) = (Stage::Running { activities: 0 }, time);
        (pending.function, pending.order) = (function, self.order);
    }

    fn negotiate(&mut self, tensor: u64, function: Option<Function>, time: i64) {
        self.open_order = None;
        let new = Pending { function, ..Pending::new(Stage::Negotiating, Some(time)) };
        match self.pending.get_mut(&tensor) {
            // An entry of a rank came before.
            Some(pending) if pending.stage == Stage::Negotiating && pending.asked.is_none() => {
                (pending.asked, pending.function) = (Some(time), new.function);
            }
            Some(Pending { stage: Stage::Negotiating, .. }) => {}
            _ => self.replace(tensor, new),
        }
    }

    /// Begins a tensor again. Of an operation that was not seen to end nothing counts.
    fn replace(&mut self, tensor: u64, new: Pending) {
        if let Some(before) = self.pending.insert(tensor, new) {
            self.noticed -= before.ready.len();
            self.recorded.remarks.add("an operation without an end is left out");
        }
    }

    /// Takes note of a rank that is ready.
    fn notice(&mut self, tensor: u64, rank: u32, time: i64) {
        self.open_order = None;
        let time = self.passes.notice(rank, time);
        let pending = self.pending.entry(tensor).or_insert_with(|| Pending::new(Stage::Negotiating, None));
        if pending.stage != Stage::Negotiating {
            return;
        }
        if let Err(at) = pending.ready.binary_search_by_key(&rank, |&(rank, _)| rank) {
            pending.ready.insert(at, (rank, time));
            self.noticed += 1;
            self.recorded.highest = self.recorded.highest.max(Some(rank));
        }
    }

    fn end(&mut self, tensor: u64, output: Option<u64>, time: i64) {
        let Some(pending) = self.pending.get_mut(&tensor) else { return };
        if pending.order == self.order {
            self.open_order = None;
        }
        match &mut pending.stage {
            Stage::Negotiating => {
                (pending.stage, pending.agreed) = (Stage::Agreed, Some(time));
                // No operation follows a barrier.
                if pending.function == Some(Function::Other) {
                    pending.begin = time;
                    self.ended(tensor, None, time);
                }
            }
            Stage::Agreed => {}
            Stage::Running { activities: 0 } => self.ended(tensor, output, time),
            Stage::Running { activities } => *activities -= 1,
        }
    }

    fn ended(&mut self, tensor: u64, output: Option<u64>, time: i64) {
        let Some(mut pending) = self.pending.remove(&tensor) else { return };
        pending.ready.shrink_to_fit();
        let Some(function) = pending.function else {
            self.noticed -= pending.ready.len();
            return self
                .recorded
                .remarks
                .add("an operation that failed, or began before the timeline, is left out");
        };
        let reduced = self.recorded.tensors.entry(tensor).or_default();
        reduced.ends.push(time);
        reduced.highest = reduced.highest.max(pending.ready.last().map(|&(rank, _)| rank));
        self.ended += 1;
        self.keep(
            pending.order,
            pending.is_fused,
            Operation {
                tensor,
                function,
                bytes: output.and_then(|output| tensor::passed(function, output, pending.ready.len())),
                ready: pending.ready,
                negotiated: pending.asked.zip(pending.agreed).filter(|(asked, agreed)| asked <= agreed),
                begin: pending.begin,
                end: time.max(pending.begin),
            },
        );
    }

    /// Keeps an operation, as a part of the one that it was fused with if there is one.
    fn keep(&mut self, order: u64, is_fused: bool, operation: Operation) {
        let operations = &mut self.recorded.operations;
        if !is_fused {
            return operations.push(operation);
        }
        if let Some(&at) = self.fused.get(&order) {
            let ready_before = operations[at].ready.len() + operation.ready.len();
            operations[at].fuse(&operation);
            self.noticed -= ready_before - operations[at].ready.len();
            return;
        }
        self.fused.insert(order, operations.len());
        if self.fused.len() > MAX_FUSED {
            self.fused.pop_first();
        }
        operations.push(operation);
    }

    fn finished(mut self) -> Recorded {
        let mut open: Vec<(u64, Pending)> =
            self.pending.into_iter().filter(|(_, pending)| pending.stage == Stage::Negotiating).collect();
        open.sort_by_key(|(tensor, pending)| (pending.asked, *tensor));
        let named = |(tensor, pending): (u64, Pending)| Open {
            name: self.names.remove(&tensor).unwrap_or_else(|| format!("tensor {tensor}")),
            ready: pending.ready.into_iter().map(|(rank, _)| rank).collect(),
        };
        self.recorded.open = open.into_iter().map(named).collect();
        self.recorded.cycle_nanos = self.passes.cycle_nanos();
        self.recorded.operations.sort_by_key(|operation| operation.end);
        self.recorded
    }
}

#[cfg(test)]
mod tests;
