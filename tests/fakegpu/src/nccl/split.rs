//! Groups of a communicator's ranks.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use super::{Communicator, IN_PROGRESS, INVALID_ARGUMENT};
use crate::machine::{self, Machine, Wish, World};

const NO_COLOR: c_int = -1;

/// Does not wait, whatever the config says. The new communicators are written when all ranks have called, as NCCL does it
/// where communicators do not block; until then the old one is in progress. A rank that gives up is waited for without
/// end.
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
    machine::with(|machine| {
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

/// Where the communicators of each color are to be written, in the order of their ranks.
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
