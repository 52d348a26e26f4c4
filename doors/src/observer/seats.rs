//! Which ranks this process is.
//!
//! Mostly a launcher says so: one, on one device. A process that drives several GPUs, as JAX does, is several, and no
//! launcher knows their numbers: each communicator says which rank it is made for, and the largest one has all of
//! them.

use std::sync::{Mutex, Once, PoisonError};

use agent::{Agent, Config, Job};
use gpu::driver::UsedDevice;
use wire::ids::Rank;

use super::Communicator;
use super::rank::Observed;
use crate::trail::Seat;

/// Devices of one process that are told apart.
const MOST_SEATS: usize = 64;
/// Communicators of which it is remembered which rank this process is.
const MOST_KNOWN: usize = 4_096;

/// The devices that communicators were made on, by seat.
static DEVICES: Mutex<Vec<UsedDevice>> = Mutex::new(Vec::new());
/// Communicators of the only rank, with its rank in them.
static KNOWN: Mutex<Vec<(u64, u32)>> = Mutex::new(Vec::new());

/// The seat of a process that is one rank by its launcher; `None` for what is another rank of a communicator that it
/// is in.
pub(super) fn of_the_only_rank(communicator: &Communicator) -> Option<Seat> {
    let Some(rank) = communicator.rank else { return Some(Seat::FIRST) };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match known.iter().find(|(number, _)| *number == communicator.number) {
        Some((_, other)) if *other != rank => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                agent::warn(
                    "this process drives several GPUs, and its launcher says that it is one rank: only its first GPU is \
                     observed (without RANK and WORLD_SIZE in its environment all of a single process's are)",
                );
            });
            None
        }
        Some(_) => Some(Seat::FIRST),
        None => {
            if known.len() < MOST_KNOWN {
                known.push((communicator.number, rank));
            }
            Some(Seat::FIRST)
        }
    }
}

/// The seat of a device; one more for one that is new. Without a driver all is one device's.
pub(super) fn of_device(communicator: &Communicator, device: Option<UsedDevice>) -> Option<Seat> {
    let Some(device) = device else { return of_the_only_rank(communicator) };
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = devices.iter().position(|known| *known == device);
    let at = known.or_else(|| {
        let at = devices.len();
        (at < MOST_SEATS).then(|| {
            devices.push(device);
            at
        })
    })?;
    Some(Seat(at as u8))
}

/// Begins to record ranks whose numbers are known now. Where they are not, a communicator that tells may still come.
pub(super) fn settle(observed: &mut [Observed], job: &Job) {
    let joined: Vec<&[Communicator]> = observed.iter().map(Observed::joined).collect();
    let Some((ranks, world_size)) = ranks(&joined) else { return };
    let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // What a run began with, it stays.
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
        let agent = Agent::start(Config { origin: super::origin(), local_rank, ..config });
        let bus_id = device.map(|device| device.bus_id.clone());
        observed.begin((Rank(rank), world_size), agent, bus_id, device.map(|device| device.ordinal));
    }
}

/// Says, once, that steps are known and ranks are not.
pub(super) fn complain() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        agent::warn(
            "not observing this job: no communicator has all ranks of this process, so that nobody knows their numbers; start \
             a process for each GPU, with RANK and WORLD_SIZE in its environment",
        );
    });
}

/// The ranks by seat, and the world's size: those of the largest communicator, if it has every seat.
fn ranks(joined: &[&[Communicator]]) -> Option<(Vec<u32>, u32)> {
    let told = joined.iter().copied().flatten().filter(|communicator| communicator.rank.is_some());
    let world = told.max_by_key(|communicator| communicator.size)?;
    // Other doors tell of the same communicators, and not which rank they are made for.
    let in_world = |seat: &&[Communicator]| {
        seat.iter().filter(|one| one.number == world.number).find_map(|one| one.rank)
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
    fn ranks_are_those_of_the_communicator_that_has_all() {
        let (pair, world) = (|rank| member(1, 2, rank), |rank| member(9, 4, rank));
        // Two of four are in this process, in another order than they came.
        let untold = Communicator { rank: None, ..world(2) };
        let joined = [vec![pair(0), world(3)], vec![pair(1), untold, world(2)]];
        let joined: Vec<&[Communicator]> = joined.iter().map(Vec::as_slice).collect();
        assert_eq!(ranks(&joined), Some((vec![3, 2], 4)));
    }

    #[test]
    fn where_none_has_all_nobody_knows_them() {
        let joined = [vec![member(1, 2, 0)], vec![member(1, 2, 1)], vec![member(2, 2, 0)]];
        let joined: Vec<&[Communicator]> = joined.iter().map(Vec::as_slice).collect();
        assert_eq!(ranks(&joined), None);
        assert_eq!(ranks(&[]), None);
    }
}
