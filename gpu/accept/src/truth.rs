//! Kernels of known length, and how events measure them compared with the device's own clock.

use anyhow::{Context as _, ensure};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PinnedHostSlice, PushKernelArg as _,
};
use cudarc::nvrtc::Ptx;
use gpu::device::Device;
use serde_json::json;

use crate::report::Outcome;

/// A launch of one thread. These kernels only measure time.
const ONE: LaunchConfig = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
const SPIN_NANOS: u64 = 1_000_000;
const SAMPLES: usize = 200;
/// The largest difference between events, stamps and the kernel's known length. A kernel launch takes about this long.
const MAX_DIFFERENCE_NANOS: f64 = 20_000.0;
/// One in this many samples may exceed the largest difference. If the host is interrupted between two launches, the
/// device is idle between them.
const ONE_IN: usize = 20;
/// The length of a kernel that runs first, so that the host gets ahead of the device.
const AHEAD_NANOS: u64 = 200_000;

/// The kernels of known length, and memory for two stamps.
pub struct Truth {
    spin: CudaFunction,
    stamp: CudaFunction,
    stamps: PinnedHostSlice<u64>,
}

impl Truth {
    /// Loads the kernels on the first device.
    pub fn load() -> anyhow::Result<Self> {
        let context = CudaContext::new(0)?;
        let module = context.load_module(Ptx::from_src(include_str!("truth.ptx")))?;
        // SAFETY: the memory is filled before it is read.
        let mut stamps = unsafe { context.alloc_pinned_with_flags(2, 0) }?;
        stamps.as_mut_slice()?.fill(0);
        Ok(Self { spin: module.load_function("spin_ns")?, stamp: module.load_function("stamp")?, stamps })
    }

    /// Launches a kernel that runs for `nanos` nanoseconds.
    pub fn spin(&self, nanos: u64, stream: &CudaStream) -> Result<(), DriverError> {
        // SAFETY: the kernel's only argument is an integer.
        unsafe { stream.launch_builder(&self.spin).arg(&nanos).launch(ONE) }.map(drop)
    }

    fn stamp(&self, at: usize, stream: &CudaStream) -> anyhow::Result<()> {
        let address = self.stamps.as_ptr()?.wrapping_add(at).addr() as u64;
        // SAFETY: the kernel writes eight bytes to the address, which is in pinned memory.
        unsafe { stream.launch_builder(&self.stamp).arg(&address).launch(ONE) }?;
        Ok(())
    }

    /// Returns the nanoseconds between the two stamps on the device's clock.
    fn stamped_nanos(&self) -> anyhow::Result<f64> {
        let stamps = self.stamps.as_slice()?;
        Ok(stamps[1].checked_sub(stamps[0]).context("the device's clock went back")? as f64)
    }
}

/// Checks that events, the device's clock and the kernel itself agree on a kernel's length.
pub fn events_agree_with_the_device(device: &Device) -> anyhow::Result<Outcome> {
    let (truth, stream) = (Truth::load()?, device.stream()?);
    let (begin, end) = (device.event()?, device.event()?);
    let (mut by_events, mut by_stamps) = (Vec::new(), Vec::new());
    for sample in 0..=SAMPLES {
        truth.spin(AHEAD_NANOS, &stream)?;
        begin.record(&stream)?;
        truth.stamp(0, &stream)?;
        truth.spin(SPIN_NANOS, &stream)?;
        truth.stamp(1, &stream)?;
        end.record(&stream)?;
        end.wait()?;
        let reversed = begin.nanos_since(&end)?;
        let forward = end.nanos_since(&begin)?;
        ensure!(
            reversed == -forward,
            "the time between two events depends on their order: {reversed}, {forward}"
        );
        // The first sample is slower because the driver translates the kernel.
        if sample > 0 {
            by_events.push(forward);
            by_stamps.push(truth.stamped_nanos()?);
        }
    }
    let mut apart: Vec<f64> =
        by_events.iter().zip(&by_stamps).map(|(event, stamp)| (event - stamp).abs()).collect();
    apart.sort_by(f64::total_cmp);
    let (most, worst) = (apart[SAMPLES - SAMPLES / ONE_IN - 1], apart[SAMPLES - 1]);
    let least = by_stamps.iter().copied().fold(f64::INFINITY, f64::min);
    let (events, stamps) = (median(&mut by_events.clone()), median(&mut by_stamps.clone()));
    Ok(Outcome {
        pass: most <= MAX_DIFFERENCE_NANOS
            && least >= SPIN_NANOS as f64
            && stamps - SPIN_NANOS as f64 <= MAX_DIFFERENCE_NANOS,
        line: format!(
            "a kernel of 1 ms takes {:.4} ms by events and {:.4} ms by %globaltimer; they differ by {most:.0} ns at \
             most in 95 % of samples, {worst:.0} ns in all",
            events / 1e6,
            stamps / 1e6
        ),
        raw: json!({ "spin_ns": SPIN_NANOS, "events_ns": by_events, "globaltimer_ns": by_stamps }),
    })
}

/// Returns the middle value, or 0 if there are no values.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
