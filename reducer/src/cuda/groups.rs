//! The NCCL communicators of a rank: that of all ranks and, if buckets are reduced by node, those of the rank's node
//! and of the ranks with the same index on the other nodes.

use std::time::{Duration, Instant};

use gpu::device::{CudaSlice, CudaStream, Device};
use gpu::nccl::communicator::{self, Communicator, Nccl, State};
use gpu::nccl::{UNIQUE_ID_BYTES, UniqueId};
use wire::ids::Rank;

use super::{Cuda, refused};
use crate::communicator::Control;
use crate::error::CommError;

/// The time between two checks whether NCCL has finished a call. Between two buckets a call takes some microseconds.
const POLL: Duration = Duration::from_micros(20);
/// The number of floats that NCCL's kernels move at once if all addresses are aligned. The size of a shard is a
/// multiple.
const WORD: usize = 4;
const SETTING: &str = "Cuda::ranks_per_node";

/// All communicators of a rank. A drop gives them up together; [`Self::finish`] ends them in good order first.
pub(super) struct Groups {
    /// The communicator of the world and, with nodes, those within this rank's node and across nodes. Empty once they
    /// are finished.
    all: Vec<Communicator>,
    device: Device,
}

impl Groups {
    /// Creates the communicators. The ranks meet over `control`.
    pub(super) fn join(control: &mut dyn Control, cuda: &Cuda) -> Result<Self, CommError> {
        let nccl = Nccl::open(cuda.nccl.as_deref()).map_err(refused("opening NCCL"))?;
        let id = name(control, &nccl, cuda.ranks_per_node)?;
        let (rank, timeout) = (control.rank().0, cuda.timeout);
        let world = nccl.join(&id, rank, control.world_size());
        let world = world.map_err(refused("joining the other ranks"))?;
        await_ready(&world, control, timeout)?;
        let mut all = vec![world];
        if let Some(ranks) = cuda.ranks_per_node {
            let (node, place) = (rank / ranks, rank % ranks);
            let node_group = split(&all[0], (node, place), control, timeout)?;
            all.push(node_group);
            let place_group = split(&all[0], (place, node), control, timeout)?;
            all.push(place_group);
        }
        Ok(Self { all, device: cuda.device.clone() })
    }

    /// Enqueues on `stream` the replacement of `floats` by their sum over all ranks. With nodes, their number must be a
    /// [`multiple`].
    pub(super) fn reduce(
        &self,
        floats: &mut CudaSlice<f32>,
        stream: &CudaStream,
        control: &dyn Control,
        timeout: Duration,
    ) -> Result<(), CommError> {
        let ready = |communicator: &Communicator| await_ready(communicator, control, timeout);
        let started = |result: Result<(), _>| result.map_err(refused("starting a collective"));
        match &self.all[..] {
            [_world, within, across] => {
                let shard = within.shard(floats.len()).map_err(refused("finding this rank's shard"))?;
                started(within.reduce_scatter(&mut floats.as_view_mut(), stream))?;
                ready(within)?;
                started(across.all_reduce(&mut floats.slice_mut(shard), stream))?;
                ready(across)?;
                started(within.all_gather(&mut floats.as_view_mut(), stream))?;
                ready(within)
            }
            [world, ..] => {
                started(world.all_reduce(&mut floats.as_view_mut(), stream))?;
                ready(world)
            }
            [] => unreachable!("nothing is reduced after the communicators are finished"),
        }
    }

    /// Returns an error if one of the communicators has failed.
    pub(super) fn check(&self) -> Result<(), CommError> {
        let mut all = self.all.iter();
        all.try_for_each(|communicator| {
            communicator.state().map(drop).map_err(refused("a collective between the GPUs"))
        })
    }

    /// Ends the communicators in good order, for which it waits at most `patience` for the other ranks.
    pub(super) fn finish(mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        for communicator in std::mem::take(&mut self.all) {
            // If this fails, the other ranks are notified over the control communicator.
            let _outcome = communicator.finish(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        communicator::give_up(std::mem::take(&mut self.all), &self.device);
    }
}

/// Checks the number of ranks per node. Returns `None` if one collective of all ranks does the same: with one node, and
/// with one rank per node.
pub(super) fn ranks_per_node(wanted: Option<u32>, world: u32) -> Result<Option<u32>, CommError> {
    let Some(ranks) = wanted else { return Ok(None) };
    if ranks == 0 || !world.is_multiple_of(ranks) {
        let fit: Vec<String> =
            (1..=world).filter(|ranks| world.is_multiple_of(*ranks)).map(|ranks| ranks.to_string()).collect();
        let reason = format!(
            "a world of {world} ranks cannot be divided into nodes of {ranks} ranks; use one of {}, or None to \
             reduce over all ranks at once",
            fit.join(", ")
        );
        return Err(CommError::Setting { setting: SETTING, reason });
    }
    Ok(Some(ranks).filter(|&ranks| 1 < ranks && ranks < world))
}

/// Returns the number of floats of which a bucket's memory must be a multiple, so that every rank of a node gets an
/// equal shard. Zeros fill the memory after the bucket's own floats.
pub(super) fn multiple(ranks_per_node: Option<u32>) -> usize {
    ranks_per_node.map_or(1, |ranks| ranks as usize * WORD)
}

/// Returns the name of a new communicator, which rank 0 chooses. Fails if rank 0 has another number of ranks per node.
fn name(control: &mut dyn Control, nccl: &Nccl, ranks_per_node: Option<u32>) -> Result<UniqueId, CommError> {
    let own = ranks_per_node.unwrap_or(0);
    let mut said = Vec::new();
    if control.rank() == Rank(0) {
        let id = nccl.unique_id().map_err(refused("naming a communicator"))?;
        said = [&id.0[..], &own.to_le_bytes()].concat();
    }
    control.broadcast(Rank(0), &mut said)?;
    let Some((id, theirs)) = parts(&said) else {
        let expected = UNIQUE_ID_BYTES + size_of::<u32>();
        let reason = format!("rank 0 sent {} bytes instead of {expected}", said.len());
        return Err(CommError::System { doing: "naming a communicator".into(), reason });
    };
    if theirs == own {
        return Ok(id);
    }
    let nodes = |ranks| if ranks == 0 { "no nodes".to_owned() } else { format!("nodes of {ranks} ranks") };
    let reason = format!(
        "rank 0 reduces with {}, rank {} with {}; all ranks must have the same number",
        nodes(theirs),
        control.rank(),
        nodes(own)
    );
    Err(CommError::Setting { setting: SETTING, reason })
}

/// Splits rank 0's message into a name and a number of ranks per node.
fn parts(said: &[u8]) -> Option<(UniqueId, u32)> {
    let (id, ranks) = said.split_at_checked(UNIQUE_ID_BYTES)?;
    Some((UniqueId(id.try_into().ok()?), u32::from_le_bytes(ranks.try_into().ok()?)))
}

/// Creates the communicator of the ranks that share this rank's color, in the order of their keys.
fn split(
    world: &Communicator,
    (color, key): (u32, u32),
    control: &dyn Control,
    timeout: Duration,
) -> Result<Communicator, CommError> {
    let refuse = refused("dividing the ranks into nodes");
    let begun = world.split(Some(color), key).map_err(|error| refuse(error.to_string()))?;
    await_ready(world, control, timeout)?;
    let made = begun.made().map_err(|error| refuse(error.to_string()))?;
    let made = made.ok_or_else(|| refuse("NCCL created no communicator for this rank's color".into()))?;
    await_ready(&made, control, timeout)?;
    Ok(made)
}

/// Waits until NCCL has finished its current call. Returns an error if a rank gives up meanwhile.
fn await_ready(nccl: &Communicator, control: &dyn Control, timeout: Duration) -> Result<(), CommError> {
    let deadline = Instant::now() + timeout;
    while nccl.state().map_err(refused("talking to the other GPUs"))? == State::InProgress {
        if let Some(verdict) = control.verdict() {
            return Err(verdict);
        }
        if Instant::now() > deadline {
            let reason = "NCCL did not connect the GPUs in time; set NCCL_DEBUG=INFO to see why".into();
            return Err(CommError::System { doing: "talking to the other GPUs".into(), reason });
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_size_must_be_a_multiple_of_the_ranks_per_node() {
        let checked = |wanted, world| ranks_per_node(wanted, world).map_err(|error| error.to_string());
        assert_eq!(checked(None, 4), Ok(None));
        assert_eq!(checked(Some(2), 4), Ok(Some(2)));
        assert_eq!(checked(Some(8), 16), Ok(Some(8)));
        assert_eq!(
            (checked(Some(1), 4), checked(Some(4), 4), checked(Some(1), 1)),
            (Ok(None), Ok(None), Ok(None))
        );
        let said = "Cuda::ranks_per_node: a world of 6 ranks cannot be divided into nodes of 4 ranks; use one of \
                    1, 2, 3, 6, or None to reduce over all ranks at once";
        assert_eq!(checked(Some(4), 6), Err(said.into()));
        for ranks in [0, 12] {
            let error = checked(Some(ranks), 6).unwrap_err();
            assert!(
                error.contains(&format!("nodes of {ranks} ranks")) && error.contains("world of 6"),
                "{error}"
            );
        }
    }
}
