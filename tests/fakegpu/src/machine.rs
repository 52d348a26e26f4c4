//! The state of all devices: operations in streams, and their dependencies.

mod worlds;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_void};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::time;
pub(crate) use worlds::{Function, Part, Wish, World};

/// The index of an operation, in the order in which operations were enqueued.
pub(crate) type OpId = usize;

/// An address in memory. Devices and host share one memory.
#[derive(Clone, Copy)]
pub(crate) struct Address(pub(crate) u64);

impl Address {
    pub(crate) fn bytes(self, len: usize) -> &'static mut [u8] {
        // SAFETY: memory must stay valid until the operations on it are done, as with CUDA.
        unsafe { std::slice::from_raw_parts_mut(self.0 as *mut u8, len) }
    }

    pub(crate) fn floats(self, len: usize) -> &'static mut [f32] {
        // SAFETY: as in `bytes`. CUDA aligns memory to 256 bytes, and offsets into it are multiples of a float.
        unsafe { std::slice::from_raw_parts_mut(self.0 as *mut f32, len) }
    }
}

/// The work of an operation.
pub(crate) enum Work {
    /// No work: an event is recorded or waited for.
    Mark,
    /// Copies bytes.
    Copy { to: Address, from: Address, len: usize },
    /// Writes bytes that were read when the copy was enqueued, because pageable memory may have been freed since.
    Put { to: Address, bytes: Vec<u8> },
    /// Sets all bytes to one value.
    Fill { to: Address, value: u8, len: usize },
    /// Multiplies floats by a factor, and writes or adds the results.
    Scale { to: Address, from: Address, factor: f32, len: usize, add: bool },
    /// Takes the given time.
    Spin { nanos: i64 },
    /// Writes the time of the device's clock.
    Stamp { to: Address },
    /// Frees memory that the stream no longer needs.
    Free { address: u64 },
    /// Performs one rank's part of a collective.
    Collective { communicator: u64, seq: u64, rank: usize },
}

/// The kind of an activity, as CUPTI reports it.
#[derive(Clone, Copy)]
pub(crate) enum What {
    Kernel(&'static CStr),
    Copy(usize),
    Fill(usize),
}

impl Work {
    fn what(&self) -> Option<What> {
        match self {
            // The kind of a collective is known once all ranks have started it.
            Self::Mark | Self::Free { .. } | Self::Collective { .. } => None,
            Self::Copy { len, .. } => Some(What::Copy(*len)),
            Self::Put { bytes, .. } => Some(What::Copy(bytes.len())),
            Self::Fill { len, .. } => Some(What::Fill(*len)),
            Self::Scale { add: false, .. } => Some(What::Kernel(c"scale")),
            Self::Scale { add: true, .. } => Some(What::Kernel(c"add_scaled")),
            Self::Spin { .. } => Some(What::Kernel(c"spin_ns")),
            Self::Stamp { .. } => Some(What::Kernel(c"stamp")),
        }
    }
}

/// A completed activity.
pub(crate) struct Done {
    pub(crate) what: What,
    pub(crate) stream: u64,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// The number that connects the activity with the call that launched it.
    pub(crate) correlation: u32,
}

pub(crate) type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(crate) type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The requests to CUPTI, and the records for it to deliver.
#[derive(Default)]
pub(crate) struct Cupti {
    pub(crate) subscribed: bool,
    pub(crate) callbacks: Option<(Requested, Completed)>,
    pub(crate) kinds: BTreeSet<u32>,
    /// Launches, with the external correlation id that the caller had set.
    pub(crate) launches: Vec<(u32, u64)>,
    pub(crate) done: Vec<Done>,
}

struct Op {
    stream: u64,
    work: Option<Work>,
    predecessors: Vec<OpId>,
    enqueued: i64,
    done: Option<(i64, i64)>,
}

#[derive(Default)]
pub(crate) struct Machine {
    ops: Vec<Op>,
    open: Vec<OpId>,
    /// The newest operation of each stream.
    pub(crate) streams: BTreeMap<u64, Option<OpId>>,
    pub(crate) events: BTreeMap<u64, Option<OpId>>,
    pub(crate) allocations: BTreeMap<u64, Box<[u128]>>,
    /// Pinned host memory. Copies to and from it are asynchronous.
    pub(crate) pinned: BTreeMap<u64, Box<[u128]>>,
    pub(crate) worlds: BTreeMap<u64, World>,
    pub(crate) cupti: Cupti,
    next_handle: u64,
}

static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

/// Changes the machine and wakes all waiting threads.
pub(crate) fn change<T>(change: impl FnOnce(&mut Machine) -> T) -> T {
    let mut machine = lock();
    let result = change(machine.get_or_insert_default());
    machine.get_or_insert_default().settle();
    drop(machine);
    CHANGED.notify_all();
    result
}

/// Waits until there is an answer, for at most `patience` in real time.
pub(crate) fn wait_at_most<T>(
    patience: Duration,
    mut answer: impl FnMut(&mut Machine) -> Option<T>,
) -> Option<T> {
    let deadline = Instant::now() + patience;
    let mut machine = lock();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = answer(machine.get_or_insert_default());
        if answer.is_some() || left.is_zero() {
            return answer;
        }
        machine = CHANGED.wait_timeout(machine, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Waits until there is an answer.
pub(crate) fn wait<T>(mut answer: impl FnMut(&mut Machine) -> Option<T>) -> T {
    let mut machine = lock();
    loop {
        if let Some(answer) = answer(machine.get_or_insert_default()) {
            return answer;
        }
        machine = CHANGED.wait(machine).unwrap_or_else(PoisonError::into_inner);
    }
}

fn lock() -> MutexGuard<'static, Option<Machine>> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number that CUPTI assigns to the call that enqueued an operation.
pub(crate) fn correlation(op: OpId) -> u32 {
    op as u32 + 1
}

impl Machine {
    /// Returns a new handle, which is never 0.
    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 16;
        self.next_handle
    }

    /// Appends an operation to a stream.
    pub(crate) fn enqueue(&mut self, stream: u64, work: Work) -> OpId {
        let op = self.ops.len();
        let previous = self.streams.entry(stream).or_default().replace(op);
        self.ops.push(Op {
            stream,
            work: Some(work),
            predecessors: previous.into_iter().collect(),
            enqueued: time::host(),
            done: None,
        });
        self.open.push(op);
        op
    }

    /// Makes a stream wait for `other` as well.
    pub(crate) fn enqueue_after(&mut self, stream: u64, other: OpId) {
        let op = self.enqueue(stream, Work::Mark);
        self.ops[op].predecessors.push(other);
    }

    /// Returns the start and end of an operation, or `None` while they are unknown.
    pub(crate) fn done(&self, op: OpId) -> Option<(i64, i64)> {
        self.ops[op].done
    }

    /// Completes all operations that can be completed.
    fn settle(&mut self) {
        loop {
            let open = std::mem::take(&mut self.open);
            let count = open.len();
            let mut left = Vec::with_capacity(count);
            for op in open {
                if !self.try_finish(op) {
                    left.push(op);
                }
            }
            let progress = left.len() < count;
            self.open = left;
            if !progress {
                return;
            }
        }
    }

    /// Returns the earliest start of an operation, or `None` while a dependency is incomplete.
    fn start(&self, op: OpId) -> Option<i64> {
        let Op { predecessors, enqueued, .. } = &self.ops[op];
        predecessors
            .iter()
            .try_fold(*enqueued, |start, &predecessor| Some(start.max(self.ops[predecessor].done?.1)))
    }

    fn try_finish(&mut self, op: OpId) -> bool {
        if self.ops[op].done.is_some() {
            return true;
        }
        let Some(start) = self.start(op) else { return false };
        let Some(work) = self.ops[op].work.take() else { return true };
        if let Work::Collective { communicator, seq, rank } = work {
            self.ops[op].work = Some(work);
            return self.try_finish_collective(communicator, seq)
                || self.abort_if_asked(communicator, rank, op, start);
        }
        if let Work::Free { address } = work {
            self.allocations.remove(&address);
        }
        let what = work.what();
        let cost = perform(work, start);
        self.finish(op, what, start, start + cost);
        true
    }

    fn finish(&mut self, op: OpId, what: Option<What>, start: i64, end: i64) {
        self.ops[op].done = Some((start, end));
        if let Some(what) = what.filter(|_| !self.cupti.kinds.is_empty()) {
            let (stream, correlation) = (self.ops[op].stream, correlation(op));
            self.cupti.done.push(Done { what, stream, start, end, correlation });
        }
    }
}

/// Performs the work and returns its duration.
fn perform(work: Work, start: i64) -> i64 {
    match work {
        Work::Mark | Work::Free { .. } | Work::Collective { .. } => 0,
        Work::Copy { to, from, len } => {
            to.bytes(len).copy_from_slice(from.bytes(len));
            time::copy(len)
        }
        Work::Put { to, bytes } => {
            to.bytes(bytes.len()).copy_from_slice(&bytes);
            time::copy(bytes.len())
        }
        Work::Fill { to, value, len } => {
            to.bytes(len).fill(value);
            time::kernel()
        }
        Work::Scale { to, from, factor, len, add } => {
            let pairs = to.floats(len).iter_mut().zip(&*from.floats(len));
            pairs.for_each(|(to, from)| *to = *from * factor + if add { *to } else { 0.0 });
            time::kernel()
        }
        Work::Spin { nanos } => nanos,
        Work::Stamp { to } => {
            to.bytes(8).copy_from_slice(&(start + time::GLOBAL_TIMER_AHEAD).to_le_bytes());
            time::kernel()
        }
    }
}
