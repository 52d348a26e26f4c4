//! The work of a step.

use std::time::Duration;

use wire::ids::Rank;

use crate::device::Kernel;
use crate::options::Options;

/// The collectives of a step: the number of elements, and the milliseconds of backward before each.
const BUCKETS: [(usize, u64); 3] = [(1 << 16, 6), (1 << 18, 3), (1 << 14, 2)];
const FORWARD: Duration = Duration::from_millis(12);
/// The extra compute time of a slow rank.
const LATE: Duration = Duration::from_millis(10);
/// The number of elements that pairs reduce in forward.
const ACTIVATIONS: usize = 1 << 12;
/// The number of elements of a message.
pub(crate) const MESSAGE: usize = 1 << 12;
/// The micro-batches of a pipeline, and the compute time of a stage for each, forward and backward.
const MICRO_BATCHES: u32 = 4;
const STAGE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(4)];
/// The number of elements that a pipeline's ranks reduce at the end of a step: a norm.
const NORM: usize = 1;
/// The indices of a rank's groups and rings.
pub(crate) const WORLD: usize = 0;
const PAIR: usize = 1;

/// A part of a step: the rank computes, then enqueues an operation.
pub(crate) struct Item {
    pub(crate) compute: Duration,
    pub(crate) what: What,
    /// Whether the next computation needs the result.
    pub(crate) blocks: bool,
}

pub(crate) enum What {
    /// A reduction in a group.
    Reduce { elements: usize, group: usize },
    /// Simultaneous messages among all ranks. Each has the other rank, and whether this rank sends.
    Messages { messages: Vec<(u32, bool)>, kernel: Kernel },
}

/// Returns the parts of a step in order.
pub(crate) fn items(options: &Options, rank: u32, world_size: u32) -> Vec<Item> {
    let late = if options.slow == Some(rank) { LATE } else { Duration::ZERO };
    if options.pipeline {
        return stage(rank, world_size, late);
    }
    let forward = FORWARD + late;
    let layers = match (options.pairs, options.experts) {
        (true, _) => vec![
            What::Reduce { elements: ACTIVATIONS, group: PAIR },
            What::Reduce { elements: ACTIVATIONS, group: PAIR },
        ],
        (_, true) => vec![to_all(rank, world_size), to_all(rank, world_size)],
        _ => Vec::new(),
    };
    let in_layers = forward / layers.len().max(1) as u32;
    let mut left = if layers.is_empty() { forward } else { Duration::ZERO };
    let mut program: Vec<Item> =
        layers.into_iter().map(|what| Item { compute: in_layers, what, blocks: true }).collect();
    for (elements, millis) in BUCKETS {
        let compute = std::mem::take(&mut left) + Duration::from_millis(millis);
        program.push(Item { compute, what: What::Reduce { elements, group: WORLD }, blocks: false });
    }
    program
}

/// Returns messages to and from every other rank.
fn to_all(rank: u32, world_size: u32) -> What {
    let others = (0..world_size).filter(|other| *other != rank);
    let messages = others.flat_map(|other| [(other, true), (other, false)]).collect();
    What::Messages { messages, kernel: Kernel::Reduce { elements: MESSAGE, ring: WORLD } }
}

/// Returns the step of a pipeline stage: all micro-batches forward, then all backward.
fn stage(rank: u32, world_size: u32, late: Duration) -> Vec<Item> {
    let (previous, next) = (rank.checked_sub(1), Some(rank + 1).filter(|next| *next < world_size));
    let mut program = Vec::new();
    let mut compute = Duration::ZERO;
    let directions = [(previous, next, STAGE[0] + late / MICRO_BATCHES), (next, previous, STAGE[1])];
    for (source, target, takes) in directions {
        for _ in 0..MICRO_BATCHES {
            if let Some(source) = source {
                let compute = std::mem::take(&mut compute);
                program.push(Item { compute, what: message(rank, source, false), blocks: true });
            }
            compute += takes;
            if let Some(target) = target {
                let compute = std::mem::take(&mut compute);
                program.push(Item { compute, what: message(rank, target, true), blocks: false });
            }
        }
    }
    program.push(Item { compute, what: What::Reduce { elements: NORM, group: WORLD }, blocks: true });
    program
}

/// Returns a message over the ring with that neighbor. The first rank has only one such ring, the one with the next
/// rank.
fn message(rank: u32, peer: u32, is_sent: bool) -> What {
    let ring = if peer < rank || rank == 0 { 1 } else { 2 };
    let root = Rank(u32::from(is_sent == (rank > peer)));
    What::Messages { messages: vec![(peer, is_sent)], kernel: Kernel::Send { ring, root } }
}
