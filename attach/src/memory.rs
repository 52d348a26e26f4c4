//! The memory of CUDA devices as PyTorch's allocator counts it: the newest figures, which the next sample of the device
//! includes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use wire::device::DeviceFigure;

/// The largest number of devices distinguished in one process.
const MAX_DEVICES: usize = 64;

/// The figures, in the order in which the Python package passes them (`python/paceline/_memory.py`).
pub(crate) const FIGURES: [DeviceFigure; 6] = [
    DeviceFigure::AllocatedBytes,
    DeviceFigure::AllocatedPeakBytes,
    DeviceFigure::ReservedBytes,
    DeviceFigure::InactiveSplitBytes,
    DeviceFigure::AllocationRetries,
    DeviceFigure::OutOfMemoryErrors,
];

/// The newest values of [`FIGURES`], by the index of the device among those that this process sees.
static NEWEST: Mutex<BTreeMap<u32, [u64; FIGURES.len()]>> = Mutex::new(BTreeMap::new());

/// Remembers the values of [`FIGURES`] of a device.
pub(crate) fn learn(device: u32, values: [u64; FIGURES.len()]) {
    let mut newest = NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
    if newest.len() < MAX_DEVICES || newest.contains_key(&device) {
        newest.insert(device, values);
    }
}

/// Returns the newest figures of a device; none if PyTorch has reported none.
pub(crate) fn device_figures(device: u32) -> impl Iterator<Item = (DeviceFigure, u64)> {
    let newest = NEWEST.lock().unwrap_or_else(PoisonError::into_inner).get(&device).copied();
    newest.into_iter().flat_map(|values| FIGURES.into_iter().zip(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_its_newest_figures() {
        learn(0, [1, 2, 3, 4, 5, 6]);
        learn(1, [7; 6]);
        learn(0, [6, 5, 4, 3, 2, 1]);
        let found: Vec<(DeviceFigure, u64)> = device_figures(0).collect();
        assert_eq!(found[0], (DeviceFigure::AllocatedBytes, 6));
        assert_eq!(found[5], (DeviceFigure::OutOfMemoryErrors, 1));
        assert_eq!(device_figures(2).count(), 0);
        (2..200).for_each(|device| learn(device, [0; 6]));
        assert_eq!(device_figures(199).count(), 0, "the number of devices is limited");
    }
}
