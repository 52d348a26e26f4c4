//! Kernels of known length on a stream, and what the device's own clock says of them.

use anyhow::{Context as _, ensure};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PinnedHostSlice, PushKernelArg as _,
};
use cudarc::nvrtc::Ptx;
use gpu::device::Device;
use serde_json::json;

use crate::report::Outcome;

/// One thread: these kernels measure time and do no work.
const ONE: LaunchConfig = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
const SPIN_NANOS: u64 = 1_000_000;
const SAMPLES: usize = 200;
/// Events, stamps and the kernel's own length may differ by what launching a kernel takes.
const MOST_APART_NANOS: f64 = 20_000.0;
/// In all but one of so many samples: a host that is interrupted between two launches leaves the device idle between them.
const ONE_IN: usize = 20;
/// What the device does before, so that the host is ahead of it.
const AHEAD_NANOS: u64 = 200_000;

/// The kernels, and memory for two stamps.
pub struct Truth {
    spin: CudaFunction,
    stamp: CudaFunction,
    stamps: PinnedHostSlice<u64>,
}

impl Truth {
    /// On the first device.
    pub fn load() -> anyhow::Result<Self> {
        let context = CudaContext::new(0)?;
        let module = context.load_module(Ptx::from_src(include_str!("truth.ptx")))?;
        // SAFETY: it is filled before anybody reads it.
        let mut stamps = unsafe { context.alloc_pinned_with_flags(2, 0) }?;
        stamps.as_mut_slice()?.fill(0);
        Ok(Self { spin: module.load_function("spin_ns")?, stamp: module.load_function("stamp")?, stamps })
    }

    /// Puts a kernel of so many nanoseconds on a stream.
    pub fn spin(&self, nanos: u64, stream: &CudaStream) -> Result<(), DriverError> {
        // SAFETY: the kernel takes one integer.
        unsafe { stream.launch_builder(&self.spin).arg(&nanos).launch(ONE) }.map(drop)
    }

    fn stamp(&self, at: usize, stream: &CudaStream) -> anyhow::Result<()> {
        let address = self.stamps.as_ptr()?.wrapping_add(at).addr() as u64;
        // SAFETY: the kernel takes one address and writes eight bytes there, which pinned memory has.
        unsafe { stream.launch_builder(&self.stamp).arg(&address).launch(ONE) }?;
        Ok(())
    }

    /// Nanoseconds by the device's clock from one stamp to the other.
    fn between_stamps(&self) -> anyhow::Result<f64> {
        let stamps = self.stamps.as_slice()?;
        Ok(stamps[1].checked_sub(stamps[0]).context("the device's clock went back")? as f64)
    }
}

/// Events, the device's clock and the kernel itself must say the same of a kernel's length.
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
            "an event's time is not negative before another: {reversed}, {forward}"
        );
        // The first is slower: the driver translates the kernel.
        if sample > 0 {
            by_events.push(forward);
            by_stamps.push(truth.between_stamps()?);
        }
    }
    let mut apart: Vec<f64> =
        by_events.iter().zip(&by_stamps).map(|(event, stamp)| (event - stamp).abs()).collect();
    apart.sort_by(f64::total_cmp);
    let (most, worst) = (apart[SAMPLES - SAMPLES / ONE_IN - 1], apart[SAMPLES - 1]);
    let least = by_stamps.iter().copied().fold(f64::INFINITY, f64::min);
    let (events, stamps) = (median(&mut by_events.clone()), median(&mut by_stamps.clone()));
    Ok(Outcome {
        pass: most <= MOST_APART_NANOS
            && least >= SPIN_NANOS as f64
            && stamps - SPIN_NANOS as f64 <= MOST_APART_NANOS,
        line: format!(
            "a kernel of 1 ms is {:.4} ms by events and {:.4} by %globaltimer; {most:.0} ns apart at most in 95 %, \
             {worst:.0} in all",
            events / 1e6,
            stamps / 1e6
        ),
        raw: json!({ "spin_ns": SPIN_NANOS, "events_ns": by_events, "globaltimer_ns": by_stamps }),
    })
}

/// The middle value; 0 of none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
