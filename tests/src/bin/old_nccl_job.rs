//! A job like PyTorch with an NCCL from before the profiler interface. The loader resolves NCCL's functions, so that a
//! preloaded library comes first. The job has one rank, on the fake GPU in real time.
//!
//! A step has two buckets: 6 ms of backward, a collective, 3 ms of backward, a collective. With `--grouped`, both
//! collectives are in one group after 9 ms. With `--phases`, a step also has 2 ms of forward before and 1 ms of update
//! after, and the job calls the preloaded library where PyTorch's hooks do. With `--alone` there is no NCCL, and nothing
//! is reduced. With `--stages`, the job is the first of two pipeline stages: it sends after 6 ms, and receives what the
//! second stage computes for 3 ms. In practice the second stage is another process; here it is a thread that bypasses
//! any preloaded library.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]
#![allow(unsafe_code, reason = "this program calls CUDA and NCCL")]
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;

use anyhow::{Context as _, bail, ensure};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use testkit::fake_gpu::{Find, Handle, Launch};

/// The number of floats of each bucket.
const BUCKETS: [usize; 2] = [1 << 20, 1 << 18];
const BACKWARD: [u64; 2] = [6_000_000, 3_000_000];
/// The values of `ncclFloat32` and `ncclSum`.
const FLOAT: c_int = 7;
const SUM: c_int = 0;

/// The codes of phases in `attach/src/call_log.rs`.
const FORWARD: u8 = 2;
const BACKWARD_PASS: u8 = 3;
const UPDATE: u8 = 4;

type Init = unsafe extern "C" fn(*mut Handle, c_int, [u8; 128], c_int) -> c_int;
type AllReduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle) -> c_int;
type Message = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Handle, Handle) -> c_int;

/// Returns the first function of this name, as the loader binds it in a linked program.
///
/// # Safety
/// `F` must be the type of the function.
unsafe fn bound<F: Copy>(name: &CStr) -> anyhow::Result<F> {
    // SAFETY: the caller guarantees the type.
    unsafe { bound_in(libc::RTLD_DEFAULT, name) }
}

/// Returns a function of a library, or the first of its name.
///
/// # Safety
/// `F` must be the type of the function, and `library` must be a handle from the loader.
unsafe fn bound_in<F: Copy>(library: Handle, name: &CStr) -> anyhow::Result<F> {
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    ensure!(!found.is_null() && size_of::<F>() == size_of::<Handle>(), "there is no function {name:?}");
    // SAFETY: the caller guarantees the type, and the size was checked above.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

fn done(what: &str, code: c_int) -> anyhow::Result<()> {
    if code == 0 { Ok(()) } else { bail!("{what}: {code}") }
}

struct Options {
    steps: u64,
    grouped: bool,
    phases: bool,
    alone: bool,
    stages: bool,
}

fn options() -> anyhow::Result<Options> {
    let mut options = Options { steps: 200, grouped: false, phases: false, alone: false, stages: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--grouped" => options.grouped = true,
            "--phases" => options.phases = true,
            "--alone" => options.alone = true,
            "--stages" => options.stages = true,
            "--steps" => options.steps = words.next().context("--steps N")?.parse()?,
            _ => bail!("usage: old_nccl_job [--steps N] [--grouped | --phases | --alone | --stages]"),
        }
    }
    Ok(options)
}

struct Job {
    /// The library in which NCCL's functions are looked up.
    nccl: Handle,
    rank: c_int,
    spin: Handle,
    launch: Launch,
    compute: Handle,
    urgent: Handle,
    ready: Handle,
    communicator: Handle,
    memory: Vec<f32>,
}

/// Opens a library for good, as in a linked program.
fn open(file: &str) -> anyhow::Result<Handle> {
    // SAFETY: the fake GPU has no initializers.
    let library =
        unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) }.with_context(|| file.to_owned())?;
    Ok(library.into_raw())
}

impl Job {
    /// Starts rank `rank` of `ranks`; with 0 ranks, the job has no NCCL. The second stage bypasses preloaded libraries.
    fn start(rank: c_int, ranks: c_int) -> anyhow::Result<Self> {
        open("libcuda.so.1")?;
        let mut nccl = libc::RTLD_DEFAULT;
        if ranks > 0 {
            let library = open("libnccl.so.2")?;
            nccl = if rank == 0 { nccl } else { library };
        }
        let new = |name: &CStr| -> anyhow::Result<Handle> {
            let mut made = ptr::null_mut();
            // SAFETY: streams and events are created by functions of this type.
            let make = unsafe { bound::<unsafe extern "C" fn(*mut Handle, c_uint) -> c_int>(name)? };
            // SAFETY: one handle is written.
            done("a handle", unsafe { make(&raw mut made, 0) })?;
            Ok(made)
        };
        // SAFETY: the types and the arguments are those of cuda.h and nccl.h.
        unsafe {
            let (mut context, mut spin, mut communicator) =
                (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
            let retain: unsafe extern "C" fn(*mut Handle, c_int) -> c_int =
                bound(c"cuDevicePrimaryCtxRetain")?;
            let select: unsafe extern "C" fn(Handle) -> c_int = bound(c"cuCtxSetCurrent")?;
            let find: Find = bound(c"cuModuleGetFunction")?;
            let initialize: unsafe extern "C" fn(c_uint) -> c_int = bound(c"cuInit")?;
            done("the driver", initialize(0))?;
            done("a context", retain(&raw mut context, 0))?;
            done("a context", select(context))?;
            done("a kernel", find(&raw mut spin, ptr::null_mut(), c"spin_ns".as_ptr()))?;
            if ranks > 0 {
                let join = bound_in::<Init>(nccl, c"ncclCommInitRank")?;
                done("a communicator", join(&raw mut communicator, ranks, [7; 128], rank))?;
            }
            Ok(Self {
                nccl,
                rank,
                spin,
                launch: bound(c"cuLaunchKernel")?,
                compute: new(c"cuStreamCreate")?,
                urgent: new(c"cuStreamCreate")?,
                ready: new(c"cuEventCreate")?,
                communicator,
                memory: vec![1.0; BUCKETS[0]],
            })
        }
    }

    fn compute(&self, mut nanos: u64) -> anyhow::Result<()> {
        let mut arguments = [(&raw mut nanos).cast::<c_void>()];
        let (stream, arguments) = (self.compute, arguments.as_mut_ptr());
        // SAFETY: the kernel has one integer argument, which is read before the call returns.
        let code =
            unsafe { (self.launch)(self.spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, ptr::null_mut()) };
        done("a kernel", code)
    }

    /// Makes the urgent stream wait for the compute stream.
    fn join(&self) -> anyhow::Result<()> {
        self.order(self.compute, self.urgent)
    }

    /// Makes `then` wait for all work on `first`.
    fn order(&self, first: Handle, then: Handle) -> anyhow::Result<()> {
        // SAFETY: the types are those of cuda.h, and the handles belong to this job.
        unsafe {
            let record: unsafe extern "C" fn(Handle, Handle) -> c_int = bound(c"cuEventRecord")?;
            let wait: unsafe extern "C" fn(Handle, Handle, c_uint) -> c_int = bound(c"cuStreamWaitEvent")?;
            done("an event", record(self.ready, first))?;
            done("an event", wait(then, self.ready, 0))
        }
    }

    fn all_reduce(&mut self, len: usize) -> anyhow::Result<()> {
        let data = self.memory.as_mut_ptr().cast::<c_void>();
        // SAFETY: the type is that of nccl.h, and the memory is valid until the end of the step.
        let code = unsafe {
            let call = bound_in::<AllReduce>(self.nccl, c"ncclAllReduce")?;
            call(data, data, len, FLOAT, SUM, self.communicator, self.urgent)
        };
        done("ncclAllReduce", code)
    }

    /// Sends to the other stage, or receives from it.
    fn message(&mut self, name: &CStr, len: usize) -> anyhow::Result<()> {
        let data = self.memory.as_mut_ptr().cast::<c_void>();
        // SAFETY: as in `all_reduce`.
        let code = unsafe {
            let call = bound_in::<Message>(self.nccl, name)?;
            call(data, len, FLOAT, 1 - self.rank, self.communicator, self.urgent)
        };
        done("a message", code)
    }

    /// Runs a step of the first or the second stage. At the end, both stages reduce together.
    fn stage(&mut self) -> anyhow::Result<()> {
        let [sent, received] = BUCKETS;
        if self.rank == 0 {
            self.compute(BACKWARD[0])?;
            self.join()?;
            self.message(c"ncclSend", sent)?;
            self.message(c"ncclRecv", received)?;
        } else {
            self.message(c"ncclRecv", sent)?;
            self.order(self.urgent, self.compute)?;
            self.compute(BACKWARD[1])?;
            self.join()?;
            self.message(c"ncclSend", received)?;
        }
        self.all_reduce(received)?;
        self.finish()
    }

    fn step(&mut self, grouped: bool) -> anyhow::Result<()> {
        type Plain = unsafe extern "C" fn() -> c_int;
        if grouped {
            self.compute(BACKWARD.iter().sum())?;
            self.join()?;
            // SAFETY: the type is that of nccl.h.
            done("ncclGroupStart", unsafe { bound::<Plain>(c"ncclGroupStart")?() })?;
        }
        for (len, nanos) in BUCKETS.into_iter().zip(BACKWARD) {
            if !grouped {
                self.compute(nanos)?;
                self.join()?;
            }
            if !self.communicator.is_null() {
                self.all_reduce(len)?;
            }
        }
        if grouped {
            // SAFETY: the type is that of nccl.h.
            done("ncclGroupEnd", unsafe { bound::<Plain>(c"ncclGroupEnd")?() })?;
        }
        self.finish()
    }

    /// Runs a step whose phases the job reports. The update is not waited for, so the host is ahead of the device.
    fn step_of_phases(&mut self, phases: &Phases) -> anyhow::Result<()> {
        phases.run_phase(FORWARD, self, |job| job.compute(2_000_000))?;
        phases.run_phase(BACKWARD_PASS, self, |job| {
            for (len, nanos) in BUCKETS.into_iter().zip(BACKWARD) {
                job.compute(nanos)?;
                job.join()?;
                job.all_reduce(len)?;
            }
            Ok(())
        })?;
        self.order(self.urgent, self.compute)?;
        phases.run_phase(UPDATE, self, |job| job.compute(1_000_000))?;
        self.finish()
    }

    fn finish(&self) -> anyhow::Result<()> {
        // SAFETY: the type is that of cuda.h.
        let wait: unsafe extern "C" fn(Handle) -> c_int = unsafe { bound(c"cuStreamSynchronize")? };
        // SAFETY: the stream belongs to this job.
        done("the end of a step", unsafe { wait(self.urgent) })
    }
}

/// The library's functions for the phases of a device, and the numbers of three phases.
struct Phases {
    begins: extern "C" fn(i64, usize),
    ends: extern "C" fn(i64, u8, usize),
    numbers: [i64; 3],
}

impl Phases {
    fn from_preloaded_library() -> anyhow::Result<Self> {
        // SAFETY: the types are those of `attach/src/hooks/pytorch/device_phases.rs`.
        let (new, begins, ends) = unsafe {
            (
                bound::<extern "C" fn() -> i64>(c"paceline_pytorch_device_phase")?,
                bound(c"paceline_pytorch_device_begins")?,
                bound(c"paceline_pytorch_device_ends")?,
            )
        };
        Ok(Self { begins, ends, numbers: [new(), new(), new()] })
    }

    fn run_phase(
        &self,
        phase: u8,
        job: &mut Job,
        work: impl FnOnce(&mut Job) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (number, stream) = (self.numbers[usize::from(phase - FORWARD)], job.compute.expose_provenance());
        (self.begins)(number, stream);
        work(job)?;
        (self.ends)(number, phase, stream);
        Ok(())
    }
}

/// Runs the second stage.
fn other_stage(steps: u64) -> anyhow::Result<()> {
    let mut job = Job::start(1, 2)?;
    (0..steps).try_for_each(|_| job.stage())
}

fn main() -> anyhow::Result<()> {
    let options = options()?;
    let steps = options.steps;
    if options.stages {
        let other = std::thread::spawn(move || other_stage(steps));
        let mut job = Job::start(0, 2)?;
        (0..steps).try_for_each(|_| job.stage())?;
        other.join().map_err(|_| anyhow::anyhow!("the other stage panicked"))??;
    } else if options.phases {
        let mut job = Job::start(0, 1)?;
        let phases = Phases::from_preloaded_library()?;
        (0..steps).try_for_each(|_| job.step_of_phases(&phases))?;
    } else {
        let mut job = Job::start(0, if options.alone { 0 } else { 1 })?;
        (0..steps).try_for_each(|_| job.step(options.grouped))?;
    }
    println!("{steps} steps");
    Ok(())
}
