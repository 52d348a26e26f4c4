//! The rank numbers of this process.
//!
//! Usually a launcher names them: the process is one rank, on one device. A process that drives several GPUs, as JAX
//! does, is several ranks, and no launcher knows their numbers. Each communicator reports the rank that it was created
//! for, and the largest communicator contains all ranks.

use std::sync::{Mutex, Once, PoisonError};

use agent::{Agent, Config, Job};
use gpu::driver::UsedDevice;
use wire::ids::Rank;

use super::Communicator;
use super::rank::Observed;
use crate::call_log::LocalRank;

/// The largest number of devices distinguished in one process.
const MAX_LOCAL_RANKS: usize = 64;
/// The largest number of communicators for which this process's rank is remembered.
const MAX_KNOWN: usize = 4_096;

/// The devices that communicators were created on, by local rank.
static DEVICES: Mutex<Vec<UsedDevice>> = Mutex::new(Vec::new());
/// The communicators of the only observed rank, each with the process's rank in it.
static KNOWN: Mutex<Vec<(u64, u32)>> = Mutex::new(Vec::new());

/// Returns the local rank in a process that its launcher declares to be one rank. Returns `None` if this process
/// already has another rank in the communicator.
pub(super) fn only_local_rank(communicator: &Communicator) -> Option<LocalRank> {
    let Some(rank) = communicator.rank else { return Some(LocalRank::FIRST) };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match known.iter().find(|(number, _)| *number == communicator.number) {
        Some((_, other)) if *other != rank => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                agent::warn(
                    "this process drives several GPUs, but its launcher declares one rank: only its first GPU is \
                     observed (unset RANK and WORLD_SIZE to observe all GPUs of a single process)",
                );
            });
            None
        }
        Some(_) => Some(LocalRank::FIRST),
        None => {
            if known.len() < MAX_KNOWN {
                known.push((communicator.number, rank));
            }
            Some(LocalRank::FIRST)
        }
    }
}

/// Returns the local rank of a device, and adds a new device. Without a CUDA driver, all communicators belong to one
/// device.
pub(super) fn device_local_rank(
    communicator: &Communicator,
    device: Option<UsedDevice>,
) -> Option<LocalRank> {
    let Some(device) = device else { return only_local_rank(communicator) };
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = devices.iter().position(|known| *known == device);
    let at = known.or_else(|| {
        let at = devices.len();
        (at < MAX_LOCAL_RANKS).then(|| {
            devices.push(device);
            at
        })
    })?;
    Some(LocalRank(at as u8))
}

/// Starts recording the ranks whose numbers are known. For other ranks, a communicator with their numbers may follow.
pub(super) fn settle(observed: &mut [Observed], job: &Job) {
    let joined: Vec<&[Communicator]> = observed.iter().map(Observed::joined).collect();
    let Some((ranks, world_size)) = ranks(&joined) else { return };
    let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // The world size of a recorded run never changes.
    let is_another = |observed: &Observed| observed.world_size().is_some_and(|size| size != world_size);
    if observed.iter().any(is_another) {
        return;
    }
    let unknown =
        observed.iter_mut().zip(ranks).enumerate().filter(|(_, (observed, _))| !observed.is_recorded());
    for (at, (observed, rank)) in unknown {
        let Ok(Some(config)) = Config::from_env_as(job.clone(), Rank(rank), world_size) else { continue };
        let device = devices.get(at);
        let local_rank = device.map_or(config.local_rank, |device| device.ordinal);
        let agent = Agent::start(Config { instrumentation: super::instrumentation(), local_rank, ..config });
        let burst_of = device.map(|device| device.ordinal);
        observed.begin((Rank(rank), world_size), agent, device.cloned(), burst_of);
    }
}

/// Warns once that steps are known but rank numbers are not.
pub(super) fn complain() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        agent::warn(
            "not observing this job: no communicator contains all ranks of this process, so their numbers are unknown; \
             start one process per GPU, each with RANK and WORLD_SIZE in its environment",
        );
    });
}

/// Returns the rank numbers by local rank, and the world size. Both come from the largest communicator, which must
/// contain every local rank.
fn ranks(joined: &[&[Communicator]]) -> Option<(Vec<u32>, u32)> {
    let ranked = joined.iter().copied().flatten().filter(|communicator| communicator.rank.is_some());
    let world = ranked.max_by_key(|communicator| communicator.size)?;
    // Other hooks report the same communicators without the rank they were created for.
    let in_world = |local_rank: &&[Communicator]| {
        local_rank.iter().filter(|known| known.number == world.number).find_map(|known| known.rank)
    };
    Some((joined.iter().map(in_world).collect::<Option<_>>()?, world.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u64, size: u32, rank: u32) -> Communicator {
        Communicator { number, size, rank: Some(rank) }
    }

    #[test]
    fn rank_numbers_come_from_the_communicator_of_all_local_ranks() {
        let (pair, world) = (|rank| member(1, 2, rank), |rank| member(9, 4, rank));
        // This process has two of the four ranks, in a different order than in the first communicator.
        let unranked = Communicator { rank: None, ..world(2) };
        let joined = [vec![pair(0), world(3)], vec![pair(1), unranked, world(2)]];
        let joined: Vec<&[Communicator]> = joined.iter().map(Vec::as_slice).collect();
        assert_eq!(ranks(&joined), Some((vec![3, 2], 4)));
    }

    #[test]
    fn rank_numbers_are_unknown_if_no_communicator_contains_all_local_ranks() {
        let joined = [vec![member(1, 2, 0)], vec![member(1, 2, 1)], vec![member(2, 2, 0)]];
        let joined: Vec<&[Communicator]> = joined.iter().map(Vec::as_slice).collect();
        assert_eq!(ranks(&joined), None);
        assert_eq!(ranks(&[]), None);
    }
}
