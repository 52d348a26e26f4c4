//! Each rank on its own share of the machine's cores.
//!
//! Ranks that wander over the cores disturb each other at random, and one that does nothing leaves its share to
//! the others. Bound, ranks that must share a core share it evenly: a rank that is slow by 30 ms costs 30 ms, as
//! it would on a machine of its own, and a healthy step is a tenth quicker.

use agent::launcher;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds this process, and all threads it starts from now on, if the launcher says how many ranks there are on
/// this host. Where the kernel does not allow it, ranks wander as before.
pub(crate) fn bind() {
    // What makes no sense is refused where the ranks meet.
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
    // See above: not being bound costs some speed and nothing else.
    let _wanders = sched_setaffinity(None, &share);
}

/// Whether every rank gets as much as any other. Three ranks bound to two cores would make stragglers of two.
fn is_even(ranks: usize, cores: usize) -> bool {
    ranks <= cores || (cores > 0 && ranks.is_multiple_of(cores))
}

/// The cores of one of `ranks` ranks, as indices below `cores`: a block of its own, or one core by turns.
fn share_of(rank: usize, ranks: usize, cores: usize) -> impl Iterator<Item = usize> {
    let each = (cores / ranks.max(1)).max(1);
    (rank * each..(rank + 1) * each).map(move |core| core % cores.max(1))
}

#[cfg(test)]
mod tests {
    use super::{is_even, share_of};

    #[test]
    fn cores_are_shared_out_evenly() {
        let shares = |ranks, cores| {
            (0..ranks).map(|rank| share_of(rank, ranks, cores).collect()).collect::<Vec<Vec<_>>>()
        };
        assert_eq!(shares(4, 2), [[0], [1], [0], [1]]);
        assert_eq!(shares(2, 2), [[0], [1]]);
        assert_eq!(shares(2, 5), [[0, 1], [2, 3]]);
        assert!(is_even(4, 2) && is_even(2, 5) && !is_even(3, 2));
    }
}
