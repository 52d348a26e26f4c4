//! Copies of the registers and the stack of another thread of this process, made by a signal handler that the thread runs.
#![allow(unsafe_code, reason = "a signal handler reads the registers of the thread that it interrupts")]

use std::cell::UnsafeCell;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use libc::{c_int, c_void, iovec, siginfo_t, ucontext_t};

/// The largest part of a stack that is copied, in bytes, from its newest frame on.
const MAX_STACK_BYTES: usize = 128 << 10;
const PAGE_BYTES: usize = 4_096;
/// The number of pages that the copied part of a stack lies in. It rarely begins with a page.
const PAGES: usize = MAX_STACK_BYTES / PAGE_BYTES + 1;
/// How long a thread may take until it runs the handler. A thread that blocks signals never does.
const PATIENCE: Duration = Duration::from_millis(20);
/// The time between two looks whether it has.
const LOOK_EVERY: Duration = Duration::from_micros(50);
/// The distance of the handler's signal from the first real-time signal. Programs that use such signals begin with the
/// first ones.
const AFTER_FIRST: c_int = 8;

/// The registers that unwinding begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    /// The address of the instruction.
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
    /// The frame pointer.
    pub frame: u64,
    /// The link register; 0 where there is none.
    pub link: u64,
}

/// A copy of a thread.
pub(super) struct Snapshot {
    pub registers: Registers,
    /// The stack from the stack pointer on.
    stack: Vec<u8>,
}

impl Snapshot {
    /// Returns the eight bytes at an address of the stack.
    pub(super) fn read(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.registers.stack)?).ok()?;
        Some(u64::from_ne_bytes(self.stack.get(at..at.checked_add(8)?)?.try_into().ok()?))
    }
}

/// The copy that a handler makes. The state says who may use it.
struct Copy(UnsafeCell<Copied>);

struct Copied {
    registers: Registers,
    bytes: usize,
    stack: [u8; MAX_STACK_BYTES],
}

// SAFETY: the handler uses it between COPYING and DONE, and the holder of `SNAPSHOTS` at all other times.
unsafe impl Sync for Copy {}

static COPY: Copy = Copy(UnsafeCell::new(Copied {
    registers: Registers { instruction: 0, stack: 0, frame: 0, link: 0 },
    bytes: 0,
    stack: [0; MAX_STACK_BYTES],
}));
/// The state of [`COPY`]: the system's number of the thread whose copy is wanted, and one of the following.
static STATE: AtomicU64 = AtomicU64::new(IDLE);
const IDLE: u64 = 0;
const WANTED: u64 = 1;
const COPYING: u64 = 2;
const DONE: u64 = 3;

fn state(thread: i32, what: u64) -> u64 {
    u64::from(thread.unsigned_abs()) << 2 | what
}

static SNAPSHOTS: Mutex<()> = Mutex::new(());

/// The right to take snapshots, which one thread has at a time.
pub(super) struct Snapshots {
    signal: c_int,
    _alone: MutexGuard<'static, ()>,
}

impl Snapshots {
    /// Installs the signal handler, if it is not installed yet. It stays installed, because a signal may arrive late.
    ///
    /// # Errors
    /// Returns the reason why there can be no handler.
    pub(super) fn begin() -> Result<Self, String> {
        static SIGNAL: OnceLock<Option<c_int>> = OnceLock::new();
        let signal = *SIGNAL.get_or_init(install);
        let signal = signal.ok_or("the program uses all real-time signals itself")?;
        Ok(Self { signal, _alone: SNAPSHOTS.lock().unwrap_or_else(PoisonError::into_inner) })
    }

    /// Returns a copy of a thread; `None` if the thread has ended, blocks signals, or its stack cannot be read.
    pub(super) fn copy(&self, thread: i32) -> Option<Snapshot> {
        STATE.store(state(thread, WANTED), Ordering::Release);
        // SAFETY: the call only sends a signal, whose handler is installed.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, self.signal) };
        if sent != 0 {
            STATE.store(IDLE, Ordering::Release);
            return None;
        }
        let end = Instant::now() + PATIENCE;
        while STATE.load(Ordering::Acquire) != state(thread, DONE) {
            if Instant::now() > end {
                let wanted = state(thread, WANTED);
                let gave_up = STATE.compare_exchange(wanted, IDLE, Ordering::AcqRel, Ordering::Acquire);
                if gave_up.is_ok() {
                    return None;
                }
                // The handler has begun. It ends soon, since it waits for nothing.
            }
            std::thread::sleep(LOOK_EVERY);
        }
        // SAFETY: the handler is done, and there is no other holder of `SNAPSHOTS`.
        let copied = unsafe { &*COPY.0.get() };
        let stack = copied.stack[..copied.bytes].to_vec();
        let snapshot = Snapshot { registers: copied.registers, stack };
        STATE.store(IDLE, Ordering::Release);
        (copied.bytes > 0).then_some(snapshot)
    }
}

/// Installs the handler for the first real-time signal, from [`AFTER_FIRST`] on, that has none.
fn install() -> Option<c_int> {
    let first = libc::SIGRTMIN() + AFTER_FIRST;
    (first..=libc::SIGRTMAX()).find(|&signal| {
        let mut present = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: without a new action, the call only writes the present one.
        let present = unsafe {
            if libc::sigaction(signal, ptr::null(), present.as_mut_ptr()) != 0 {
                return false;
            }
            present.assume_init()
        };
        if present.sa_sigaction != libc::SIG_DFL {
            return false;
        }
        // SAFETY: zero is a valid value of all fields, and the handler has the type that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const action, ptr::null_mut()) == 0
        }
    })
}

/// Copies the registers and the stack of the thread that it interrupts. Allocates nothing, takes no lock, and keeps `errno`.
extern "C" fn handle(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: each thread has an `errno`.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the call has no arguments.
    let own = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    let (wanted, copying) = (state(own, WANTED), state(own, COPYING));
    if STATE.compare_exchange(wanted, copying, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        // SAFETY: the state gives this handler the copy. The kernel passes the interrupted thread's context.
        unsafe { copy(&mut *COPY.0.get(), &*context.cast::<ucontext_t>()) };
        STATE.store(state(own, DONE), Ordering::Release);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn copy(copied: &mut Copied, context: &ucontext_t) {
    copied.registers = registers(context);
    let begin = copied.registers.stack as usize;
    // The kernel reads the stack for us, page by page, and stops at the first address that is not mapped.
    let mut remote = [iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PAGES];
    let mut at = begin;
    for page in &mut remote {
        let next = ((at / PAGE_BYTES + 1) * PAGE_BYTES).min(begin.saturating_add(MAX_STACK_BYTES));
        *page = iovec { iov_base: at as *mut c_void, iov_len: next - at };
        at = next;
    }
    let local = iovec { iov_base: copied.stack.as_mut_ptr().cast(), iov_len: MAX_STACK_BYTES };
    // SAFETY: the local address and length are those of the buffer. Remote addresses that are not mapped are an error.
    let read = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            &raw const local,
            1,
            remote.as_ptr(),
            PAGES as libc::c_ulong,
            0,
        )
    };
    copied.bytes = usize::try_from(read).unwrap_or(0);
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &ucontext_t) -> Registers {
    let register_value = |register: c_int| context.uc_mcontext.gregs[register as usize].cast_unsigned();
    Registers {
        instruction: register_value(libc::REG_RIP),
        stack: register_value(libc::REG_RSP),
        frame: register_value(libc::REG_RBP),
        link: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &ucontext_t) -> Registers {
    let all = &context.uc_mcontext;
    Registers { instruction: all.pc, stack: all.sp, frame: all.regs[29], link: all.regs[30] }
}
