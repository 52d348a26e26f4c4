//! The PyTorch hook, for collectives that gloo runs.
//!
//! Such a process calls nothing that a library could interpose. But PyTorch calls registered Python functions before
//! and after it issues a collective, from release 2.14 on. The Python package `paceline` (`python/`) registers such
//! functions, and they call the functions below. The calls hold the interpreter's lock, so none waits for another. A
//! free-threaded Python has no such lock; there, a call waits no longer than an append to the call log.
//!
//! Earlier releases report collectives only to their profiler ([`record_function`]), and only those of a DDP module's
//! buckets are recorded ([`reductions`]), since the reports do not name the process group. Releases that have hooks as well
//! use this way for buckets, because it needs no thread that waits for the end and no lock of the interpreter.

mod device_phases;
mod record_function;
mod reductions;
mod traces;

use std::collections::VecDeque;
use std::ffi::{CStr, c_char};
use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::clock::MonoNanos;
use wire::ids::Step;

use crate::call_log::{self, Entry, Function, Handle, Kind, LocalRank, Phase};
use crate::host;
use crate::labels;
use crate::layouts;
use crate::lines;
use crate::marks;
use crate::memory;
use crate::observer::{self, Communicator, Hook};
use crate::python_stacks;
use crate::resumed;
use crate::sampling;
use crate::software;
use crate::table::Table;
use crate::workload;

/// The largest number of collectives in flight in one group. Beyond it, only the issue of a collective is recorded.
const MAX_IN_FLIGHT: usize = 1_024;
/// The largest number of groups observed at the same time.
const MAX_GROUPS: usize = 256;
/// The result for a group that is not observed because there are too many groups.
const TOO_MANY: i64 = -2;

/// An observed process group.
struct ProcessGroup {
    number: u64,
    local_rank: LocalRank,
    /// Collectives in flight, oldest first.
    under_way: VecDeque<UnderWay>,
    /// The end of the newest collective whose end was recorded.
    free: MonoNanos,
}

/// A collective that was issued and whose interval is not recorded yet.
#[derive(Clone, Copy)]
struct UnderWay {
    collective: Handle,
    issued: MonoNanos,
    ended: Option<MonoNanos>,
}

/// Groups by the index that Python uses. A removed group leaves its index to a later one.
static GROUPS: Mutex<Vec<Option<ProcessGroup>>> = Mutex::new(Vec::new());
/// Counts of collectives by group and function.
static COUNTS: Table = Table::new();

fn groups() -> MutexGuard<'static, Vec<Option<ProcessGroup>>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn named(groups: &mut [Option<ProcessGroup>], name: i64) -> Option<&mut ProcessGroup> {
    groups.get_mut(usize::try_from(name).ok()?)?.as_mut()
}

impl ProcessGroup {
    /// Records the oldest collectives that are done, one after the other in the order of issue. gloo runs two at a
    /// time, which share one link: the second one has the link to itself from the end of the first.
    fn tell(&mut self, mut tell: impl FnMut(Entry)) {
        while let Some(UnderWay { collective, issued, ended: Some(ended) }) = self.under_way.front().copied()
        {
            let channel = Handle::new(Kind::Channel, self.local_rank);
            let began = issued.max(self.free);
            self.free = ended.max(began);
            tell(Entry::Began { handle: channel, parent: collective, gpu: None, at: began });
            tell(Entry::Ended { handle: channel, gpu: None, at: self.free });
            self.under_way.pop_front();
        }
    }
}

/// Registers a process group of `size` ranks in which this process is `rank`. `number` is the same on all its ranks.
/// Returns the group's index for later calls, or a negative value if the group is not observed.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_group(number: u64, size: u32, rank: u32) -> i64 {
    let joined = || {
        let communicator = Communicator { number, size, rank: Some(rank) };
        let local_rank = observer::begin(Hook::PyTorch, Some(communicator))?;
        let mut groups = groups();
        let name = groups.iter().position(Option::is_none).unwrap_or(groups.len());
        if name == MAX_GROUPS {
            return Some(TOO_MANY);
        }
        if name == groups.len() {
            groups.push(None);
        }
        groups[name] =
            Some(ProcessGroup { number, local_rank, under_way: VecDeque::new(), free: MonoNanos(0) });
        Some(name as i64)
    };
    host::guarded(|| Some(joined().unwrap_or(-1))).unwrap_or(-1)
}

/// Removes a process group.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_left(group: i64) {
    host::guarded(|| {
        let mut groups = groups();
        if let Some(place) = usize::try_from(group).ok().and_then(|name| groups.get_mut(name)) {
            *place = None;
        }
    });
}

/// Records that a collective was issued at `at` (`CLOCK_MONOTONIC`), with a payload of `bytes` on this rank. `function`
/// is the code of a [`Function`]. The caller has already spent `spent` nanoseconds on observation.
///
/// Returns the collective's handle for [`paceline_pytorch_ended`], or 0 if its end is not observed.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_issued(group: i64, function: u8, bytes: u64, at: i64, spent: u64) -> u64 {
    host::guarded(|| {
        sampling::spend(spent);
        let collective = issue(group, Function::from_code(function), bytes, MonoNanos(at));
        collective.map_or(0, Handle::to_bits)
    })
}

/// Records that a collective was issued. Returns its handle if its end is observed.
fn issue(group: i64, function: Function, bytes: u64, at: MonoNanos) -> Option<Handle> {
    if !observer::is_best(Hook::PyTorch) {
        return None;
    }
    let mut groups = groups();
    let group = named(&mut groups, group)?;
    let seq = COUNTS.count(group.number, function)?;
    let handle = Handle::new(Kind::Collective, group.local_rank);
    let communicator = group.number;
    let begins = marks::begins(communicator);
    call_log::append(Entry::Enqueued { handle, communicator, function, seq, bytes, channels: 1, begins, at });
    let is_observed = sampling::observes(group.local_rank, communicator, function, seq, begins);
    if !is_observed || group.under_way.len() == MAX_IN_FLIGHT {
        call_log::append(Entry::Issued { handle, at: agent::clock::now() });
        return None;
    }
    group.under_way.push_back(UnderWay { collective: handle, issued: at, ended: None });
    Some(handle)
}

/// Records that a collective ended at `at`.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_ended(group: i64, collective: u64, at: i64, spent: u64) {
    host::guarded(|| {
        sampling::spend(spent);
        if let Some((collective, Kind::Collective)) = Handle::from_bits(collective) {
            end(group, collective, MonoNanos(at));
        }
    });
}

/// Records that a collective ended.
fn end(group: i64, collective: Handle, at: MonoNanos) {
    let mut groups = groups();
    let Some(group) = named(&mut groups, group) else { return };
    if let Some(ended) = group.under_way.iter_mut().find(|call| call.collective == collective) {
        ended.ended = Some(at);
        group.tell(call_log::append);
    }
}

/// Forgets a collective whose end will not be reported. The ones after it would wait for it.
fn lose(group: i64, collective: Handle) {
    let mut groups = groups();
    let Some(group) = named(&mut groups, group) else { return };
    group.under_way.retain(|call| call.collective != collective);
    call_log::append(Entry::Issued { handle: collective, at: agent::clock::now() });
    group.tell(call_log::append);
}

/// Observes the collectives that gloo runs, of PyTorch 2.4 to 2.15. Returns whether that is possible; then the functions
/// [`paceline_pytorch_reduces`] and [`paceline_pytorch_reduced`] say which of them reduce the buckets of a DDP module.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_observes_gloo() -> bool {
    host::guarded(record_function::observe)
}

/// Records that a backward pass begins. A group reduces its buckets, whose sizes are `bytes`.
///
/// # Safety
/// `bytes` must point to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_pytorch_reduces(group: i64, bytes: *const u64, count: usize) {
    // SAFETY: the caller guarantees it.
    let bytes = unsafe { numbers(bytes, count) };
    host::guarded(|| reductions::begin(group, bytes.to_vec()));
}

/// Records that all buckets of the backward pass are reduced, and when they were handed to gloo (`CLOCK_MONOTONIC`).
///
/// # Safety
/// `launches` must point to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_pytorch_reduced(launches: *const i64, count: usize) {
    // SAFETY: the caller guarantees it.
    let launches = unsafe { numbers(launches, count) };
    host::guarded(|| reductions::finish(launches));
}

/// # Safety
/// `first` must point to `count` numbers, or be null.
unsafe fn numbers<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { slice::from_raw_parts(first, count) }
}

/// Records the version of a Python package, or of Python itself. Texts that are not UTF-8 are ignored.
///
/// # Safety
/// `name` and `version` must be C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_pytorch_software(name: *const c_char, version: *const c_char) {
    if name.is_null() || version.is_null() {
        return;
    }
    // SAFETY: the caller guarantees it.
    let (name, version) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(version)) };
    if let (Ok(name), Ok(version)) = (name.to_str(), version.to_str()) {
        host::guarded(|| software::learn(name, version));
    }
}

/// Records a label of the process's ranks, which replaces an earlier one with the same key. Texts that are not UTF-8 or not
/// those of a label are ignored.
///
/// # Safety
/// `key` and `value` must be C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_pytorch_label(key: *const c_char, value: *const c_char) {
    if key.is_null() || value.is_null() {
        return;
    }
    // SAFETY: the caller guarantees it.
    let (key, value) = unsafe { (CStr::from_ptr(key), CStr::from_ptr(value)) };
    if let (Ok(key), Ok(value)) = (key.to_str(), value.to_str()) {
        host::guarded(|| labels::learn(key, value));
    }
}

/// Records the error that is about to end the process. Text that is not UTF-8 is ignored.
///
/// # Safety
/// `error` must be a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_pytorch_fails(error: *const c_char) {
    if error.is_null() {
        return;
    }
    // SAFETY: the caller guarantees it.
    let error = unsafe { CStr::from_ptr(error) };
    if let Ok(error) = error.to_str() {
        host::guarded(|| observer::fails_with(error));
    }
}

/// Records the layout of a DDP module's buckets, as the JSON text of a [`wire::layout::Layout`]. Other texts are ignored.
///
/// # Safety
/// `json` must be a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_pytorch_layout(json: *const c_char) {
    if json.is_null() {
        return;
    }
    // SAFETY: the caller guarantees it.
    if let Ok(json) = unsafe { CStr::from_ptr(json) }.to_str() {
        host::guarded(|| layouts::learn(json));
    }
}

/// Records the workload of the process's ranks, as the JSON text of a [`wire::workload::Workload`]. Other texts are
/// ignored.
///
/// # Safety
/// `json` must be a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_pytorch_workload(json: *const c_char) {
    if json.is_null() {
        return;
    }
    // SAFETY: the caller guarantees it.
    if let Ok(json) = unsafe { CStr::from_ptr(json) }.to_str() {
        host::guarded(|| workload::learn(json));
    }
}

/// Records that the job resumes from a checkpoint, after which its model has had so many updates.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_resumed(step: u64) {
    host::guarded(|| resumed::learn(Step(step)));
}

/// Records what PyTorch's allocator counts for a CUDA device, which is the `device`-th that this process sees.
///
/// # Safety
/// `values` must point to one number for each of [`memory::FIGURES`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_pytorch_memory(device: u32, values: *const u64) {
    // SAFETY: the caller guarantees it.
    if let Ok(&values) = unsafe { numbers(values, memory::FIGURES.len()) }.try_into() {
        host::guarded(|| memory::learn(device, values));
    }
}

/// Returns how many updates of optimizers were recorded.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_updates() -> u64 {
    marks::updates()
}

/// Reports that the process is about to end with an exit code by `os._exit`, which calls no function of a library.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_exits(status: i32) {
    host::exits(status);
}

/// Records that an optimizer updated its parameters.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_updated() {
    host::guarded(marks::updated);
}

/// Records that the next update is by another optimizer than those before it.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_updated_by_several() {
    host::guarded(marks::note_other_optimizer);
}

/// Records that a line of the job's own code leads to a phase. `phase` is the code of a [`Phase`]. An unknown code is ignored, and
/// so are texts that are not UTF-8.
///
/// # Safety
/// `function` and `file` must be C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn paceline_pytorch_line(
    phase: u8,
    function: *const c_char,
    file: *const c_char,
    line: u32,
) {
    if function.is_null() || file.is_null() {
        return;
    }
    // SAFETY: the caller guarantees it.
    let (function, file) = unsafe { (CStr::from_ptr(function), CStr::from_ptr(file)) };
    if let (Some(phase), Ok(function), Ok(file)) = (Phase::from_code(phase), function.to_str(), file.to_str())
    {
        host::guarded(|| lines::learn(phase.span(), function, file, line));
    }
}

/// Records that the caller, which is the thread that trains, was in a phase from `begin` to `end` (`CLOCK_MONOTONIC`).
/// `phase` is the code of a [`Phase`]. An unknown code is ignored. `used` is the processor time of the thread in the phase, in
/// nanoseconds; 0 if it was not measured.
#[unsafe(no_mangle)]
pub extern "C" fn paceline_pytorch_phase(phase: u8, begin: i64, end: i64, used: i64) {
    host::guarded(|| {
        if let Some(phase) = Phase::from_code(phase).filter(|_| observer::is_observed()) {
            python_stacks::trains_here();
            let (begin, end) = (MonoNanos(begin), MonoNanos(end));
            // A phase that began on another thread has no such time.
            let used = u64::try_from(used.min(end - begin)).unwrap_or(0);
            call_log::append(Entry::Phase { phase, enqueued: None, begin, end, used });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_are_recorded_in_order_of_issue_and_do_not_overlap() {
        let under_way = |issued: i64, ended: Option<i64>| UnderWay {
            collective: Handle::new(Kind::Collective, LocalRank::FIRST),
            issued: MonoNanos(issued),
            ended: ended.map(MonoNanos),
        };
        let mut group = ProcessGroup {
            number: 1,
            local_rank: LocalRank::FIRST,
            under_way: [under_way(1, None), under_way(2, Some(5)), under_way(9, Some(12))].into(),
            free: MonoNanos(0),
        };
        let mut times: Vec<i64> = Vec::new();
        let mut tell = |entry| match entry {
            Entry::Began { at, .. } | Entry::Ended { at, .. } => times.push(at.0),
            other => panic!("{other:?}"),
        };
        group.tell(&mut tell);
        assert_eq!(group.under_way.len(), 3, "the oldest still runs");
        group.under_way[0].ended = Some(MonoNanos(7));
        group.tell(tell);
        assert_eq!(times, [1, 7, 7, 7, 9, 12]);
    }

    #[test]
    fn calls_for_an_unknown_group_are_ignored() {
        assert_eq!(paceline_pytorch_issued(-1, 4, 100, 0, 0), 0);
        assert_eq!(paceline_pytorch_issued(99, 4, 100, 0, 0), 0);
        paceline_pytorch_ended(99, 17, 0, 0);
    }
}
