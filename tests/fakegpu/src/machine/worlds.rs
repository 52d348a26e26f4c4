//! Communicators: their ranks, each rank's part of a collective, and the work of collectives.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;

use super::{Address, Machine, OpId, What};
use crate::time;

/// The kind of a collective.
#[derive(Clone, Copy)]
pub(crate) enum Function {
    AllReduce,
    ReduceScatter,
    AllGather,
    /// A message from the first of two ranks to the second.
    Send,
}

impl Function {
    /// Returns the name of the kernel.
    fn kernel(self) -> &'static CStr {
        match self {
            Self::AllReduce => c"ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            Self::ReduceScatter => c"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
            Self::AllGather => c"ncclDevKernel_AllGather_RING_LL",
            Self::Send => c"ncclDevKernel_SendRecv",
        }
    }

    /// Returns the number of floats in the shards of all ranks together, which determines the cost of a call with
    /// `len`.
    fn floats(self, len: usize, ranks: usize) -> usize {
        match self {
            Self::AllReduce | Self::Send => len,
            Self::ReduceScatter | Self::AllGather => len * ranks,
        }
    }
}

/// One rank's call of a collective.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) op: OpId,
    pub(crate) function: Function,
    pub(crate) from: Address,
    pub(crate) to: Address,
    /// The length in NCCL's terms: all floats in an all-reduce, one rank's floats in other collectives.
    pub(crate) len: usize,
}

/// A rank's request in a split.
pub(crate) struct Wish {
    pub(crate) color: i32,
    pub(crate) key: i32,
    /// The address for the new communicator.
    pub(crate) place: u64,
}

/// The ranks of one communicator.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) size: usize,
    pub(crate) joined: usize,
    /// The parts of collectives, by sequence number and rank.
    parts: BTreeMap<u64, BTreeMap<usize, Part>>,
    /// The communicators for messages, by sender and receiver.
    ways: BTreeMap<[usize; 2], u64>,
    /// The requests of splits, by the number of the split and rank.
    pub(crate) splits: BTreeMap<u64, BTreeMap<usize, Wish>>,
    /// The ranks that gave up. Their own kernels end, but those of other ranks keep waiting, as in NCCL.
    pub(crate) aborted: BTreeSet<usize>,
    /// The errors that ranks get when they query for errors.
    pub(crate) errors: BTreeMap<usize, i32>,
}

impl World {
    /// Returns a communicator whose ranks have all joined.
    pub(crate) fn complete(size: usize) -> Self {
        Self { size, joined: size, ..Self::default() }
    }

    /// Returns true if a call of the rank still waits for calls of other ranks.
    pub(crate) fn is_in_progress(&self, rank: usize) -> bool {
        let waits = |wishes: &BTreeMap<usize, Wish>| wishes.contains_key(&rank) && wishes.len() < self.size;
        self.joined < self.size || self.splits.values().any(waits)
    }
}

impl Machine {
    /// Returns the communicator for messages from one rank to another.
    pub(crate) fn way(&mut self, communicator: u64, way: [usize; 2]) -> u64 {
        let known = self.worlds.entry(communicator).or_default().ways.get(&way).copied();
        known.unwrap_or_else(|| {
            let made = self.handle();
            self.worlds.insert(made, World::complete(2));
            self.worlds.entry(communicator).or_default().ways.insert(way, made);
            made
        })
    }

    pub(crate) fn add_part(&mut self, communicator: u64, seq: u64, rank: usize, part: Part) {
        let world = self.worlds.entry(communicator).or_default();
        world.parts.entry(seq).or_default().insert(rank, part);
    }

    /// Returns true if the rank has no incomplete kernels.
    pub(crate) fn is_idle(&self, communicator: u64, rank: usize) -> bool {
        let parts = self.worlds.get(&communicator).into_iter().flat_map(|world| world.parts.values());
        parts.filter_map(|parts| parts.get(&rank)).all(|part| self.done(part.op).is_some())
    }

    pub(super) fn abort_if_asked(&mut self, communicator: u64, rank: usize, op: OpId, start: i64) -> bool {
        let aborted = self.worlds.get(&communicator).is_some_and(|world| world.aborted.contains(&rank));
        if aborted {
            self.ops[op].done = Some((start, start));
        }
        aborted
    }

    /// Completes a collective if all ranks have started it and none has given up. Each kernel starts when its stream
    /// reaches it, and all kernels end together.
    pub(super) fn try_finish_collective(&mut self, communicator: u64, seq: u64) -> bool {
        let Some(world) = self.worlds.get(&communicator) else { return false };
        let Some(parts) = world.parts.get(&seq).filter(|parts| parts.len() == world.size) else {
            return false;
        };
        let parts: Vec<(usize, Part)> = parts.iter().map(|(&rank, &part)| (rank, part)).collect();
        let starts: Option<Vec<i64>> = parts.iter().map(|(_, part)| self.start(part.op)).collect();
        let Some(starts) = starts.filter(|_| parts.iter().all(|(_, part)| self.done(part.op).is_none()))
        else {
            return false;
        };
        let Part { function, len, .. } = parts[0].1;
        let bytes = function.floats(len, parts.len()) * size_of::<f32>();
        let end = starts.iter().max().copied().unwrap_or(0) + time::collective(bytes);
        perform(function, &parts);
        for ((_, part), start) in parts.iter().zip(starts) {
            self.finish(part.op, Some(What::Kernel(function.kernel())), start, end);
        }
        true
    }
}

fn perform(function: Function, parts: &[(usize, Part)]) {
    match function {
        Function::AllReduce => {
            let sums = sums(parts, parts[0].1.len);
            parts.iter().for_each(|(_, part)| part.to.floats(part.len).copy_from_slice(&sums));
        }
        Function::ReduceScatter => {
            let sums = sums(parts, parts[0].1.len * parts.len());
            for (rank, part) in parts {
                part.to.floats(part.len).copy_from_slice(&sums[rank * part.len..][..part.len]);
            }
        }
        Function::AllGather => {
            let all: Vec<f32> =
                parts.iter().flat_map(|(_, part)| part.from.floats(part.len).to_vec()).collect();
            parts.iter().for_each(|(_, part)| part.to.floats(all.len()).copy_from_slice(&all));
        }
        Function::Send => {
            let sent = parts[0].1.from.floats(parts[0].1.len).to_vec();
            parts[1].1.to.floats(sent.len()).copy_from_slice(&sent);
        }
    }
}

/// Sums in order of rank, so that all runs give the same bits.
fn sums(parts: &[(usize, Part)], len: usize) -> Vec<f32> {
    let mut sums = vec![0.0; len];
    for (_, part) in parts {
        sums.iter_mut().zip(&*part.from.floats(len)).for_each(|(sum, value)| *sum += *value);
    }
    sums
}
