//! Samples a device once per second, on a thread of its own. Figures that the device does not support are silently left
//! out, because few devices have all of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use background::{Background, Stop};
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor,
};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, EventSet, Nvml};
use wire::clock::MonoNanos;
use wire::device::{DeviceFigure, DeviceSample};

use super::{NoNvml, open};

/// The time between two samples.
const EVERY: Duration = Duration::from_secs(1);

/// The settings of a sampler.
#[derive(Clone, Debug)]
pub struct SamplerSettings {
    /// The device's address on the PCI bus. NVML and CUDA agree on it, while their ordinals differ.
    pub pci_bus_id: String,
    /// The path of NVML's library. `None` leaves the search to the loader.
    pub file: Option<PathBuf>,
    /// The clock of the samples.
    pub now: fn() -> MonoNanos,
}

/// The handle of a sampler. Dropping it ends the sampler.
pub struct Watch {
    _thread: Background,
}

impl Watch {
    /// Starts a sampler, which passes the release of the driver to `driver` once, and every sample to `report` until
    /// `report` returns false. Without NVML, or without such a device, there is neither.
    pub fn start(
        wanted: SamplerSettings,
        driver: impl FnOnce(&str) + Send + 'static,
        mut report: impl FnMut(DeviceSample) -> bool + Send + 'static,
    ) -> Self {
        let work = move |stop: &Stop| {
            // A device that cannot be sampled must not disturb the job. `paceline doctor` reports the reason.
            let _why_not = sample(&wanted, stop, driver, &mut report);
        };
        Self { _thread: Background::start("paceline-device", work) }
    }
}

fn sample(
    wanted: &SamplerSettings,
    stop: &Stop,
    driver: impl FnOnce(&str),
    report: &mut dyn FnMut(DeviceSample) -> bool,
) -> Result<(), NoNvml> {
    let nvml = open(wanted.file.as_deref())?;
    let device = nvml.device_by_pci_bus_id(wanted.pci_bus_id.as_str())?;
    let name = format!("{} at {}", device.name()?, wanted.pci_bus_id);
    if let Ok(release) = nvml.sys_driver_version() {
        driver(&release);
    }
    let has_gpm = device.gpm_support().unwrap_or(false);
    let errors = Errors::watch(&nvml, &device);
    let (mut before, mut seen) = (None, Seen::default());
    while !stop.is_asked() {
        let after = if has_gpm { device.gpm_sample().ok() } else { None };
        let mut figures = figures(&device)?;
        if let (Some(before), Some(after)) = (&before, &after) {
            figures.extend(activity(&nvml, before, after));
        }
        if let Some(errors) = &errors {
            seen.add(errors);
            figures.extend(seen.figures());
        }
        before = after;
        if !report(DeviceSample { at: (wanted.now)(), device: name.clone(), figures }) {
            break;
        }
        stop.wait(EVERY);
    }
    Ok(())
}

/// Returns the current values of all figures that the device has. Returns an error if the device is gone.
fn figures(device: &Device<'_>) -> Result<BTreeMap<DeviceFigure, u64>, NvmlError> {
    use DeviceFigure as Figure;
    let utilization = device.utilization_rates();
    if matches!(utilization, Err(NvmlError::GpuLost)) {
        return Err(NvmlError::GpuLost);
    }
    let memory = device.memory_info().ok();
    let number = |value: Result<u32, NvmlError>| value.ok().map(u64::from);
    let pcie = |counter| number(device.pcie_throughput(counter));
    let all = [
        (Figure::UtilizationPercent, number(utilization.map(|rates| rates.gpu))),
        (Figure::MemoryUsedBytes, memory.as_ref().map(|memory| memory.used)),
        (Figure::MemoryTotalBytes, memory.as_ref().map(|memory| memory.total)),
        (Figure::PowerMilliwatts, number(device.power_usage())),
        (Figure::PowerLimitMilliwatts, number(device.enforced_power_limit())),
        (Figure::SmClockMegahertz, number(device.clock_info(Clock::SM))),
        (Figure::SmClockMostMegahertz, number(device.max_clock_info(Clock::SM))),
        (Figure::MemoryClockMegahertz, number(device.clock_info(Clock::Memory))),
        (Figure::TemperatureCelsius, number(device.temperature(TemperatureSensor::Gpu))),
        (Figure::ThrottleReasons, device.current_throttle_reasons().ok().map(|reasons| reasons.bits())),
        (Figure::PcieSentKibibytesPerSecond, pcie(PcieUtilCounter::Send)),
        (Figure::PcieReceivedKibibytesPerSecond, pcie(PcieUtilCounter::Receive)),
        (
            Figure::EccUncorrectedErrors,
            device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
        ),
    ];
    Ok(all.into_iter().filter_map(|(figure, value)| Some((figure, value?))).collect())
}

/// The critical errors (Xid) of a device, as the driver reports them.
struct Errors<'nvml>(EventSet<'nvml>);

impl<'nvml> Errors<'nvml> {
    /// Subscribes to the errors. Returns `None` if the device does not report them.
    fn watch(nvml: &'nvml Nvml, device: &Device<'nvml>) -> Option<Self> {
        let set = nvml.create_event_set().ok()?;
        Some(Self(device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()?))
    }

    /// Returns the Xid of the next error, without waiting for one.
    fn next(&self) -> Option<u64> {
        match self.0.wait(0).ok()?.event_data? {
            XidError::Value(number) => Some(number),
            XidError::Unknown => Some(UNKNOWN_XID),
        }
    }
}

/// The Xid that NVML uses for an unknown error.
const UNKNOWN_XID: u64 = 999;
/// The largest number of errors that one sample reads. A device that fell off the bus reports errors without end.
const MAX_ERRORS: usize = 64;

/// The errors since the sampler started.
#[derive(Default)]
struct Seen {
    count: u64,
    last: Option<u64>,
}

impl Seen {
    fn add(&mut self, errors: &Errors<'_>) {
        for number in std::iter::from_fn(|| errors.next()).take(MAX_ERRORS) {
            self.count += 1;
            self.last = Some(number);
        }
    }

    fn figures(&self) -> impl Iterator<Item = (DeviceFigure, u64)> {
        let last = self.last.map(|number| (DeviceFigure::LastXid, number));
        std::iter::once((DeviceFigure::XidErrors, self.count)).chain(last)
    }
}

/// Returns the activity of the device's parts between two samples, which Hopper and newer devices report.
fn activity<'nvml>(
    nvml: &'nvml Nvml,
    before: &GpmSample<'nvml>,
    after: &GpmSample<'nvml>,
) -> Vec<(DeviceFigure, u64)> {
    // NVML has shares in percent and rates in MiB/s (nvml.h). The factor converts each to the unit of its figure.
    let wanted = [
        (DeviceFigure::SmActivityPermille, GpmMetricId::SmUtil, 10.0),
        (DeviceFigure::TensorActivityPermille, GpmMetricId::AnyTensorUtil, 10.0),
        (DeviceFigure::DramActivityPermille, GpmMetricId::DramBwUtil, 10.0),
        (DeviceFigure::NvlinkSentMebibytesPerSecond, GpmMetricId::NvlinkTotalTxPerSec, 1.0),
        (DeviceFigure::NvlinkReceivedMebibytesPerSecond, GpmMetricId::NvlinkTotalRxPerSec, 1.0),
    ];
    let results = gpm_metrics_get(nvml, before, after, &wanted.map(|(_, metric, _)| metric));
    let results = results.into_iter().flatten();
    let values = wanted.into_iter().zip(results);
    values
        .filter_map(|((figure, _, unit), result)| Some((figure, (result.ok()?.value * unit).round() as u64)))
        .collect()
}
