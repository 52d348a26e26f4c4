//! Tests of the fake GPU: its times agree with those computed by hand, and programs that look for a GPU find it. These
//! figures are not those of a GPU.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]
#![allow(unsafe_code, reason = "the fake GPU has a C interface like CUDA and NCCL")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::process::Command;
use std::ptr;

use anyhow::{Context as _, ensure};
use gpu::cupti::burst::{Burst, NoBurst, Recorded};
use gpu::cupti::records::Record;
use gpu::nvml::sampler::{SamplerSettings, Watch};
use serde_json::Value;
use testkit::fake_gpu::library;
use testkit::programs::program;
use wire::device::{DeviceFigure, throttle};

type Handle = *mut c_void;

/// Calls a function of CUDA or NCCL, which must return 0.
macro_rules! call {
    ($name:ident($($argument:expr => $type:ty),*)) => {{
        let result = answer!($name($($argument => $type),*));
        assert_eq!(result, 0, stringify!($name));
    }};
}

macro_rules! answer {
    ($name:ident($($argument:expr => $type:ty),*)) => {{
        // SAFETY: the types are those of cuda.h and nccl.h.
        unsafe {
            let function = library()
                .get::<unsafe extern "C" fn($($type),*) -> c_int>(stringify!($name).as_bytes())
                .expect("the fake GPU has the function");
            function($($argument),*)
        }
    }};
}

fn made(make: impl FnOnce(*mut Handle)) -> Handle {
    let mut handle = ptr::null_mut();
    make(&raw mut handle);
    handle
}

fn stream() -> Handle {
    made(|stream| call!(cuStreamCreate(stream => *mut Handle, 1 => c_uint)))
}

fn event() -> Handle {
    made(|event| call!(cuEventCreate(event => *mut Handle, 0 => c_uint)))
}

fn record(stream: Handle) -> Handle {
    let event = event();
    call!(cuEventRecord(event => Handle, stream => Handle));
    event
}

fn launch(kernel: &std::ffi::CStr, argument: u64, stream: Handle) {
    let function = made(|function| {
        call!(cuModuleGetFunction(function => *mut Handle, ptr::null_mut() => Handle, kernel.as_ptr() => *const c_char));
    });
    let mut argument = argument;
    let mut arguments = [(&raw mut argument).cast::<c_void>()];
    call!(cuLaunchKernel(
        function => Handle,
        1 => c_uint, 1 => c_uint, 1 => c_uint,
        1 => c_uint, 1 => c_uint, 1 => c_uint,
        0 => c_uint,
        stream => Handle,
        arguments.as_mut_ptr() => *mut Handle,
        ptr::null_mut() => *mut Handle
    ));
}

/// Returns the nanoseconds between two events, to the precision of a 32-bit float of milliseconds.
fn elapsed(from: Handle, to: Handle) -> i64 {
    let mut millis = f32::NAN;
    call!(cuEventElapsedTime(&raw mut millis => *mut f32, from => Handle, to => Handle));
    (f64::from(millis) * 1e6).round() as i64
}

#[test]
fn streams_run_concurrently_and_wait_for_events() {
    let (compute, comm) = (stream(), stream());
    let begin = record(compute);
    launch(c"spin_ns", 1_000_000, compute);
    let ready = record(compute);
    call!(cuStreamWaitEvent(comm => Handle, ready => Handle, 0 => c_uint));
    launch(c"spin_ns", 500_000, comm);
    let reduced = record(comm);
    launch(c"spin_ns", 2_000_000, compute);
    let done = record(compute);
    // The first kernel is launched one call (a microsecond) after the first event is recorded.
    assert_eq!(elapsed(begin, ready), 1_001_000);
    assert_eq!(elapsed(ready, reduced), 500_000);
    assert_eq!(elapsed(reduced, done), 1_500_000, "the second kernel did not begin at the end of the first");
    let mut stamp = 0_u64;
    launch(c"stamp", (&raw mut stamp).addr() as u64, comm);
    assert_eq!(stamp, 7_000_000_000 + 2_000 + 1_500_000, "the GPU's clock at the end of the other stream");
}

#[test]
fn a_device_retains_freed_memory_once_it_is_told_to() -> anyhow::Result<()> {
    library();
    let kept = || {
        let (mut kept, release_threshold) = (0_u64, 4);
        let pool = made(|pool| call!(cuDeviceGetDefaultMemPool(pool => *mut Handle, 1 => c_int)));
        let value = (&raw mut kept).cast();
        call!(cuMemPoolGetAttribute(pool => Handle, release_threshold => c_uint, value => Handle));
        kept
    };
    let device = gpu::device::Device::open(1)?;
    assert_eq!(kept(), 0, "the default of CUDA is 0");
    device.keep_memory()?;
    assert_eq!(kept(), u64::MAX);
    Ok(())
}

const FLOATS: usize = 1 << 18;
/// The nanoseconds of an all-reduce: 20 us plus 1 ns per five bytes.
const ALL_REDUCE: i64 = 20_000 + (4 * FLOATS as i64) / 5;

#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; 128]);

/// Joins a communicator and waits until all ranks have joined.
fn join(id: UniqueId, rank: c_int) -> Handle {
    let communicator = made(|communicator| {
        let joined = answer!(ncclCommInitRankConfig(
            communicator => *mut Handle, 2 => c_int, id => UniqueId, rank => c_int, ptr::null_mut() => Handle
        ));
        assert_eq!(joined, 7, "joining must return \"in progress\" without blocking");
    });
    while async_error(communicator) == 7 {
        std::thread::yield_now();
    }
    communicator
}

fn async_error(communicator: Handle) -> c_int {
    let mut error = -1;
    call!(ncclCommGetAsyncError(communicator => Handle, &raw mut error => *mut c_int));
    error
}

fn unique_id() -> UniqueId {
    let mut id = UniqueId([0; 128]);
    call!(ncclGetUniqueId(&raw mut id => *mut UniqueId));
    id
}

fn all_reduce(address: u64, communicator: Handle, stream: Handle) {
    let buffer = address as *mut c_void;
    call!(ncclAllReduce(
        buffer.cast_const() => *const c_void, buffer => Handle, FLOATS => usize, 7 => c_int, 0 => c_int,
        communicator => Handle, stream => Handle
    ));
}

fn device_floats(values: &[f32], stream: Handle) -> u64 {
    let (mut address, bytes) = (0, size_of_val(values));
    call!(cuMemAlloc_v2(&raw mut address => *mut u64, bytes => usize));
    call!(cuMemcpyHtoDAsync_v2(
        address => u64, values.as_ptr().cast() => *const c_void, bytes => usize, stream => Handle
    ));
    address
}

#[test]
fn a_collective_ends_for_all_ranks_after_the_last_one_starts() {
    let id = unique_id();
    let rank = move |rank: c_int| {
        let (communicator, stream) = (join(id, rank), stream());
        let address = device_floats(&vec![1.0 + rank as f32; FLOATS], stream);
        launch(c"spin_ns", if rank == 1 { 3_000_000 } else { 1_000_000 }, stream);
        let start = record(stream);
        all_reduce(address, communicator, stream);
        let end = record(stream);
        let mut sums = vec![0.0_f32; FLOATS];
        call!(cuMemcpyDtoHAsync_v2(
            sums.as_mut_ptr().cast() => Handle, address => u64, 4 * FLOATS => usize, stream => Handle
        ));
        assert!(sums.iter().all(|&sum| sum == 3.0));
        elapsed(start, end)
    };
    let [first, last] = [0, 1].map(|number| std::thread::spawn(move || rank(number)));
    let (first, last) = (first.join().expect("rank 0"), last.join().expect("rank 1"));
    assert_eq!(last, ALL_REDUCE);
    assert!((first - ALL_REDUCE - 2_000_000).abs() <= 1, "rank 0 took {first} ns");
}

#[test]
fn a_collective_waits_for_a_missing_rank_until_it_is_aborted() {
    let id = unique_id();
    let other = std::thread::spawn(move || join(id, 1).addr());
    let (communicator, stream) = (join(id, 0), stream());
    other.join().expect("rank 1 joins");
    let address = device_floats(&vec![1.0; FLOATS], stream);
    all_reduce(address, communicator, stream);
    let end = record(stream);
    let is_done = || answer!(cuEventQuery(end => Handle));
    assert_eq!(is_done(), 600, "CUDA_ERROR_NOT_READY");
    assert_eq!(async_error(communicator), 0);
    // SAFETY: the type is that of the fake GPU's declaration.
    let fail = unsafe { library().get::<unsafe extern "C" fn(Handle, c_int, c_int)>(b"fakegpu_nccl_fail") };
    // SAFETY: the communicator exists and has a rank 0.
    unsafe { fail.expect("the function exists")(communicator, 0, 6) };
    assert_eq!(async_error(communicator), 6, "ncclRemoteError");
    call!(ncclCommAbort(communicator => Handle));
    assert_eq!(is_done(), 0);
}

/// Acts as another tool that is subscribed to CUPTI. Its records must not be flushed without its request.
fn taken_by_another_tool(library: &Path) {
    type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
    type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
    extern "C" fn requested(_buffer: *mut *mut u8, _size: *mut usize, _most: *mut usize) {
        panic!("the records of the other tool were flushed");
    }
    extern "C" fn completed(
        _context: *mut c_void,
        _stream: u32,
        _buffer: *mut u8,
        _size: usize,
        _valid: usize,
    ) {
    }
    const KERNELS: c_uint = 10;
    testkit::fake_gpu::take_cupti(true);
    call!(cuptiActivityRegisterCallbacks(requested => Requested, completed => Completed));
    call!(cuptiActivityEnable(KERNELS => c_uint));
    launch(c"spin_ns", 7, stream());
    assert!(matches!(Burst::start(Some(library)), Err(NoBurst::Taken)), "another tool is subscribed");
    call!(cuptiActivityDisable(KERNELS => c_uint));
    testkit::fake_gpu::take_cupti(false);
}

#[test]
fn a_burst_records_every_kernel_and_copy_and_yields_to_other_tools() -> anyhow::Result<()> {
    let library = testkit::fake_gpu::path();
    let stream = stream();
    taken_by_another_tool(&library);
    let burst = Burst::start(Some(&library))?;
    ensure!(matches!(Burst::start(Some(&library)), Err(NoBurst::UnderWay)), "two bursts ran at a time");
    launch(c"spin_ns", 3_000, stream);
    // More records than one buffer can hold.
    (0..10_000).for_each(|_| launch(c"spin_ns", 5, stream));
    device_floats(&[1.0; 1_000], stream);
    let Recorded { records, dropped, foreign_buffers, is_realtime } = burst.finish()?;
    ensure!((dropped, foreign_buffers, is_realtime) == (0, 0, true));
    let own = records.iter().filter(|record| match record {
        Record::Kernel { place, .. } | Record::Memcpy { place, .. } => place.stream as usize == stream.addr(),
        _ => false,
    });
    let own: Vec<&Record> = own.collect();
    ensure!(own.len() == 10_002, "{} records", own.len());
    let Record::Kernel { times, name, .. } = own[0] else { anyhow::bail!("{:?} came first", own[0]) };
    ensure!(name == "spin_ns" && times.end - times.start == 3_000, "{:?}", own[0]);
    let Record::Memcpy { bytes, times, .. } = own[10_001] else {
        anyhow::bail!("{:?} came last", own[10_001])
    };
    ensure!(*bytes == 4_000 && times.end - times.start == 5_400, "{:?}", own[10_001]);
    let unfinished = Burst::start(Some(&library))?;
    launch(c"spin_ns", 7, stream);
    drop(unfinished);
    launch(c"spin_ns", 7, stream);
    let quiet = Burst::start(Some(&library))?.finish()?;
    let is_on_stream = |record: &&Record| matches!(record, Record::Kernel { place, .. } if place.stream as usize == stream.addr());
    ensure!(
        !quiet.records.iter().any(|record| is_on_stream(&record)),
        "kernels between bursts, or of an unfinished burst, were recorded"
    );
    Ok(())
}

#[test]
fn a_device_is_sampled_until_the_watch_is_dropped() -> anyhow::Result<()> {
    let (sender, samples) = std::sync::mpsc::channel();
    let wanted = SamplerSettings {
        pci_bus_id: "0000:02:00.0".into(),
        file: Some(testkit::fake_gpu::path()),
        now: agent::clock::now,
    };
    let watch = Watch::start(wanted.clone(), |_| (), move |sample| sender.send(sample).is_ok());
    let sample = samples.recv_timeout(std::time::Duration::from_secs(20))?;
    ensure!(sample.device == "Fake GPU at 0000:02:00.0", "{sample:?}");
    let expected = [
        (DeviceFigure::UtilizationPercent, 87),
        (DeviceFigure::MemoryUsedBytes, 4 << 30),
        (DeviceFigure::MemoryTotalBytes, 16 << 30),
        (DeviceFigure::PowerMilliwatts, 350_000),
        (DeviceFigure::SmClockMegahertz, 1_200),
        (DeviceFigure::SmClockMostMegahertz, 1_980),
        (DeviceFigure::MemoryClockMegahertz, 3_201),
        (DeviceFigure::TemperatureCelsius, 91),
        (DeviceFigure::ThrottleReasons, throttle::THERMAL),
        (DeviceFigure::XidErrors, 1),
        (DeviceFigure::LastXid, 79),
    ];
    // Figures without a function in the fake GPU are absent, as on a device that does not support them.
    ensure!(sample.figures.into_iter().eq(expected), "the figures differ");
    drop(watch);
    ensure!(samples.iter().count() <= 1, "the watch does not end when it is dropped");
    let elsewhere = SamplerSettings { pci_bus_id: "0000:03:00.0".into(), ..wanted };
    let (sender, samples) = std::sync::mpsc::channel();
    drop(Watch::start(elsewhere, |_| (), move |sample| sender.send(sample).is_ok()));
    ensure!(samples.iter().next().is_none(), "there is no such device");
    Ok(())
}

#[test]
fn doctor_finds_the_fake_devices_and_nccl() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for name in ["libcuda.so.1", "libnccl.so.2"] {
        std::os::unix::fs::symlink(program("libfakegpu.so"), folder.path().join(name))?;
    }
    let output = Command::new(program("paceline"))
        .args(["doctor", "--json"])
        .env_clear()
        .env("LD_LIBRARY_PATH", folder.path())
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let devices = found["driver"]["devices"].as_array().with_context(|| format!("no devices: {found}"))?;
    ensure!(devices.len() == 2 && devices[1]["pci_bus_id"] == "0000:02:00.0", "{found}");
    ensure!(devices[0]["name"] == "Fake GPU" && devices[0]["compute_capability"][0] == 9, "{found}");
    ensure!(found["driver"]["cuda"] == serde_json::json!([12, 4]), "{found}");
    let nccl = &found["nccl"];
    ensure!(
        nccl["version"]["minor"] == 28 && nccl["profiler_api"] == 5 && nccl["gpu_times"] == true,
        "{found}"
    );
    Ok(())
}
