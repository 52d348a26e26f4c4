//! Stands in for NCCL in a job of two and more ranks: loads the profiler plugin that `NCCL_PROFILER_PLUGIN` names, as
//! NCCL does, and calls it as the version of the interface that is asked for. The collectives are real, between real
//! processes, on CPUs; what is simulated is the GPU: "kernels" run in a thread of their own and are stamped with a clock
//! that is five seconds and something ahead of the host's.
//!
//! Descriptions are laid out by a table of NVIDIA's offsets (tests/golden/nccl_profiler.json), not by the plugin's.
#![allow(unsafe_code, reason = "it calls a plugin through C function pointers, as NCCL does")]
#![allow(clippy::print_stdout, reason = "what the program is for")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::net::TcpListener;
use std::process::ExitCode;
use std::ptr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use reducer::Communicator;
use reducer::ring::{Config, Ring};
use serde_json::Value;
use wire::ids::Rank;

const GOLDEN: &str = include_str!("../../golden/nccl_profiler.json");
/// The GPU's clock less the host's, in nanoseconds.
const GPU_AHEAD: i64 = 5_000_000_123;
/// The collectives of a step: elements, and milliseconds of backward before each.
const BUCKETS: [(usize, u64); 3] = [(1 << 16, 6), (1 << 18, 3), (1 << 14, 2)];
const FORWARD: Duration = Duration::from_millis(12);
/// Elements of what pairs reduce in forward.
const ACTIVATIONS: usize = 1 << 12;
/// The groups of a rank.
const WORLD: usize = 0;
const PAIR: usize = 1;
const COMMUNICATOR: u64 = 0xfeed_0000_0000_beef;
const COLLECTIVE: u64 = 1 << 1;
const KERNEL_CHANNEL: u64 = 1 << 6;
const KERNEL_CHANNEL_STOP: c_int = 22;

type InitV1 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
type InitV4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type InitV5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type Start = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
type Stop = unsafe extern "C" fn(*mut c_void) -> c_int;
type Record = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;

/// A plugin, loaded, as one version of the interface.
struct Plugin {
    library: Option<Library>,
    version: u32,
    layout: Value,
    table: *const c_void,
    mask: u64,
}

// SAFETY: a plugin's functions may be called from any thread; that is how NCCL uses it.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

impl Plugin {
    fn load(version: u32) -> anyhow::Result<Self> {
        let path = std::env::var_os("NCCL_PROFILER_PLUGIN").context("NCCL_PROFILER_PLUGIN is not set")?;
        // SAFETY: what the test names.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
        let symbol = format!("ncclProfiler_v{version}");
        // SAFETY: the symbol is a table of functions.
        let table = unsafe { library.get::<*const c_void>(symbol.as_bytes()) }?.into_raw().cast_const();
        let golden: Value = serde_json::from_str(GOLDEN)?;
        let mut layout = golden["versions"][version.to_string()].clone();
        layout["type_bytes"] = golden["type_bytes"][version.to_string()].clone();
        Ok(Self { library: Some(library), version, layout, table, mask: 0 })
    }

    /// One of the functions, by its place in the table.
    fn function<F: Copy>(&self, at: usize) -> F {
        assert_eq!(size_of::<F>(), size_of::<*const c_void>(), "a function pointer");
        // SAFETY: all versions have five functions after the name, in this order.
        unsafe { self.table.byte_add(8 * at).cast::<F>().read() }
    }

    /// A communicator is made; the plugin's context for it.
    fn init(&mut self, number: u64, ranks: u32, rank: u32) -> anyhow::Result<usize> {
        let (ranks, rank) = (ranks as c_int, rank as c_int);
        let (mut context, mut mask) = (ptr::null_mut(), 0);
        let (context_at, mask_at) = (&raw mut context, &raw mut mask);
        // SAFETY: the signatures are those of the versions.
        let result = unsafe {
            match self.version {
                1..=3 => self.function::<InitV1>(1)(context_at, mask_at),
                4 => self.function::<InitV4>(1)(
                    context_at,
                    mask_at,
                    ptr::null(),
                    number,
                    1,
                    ranks,
                    rank,
                    ptr::null(),
                ),
                _ => self.function::<InitV5>(1)(
                    context_at,
                    number,
                    mask_at,
                    ptr::null(),
                    1,
                    ranks,
                    rank,
                    ptr::null(),
                ),
            }
        };
        if result != 0 || context.is_null() {
            bail!("init: {result}, context {context:?}");
        }
        self.mask = mask as u64;
        Ok(context.addr())
    }

    /// Puts fields where this version has them, and starts an event; its handle.
    fn start(&self, context: usize, kind: u64, fields: &[(&str, u64)]) -> usize {
        if self.mask & kind == 0 {
            return 0;
        }
        let bytes = self.layout["descriptor_bytes"].as_u64().expect("a size") as usize;
        let mut description = vec![0_u64; bytes.div_ceil(8)];
        let at: &mut [u8] = bytemuck::cast_slice_mut(&mut description);
        let type_bytes = self.layout["type_bytes"].as_u64().expect("a size") as usize;
        at[..type_bytes].copy_from_slice(&kind.to_le_bytes()[..type_bytes]);
        for (name, value) in fields {
            let Some(offset) = self.layout["offsets"][*name].as_u64() else { continue };
            let width = match *name {
                "coll.nChannels" | "coll.nMaxChannels" | "kernelCh.channelId" => 1,
                "coll.func" | "coll.datatype" if self.version == 1 => 1,
                _ => 8,
            };
            let offset = offset as usize;
            at[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        let mut handle = ptr::null_mut();
        let context = ptr::without_provenance_mut(context);
        // SAFETY: the description is laid out as this version has it.
        let result =
            unsafe { self.function::<Start>(2)(context, &raw mut handle, description.as_mut_ptr().cast()) };
        assert_eq!(result, 0, "startEvent");
        handle.addr()
    }

    fn stop(&self, handle: usize) {
        if handle != 0 {
            // SAFETY: it is a handle of this plugin's.
            let result = unsafe { self.function::<Stop>(3)(ptr::without_provenance_mut(handle)) };
            assert_eq!(result, 0, "stopEvent");
        }
    }

    /// A channel of a kernel stops; NCCL says so with the GPU's time from version 4 on.
    fn channel_stops(&self, handle: usize, gpu: u64) {
        if handle != 0 && self.version >= 4 {
            let mut arguments = [gpu, 0];
            let (handle, at) = (ptr::without_provenance_mut(handle), arguments.as_mut_ptr().cast());
            // SAFETY: the arguments of this state are the time.
            let result = unsafe { self.function::<Record>(4)(handle, KERNEL_CHANNEL_STOP, at) };
            assert_eq!(result, 0, "recordEventState");
        }
        self.stop(handle);
    }

    /// The last communicator is gone: NCCL closes the plugin, whose threads are still there.
    fn finalize(mut self, contexts: impl IntoIterator<Item = usize>) {
        for context in contexts {
            // SAFETY: the context is this plugin's.
            let result = unsafe { self.function::<Stop>(5)(ptr::without_provenance_mut(context)) };
            assert_eq!(result, 0, "finalize");
        }
        drop(self.library.take());
    }
}

fn gpu_now() -> u64 {
    (agent::clock::now().0 + GPU_AHEAD) as u64
}

/// Who reduces together.
struct Group {
    /// As NCCL numbers communicators.
    number: u64,
    /// The plugin's.
    context: usize,
}

/// A collective that was enqueued.
struct Enqueued {
    handle: usize,
    elements: usize,
    /// Which of the rank's groups.
    group: usize,
}

/// The GPU: runs what is enqueued in order, and tells the plugin as NCCL's proxy thread does, a little late.
fn device(
    plugin: &Plugin,
    groups: &[Group],
    mut rings: Vec<Ring>,
    queue: &Receiver<Enqueued>,
    done: &Sender<()>,
) -> anyhow::Result<()> {
    for Enqueued { handle, elements, group } in queue {
        let begin = gpu_now();
        let channels: Vec<usize> = (0..2)
            .map(|channel| {
                let fields = [
                    ("parentObj", handle as u64),
                    ("kernelCh.channelId", channel),
                    ("kernelCh.pTimer", begin + channel * 100),
                ];
                // Versions 1 and 2 have no such event.
                if handle == 0 || plugin.version < 3 {
                    0
                } else {
                    plugin.start(groups[group].context, KERNEL_CHANNEL, &fields)
                }
            })
            .collect();
        rings[group].all_reduce(&mut vec![1.0; elements])?;
        let end = gpu_now();
        channels.iter().for_each(|&channel| plugin.channel_stops(channel, end));
        if done.send(()).is_err() {
            break;
        }
    }
    Ok(())
}

/// A child of an observed process, as a data loader's worker is one, calls the plugin and ends: it must not be observed,
/// and must not wait for threads that it does not have.
fn fork_and_call(plugin: &Plugin, context: usize) -> anyhow::Result<()> {
    // SAFETY: the child calls the plugin, which must cope, and exits.
    match unsafe { libc::fork() } {
        -1 => bail!("cannot fork: {}", std::io::Error::last_os_error()),
        0 => std::process::exit(i32::from(
            plugin.start(context, COLLECTIVE, &[("coll.commHash", COMMUNICATOR)]) != 0,
        )),
        child => {
            let mut status = 0;
            // SAFETY: it is our child, and the status is ours to write.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            ensure!(waited == child && status == 0, "the child ended with {status:#x}");
            Ok(())
        }
    }
}

struct Options {
    interface: u32,
    steps: u64,
    slow: Option<u32>,
    forks: bool,
    pairs: bool,
    exit_code: u8,
}

fn options() -> anyhow::Result<Options> {
    let mut options =
        Options { interface: 5, steps: 150, slow: None, forks: false, pairs: false, exit_code: 0 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--fork" {
            options.forks = true;
            continue;
        }
        if word == "--pairs" {
            options.pairs = true;
            continue;
        }
        let number = words.next().and_then(|number| number.parse().ok());
        match (word.as_str(), number) {
            ("--interface", Some(number @ 1..=6)) => options.interface = number,
            ("--steps", Some(number)) => options.steps = u64::from(number),
            ("--slow-rank", Some(number)) => options.slow = Some(number),
            ("--exit-code", Some(number)) => options.exit_code = number.try_into()?,
            _ => bail!(
                "usage: nccl_stand_in [--interface 1..6] [--steps N] [--slow-rank R] [--fork] [--pairs] [--exit-code N]"
            ),
        }
    }
    Ok(options)
}

/// The ring of this rank and its neighbour: those that reduce activations where a layer is split over two ranks.
fn pair(world: &mut Ring, config: &Config) -> anyhow::Result<Ring> {
    let rank = config.rank.0;
    let mut own = None;
    for first in (0..config.world_size).step_by(2) {
        let mut port = Vec::new();
        if rank == first {
            port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_le_bytes().to_vec();
        }
        world.broadcast(Rank(first), &mut port)?;
        if rank / 2 == first / 2 {
            own = Some(u16::from_le_bytes(port.try_into().ok().context("a port has two bytes")?));
        }
    }
    let master = format!("127.0.0.1:{}", own.context("ranks come in pairs")?);
    Ok(Ring::connect(&Config { rank: Rank(rank % 2), world_size: 2, master, ..config.clone() })?)
}

/// What a step does, in order: milliseconds of compute, then a collective of so many elements in a group.
fn program(options: &Options, rank: u32) -> Vec<(Duration, usize, usize)> {
    let late = if options.slow == Some(rank) { Duration::from_millis(10) } else { Duration::ZERO };
    let mut program = Vec::new();
    let mut forward = FORWARD + late;
    if options.pairs {
        // Two layers.
        program = vec![(forward / 2, ACTIVATIONS, PAIR); 2];
        forward = Duration::ZERO;
    }
    for (elements, millis) in BUCKETS {
        program.push((std::mem::take(&mut forward) + Duration::from_millis(millis), elements, WORLD));
    }
    program
}

fn main() -> anyhow::Result<ExitCode> {
    let options = options()?;
    let config = Config::from_env()?;
    let mut rings = vec![Ring::connect(&config)?];
    let (rank, world_size) = (config.rank.0, config.world_size);
    let mut plugin = Plugin::load(options.interface)?;
    let context = plugin.init(COMMUNICATOR, world_size, rank)?;
    let mut groups = vec![Group { number: COMMUNICATOR, context }];
    if options.pairs {
        let ring = pair(&mut rings[WORLD], &config)?;
        rings.push(ring);
        let number = COMMUNICATOR + 1 + u64::from(rank / 2);
        groups.push(Group { number, context: plugin.init(number, 2, rank % 2)? });
    }
    println!("interface {}, mask {:#x}", options.interface, plugin.mask);
    let (function, datatype) = (CString::new("AllReduce")?, CString::new("ncclFloat32")?);
    let coded = options.interface == 1;
    let name = |text: &CString, code: u64| if coded { code } else { text.as_ptr().addr() as u64 };
    let (enqueue, queue) = channel();
    let (done, reduced) = channel();
    let (calls, to_all) = (&plugin, &groups);
    thread::scope(|scope| -> anyhow::Result<()> {
        let device = scope.spawn(move || device(calls, to_all, rings, &queue, &done));
        let mut seqs = vec![0; groups.len()];
        let program = program(&options, rank);
        for step in 0..options.steps {
            if options.forks && step == options.steps / 2 {
                fork_and_call(calls, groups[WORLD].context)?;
            }
            for &(compute, elements, group) in &program {
                thread::sleep(compute);
                let handle = calls.start(
                    groups[group].context,
                    COLLECTIVE,
                    &[
                        ("coll.commHash", groups[group].number),
                        ("coll.seqNumber", seqs[group]),
                        ("coll.func", name(&function, 4)),
                        ("coll.count", elements as u64),
                        ("coll.datatype", name(&datatype, 7)),
                        // NCCL spreads small collectives over fewer channels than it was given.
                        ("coll.nChannels", if elements > 1 << 15 { 2 } else { 8 }),
                        ("coll.nMaxChannels", 8),
                    ],
                );
                calls.stop(handle);
                seqs[group] += 1;
                if enqueue.send(Enqueued { handle, elements, group }).is_err() {
                    break;
                }
                // What a layer makes of activations, the next one needs.
                if group == PAIR {
                    reduced.recv().context("the device stopped")?;
                }
            }
            for _ in BUCKETS {
                reduced.recv().context("the device stopped")?;
            }
        }
        drop(enqueue);
        device.join().map_err(|_| anyhow::anyhow!("the device panicked"))?
    })?;
    plugin.finalize(groups.into_iter().map(|group| group.context));
    println!("{} steps", options.steps);
    Ok(ExitCode::from(options.exit_code))
}
