//! The functions that NCCL calls. Each returns at once and reports success: a failing profiler would fail the job.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use wire::clock::MonoNanos;

use super::layout::{self, Description, KERNEL_CHANNEL_STOP, KernelChannel, Layout, event};
use crate::call_log::{self, Entry, Handle, Kind, LocalRank};
use crate::host;
use crate::marks;
use crate::message::Message;
use crate::observer::{self, Communicator, Hook};
use crate::sampling;

const SUCCESS: c_int = 0;
/// The largest number of communicators distinguished in one process. Those of later ones are not observed.
const MAX_COMMUNICATORS: usize = 4_096;

/// NCCL's own logger, which is not used.
type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);

/// The five functions. Only the type of `init` differs between versions.
#[repr(C)]
pub struct Table<Init> {
    /// The plugin's name in NCCL's log.
    pub name: *const c_char,
    /// Called for a new communicator. Writes its context and the mask of wanted events.
    pub init: Init,
    /// Called when an event starts. Writes its handle.
    pub start_event: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const c_void) -> c_int,
    /// Called when an event stops.
    pub stop_event: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Called when an event enters a state.
    pub record_event_state: unsafe extern "C" fn(*mut c_void, c_int, *const c_void) -> c_int,
    /// Called when a communicator is destroyed.
    pub finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: a table is constant, and so is the string that its name points to.
unsafe impl<Init> Sync for Table<Init> {}

/// `init` of versions 1 to 3.
type InitV1 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
/// `init` of version 4.
type InitV4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> c_int;
/// `init` of versions 5 and 6.
type InitV5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> c_int;

macro_rules! table {
    ($version:ident, $symbol:ident, $init:ident: $type:ty) => {
        #[doc = concat!("The table of interface ", stringify!($version), ".")]
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "the symbol that NCCL looks for")]
        pub static $symbol: Table<$type> = {
            unsafe extern "C" fn start(
                context: *mut c_void,
                handle: *mut *mut c_void,
                description: *const c_void,
            ) -> c_int {
                // SAFETY: NCCL calls the functions of a table with descriptions of its version.
                unsafe { start_event(&layout::$version, context, handle, description) }
            }
            unsafe extern "C" fn state(handle: *mut c_void, state: c_int, arguments: *const c_void) -> c_int {
                // SAFETY: as above.
                unsafe { record_event_state(&layout::$version, handle, state, arguments) }
            }
            unsafe extern "C" fn stop(handle: *mut c_void) -> c_int {
                stop_event(&layout::$version, handle)
            }
            Table {
                name: c"Paceline".as_ptr(),
                init: $init,
                start_event: start,
                stop_event: stop,
                record_event_state: state,
                finalize,
            }
        };
    };
}

table!(V1, ncclProfiler_v1, init_v1: InitV1);
table!(V2, ncclProfiler_v2, init_v1: InitV1);
table!(V3, ncclProfiler_v3, init_v1: InitV1);
table!(V4, ncclProfiler_v4, init_v4: InitV4);
table!(V5, ncclProfiler_v5, init_v5: InitV5);
table!(V6, ncclProfiler_v6, init_v5: InitV5);

/// The membership of a rank in a communicator.
struct Member {
    number: AtomicU64,
    local_rank: AtomicU8,
}

/// Marks a member whose rank is not observed.
const NOBODY: u8 = u8::MAX;

/// Members by context minus one. A context is such an index and never a pointer, so there is nothing to free or follow.
static COMMUNICATORS: [Member; MAX_COMMUNICATORS] =
    [const { Member { number: AtomicU64::new(0), local_rank: AtomicU8::new(NOBODY) } }; MAX_COMMUNICATORS];
static NEXT_CONTEXT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn init_v1(context: *mut *mut c_void, mask: *mut c_int) -> c_int {
    // SAFETY: NCCL passes two valid places to write to.
    unsafe { begin(context, mask, None) }
}

unsafe extern "C" fn init_v4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    _name: *const c_char,
    number: u64,
    _nodes: c_int,
    size: c_int,
    rank: c_int,
    _logger: Option<Logger>,
) -> c_int {
    // SAFETY: NCCL passes two valid places to write to.
    unsafe {
        begin(context, mask, Some(Communicator { number, size: size as u32, rank: u32::try_from(rank).ok() }))
    }
}

unsafe extern "C" fn init_v5(
    context: *mut *mut c_void,
    number: u64,
    mask: *mut c_int,
    _name: *const c_char,
    _nodes: c_int,
    size: c_int,
    rank: c_int,
    _logger: Option<Logger>,
) -> c_int {
    // SAFETY: NCCL passes two valid places to write to.
    unsafe {
        begin(context, mask, Some(Communicator { number, size: size as u32, rank: u32::try_from(rank).ok() }))
    }
}

/// Registers a new communicator.
///
/// # Safety
/// Both pointers must be valid for writes.
unsafe fn begin(context: *mut *mut c_void, mask: *mut c_int, communicator: Option<Communicator>) -> c_int {
    let local_rank = host::guarded(|| is_sound().then(|| observer::begin(Hook::Plugin, communicator))?);
    let at = NEXT_CONTEXT.fetch_add(1, Ordering::Relaxed).min(MAX_COMMUNICATORS);
    if let Some(slot) = COMMUNICATORS.get(at) {
        slot.number.store(communicator.map_or(0, |communicator| communicator.number), Ordering::Relaxed);
        slot.local_rank.store(local_rank.map_or(NOBODY, |local_rank| local_rank.0), Ordering::Relaxed);
    }
    // All communicators of the process share one mask.
    let is_wanted = host::guarded(|| is_sound() && observer::is_observed());
    let wanted = if is_wanted { (event::COLLECTIVE | event::KERNEL_CHANNEL) as c_int } else { 0 };
    // SAFETY: the caller guarantees that both are valid for writes. NCCL would never finalize a null context.
    unsafe {
        context.write(ptr::without_provenance_mut(at + 1));
        mask.write(wanted);
    }
    SUCCESS
}

/// Returns false, after one warning, if this NCCL release is known to fail with a profiler. Another hook may still
/// observe the job.
fn is_sound() -> bool {
    static IS_SOUND: OnceLock<bool> = OnceLock::new();
    *IS_SOUND.get_or_init(|| {
        let trouble = gpu::nccl::mapped().and_then(|nccl| Some((nccl.version, nccl.known_trouble?)));
        let trouble = trouble.filter(|(_, trouble)| trouble.keeps_plugin_off);
        if let Some((version, trouble)) = trouble {
            agent::warn(&format!("NCCL {version}'s profiler interface is not used: {}", trouble.what));
        }
        trouble.is_none()
    })
}

/// Logs the start of an event and writes its handle.
///
/// # Safety
/// `handle` must be valid for writes, and `description` must point to an event's description of version `layout`.
unsafe fn start_event(
    layout: &Layout,
    context: *mut c_void,
    handle: *mut *mut c_void,
    description: *const c_void,
) -> c_int {
    // SAFETY: the caller guarantees both.
    unsafe {
        // Written first because NCCL uses the handle whatever happens here.
        handle.write(ptr::null_mut());
        let bits = host::guarded(|| sampling::timed(|| started(layout.description(description), context)));
        handle.write(ptr::without_provenance_mut(bits as usize));
    }
    SUCCESS
}

/// Appends an entry for an event that starts. Returns its handle, or 0.
fn started(description: Description, context: *mut c_void) -> u64 {
    let at = agent::clock::now();
    let handle = match description {
        Description::Collective(collective) => enqueued(&collective, context, at),
        Description::Message(message) => sent(&message, context, at),
        Description::KernelChannel(channel) => began(&channel, at),
        // Before 2.28, NCCL reports nothing inside a group without a handle.
        Description::Group => {
            Message::begin_batch();
            Some(Handle::GROUP)
        }
        Description::Other => None,
    };
    handle.map_or(0, Handle::to_bits)
}

fn enqueued(collective: &layout::Collective, context: *mut c_void, at: MonoNanos) -> Option<Handle> {
    let (number, local_rank) = member(context)?;
    let communicator = collective.communicator.unwrap_or(number);
    let begins = marks::begins(communicator);
    let is_observed =
        sampling::observes(local_rank, communicator, collective.function, collective.seq, begins);
    let handle = Handle::new(kind(is_observed), local_rank);
    call_log::append(Entry::Enqueued {
        handle,
        communicator,
        function: collective.function,
        seq: collective.seq,
        bytes: collective.bytes,
        channels: collective.channels,
        begins,
        at,
    });
    Some(handle)
}

fn sent(message: &layout::Message, context: *mut c_void, at: MonoNanos) -> Option<Handle> {
    let layout::Message { rank, peer, is_sent, bytes, channels, .. } = *message;
    let (number, local_rank) = member(context)?;
    let communicator = message.communicator.unwrap_or(number);
    let link = if is_sent { (rank, peer) } else { (peer, rank) };
    let message = Message::next(communicator, link, is_sent)?;
    let handle = Handle::new(kind(sampling::observes_message(local_rank)), local_rank);
    call_log::append(Entry::Message { handle, communicator, message, bytes, channels, at });
    Some(handle)
}

fn kind(is_observed: bool) -> Kind {
    if is_observed { Kind::Collective } else { Kind::Unobserved }
}

fn began(channel: &KernelChannel, at: MonoNanos) -> Option<Handle> {
    let (parent, Kind::Collective) = Handle::from_bits(channel.parent)? else { return None };
    let handle = Handle::new(Kind::Channel, parent.local_rank());
    call_log::append(Entry::Began { handle, parent, gpu: channel.gpu, at });
    Some(handle)
}

/// Returns the communicator number and the local rank of a context; `None` if that rank is not observed.
fn member(context: *mut c_void) -> Option<(u64, LocalRank)> {
    let member = COMMUNICATORS.get(context.addr().checked_sub(1)?)?;
    let local_rank =
        Some(member.local_rank.load(Ordering::Relaxed)).filter(|local_rank| *local_rank != NOBODY)?;
    Some((member.number.load(Ordering::Relaxed), LocalRank(local_rank)))
}

/// Logs the end of a channel if `state` is that of its end.
///
/// # Safety
/// `arguments` must be null or point to the arguments of `state`, of version `layout`.
unsafe fn record_event_state(
    layout: &Layout,
    handle: *mut c_void,
    state: c_int,
    arguments: *const c_void,
) -> c_int {
    if state == KERNEL_CHANNEL_STOP {
        // SAFETY: the caller guarantees that the arguments are those of this state.
        let gpu = unsafe { layout.stop_time(arguments) };
        host::guarded(|| sampling::timed(|| ended(handle, gpu)));
    }
    SUCCESS
}

/// Logs the end of an event if it carries information. The end of a collective is the end of its enqueueing, which
/// matters only if its kernel is not reported. The end of a channel was logged before, with the GPU's time, if the
/// interface reports that time.
fn stop_event(layout: &Layout, handle: *mut c_void) -> c_int {
    host::guarded(|| sampling::timed(|| stopped(layout, handle)));
    SUCCESS
}

fn stopped(layout: &Layout, handle: *mut c_void) {
    match Handle::from_bits(handle.addr() as u64) {
        Some((_, Kind::Channel)) if !layout.has_gpu_time() => ended(handle, None),
        Some((handle, Kind::Unobserved)) => issued(handle),
        Some((handle, Kind::Collective)) if !layout.has_kernels() => issued(handle),
        _ => {}
    }
}

fn issued(handle: Handle) {
    call_log::append(Entry::Issued { handle, at: agent::clock::now() });
}

fn ended(handle: *mut c_void, gpu: Option<u64>) {
    if let Some((handle, Kind::Channel)) = Handle::from_bits(handle.addr() as u64) {
        call_log::append(Entry::Ended { handle, gpu, at: agent::clock::now() });
    }
}

/// Ignores the end of a communicator. Its entries in the rings are still read.
unsafe extern "C" fn finalize(_context: *mut c_void) -> c_int {
    SUCCESS
}
