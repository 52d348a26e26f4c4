//! A lock-free hash table of counters for the job's threads. It only fills up; no key is ever removed.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::event::Function;

/// The number of slots that a key may be in. It bounds the cost of a lookup in a full table.
const MAX_PROBES: usize = 64;
/// The default number of slots, for communicators and functions.
const USUAL: usize = 1_024;

struct Slot {
    /// The hash of the slot's key; 0 while the slot is free.
    key: AtomicU64,
    value: AtomicU64,
}

/// A table with one value per key, and one slot per value.
pub(crate) struct Table<const SLOTS: usize = USUAL>([Slot; SLOTS]);

impl<const SLOTS: usize> Table<SLOTS> {
    pub(crate) const fn new() -> Self {
        Self([const { Slot { key: AtomicU64::new(0), value: AtomicU64::new(0) } }; SLOTS])
    }

    /// Returns the value of a key, initially 0; `None` if no slot is free for it.
    pub(crate) fn slot(&self, key: u64) -> Option<&AtomicU64> {
        let key = mixed(key).max(1);
        let is_of_key = |slot: &&Slot| match slot.key.load(Ordering::Relaxed) {
            0 => {
                let taken = slot.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
                taken.is_ok() || taken == Err(key)
            }
            taken => taken == key,
        };
        let start = key as usize % SLOTS;
        let slots = self.0[start..].iter().chain(&self.0[..start]).take(MAX_PROBES);
        { slots }.find(is_of_key).map(|slot| &slot.value)
    }

    /// Counts a collective and returns its index among those of its function on the communicator, from 0 on. This
    /// serves interfaces that report no index. All ranks issue the collectives of a communicator in the same order, so
    /// their counts agree. Returns `None` if the table is full.
    pub(crate) fn count(&self, communicator: u64, function: Function) -> Option<u64> {
        let key = communicator ^ ((function as u64 + 1) << 60);
        Some(self.slot(key)?.fetch_add(1, Ordering::Relaxed))
    }
}

/// Mixes numbers that differ in few bits (the finalizer of SplitMix64; Steele, Lea, Flood 2014).
pub(crate) fn mixed(number: u64) -> u64 {
    let once = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let twice = (once ^ (once >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    twice ^ (twice >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_of_each_communicator_has_its_own_count() {
        static COUNTS: Table = Table::new();
        let next = |communicator, function| COUNTS.count(communicator, function);
        assert_eq!([next(7, Function::AllReduce), next(7, Function::AllReduce)], [Some(0), Some(1)]);
        assert_eq!([next(7, Function::Broadcast), next(8, Function::AllReduce)], [Some(0); 2]);
        assert_eq!(next(7, Function::AllReduce), Some(2));
    }

    #[test]
    fn a_full_table_retains_its_values_and_accepts_no_new_key() {
        static TABLE: Table = Table::new();
        let values = |table: &'static Table| (0..10 * USUAL as u64).filter_map(|key| table.slot(key));
        let taken = values(&TABLE).map(|value| value.store(9, Ordering::Relaxed)).count();
        assert!((USUAL * 9 / 10..=USUAL).contains(&taken), "{taken} keys");
        assert!(values(&TABLE).all(|value| value.load(Ordering::Relaxed) == 9));
        assert_eq!(values(&TABLE).count(), taken, "the keys from before and no others");
    }
}
