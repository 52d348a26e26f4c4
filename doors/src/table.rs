//! Numbers by number, for the threads of others: a table without a lock, which is filled and never emptied.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::trail::Function;

/// Slots that a key may lie in: a look into a table that is full costs no more than this.
const MOST_LOOKS: usize = 64;
/// Communicators, and functions of each.
const USUAL: usize = 1_024;

struct Slot {
    /// Whose it is; 0 while it is nobody's.
    key: AtomicU64,
    value: AtomicU64,
}

/// A value for each of as many keys as there are slots.
pub(crate) struct Table<const SLOTS: usize = USUAL>([Slot; SLOTS]);

impl<const SLOTS: usize> Table<SLOTS> {
    pub(crate) const fn new() -> Self {
        Self([const { Slot { key: AtomicU64::new(0), value: AtomicU64::new(0) } }; SLOTS])
    }

    /// The value of a key, 0 at first; `None` when the table is full, or as good as.
    pub(crate) fn of(&self, key: u64) -> Option<&AtomicU64> {
        let key = mixed(key).max(1);
        let is_of_key = |slot: &&Slot| match slot.key.load(Ordering::Relaxed) {
            0 => {
                let taken = slot.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
                taken.is_ok() || taken == Err(key)
            }
            taken => taken == key,
        };
        let from = key as usize % SLOTS;
        let slots = self.0[from..].iter().chain(&self.0[..from]).take(MOST_LOOKS);
        { slots }.find(is_of_key).map(|slot| &slot.value)
    }

    /// Which of its function a collective is on its communicator, from 0 on, where NCCL does not say: all ranks issue a
    /// communicator's collectives in one order, so that counting numbers them alike. `None` when the table is full.
    pub(crate) fn count(&self, communicator: u64, function: Function) -> Option<u64> {
        let of_function = communicator ^ ((function as u64 + 1) << 60);
        Some(self.of(of_function)?.fetch_add(1, Ordering::Relaxed))
    }
}

/// Spreads numbers that differ in few bits (the finalizer of SplitMix64; Steele, Lea, Flood 2014).
pub(crate) fn mixed(number: u64) -> u64 {
    let once = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let twice = (once ^ (once >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    twice ^ (twice >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_of_each_communicator_is_counted_by_itself() {
        static COUNTS: Table = Table::new();
        let next = |communicator, function| COUNTS.count(communicator, function);
        assert_eq!([next(7, Function::AllReduce), next(7, Function::AllReduce)], [Some(0), Some(1)]);
        assert_eq!([next(7, Function::Broadcast), next(8, Function::AllReduce)], [Some(0); 2]);
        assert_eq!(next(7, Function::AllReduce), Some(2));
    }

    #[test]
    fn a_full_table_keeps_what_it_has_and_takes_nothing_more() {
        static TABLE: Table = Table::new();
        let values = |table: &'static Table| (0..10 * USUAL as u64).filter_map(|key| table.of(key));
        let taken = values(&TABLE).map(|value| value.store(9, Ordering::Relaxed)).count();
        assert!((USUAL * 9 / 10..=USUAL).contains(&taken), "{taken} keys");
        assert!(values(&TABLE).all(|value| value.load(Ordering::Relaxed) == 9));
        assert_eq!(values(&TABLE).count(), taken, "those that were there, and no other");
    }
}
