//! Splits of a communicator into groups.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use super::{Communicator, IN_PROGRESS, INVALID_ARGUMENT};
use crate::machine::{self, Machine, Wish, World};

const NO_COLOR: c_int = -1;

/// Splits a communicator. The call does not wait, whatever the config says. The new communicators are written once all
/// ranks have called, as in NCCL with non-blocking communicators. Until then, the old communicator is in progress. The
/// split never completes if a rank gives up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommSplit(
    communicator: *mut Communicator,
    color: c_int,
    key: c_int,
    place: *mut *mut Communicator,
    _config: *mut c_void,
) -> c_int {
    if place.is_null() || color < NO_COLOR {
        return INVALID_ARGUMENT;
    }
    let communicator = unsafe { &mut *communicator };
    let (world, rank, number) = (communicator.world, communicator.rank, communicator.next_split);
    communicator.next_split += 1;
    unsafe { place.write(std::ptr::null_mut()) };
    machine::change(|machine| {
        let split = machine.worlds.entry(world).or_default();
        let wishes = split.splits.entry(number).or_default();
        wishes.insert(rank, Wish { color, key, place: place.addr() as u64 });
        if wishes.len() == split.size && split.aborted.is_empty() {
            let groups = groups(wishes);
            groups.into_iter().for_each(|places| make(machine, &places));
        }
    });
    IN_PROGRESS
}

/// Returns the addresses for the new communicators of each color, in the order of their ranks.
fn groups(wishes: &BTreeMap<usize, Wish>) -> Vec<Vec<u64>> {
    let mut groups: BTreeMap<c_int, Vec<(c_int, u64)>> = BTreeMap::new();
    for wish in wishes.values().filter(|wish| wish.color != NO_COLOR) {
        groups.entry(wish.color).or_default().push((wish.key, wish.place));
    }
    let ordered = |mut group: Vec<(c_int, u64)>| {
        group.sort_by_key(|&(key, _)| key);
        group.into_iter().map(|(_, place)| place).collect()
    };
    groups.into_values().map(ordered).collect()
}

fn make(machine: &mut Machine, places: &[u64]) {
    let world = machine.handle();
    machine.worlds.insert(world, World::complete(places.len()));
    for (rank, &place) in places.iter().enumerate() {
        unsafe { (place as *mut *mut Communicator).write(Communicator::new(world, rank)) };
    }
}
