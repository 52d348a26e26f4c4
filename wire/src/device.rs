//! Samples of a device, from the driver's management library (NVML) and PyTorch's allocator. They are independent of
//! steps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::MonoNanos;

/// A figure of a device. A device may lack some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum DeviceFigure {
    /// The share of the last second in which some kernel ran, in percent. It does not show how much of the device the
    /// kernel used.
    UtilizationPercent = 0,
    /// The memory in use by all processes, in bytes.
    MemoryUsedBytes = 1,
    /// The total memory, in bytes.
    MemoryTotalBytes = 2,
    /// The power drawn, in milliwatts.
    PowerMilliwatts = 3,
    /// The power limit, in milliwatts.
    PowerLimitMilliwatts = 4,
    /// The clock of the multiprocessors, in megahertz.
    SmClockMegahertz = 5,
    /// The highest possible clock of the multiprocessors, in megahertz.
    SmClockMostMegahertz = 6,
    /// The clock of the memory, in megahertz.
    MemoryClockMegahertz = 7,
    /// The temperature of the chip, in degrees Celsius.
    TemperatureCelsius = 8,
    /// The reasons why clocks are lowered, as a set of [`throttle`] bits.
    ThrottleReasons = 9,
    /// The rate of data sent over PCIe, in kibibytes per second.
    PcieSentKibibytesPerSecond = 10,
    /// The rate of data received over PCIe, in kibibytes per second.
    PcieReceivedKibibytesPerSecond = 11,
    /// The number of uncorrected memory errors since the driver was loaded.
    EccUncorrectedErrors = 12,
    /// The share of time in which a multiprocessor had work, as the mean over all multiprocessors, in thousandths (GPM:
    /// Hopper and newer).
    SmActivityPermille = 13,
    /// The share of time in which tensor cores worked, in thousandths (GPM).
    TensorActivityPermille = 14,
    /// The share of the memory bandwidth in use, in thousandths (GPM).
    DramActivityPermille = 15,
    /// The error bound of the device's times on the host's clock, in nanoseconds.
    ClockErrorBoundNanoseconds = 16,
    /// The rate of data sent over all NVLinks, in mebibytes per second (GPM).
    NvlinkSentMebibytesPerSecond = 17,
    /// The rate of data received over all NVLinks, in mebibytes per second (GPM).
    NvlinkReceivedMebibytesPerSecond = 18,
    /// The number of critical errors (Xid) of the device since sampling began.
    XidErrors = 19,
    /// The code of the last Xid, from NVIDIA's list of Xids.
    LastXid = 20,
    /// The memory in use by tensors, in bytes, as PyTorch's caching allocator counts it for this process.
    AllocatedBytes = 21,
    /// The largest value of [`Self::AllocatedBytes`] so far, or since the job reset PyTorch's peak statistics.
    AllocatedPeakBytes = 22,
    /// The memory that PyTorch's allocator holds, in use or cached, in bytes.
    ReservedBytes = 23,
    /// The cached memory in blocks that were split, which the allocator cannot give back to the device, in bytes:
    /// fragmentation.
    InactiveSplitBytes = 24,
    /// The number of times that the allocator ran out of memory and emptied its cache to try again. Each time stops the
    /// device.
    AllocationRetries = 25,
    /// The number of out-of-memory errors that the allocator raised.
    OutOfMemoryErrors = 26,
}

impl DeviceFigure {
    /// All figures, in the order of their codes.
    pub const ALL: [Self; 27] = [
        Self::UtilizationPercent,
        Self::MemoryUsedBytes,
        Self::MemoryTotalBytes,
        Self::PowerMilliwatts,
        Self::PowerLimitMilliwatts,
        Self::SmClockMegahertz,
        Self::SmClockMostMegahertz,
        Self::MemoryClockMegahertz,
        Self::TemperatureCelsius,
        Self::ThrottleReasons,
        Self::PcieSentKibibytesPerSecond,
        Self::PcieReceivedKibibytesPerSecond,
        Self::EccUncorrectedErrors,
        Self::SmActivityPermille,
        Self::TensorActivityPermille,
        Self::DramActivityPermille,
        Self::ClockErrorBoundNanoseconds,
        Self::NvlinkSentMebibytesPerSecond,
        Self::NvlinkReceivedMebibytesPerSecond,
        Self::XidErrors,
        Self::LastXid,
        Self::AllocatedBytes,
        Self::AllocatedPeakBytes,
        Self::ReservedBytes,
        Self::InactiveSplitBytes,
        Self::AllocationRetries,
        Self::OutOfMemoryErrors,
    ];
}

/// The bits of [`DeviceFigure::ThrottleReasons`], with the values of `nvmlClocksEventReasons` in nvml.h.
pub mod throttle {
    /// The power limit is reached.
    pub const POWER_CAP: u64 = 0x04;
    /// Hardware slows down: temperature, power brake or an electrical limit.
    pub const HARDWARE: u64 = 0x08;
    /// The driver slows down because of temperature.
    pub const THERMAL: u64 = 0x20;
    /// Hardware slows down because of temperature.
    pub const HARDWARE_THERMAL: u64 = 0x40;
    /// An external power brake.
    pub const POWER_BRAKE: u64 = 0x80;

    /// Returns the names of the reasons that slow down a busy device. An idle device and a clock set on purpose have no
    /// name here.
    #[must_use]
    pub fn names(reasons: u64) -> Vec<&'static str> {
        let all = [
            (POWER_CAP, "power limit"),
            (HARDWARE, "hardware slowdown"),
            (THERMAL, "temperature"),
            (HARDWARE_THERMAL, "temperature, by hardware"),
            (POWER_BRAKE, "power brake"),
        ];
        all.into_iter().filter(|(bit, _)| reasons & bit != 0).map(|(_, name)| name).collect()
    }
}

/// A sample of one rank's device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceSample {
    /// The time of the sample, on the rank's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub at: MonoNanos,
    /// The name of the device and its address on the PCI bus.
    pub device: String,
    /// The figures that the device reports.
    pub figures: BTreeMap<DeviceFigure, u64>,
}

impl DeviceSample {
    /// Returns one figure; `None` if the device does not report it.
    #[must_use]
    pub fn get(&self, figure: DeviceFigure) -> Option<u64> {
        self.figures.get(&figure).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Note;

    /// Sealed segments store notes as JSON.
    #[test]
    fn a_sample_round_trips_through_json() {
        let figures =
            DeviceFigure::ALL.into_iter().map(|figure| (figure, u64::MAX - figure as u64)).collect();
        let note = Note::Device(DeviceSample { at: MonoNanos(-7), device: "a GPU".into(), figures });
        let json = serde_json::to_string(&note).unwrap();
        assert!(json.contains("\"sm_clock_megahertz\":18446744073709551610"), "{json}");
        assert_eq!(serde_json::from_str::<Note>(&json).unwrap(), note);
    }
}
