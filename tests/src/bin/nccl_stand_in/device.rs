//! The simulated GPU.

use std::sync::mpsc::{Receiver, Sender};

use reducer::Communicator;
use reducer::ring::Ring;
use wire::ids::Rank;

use crate::plugin::{KERNEL_CHANNEL, Plugin};
use crate::program;

/// The difference of the GPU's clock and the host's, in nanoseconds.
const GPU_AHEAD: i64 = 5_000_000_123;
/// The number of channels of a kernel.
const CHANNELS: u64 = 2;

/// The operation that a kernel performs.
#[derive(Clone, Copy)]
pub(crate) enum Kernel {
    /// A sum over a ring.
    Reduce { elements: usize, ring: usize },
    /// A transfer from one rank of a ring of two to the other.
    Send { ring: usize, root: Rank },
}

/// A kernel in the queue of the GPU.
pub(crate) struct Enqueued {
    /// The plugin's handles of all operations that run in this kernel.
    pub(crate) handles: Vec<usize>,
    pub(crate) kernel: Kernel,
    /// The plugin's context of the communicator.
    pub(crate) context: usize,
}

fn now() -> u64 {
    (agent::clock::now().0 + GPU_AHEAD) as u64
}

/// Runs enqueued kernels in order. Reports them to the plugin slightly late, as NCCL's proxy thread does.
pub(crate) fn run(
    plugin: &Plugin,
    mut rings: Vec<Ring>,
    queue: &Receiver<Enqueued>,
    done: &Sender<()>,
) -> anyhow::Result<()> {
    for Enqueued { handles, kernel, context } in queue {
        let begin = now();
        let channels: Vec<usize> = handles
            .iter()
            // Versions 1 and 2 of the interface have no such event.
            .filter(|handle| **handle != 0 && plugin.version >= 3)
            .flat_map(|handle| (0..CHANNELS).map(move |channel| (*handle as u64, channel)))
            .map(|(handle, channel)| {
                let fields = [
                    ("parentObj", handle),
                    ("kernelCh.channelId", channel),
                    ("kernelCh.pTimer", begin + channel * 100),
                ];
                plugin.start(context, KERNEL_CHANNEL, &fields)
            })
            .collect();
        match kernel {
            Kernel::Reduce { elements, ring } => rings[ring].all_reduce(&mut vec![1.0; elements])?,
            Kernel::Send { ring, root } => {
                rings[ring].broadcast(root, &mut vec![0; program::MESSAGE * size_of::<f32>()])?;
            }
        }
        let end = now();
        channels.iter().for_each(|&channel| plugin.channel_stops(channel, end));
        if done.send(()).is_err() {
            break;
        }
    }
    Ok(())
}
