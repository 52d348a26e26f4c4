//! A test double of NCCL in a job of two or more ranks. It loads the profiler plugin that `NCCL_PROFILER_PLUGIN` names,
//! as NCCL does, and calls it as the requested version of the interface prescribes. The collectives are real: they run
//! between real processes on CPUs. The GPU is simulated: its "kernels" run in a separate thread, and their time stamps
//! come from a clock about five seconds ahead of the host's.
//!
//! Event descriptions are laid out by a table of NVIDIA's offsets (tests/golden/nccl_profiler.json), independently of
//! the plugin.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]
#![allow(unsafe_code, reason = "this program calls a plugin through C function pointers, as NCCL does")]
#![allow(clippy::print_stdout, reason = "the output of the program")]

mod device;
mod devices;
mod options;
mod plugin;
mod program;
mod rings;

use std::ffi::CString;
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context as _, bail, ensure};
use device::{Enqueued, Kernel};
use options::Options;
use plugin::{COLLECTIVE, Plugin};
use program::{Item, What};
use reducer::ring::{Config, Ring};
use wire::ids::Rank;

const COMMUNICATOR: u64 = 0xfeed_0000_0000_beef;

/// A group of ranks that reduce together.
pub(crate) struct Member {
    /// NCCL's number of the communicator.
    number: u64,
    /// The plugin's context of the communicator.
    context: usize,
}

/// Forks a child that calls the plugin and exits, like the worker of a data loader. The child must not be observed, and
/// must not wait for threads that it does not have.
fn fork_and_call(plugin: &Plugin, context: usize) -> anyhow::Result<()> {
    // SAFETY: the child only calls the plugin, which must handle that, and exits.
    match unsafe { libc::fork() } {
        -1 => bail!("cannot fork: {}", std::io::Error::last_os_error()),
        0 => std::process::exit(i32::from(
            plugin.start(context, COLLECTIVE, &[("coll.commHash", COMMUNICATOR)]) != 0,
        )),
        child => {
            let mut status = 0;
            // SAFETY: the process is a child of this one, and the status is a local variable.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            ensure!(waited == child && status == 0, "the child ended with {status:#x}");
            Ok(())
        }
    }
}

/// Calls the plugin as NCCL does when it enqueues operations.
struct Caller<'a> {
    plugin: &'a Plugin,
    groups: &'a [Member],
    rank: u32,
    /// The number of collectives of each group so far.
    seqs: Vec<u64>,
    queue: Sender<Enqueued>,
    /// Names in NCCL's spelling. Version 1 of the interface uses numbers instead.
    names: [CString; 4],
}

impl<'a> Caller<'a> {
    fn new(
        plugin: &'a Plugin,
        groups: &'a [Member],
        rank: u32,
        queue: Sender<Enqueued>,
    ) -> anyhow::Result<Self> {
        let name = |text: &str| CString::new(text);
        let names = [name("AllReduce")?, name("Send")?, name("Recv")?, name("ncclFloat32")?];
        Ok(Self { plugin, groups, rank, seqs: vec![0; groups.len()], queue, names })
    }

    /// Returns a name by its index (all-reduce, send, receive, float), as a pointer or as NCCL's number.
    fn name(&self, at: usize) -> u64 {
        let coded = self.plugin.version == 1;
        if coded { [4, 6, 7, 7][at] } else { self.names[at].as_ptr().addr() as u64 }
    }

    fn enqueue(&mut self, what: &What) -> anyhow::Result<()> {
        let (handles, kernel, group) = match what {
            What::Reduce { elements, group } => (
                vec![self.reduce(*elements, *group)],
                Kernel::Reduce { elements: *elements, ring: *group },
                *group,
            ),
            What::Messages { messages, kernel } => (self.messages(messages), *kernel, program::WORLD),
        };
        self.queue
            .send(Enqueued { handles, kernel, context: self.groups[group].context })
            .context("the device stopped")
    }

    fn reduce(&mut self, elements: usize, group: usize) -> usize {
        let Member { number, context } = self.groups[group];
        let Some(plan) = self.plugin.start_plan(context) else { return 0 };
        let handle = self.plugin.start(
            context,
            COLLECTIVE,
            &[
                ("rank", self.rank.into()),
                ("coll.commHash", number),
                ("coll.seqNumber", self.seqs[group]),
                ("coll.func", self.name(0)),
                ("coll.count", elements as u64),
                ("coll.datatype", self.name(3)),
                // NCCL uses fewer channels than available for small collectives.
                ("coll.nChannels", if elements > 1 << 15 { 2 } else { 8 }),
                ("coll.nMaxChannels", 8),
            ],
        );
        self.plugin.stop(handle);
        self.plugin.stop(plan);
        self.seqs[group] += 1;
        handle
    }

    /// Enqueues messages as one plan.
    fn messages(&self, messages: &[(u32, bool)]) -> Vec<usize> {
        let Member { number, context } = self.groups[program::WORLD];
        let Some(plan) = self.plugin.start_plan(context) else { return Vec::new() };
        let start = |&(peer, is_sent): &(u32, bool)| {
            let fields = [
                ("rank", self.rank.into()),
                ("p2p.commHash", number),
                ("p2p.func", self.name(if is_sent { 1 } else { 2 })),
                ("p2p.count", program::MESSAGE as u64),
                ("p2p.datatype", self.name(3)),
                ("p2p.peer", peer.into()),
                ("p2p.nChannels", 2),
            ];
            self.plugin.start_message(context, &fields)
        };
        let handles: Vec<usize> = messages.iter().map(start).collect();
        handles.iter().for_each(|&handle| self.plugin.stop(handle));
        self.plugin.stop(plan);
        handles
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::from_args()?;
    let mut config = Config::from_env()?;
    if options.together.is_some() && std::env::var_os("WORLD_SIZE").is_none() {
        // This mode has all ranks in one process, even under a launcher that sets ranks for processes.
        (config.rank, config.world_size) = (Rank(0), 1);
    }
    let plugin = Plugin::load(options.interface)?;
    let contexts = match options.together {
        Some(ranks) => together(&plugin, &options, &config, ranks)?,
        None => train(&plugin, &options, &config)?,
    };
    plugin.finalize(contexts);
    println!("{} steps", options.steps);
    Ok(ExitCode::from(options.exit_code))
}

/// Trains several ranks, each in its own thread and on its own device.
fn together(plugin: &Plugin, options: &Options, config: &Config, ranks: u32) -> anyhow::Result<Vec<usize>> {
    let master = match config.world_size {
        1 => TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string(),
        _ => config.master.clone(),
    };
    let train_rank = |ordinal: u32| {
        let (master, world_size) = (master.clone(), config.world_size * ranks);
        let rank = Rank(config.rank.0 * ranks + ordinal);
        let config = Config { rank, world_size, master, tcp_only: true, ..config.clone() };
        devices::take(ordinal)?;
        train(plugin, options, &config)
    };
    let train_rank = &train_rank;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|ordinal| scope.spawn(move || train_rank(ordinal))).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a rank panicked"))?);
        Ok(joined.collect::<anyhow::Result<Vec<_>>>()?.concat())
    })
}

/// Trains one rank and returns its contexts.
fn train(plugin: &Plugin, options: &Options, config: &Config) -> anyhow::Result<Vec<usize>> {
    let (rank, world_size) = (config.rank.0, config.world_size);
    let mut rings = vec![Ring::connect(config)?];
    let context = plugin.init(COMMUNICATOR, world_size, rank)?;
    let mut groups = vec![Member { number: COMMUNICATOR, context }];
    if options.pairs {
        let own = rings::joined(&mut rings[program::WORLD], config, &rings::pairs(world_size))?;
        rings.extend(own);
        let number = COMMUNICATOR + 1 + u64::from(rank / 2);
        groups.push(Member { number, context: plugin.init(number, 2, rank % 2)? });
    }
    if options.pipeline {
        let own = rings::joined(&mut rings[program::WORLD], config, &rings::chain(world_size))?;
        rings.extend(own);
    }
    println!("interface {}, mask {:#x}", options.interface, plugin.mask());
    let (queue, enqueued) = channel();
    let (done, over) = channel();
    thread::scope(|scope| -> anyhow::Result<()> {
        let device = scope.spawn(move || device::run(plugin, rings, &enqueued, &done));
        let mut caller = Caller::new(plugin, &groups, rank, queue)?;
        let program = program::items(options, rank, world_size);
        let mut under_way = 0;
        let wait = |under_way: &mut usize| -> anyhow::Result<()> {
            for _ in 0..std::mem::take(under_way) {
                over.recv().context("the device stopped")?;
            }
            Ok(())
        };
        for step in 0..options.steps {
            if options.forks && step == options.steps / 2 {
                fork_and_call(plugin, groups[program::WORLD].context)?;
            }
            for Item { compute, what, blocks } in &program {
                thread::sleep(*compute);
                caller.enqueue(what)?;
                under_way += 1;
                if *blocks {
                    wait(&mut under_way)?;
                }
            }
            wait(&mut under_way)?;
        }
        drop(caller);
        device.join().map_err(|_| anyhow::anyhow!("the device panicked"))?
    })?;
    Ok(groups.into_iter().map(|group| group.context).collect())
}
