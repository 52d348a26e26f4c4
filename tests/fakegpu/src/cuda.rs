//! The functions of libcuda that tests use: devices, streams, events, copies and launches.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use crate::cupti;
use crate::machine::{self, Address, Machine, Work};
use crate::out::{SUCCESS, give};
use crate::time;

const INVALID_VALUE: c_int = 1;
const NOT_FOUND: c_int = 500;
const NOT_READY: c_int = 600;
/// The number of devices. Two ranks have one each, and four ranks share them. Both devices are of the same kind.
const DEVICES: c_int = 2;
const MEMORY: usize = 16 << 30;

type Handle = *mut c_void;

fn handle(number: u64) -> Handle {
    std::ptr::without_provenance_mut(number as usize)
}

fn number(handle: Handle) -> u64 {
    handle.addr() as u64
}

/// Changes the machine in a call that enqueues an operation. Such calls cost the host time.
fn enqueue<T>(change: impl FnOnce(&mut Machine) -> T) -> T {
    time::spend(time::CALL);
    machine::change(change)
}

/// Loads the tool that `CUDA_INJECTION64_PATH` names, once, as the driver does.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_int {
    static INJECT: Once = Once::new();
    INJECT.call_once(|| {
        let Some(path) = std::env::var_os("CUDA_INJECTION64_PATH") else { return };
        let Ok(path) = CString::new(path.into_encoded_bytes()) else { return };
        const NOW: c_int = 2;
        unsafe {
            let library = dlopen(path.as_ptr(), NOW);
            if library.is_null() {
                return;
            }
            let initialize = dlsym(library, c"InitializeInjection".as_ptr());
            if !initialize.is_null() {
                std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(initialize)();
            }
        }
    });
    SUCCESS
}

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    unsafe { give(version, 12_040) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    unsafe { give(count, DEVICES) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    if !(0..DEVICES).contains(&ordinal) {
        return 101;
    }
    unsafe { give(device, ordinal) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) -> c_int {
    let text = c"Fake GPU".to_bytes_with_nul();
    let room = len.max(0) as usize;
    if room < text.len() {
        return INVALID_VALUE;
    }
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(name: *mut c_char, len: c_int, device: c_int) -> c_int {
    let text = if device == 0 { c"0000:01:00.0" } else { c"0000:02:00.0" }.to_bytes_with_nul();
    if (len.max(0) as usize) < text.len() {
        return INVALID_VALUE;
    }
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> c_int {
    unsafe { give(bytes, MEMORY) }
}

/// Reports compute capability 9.0 and support for memory pools.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) -> c_int {
    let answer = match attribute {
        75 => 9,
        115 => 1,
        _ => 0,
    };
    unsafe { give(value, answer) }
}

/// Returns a device's memory pool, which has the same number as its context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int) -> c_int {
    unsafe { give(pool, handle(device as u64 + 1)) }
}

/// The freed bytes that each pool retains (`CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`). The default is 0, as in CUDA.
static KEPT: [AtomicU64; DEVICES as usize] = [const { AtomicU64::new(0) }; DEVICES as usize];
const RELEASE_THRESHOLD: c_uint = 4;

fn kept(pool: Handle, attribute: c_uint) -> Option<&'static AtomicU64> {
    let device = number(pool).checked_sub(1)? as usize;
    KEPT.get(device).filter(|_| attribute == RELEASE_THRESHOLD)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolSetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void) -> c_int {
    let Some(kept) = kept(pool, attribute) else { return INVALID_VALUE };
    kept.store(unsafe { value.cast::<u64>().read() }, Ordering::Relaxed);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolGetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void) -> c_int {
    let Some(kept) = kept(pool, attribute) else { return INVALID_VALUE };
    unsafe { give(value.cast::<u64>(), kept.load(Ordering::Relaxed)) }
}

/// Returns the context of a device. The current context of a thread does not matter for memory, which all devices
/// share.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> c_int {
    RETAINED.fetch_or(1 << device, Ordering::Relaxed);
    unsafe { give(context, handle(device as u64 + 1)) }
}

/// A bit mask of the devices whose context was retained.
static RETAINED: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> c_int {
    let is_active = RETAINED.load(Ordering::Relaxed) >> device & 1;
    unsafe { [give(flags, 0), give(active, is_active as c_int)][1] }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_int {
    SUCCESS
}

thread_local! {
    static CONTEXT: Cell<u64> = const { Cell::new(0) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> c_int {
    unsafe { give(context, handle(CONTEXT.get())) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: Handle) -> c_int {
    CONTEXT.set(number(context));
    SUCCESS
}

/// Returns 201 (`CUDA_ERROR_INVALID_CONTEXT`) if the thread has no context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> c_int {
    match CONTEXT.get() {
        0 => 201,
        context => unsafe { give(device, context as c_int - 1) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int {
    unsafe { give(least, 0) };
    unsafe { give(greatest, -5) }
}

/// Returns a name in CUDA's style. All codes have the same name, because no code depends on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(_code: c_int, name: *mut *const c_char) -> c_int {
    unsafe { give(name, c"CUDA_ERROR_OF_THE_FAKE_GPU".as_ptr()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_code: c_int, text: *mut *const c_char) -> c_int {
    unsafe { give(text, c"an error of the fake GPU".as_ptr()) }
}

/// Returns a module without reading its image. Kernels are identified by their names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, _image: *const c_void) -> c_int {
    let new = machine::change(Machine::handle);
    unsafe { give(module, handle(new)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(_module: Handle) -> c_int {
    SUCCESS
}

fn wait_for_stream(stream: u64) {
    let end = machine::wait(|machine| match machine.streams.get(&stream).copied().flatten() {
        None => Some(0),
        Some(op) => machine.done(op).map(|(_, end)| end),
    });
    time::wait_until(end);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) -> c_int {
    let new = machine::change(|machine| {
        let new = machine.handle();
        machine.streams.insert(new, None);
        new
    });
    unsafe { give(stream, handle(new)) }
}

/// Creates a stream without a priority. Streams do not compete for resources.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut Handle,
    flags: c_uint,
    _priority: c_int,
) -> c_int {
    unsafe { cuStreamCreate(stream, flags) }
}

/// Reports that nothing is being captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(_stream: Handle, status: *mut c_int) -> c_int {
    unsafe { give(status, 0) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuThreadExchangeStreamCaptureMode(_mode: *mut c_int) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: Handle) -> c_int {
    wait_for_stream(number(stream));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(_stream: Handle) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> c_int {
    enqueue(|machine| {
        if let Some(op) = machine.events.get(&number(event)).copied().flatten() {
            machine.enqueue_after(number(stream), op);
        }
    });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut Handle, _flags: c_uint) -> c_int {
    let new = machine::change(|machine| {
        let new = machine.handle();
        machine.events.insert(new, None);
        new
    });
    unsafe { give(event, handle(new)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: Handle) -> c_int {
    machine::change(|machine| machine.events.remove(&number(event)));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: Handle) -> c_int {
    let end = machine::wait(|machine| match machine.events.get(&number(event)).copied().flatten() {
        None => Some(0),
        Some(op) => machine.done(op).map(|(_, end)| end),
    });
    time::wait_until(end);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> c_int {
    enqueue(|machine| {
        let op = machine.enqueue(number(stream), Work::Mark);
        machine.events.insert(number(event), Some(op));
    });
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: Handle) -> c_int {
    let is_open = machine::change(|machine| {
        let op = machine.events.get(&number(event)).copied().flatten();
        op.is_some_and(|op| !machine.done(op).is_some_and(|(_, end)| time::has_come(end)))
    });
    if is_open { NOT_READY } else { SUCCESS }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(millis: *mut f32, start: Handle, end: Handle) -> c_int {
    let time = |machine: &Machine, event: Handle| {
        let op = machine.events.get(&number(event)).copied().flatten().ok_or(400)?;
        machine.done(op).map(|(_, end)| end).ok_or(NOT_READY)
    };
    let times = machine::change(|machine| Ok((time(machine, start)?, time(machine, end)?)));
    match times {
        // CUDA documents a resolution of half a microsecond. This double returns all that a 32-bit float can hold.
        Ok((start, end)) => unsafe { give(millis, ((end - start) as f64 / 1e6) as f32) },
        Err(code) => code,
    }
}

fn memory(bytes: usize) -> Box<[u128]> {
    vec![0_u128; bytes.div_ceil(16).max(1)].into_boxed_slice()
}

fn allocate(bytes: usize) -> u64 {
    let memory = memory(bytes);
    let address = memory.as_ptr().addr() as u64;
    machine::change(|machine| machine.allocations.insert(address, memory));
    address
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    machine::change(|machine| machine.allocations.remove(&address));
    SUCCESS
}

/// Allocates memory at once, before the stream reaches the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, _stream: Handle) -> c_int {
    unsafe { give(address, allocate(bytes)) }
}

/// Frees memory once the stream has finished the operations enqueued before.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(address: u64, stream: Handle) -> c_int {
    machine::change(|machine| machine.enqueue(number(stream), Work::Free { address }));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(address: *mut Handle, bytes: usize, _flags: c_uint) -> c_int {
    let memory = memory(bytes);
    let start = memory.as_ptr().addr() as u64;
    machine::change(|machine| machine.pinned.insert(start, memory));
    unsafe { give(address, handle(start)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(address: Handle) -> c_int {
    machine::change(|machine| machine.pinned.remove(&number(address)));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    unsafe { give(address, allocate(bytes)) }
}

fn is_pinned(machine: &Machine, address: u64) -> bool {
    let below = machine.pinned.range(..=address).next_back();
    below.is_some_and(|(start, memory)| address < start + size_of_val(&**memory) as u64)
}

/// Copies to the device. Pageable memory is read now, as CUDA stages it, because it may be freed before the copy runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    len: usize,
    stream: Handle,
) -> c_int {
    let (to, from) = (Address(to), Address(from.addr() as u64));
    enqueue(|machine| {
        let work = if is_pinned(machine, from.0) {
            Work::Copy { to, from, len }
        } else {
            Work::Put { to, bytes: from.bytes(len).to_vec() }
        };
        machine.enqueue(number(stream), work)
    });
    SUCCESS
}

/// Copies to the host. A copy to pageable memory is complete when the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    len: usize,
    stream: Handle,
) -> c_int {
    let work = Work::Copy { to: Address(number(to)), from: Address(from), len };
    let is_pinned = enqueue(|machine| {
        machine.enqueue(number(stream), work);
        is_pinned(machine, number(to))
    });
    if !is_pinned {
        wait_for_stream(number(stream));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(target: u64, value: u8, len: usize, stream: Handle) -> c_int {
    enqueue(|machine| machine.enqueue(number(stream), Work::Fill { to: Address(target), value, len }));
    SUCCESS
}

/// The functions by their handles. A module is only a set of function names.
static FUNCTIONS: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut Handle,
    _module: Handle,
    name: *const c_char,
) -> c_int {
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    if !KERNELS.contains(&name.as_str()) {
        return NOT_FOUND;
    }
    let new = machine::change(Machine::handle);
    FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner).insert(new, name);
    unsafe { give(function, handle(new)) }
}

const KERNELS: [&str; 4] = ["spin_ns", "stamp", "scale", "add_scaled"];

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: Handle,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    let name = FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner).get(&number(function)).cloned();
    let wide = |at: usize| unsafe { parameters.add(at).read().cast::<u64>().read_unaligned() };
    let work = match name.as_deref() {
        Some("spin_ns") => Work::Spin { nanos: wide(0) as i64 },
        Some("stamp") => Work::Stamp { to: Address(wide(0)) },
        Some(kernel @ ("scale" | "add_scaled")) => Work::Scale {
            to: Address(wide(0)),
            from: Address(wide(1)),
            factor: unsafe { parameters.add(2).read().cast::<f32>().read_unaligned() },
            len: wide(3) as usize,
            add: kernel == "add_scaled",
        },
        _ => return INVALID_VALUE,
    };
    enqueue(|machine| {
        let op = machine.enqueue(number(stream), work);
        cupti::launched(machine, op);
    });
    SUCCESS
}

/// Returns the calling thread's position in virtual time, in nanoseconds. For tests.
#[unsafe(no_mangle)]
pub extern "C" fn fakegpu_host_nanos() -> i64 {
    time::host()
}
