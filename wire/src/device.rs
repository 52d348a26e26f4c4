//! What a device does at the moment, as its driver's management library (NVML) says: apart from any step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::MonoNanos;

/// A figure of a device. Devices differ in which they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum DeviceFigure {
    /// Share of the last second in which some kernel ran, in percent. Says nothing of how much of the device it used.
    UtilizationPercent = 0,
    /// Memory in use by all processes, in bytes.
    MemoryUsedBytes = 1,
    /// Memory there is, in bytes.
    MemoryTotalBytes = 2,
    /// Power drawn, in milliwatts.
    PowerMilliwatts = 3,
    /// Power it may draw, in milliwatts.
    PowerLimitMilliwatts = 4,
    /// Clock of the multiprocessors, in megahertz.
    SmClockMegahertz = 5,
    /// The most that clock can be, in megahertz.
    SmClockMostMegahertz = 6,
    /// Clock of the memory, in megahertz.
    MemoryClockMegahertz = 7,
    /// Temperature of the chip, in degrees Celsius.
    TemperatureCelsius = 8,
    /// Why clocks are lower than they could be: a set of [`throttle`] bits.
    ThrottleReasons = 9,
    /// Sent over PCIe, in kibibytes a second.
    PcieSentKibibytesPerSecond = 10,
    /// Received over PCIe, in kibibytes a second.
    PcieReceivedKibibytesPerSecond = 11,
    /// Uncorrected memory errors since the driver was loaded.
    EccUncorrectedErrors = 12,
    /// Share of time in which a multiprocessor had work, the mean over all, in thousandths (GPM: Hopper and newer).
    SmActivityPermille = 13,
    /// Share of time in which tensor cores worked, in thousandths (GPM).
    TensorActivityPermille = 14,
    /// Share of the memory's bandwidth in use, in thousandths (GPM).
    DramActivityPermille = 15,
    /// How far times that were taken on the device may be off on the host's clock, in nanoseconds.
    ClockErrorBoundNanoseconds = 16,
    /// Sent over all NVLinks, in mebibytes a second (GPM). From here on since version 3 of the wire format.
    NvlinkSentMebibytesPerSecond = 17,
    /// Received over all NVLinks, in mebibytes a second (GPM).
    NvlinkReceivedMebibytesPerSecond = 18,
    /// Critical errors (Xid) of the device since it is looked at.
    XidErrors = 19,
    /// The number of the last of them, as NVIDIA's list of Xids has it.
    LastXid = 20,
}

impl DeviceFigure {
    /// All figures, in the order of their numbers.
    pub const ALL: [Self; 21] = [
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
    ];

    /// The version of the wire format that has it.
    #[must_use]
    pub fn wire_version(self) -> u16 {
        if self < Self::NvlinkSentMebibytesPerSecond { 2 } else { 3 }
    }
}

/// Bits of [`DeviceFigure::ThrottleReasons`], as `nvmlClocksEventReasons` of nvml.h has them.
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

    /// The reasons in words, those that slow a busy device down. (Being idle, or another clock that someone has set,
    /// are none of them.)
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

/// One look at the device of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceSample {
    /// When, on the rank's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub at: MonoNanos,
    /// Its name and its address on the PCI bus.
    pub device: String,
    /// What it says.
    pub figures: BTreeMap<DeviceFigure, u64>,
}

impl DeviceSample {
    /// One figure, where the device has it.
    #[must_use]
    pub fn get(&self, figure: DeviceFigure) -> Option<u64> {
        self.figures.get(&figure).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Note;

    /// As notes lie in a sealed segment.
    #[test]
    fn a_sample_survives_json() {
        let figures =
            DeviceFigure::ALL.into_iter().map(|figure| (figure, u64::MAX - figure as u64)).collect();
        let note = Note::Device(DeviceSample { at: MonoNanos(-7), device: "a GPU".into(), figures });
        let json = serde_json::to_string(&note).unwrap();
        assert!(json.contains("\"sm_clock_megahertz\":18446744073709551610"), "{json}");
        assert_eq!(serde_json::from_str::<Note>(&json).unwrap(), note);
    }
}
