//! What NCCL calls. Every function returns at once and says that all is well: a profiler that fails is a job that fails.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use wire::clock::MonoNanos;

use super::layout::{self, Description, KERNEL_CHANNEL_STOP, KernelChannel, Layout, event};
use crate::host;
use crate::marks;
use crate::messages::Message;
use crate::observer::{self, Communicator, Door};
use crate::sampling;
use crate::trail::{self, Entry, Handle, Kind, Seat};

/// `ncclSuccess`.
const SUCCESS: c_int = 0;
/// Communicators that are told apart in one process; those of later ones are not observed.
const MOST_COMMUNICATORS: usize = 4_096;

/// NCCL's own logger, which is not used.
type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);

/// The five functions, as all versions have them, but for `Init`.
#[repr(C)]
pub struct Table<Init> {
    /// What NCCL's log calls it.
    pub name: *const c_char,
    /// A communicator is made: a context for it, and the mask of events that are wanted.
    pub init: Init,
    /// An event starts: its handle.
    pub start_event: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const c_void) -> c_int,
    /// An event stops.
    pub stop_event: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// An event enters a state.
    pub record_event_state: unsafe extern "C" fn(*mut c_void, c_int, *const c_void) -> c_int,
    /// A communicator is gone.
    pub finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: a table is constant, and so is the name that it points to.
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
                // SAFETY: NCCL calls the table of the version that it speaks.
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

/// A rank's part of a communicator.
struct Member {
    number: AtomicU64,
    seat: AtomicU8,
}

/// No rank that is observed.
const NOBODY: u8 = u8::MAX;

/// By context less one. A context is such an index, never a pointer: there is nothing to free and nothing to follow.
static COMMUNICATORS: [Member; MOST_COMMUNICATORS] =
    [const { Member { number: AtomicU64::new(0), seat: AtomicU8::new(NOBODY) } }; MOST_COMMUNICATORS];
static NEXT_CONTEXT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn init_v1(context: *mut *mut c_void, mask: *mut c_int) -> c_int {
    // SAFETY: NCCL passes two places to write to.
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
    // SAFETY: as above.
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
    // SAFETY: as above.
    unsafe {
        begin(context, mask, Some(Communicator { number, size: size as u32, rank: u32::try_from(rank).ok() }))
    }
}

/// A communicator was made.
///
/// # Safety
/// Both pointers must be good to write to.
unsafe fn begin(context: *mut *mut c_void, mask: *mut c_int, communicator: Option<Communicator>) -> c_int {
    let seat = host::guarded(|| is_sound().then(|| observer::begin(Door::Plugin, communicator))?);
    let at = NEXT_CONTEXT.fetch_add(1, Ordering::Relaxed).min(MOST_COMMUNICATORS);
    if let Some(slot) = COMMUNICATORS.get(at) {
        slot.number.store(communicator.map_or(0, |communicator| communicator.number), Ordering::Relaxed);
        slot.seat.store(seat.map_or(NOBODY, |seat| seat.0), Ordering::Relaxed);
    }
    // The mask is one for all communicators of the process.
    let is_wanted = host::guarded(|| is_sound() && observer::is_observed());
    let wanted = if is_wanted { (event::COLLECTIVE | event::KERNEL_CHANNEL) as c_int } else { 0 };
    // SAFETY: the caller vouches for it. A null context would never be finalized.
    unsafe {
        context.write(ptr::without_provenance_mut(at + 1));
        mask.write(wanted);
    }
    SUCCESS
}

/// False where this release of NCCL is known to go wrong with a profiler; said once. (Another door may be open.)
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

/// # Safety
/// `handle` must be good to write to, and `description` an event's description by `layout`.
unsafe fn start_event(
    layout: &Layout,
    context: *mut c_void,
    handle: *mut *mut c_void,
    description: *const c_void,
) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        // First of all: NCCL hands back whatever it finds there.
        handle.write(ptr::null_mut());
        let bits = host::guarded(|| sampling::timed(|| started(layout.description(description), context)));
        handle.write(ptr::without_provenance_mut(bits as usize));
    }
    SUCCESS
}

/// Leaves an entry of an event that starts; its handle, or 0.
fn started(description: Description, context: *mut c_void) -> u64 {
    let at = agent::clock::now();
    let handle = match description {
        Description::Collective(collective) => enqueued(&collective, context, at),
        Description::Message(message) => sent(&message, context, at),
        Description::KernelChannel(channel) => began(&channel, at),
        // NCCL before 2.28 tells nothing of what is in a group without a handle.
        Description::Group => {
            Message::begin_batch();
            Some(Handle::GROUP)
        }
        Description::Other => None,
    };
    handle.map_or(0, Handle::to_bits)
}

fn enqueued(collective: &layout::Collective, context: *mut c_void, at: MonoNanos) -> Option<Handle> {
    let (number, seat) = member(context)?;
    let communicator = collective.communicator.unwrap_or(number);
    let is_observed = sampling::observes(seat, communicator, collective.function, collective.seq);
    let handle = Handle::new(kind(is_observed), seat);
    trail::append(Entry::Enqueued {
        handle,
        communicator,
        function: collective.function,
        seq: collective.seq,
        bytes: collective.bytes,
        channels: collective.channels,
        begins: marks::begins(communicator),
        at,
    });
    Some(handle)
}

fn sent(message: &layout::Message, context: *mut c_void, at: MonoNanos) -> Option<Handle> {
    let layout::Message { rank, peer, is_sent, bytes, channels, .. } = *message;
    let (number, seat) = member(context)?;
    let communicator = message.communicator.unwrap_or(number);
    let way = if is_sent { (rank, peer) } else { (peer, rank) };
    let message = Message::next(communicator, way, is_sent)?;
    let handle = Handle::new(kind(sampling::observes_message(seat)), seat);
    trail::append(Entry::Message { handle, communicator, message, bytes, channels, at });
    Some(handle)
}

fn kind(is_observed: bool) -> Kind {
    if is_observed { Kind::Collective } else { Kind::Unobserved }
}

fn began(channel: &KernelChannel, at: MonoNanos) -> Option<Handle> {
    let (parent, Kind::Collective) = Handle::from_bits(channel.parent)? else { return None };
    let handle = Handle::new(Kind::Channel, parent.seat());
    trail::append(Entry::Began { handle, parent, gpu: channel.gpu, at });
    Some(handle)
}

/// What a context is for: the communicator's number, and which of this process's ranks; `None` where that is not
/// observed.
fn member(context: *mut c_void) -> Option<(u64, Seat)> {
    let member = COMMUNICATORS.get(context.addr().checked_sub(1)?)?;
    let seat = Some(member.seat.load(Ordering::Relaxed)).filter(|seat| *seat != NOBODY)?;
    Some((member.number.load(Ordering::Relaxed), Seat(seat)))
}

/// # Safety
/// `arguments` must be the arguments of `state`, by `layout`.
unsafe fn record_event_state(
    layout: &Layout,
    handle: *mut c_void,
    state: c_int,
    arguments: *const c_void,
) -> c_int {
    if state == KERNEL_CHANNEL_STOP {
        // SAFETY: the caller vouches for it.
        let gpu = unsafe { layout.stop_time(arguments) };
        host::guarded(|| sampling::timed(|| ended(handle, gpu)));
    }
    SUCCESS
}

/// The end of a collective is the end of its enqueueing, which says nothing where its kernel is told of; that of a
/// channel was told before, with the GPU's time, where the interface has it.
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
    trail::append(Entry::Issued { handle, at: agent::clock::now() });
}

fn ended(handle: *mut c_void, gpu: Option<u64>) {
    if let Some((handle, Kind::Channel)) = Handle::from_bits(handle.addr() as u64) {
        trail::append(Entry::Ended { handle, gpu, at: agent::clock::now() });
    }
}

/// A communicator is gone. What it left in the rings is still read.
unsafe extern "C" fn finalize(_context: *mut c_void) -> c_int {
    SUCCESS
}
