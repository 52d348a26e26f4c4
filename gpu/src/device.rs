//! Work on a device: streams, timed events, floats in device memory and in pinned host memory, and two kernels.
//!
//! The module is a thin layer over cudarc. Where cudarc panics because the driver's library or one of its functions is
//! missing, this module checks first and returns an error. Streams and views are cudarc's own types, so a framework
//! that uses cudarc, such as candle, passes its gradients without conversion.

use std::panic::catch_unwind;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, DriverError, LaunchConfig, PinnedHostSlice, PushKernelArg as _,
    result, sys,
};
pub use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut};
use cudarc::nvrtc::Ptx;

use crate::driver::{Driver, NoDriver};

/// The source of the kernels, which the driver compiles.
#[doc(hidden)]
pub const KERNELS: &str = include_str!("device/kernels.ptx");
/// The number of threads per block.
const THREADS: u32 = 256;
/// The largest number of blocks, which is enough to fill any device. The kernels stride over the remaining elements.
const MAX_BLOCKS: u32 = 1_024;

/// The reason why a device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no usable driver or no device.
    #[error(transparent)]
    NoDriver(#[from] NoDriver),
    /// There is no device with this index.
    #[error("there is no GPU {ordinal}: this process sees {devices}, numbered from 0")]
    NoSuchDevice {
        /// The index that was requested.
        ordinal: usize,
        /// The number of devices.
        devices: usize,
    },
    /// A function is missing from the driver, which is older than CUDA 12.4.
    #[error("the driver is too old, CUDA 12.4 is needed: {0}")]
    TooOld(String),
    /// The driver refused a call.
    #[error("{doing}: CUDA returned {name}")]
    Refused {
        /// The operation that failed.
        doing: &'static str,
        /// The name of the `CUresult` in cuda.h.
        name: String,
    },
}

/// Adds the failed operation to the driver's errors.
trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, DeviceError>;
}

impl<T> Doing<T> for Result<T, DriverError> {
    fn doing(self, doing: &'static str) -> Result<T, DeviceError> {
        self.map_err(|error| {
            let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
            DeviceError::Refused { doing, name: name.unwrap_or_else(|_| format!("{}", error.0 as u32)) }
        })
    }
}

/// A working device with its kernels. Cheap to clone.
#[derive(Clone)]
pub struct Device {
    /// The address on the PCI bus.
    pub pci_bus_id: String,
    context: Arc<CudaContext>,
    scale: CudaFunction,
    add_scaled: CudaFunction,
}

impl Device {
    /// Returns the number of devices that the process sees, at least one.
    ///
    /// # Errors
    /// Returns an error if the driver cannot be used.
    pub fn count() -> Result<usize, DeviceError> {
        Ok(Driver::open()?.devices.len())
    }

    /// Opens the device with index `ordinal` among those that the process sees. The device is opened in its primary
    /// context, which the CUDA runtime and all frameworks share.
    ///
    /// # Errors
    /// Returns an error if there is no such device or it cannot be used.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        let mut devices = Driver::open()?.devices;
        if ordinal >= devices.len() {
            return Err(DeviceError::NoSuchDevice { ordinal, devices: devices.len() });
        }
        let pci_bus_id = devices.swap_remove(ordinal).pci_bus_id;
        // cudarc looks up each function at its first call and panics if it is missing.
        let opened = catch_unwind(|| Self::open_with_cudarc(ordinal, pci_bus_id));
        opened.unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().cloned();
            Err(DeviceError::TooOld(text.unwrap_or_else(|| "a function is missing".into())))
        })
    }

    fn open_with_cudarc(ordinal: usize, pci_bus_id: String) -> Result<Self, DeviceError> {
        let context = CudaContext::new(ordinal).doing("opening the device")?;
        // SAFETY: nothing has been allocated through this handle of the context yet. This crate's own events order the
        // streams. The events that cudarc would add for every use of memory cost time and order unrelated streams.
        unsafe { context.disable_event_tracking() };
        let module = context.load_module(Ptx::from_src(KERNELS)).doing("loading the kernels")?;
        let function = |name| module.load_function(name).doing("finding a kernel");
        Ok(Self { scale: function("scale")?, add_scaled: function("add_scaled")?, pci_bus_id, context })
    }

    /// Lets CUDA's memory pool retain freed device memory for reuse by this process.
    ///
    /// Meant for programs that allocate with cudarc, as candle does. According to cuda.h, CUDA's pool otherwise returns
    /// unused memory to the system whenever the host waits for the device, which communication causes, and must request
    /// the memory again. That cost has not been measured here. On a device without memory pools the call does nothing.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn keep_memory(&self) -> Result<(), DeviceError> {
        if !self.context.has_async_alloc() {
            return Ok(());
        }
        let mut all = u64::MAX;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the device is open, its pool lives as long as the device, and the threshold is a 64-bit integer.
        unsafe {
            let pool = result::device::get_default_mem_pool(self.context.cu_device());
            let pool = pool.doing("opening the memory pool")?;
            result::mem_pool::set_attribute(pool, threshold, (&raw mut all).cast())
                .doing("configuring the memory pool")
        }
    }

    /// Creates a stream for computing.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn stream(&self) -> Result<Arc<CudaStream>, DeviceError> {
        self.context.new_stream().doing("creating a stream")
    }

    /// Creates a stream of the highest priority, on which short transfers do not wait for long kernels of other
    /// streams.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn urgent_stream(&self) -> Result<Arc<CudaStream>, DeviceError> {
        self.bind()?;
        let (_least, greatest) = result::stream::get_priority_range().doing("reading stream priorities")?;
        self.context.new_stream_with_priority(greatest).doing("creating a stream")
    }

    /// Makes this device the current device of the calling thread.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn bind(&self) -> Result<(), DeviceError> {
        self.context.bind_to_thread().doing("choosing the device")
    }

    /// Creates an event with a time.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn event(&self) -> Result<Event, DeviceError> {
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        Ok(Event(self.context.new_event(flags).doing("creating an event")?))
    }

    /// Allocates `len` floats of device memory and sets them to zero, in the order of `stream`.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn zeros(&self, len: usize, stream: &Arc<CudaStream>) -> Result<CudaSlice<f32>, DeviceError> {
        stream.alloc_zeros(len).doing("allocating device memory")
    }

    /// Allocates `len` floats of pinned host memory and sets them to zero. Copies to and from pinned memory do not
    /// block the host.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn pinned(&self, len: usize) -> Result<Pinned, DeviceError> {
        // With this flag, a thread that waits for the event sleeps.
        let flags = Some(sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC);
        let copied = Event(self.context.new_event(flags).doing("creating an event")?);
        // The memory is not write-combined, as cudarc would choose by default, because the host reads from it.
        // SAFETY: the memory is filled before it is returned.
        let mut memory =
            unsafe { self.context.alloc_pinned_with_flags(len, 0) }.doing("allocating pinned memory")?;
        memory.as_mut_slice().doing("filling pinned memory")?.fill(0.0);
        Ok(Pinned { memory, copied })
    }

    /// Enqueues `to = from * factor`, or `to += from * factor` if `add` is true, on `stream`.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    ///
    /// # Panics
    /// Panics if the lengths differ.
    pub fn write_scaled(
        &self,
        to: &mut CudaViewMut<'_, f32>,
        from: &CudaView<'_, f32>,
        factor: f32,
        add: bool,
        stream: &CudaStream,
    ) -> Result<(), DeviceError> {
        assert_eq!(to.len(), from.len(), "a gradient has the size of its range in the bucket");
        if from.is_empty() {
            return Ok(());
        }
        let count = from.len() as u64;
        let blocks = count.div_ceil(u64::from(THREADS)).min(u64::from(MAX_BLOCKS)) as u32;
        let shape =
            LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
        let mut launch = stream.launch_builder(if add { &self.add_scaled } else { &self.scale });
        launch.arg(to).arg(from).arg(&factor).arg(&count);
        // SAFETY: both kernels take two pointers, a float and a count, and access `count` floats at each pointer. Both
        // views have that length.
        unsafe { launch.launch(shape) }.doing("launching a kernel").map(drop)
    }
}

/// A position in a stream's work, with its time.
pub struct Event(CudaEvent);

impl Event {
    /// Records the event after all work that the stream has now.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn record(&self, stream: &CudaStream) -> Result<(), DeviceError> {
        self.0.record(stream).doing("recording an event")
    }

    /// Makes all work that is enqueued on the stream from now on wait for the event.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn hold(&self, stream: &CudaStream) -> Result<(), DeviceError> {
        stream.wait(&self.0).doing("waiting for an event")
    }

    /// Returns true if the device has passed the event, or if the event was never recorded.
    ///
    /// # Errors
    /// Returns an error if the driver refuses or earlier work has failed. The failure of a kernel shows here first.
    pub fn is_done(&self) -> Result<bool, DeviceError> {
        self.0.try_is_complete().doing("querying an event")
    }

    /// Blocks the calling thread until the device has passed the event.
    ///
    /// # Errors
    /// Returns the errors of [`Self::is_done`].
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.0.synchronize().doing("waiting for an event")
    }

    /// Returns the time from `earlier` to this event on the device's clock, in nanoseconds. It is negative if this
    /// event happened first. The driver's value is a float of milliseconds, which is precise to 8 ns below 131 ms, and
    /// its resolution is half a microsecond at best.
    ///
    /// # Errors
    /// Returns an error if the device has not passed both events.
    pub fn nanos_since(&self, earlier: &Self) -> Result<f64, DeviceError> {
        // SAFETY: both events are alive and were created with times.
        let millis = unsafe { result::event::elapsed(earlier.0.cu_event(), self.0.cu_event()) };
        Ok(f64::from(millis.doing("reading an event's time")?) * 1e6)
    }
}

/// Floats in pinned host memory.
///
/// The type tracks its last copy by an event of its own. cudarc could do so only by tracking every use of memory, which
/// [`Device`] disables.
pub struct Pinned {
    memory: PinnedHostSlice<f32>,
    /// The event after the last copy to or from the memory.
    copied: Event,
}

impl Pinned {
    /// Returns the number of floats.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns true if there are no floats.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Returns true if the last copy is complete.
    ///
    /// # Errors
    /// Returns an error if the copy failed.
    pub fn is_copied(&self) -> Result<bool, DeviceError> {
        self.copied.is_done()
    }

    /// Waits for the last copy and returns the floats.
    ///
    /// # Errors
    /// Returns an error if the copy failed.
    pub fn floats(&mut self) -> Result<&mut [f32], DeviceError> {
        self.copied.wait()?;
        self.memory.as_mut_slice().doing("reading pinned memory")
    }

    /// Enqueues a copy of all floats to the device on `stream`.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn upload(
        &self,
        target: &mut CudaViewMut<'_, f32>,
        stream: &Arc<CudaStream>,
    ) -> Result<(), DeviceError> {
        stream.memcpy_htod(&self.memory, target).doing("copying to the device")?;
        self.copied.record(stream)
    }

    /// Enqueues a copy from the device that fills this memory, on `stream`.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    ///
    /// # Panics
    /// Panics if the lengths differ.
    pub fn download(
        &mut self,
        from: &CudaView<'_, f32>,
        stream: &Arc<CudaStream>,
    ) -> Result<(), DeviceError> {
        assert_eq!(self.len(), from.len(), "a copy fills the memory exactly");
        stream.memcpy_dtoh(from, &mut self.memory).doing("copying from the device")?;
        self.copied.record(stream)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // After an error of the device, no copy is in progress.
        let _failed = self.copied.wait();
    }
}

/// Enqueues on `stream` that `floats` are set to zero.
///
/// # Errors
/// Returns an error if the driver refuses.
pub fn clear(floats: &mut CudaViewMut<'_, f32>, stream: &Arc<CudaStream>) -> Result<(), DeviceError> {
    stream.memset_zeros(floats).doing("clearing device memory")
}
