//! Binds each rank to its own share of the machine's cores.
//!
//! Ranks that migrate between cores disturb each other at random, and an idle rank leaves its share to the others.
//! Bound ranks share a core evenly: a rank that is 30 ms slow costs 30 ms, as it would on its own machine. Binding also
//! makes a healthy step a tenth faster.

use agent::launcher;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds this process, and all threads that it starts later, if the launcher sets the number of ranks on this host. If
/// the kernel does not allow binding, the ranks stay unbound.
pub(crate) fn bind() {
    // Contradictory settings are rejected later, where the ranks find each other.
    let Some(place) = launcher::membership().ok().flatten() else { return };
    let (Some(rank), Some(ranks)) = (place.local_rank, place.local_world_size) else { return };
    let (rank, ranks) = (rank as usize, ranks as usize);
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    if !is_even(ranks, cores.len()) {
        return;
    }
    let mut share = CpuSet::new();
    for core in share_of(rank, ranks, cores.len()) {
        share.set(cores[core]);
    }
    // A failure to bind costs some speed and has no other effect.
    let _wanders = sched_setaffinity(None, &share);
}

/// Returns true if every rank gets an equal share. Three ranks bound to two cores would make stragglers of two of them.
fn is_even(ranks: usize, cores: usize) -> bool {
    ranks <= cores || (cores > 0 && ranks.is_multiple_of(cores))
}

/// Returns the cores of one of `ranks` ranks, as indices below `cores`: a block of its own, or one core in turn.
fn share_of(rank: usize, ranks: usize, cores: usize) -> impl Iterator<Item = usize> {
    let block = (cores / ranks.max(1)).max(1);
    (rank * block..(rank + 1) * block).map(move |core| core % cores.max(1))
}

#[cfg(test)]
mod tests {
    use super::{is_even, share_of};

    #[test]
    fn cores_are_divided_evenly_among_ranks() {
        let shares = |ranks, cores| {
            (0..ranks).map(|rank| share_of(rank, ranks, cores).collect()).collect::<Vec<Vec<_>>>()
        };
        assert_eq!(shares(4, 2), [[0], [1], [0], [1]]);
        assert_eq!(shares(2, 2), [[0], [1]]);
        assert_eq!(shares(2, 5), [[0, 1], [2, 3]]);
        assert!(is_even(4, 2) && is_even(2, 5) && !is_even(3, 2));
    }
}
