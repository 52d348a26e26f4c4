//! libnvidia-ml: two devices with constant values. The second one runs hot.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use std::sync::atomic::{AtomicBool, Ordering};

use crate::out::{SUCCESS, give};

const NOT_FOUND: c_int = 6;
/// The value of `nvmlClocksThrottleReasonSwThermalSlowdown`.
const THERMAL: c_ulonglong = 0x20;

/// The values of `NVML_ERROR_TIMEOUT` and `nvmlEventTypeXidCriticalError`.
const TIMEOUT: c_int = 10;
const XID_ERROR: c_ulonglong = 8;
/// The Xid error "GPU has fallen off the bus". The hot device reports it once per process.
const XID: c_ulonglong = 79;

type Device = *mut c_void;

/// The layout of `nvmlEventData_t`.
#[repr(C)]
pub struct EventData {
    device: Device,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

static HOT_IS_WATCHED: AtomicBool = AtomicBool::new(false);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(set: *mut Device) -> c_int {
    unsafe { give(set, std::ptr::without_provenance_mut(1)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(device: Device, _events: c_ulonglong, _set: Device) -> c_int {
    HOT_IS_WATCHED.fetch_or(is_hot(device), Ordering::Relaxed);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(_set: Device, data: *mut EventData, _millis: c_uint) -> c_int {
    if !HOT_IS_WATCHED.swap(false, Ordering::Relaxed) {
        return TIMEOUT;
    }
    let device = std::ptr::without_provenance_mut(2);
    let event = EventData { device, kind: XID_ERROR, data: XID, gpu_instance: 0, compute_instance: 0 };
    unsafe { give(data, event) }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(_set: Device) -> c_int {
    SUCCESS
}

fn is_hot(device: Device) -> bool {
    device.addr() == 2
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(bus: *const c_char, device: *mut Device) -> c_int {
    let number = match unsafe { CStr::from_ptr(bus) }.to_bytes() {
        b"0000:01:00.0" => 1,
        b"0000:02:00.0" => 2,
        _ => return NOT_FOUND,
    };
    unsafe { give(device, std::ptr::without_provenance_mut(number)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(_device: Device, name: *mut c_char, len: c_uint) -> c_int {
    let text = c"Fake GPU".to_bytes_with_nul();
    let len = text.len().min(len as usize);
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, len) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(_device: Device, rates: *mut [c_uint; 2]) -> c_int {
    unsafe { give(rates, [87, 40]) }
}

/// Writes an `nvmlMemory_v2_t`: version (and padding), total, reserved, free, used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(_device: Device, memory: *mut [u64; 5]) -> c_int {
    let version = unsafe { (*memory)[0] };
    unsafe { give(memory, [version, 16 << 30, 0, 12 << 30, 4 << 30]) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(_device: Device, milliwatts: *mut c_uint) -> c_int {
    unsafe { give(milliwatts, 350_000) }
}

/// Returns a clock: 1 is that of the multiprocessors, 2 that of the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(
    device: Device,
    clock: c_int,
    megahertz: *mut c_uint,
) -> c_int {
    let sm = if is_hot(device) { 1_200 } else { 1_980 };
    unsafe { give(megahertz, if clock == 1 { sm } else { 3_201 }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(
    _device: Device,
    _clock: c_int,
    megahertz: *mut c_uint,
) -> c_int {
    unsafe { give(megahertz, 1_980) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: Device,
    _sensor: c_int,
    celsius: *mut c_uint,
) -> c_int {
    unsafe { give(celsius, if is_hot(device) { 91 } else { 55 }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: Device,
    reasons: *mut c_ulonglong,
) -> c_int {
    unsafe { give(reasons, if is_hot(device) { THERMAL } else { 0 }) }
}
