//! Work on a device: streams, timed events, floats in device memory and in pinned host memory, and two kernels.
//!
//! A thin layer over cudarc, which panics where the driver's library or one of its functions is missing: here that is
//! asked first, and an error. Streams and views are cudarc's own types, so that a framework which uses cudarc (candle)
//! hands over its gradients as they are.

use std::panic::catch_unwind;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, DriverError, LaunchConfig, PinnedHostSlice, PushKernelArg as _,
    result, sys,
};
pub use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut};
use cudarc::nvrtc::Ptx;

use crate::driver::{Driver, NoDriver};

/// The kernels' source, which the driver translates.
#[doc(hidden)]
pub const KERNELS: &str = include_str!("device/kernels.ptx");
const THREADS: u32 = 256;
/// Enough blocks to fill every device there is; the kernels stride over what is left.
const MOST_BLOCKS: u32 = 1_024;

/// Why a device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no driver or no device.
    #[error(transparent)]
    NoDriver(#[from] NoDriver),
    /// The driver has other devices.
    #[error("there is no GPU {ordinal}: this process sees {devices}, numbered from 0")]
    NoSuchDevice {
        /// Which was asked for.
        ordinal: usize,
        /// How many there are.
        devices: usize,
    },
    /// The driver has no such function: it is older than CUDA 12.4.
    #[error("the driver is too old, CUDA 12.4 is needed: {0}")]
    TooOld(String),
    /// The driver refuses a call.
    #[error("{doing}: CUDA answers {name}")]
    Refused {
        /// What was attempted.
        doing: &'static str,
        /// `CUresult` of cuda.h, by its name.
        name: String,
    },
}

/// Gives the driver's refusals their place.
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

/// A device that works, and the kernels on it. Cheap to clone.
#[derive(Clone)]
pub struct Device {
    /// Its address on the PCI bus.
    pub pci_bus_id: String,
    context: Arc<CudaContext>,
    scale: CudaFunction,
    add_scaled: CudaFunction,
}

impl Device {
    /// How many devices the process sees: at least one.
    ///
    /// # Errors
    /// When the driver cannot be used.
    pub fn count() -> Result<usize, DeviceError> {
        Ok(Driver::open()?.devices.len())
    }

    /// Opens the device with this number among those that the process sees, in its primary context, which it shares
    /// with the CUDA runtime and every framework.
    ///
    /// # Errors
    /// When there is no such device, or it cannot be used.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        let mut devices = Driver::open()?.devices;
        if ordinal >= devices.len() {
            return Err(DeviceError::NoSuchDevice { ordinal, devices: devices.len() });
        }
        let pci_bus_id = devices.swap_remove(ordinal).pci_bus_id;
        // cudarc looks each function up at its first call and panics where it is missing.
        let opened = catch_unwind(|| Self::open_with_cudarc(ordinal, pci_bus_id));
        opened.unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().cloned();
            Err(DeviceError::TooOld(text.unwrap_or_else(|| "a function is missing".into())))
        })
    }

    fn open_with_cudarc(ordinal: usize, pci_bus_id: String) -> Result<Self, DeviceError> {
        let context = CudaContext::new(ordinal).doing("opening the device")?;
        // SAFETY: nothing was allocated in this handle of the context yet. Streams are ordered by events of ours; those
        // that cudarc would add for every use of memory cost time and order streams that need no order.
        unsafe { context.disable_event_tracking() };
        let module = context.load_module(Ptx::from_src(KERNELS)).doing("loading the kernels")?;
        let function = |name| module.load_function(name).doing("finding a kernel");
        Ok(Self { scale: function("scale")?, add_scaled: function("add_scaled")?, pci_bus_id, context })
    }

    /// Lets this process keep the device memory that it gives back, to take it again. For programs that allocate by cudarc
    /// (candle does): CUDA's own pool, which that comes from, returns unused memory to the system whenever the host waits
    /// for the device, as communication makes it do, and must ask the system for it again. (By cuda.h; what that costs was
    /// not measured here.) Nothing where the device has no pools.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn keep_memory(&self) -> Result<(), DeviceError> {
        if !self.context.has_async_alloc() {
            return Ok(());
        }
        let mut all = u64::MAX;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the device is open, its pool lives as long, and the threshold is an integer of 64 bits.
        unsafe {
            let pool = result::device::get_default_mem_pool(self.context.cu_device());
            let pool = pool.doing("asking for the memory pool")?;
            result::mem_pool::set_attribute(pool, threshold, (&raw mut all).cast())
                .doing("setting the memory pool")
        }
    }

    /// A stream of its own for computing.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn stream(&self) -> Result<Arc<CudaStream>, DeviceError> {
        self.context.new_stream().doing("making a stream")
    }

    /// A stream whose work goes before that of others: short transfers are not kept waiting by long kernels.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn urgent_stream(&self) -> Result<Arc<CudaStream>, DeviceError> {
        self.bind()?;
        let (_least, greatest) = result::stream::get_priority_range().doing("asking for priorities")?;
        self.context.new_stream_with_priority(greatest).doing("making a stream")
    }

    /// Makes this device the calling thread's.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn bind(&self) -> Result<(), DeviceError> {
        self.context.bind_to_thread().doing("choosing the device")
    }

    /// An event that keeps its time.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn event(&self) -> Result<Event, DeviceError> {
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        Ok(Event(self.context.new_event(flags).doing("making an event")?))
    }

    /// `len` zeros in device memory; zero in the order of `stream`.
    ///
    /// # Errors
    /// When memory is out.
    pub fn zeros(&self, len: usize, stream: &Arc<CudaStream>) -> Result<CudaSlice<f32>, DeviceError> {
        stream.alloc_zeros(len).doing("allocating device memory")
    }

    /// `len` zeros in pinned host memory, which copies go to and come from without a stop.
    ///
    /// # Errors
    /// When memory is out.
    pub fn pinned(&self, len: usize) -> Result<Pinned, DeviceError> {
        // A thread that waits for it sleeps.
        let flags = Some(sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC);
        let copied = Event(self.context.new_event(flags).doing("making an event")?);
        // Not write-combined, which is cudarc's own choice: the host reads from it.
        // SAFETY: it is filled before anybody sees it.
        let mut memory =
            unsafe { self.context.alloc_pinned_with_flags(len, 0) }.doing("allocating pinned memory")?;
        memory.as_mut_slice().doing("filling pinned memory")?.fill(0.0);
        Ok(Pinned { memory, copied })
    }

    /// `to = from * factor`, or `to += from * factor`, in the order of `stream`.
    ///
    /// # Errors
    /// When the driver refuses.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn write_scaled(
        &self,
        to: &mut CudaViewMut<'_, f32>,
        from: &CudaView<'_, f32>,
        factor: f32,
        add: bool,
        stream: &CudaStream,
    ) -> Result<(), DeviceError> {
        assert_eq!(to.len(), from.len(), "a gradient has the size of its place");
        if from.is_empty() {
            return Ok(());
        }
        let count = from.len() as u64;
        let blocks = count.div_ceil(u64::from(THREADS)).min(u64::from(MOST_BLOCKS)) as u32;
        let shape =
            LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
        let mut launch = stream.launch_builder(if add { &self.add_scaled } else { &self.scale });
        launch.arg(to).arg(from).arg(&factor).arg(&count);
        // SAFETY: both kernels take two pointers, a float and a count, and touch `count` floats behind each pointer.
        unsafe { launch.launch(shape) }.doing("launching a kernel").map(drop)
    }
}

/// A point in a stream's work, with its time.
pub struct Event(CudaEvent);

impl Event {
    /// Puts it behind what the stream has to do now.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn record(&self, stream: &CudaStream) -> Result<(), DeviceError> {
        self.0.record(stream).doing("recording an event")
    }

    /// Lets what the stream is given from now on wait for it.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn hold(&self, stream: &CudaStream) -> Result<(), DeviceError> {
        stream.wait(&self.0).doing("waiting for an event")
    }

    /// Whether the device has come there; true for one that was never recorded.
    ///
    /// # Errors
    /// Also those of work that came before: the first that a failed kernel shows in.
    pub fn is_done(&self) -> Result<bool, DeviceError> {
        self.0.try_is_complete().doing("asking for an event")
    }

    /// Lets the calling thread wait for it.
    ///
    /// # Errors
    /// As [`Self::is_done`].
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.0.synchronize().doing("waiting for an event")
    }

    /// Nanoseconds on the device from `earlier` to this one, both done; negative when it was the other way around. The
    /// driver has them as a float of milliseconds: good to 8 ns below 131 ms, and to half a microsecond at best.
    ///
    /// # Errors
    /// When one is not done.
    pub fn nanos_since(&self, earlier: &Self) -> Result<f64, DeviceError> {
        // SAFETY: both events live, and were made with their times.
        let millis = unsafe { result::event::elapsed(earlier.0.cu_event(), self.0.cu_event()) };
        Ok(f64::from(millis.doing("reading an event's time")?) * 1e6)
    }
}

/// Floats in pinned host memory. (cudarc knows when its own pinned memory is in use only while it tracks every use of
/// memory, which [`Device`] does not let it do.)
pub struct Pinned {
    memory: PinnedHostSlice<f32>,
    /// Behind the last copy to or from it.
    copied: Event,
}

impl Pinned {
    /// How many floats it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// True without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Whether the last copy is done.
    ///
    /// # Errors
    /// Those of the copy.
    pub fn is_copied(&self) -> Result<bool, DeviceError> {
        self.copied.is_done()
    }

    /// What is in it, once the last copy is done.
    ///
    /// # Errors
    /// Those of the copy.
    pub fn floats(&mut self) -> Result<&mut [f32], DeviceError> {
        self.copied.wait()?;
        self.memory.as_mut_slice().doing("reading pinned memory")
    }

    /// Copies all of it to the device, in the order of `stream`.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn upload(&self, to: &mut CudaViewMut<'_, f32>, stream: &Arc<CudaStream>) -> Result<(), DeviceError> {
        stream.memcpy_htod(&self.memory, to).doing("copying to the device")?;
        self.copied.record(stream)
    }

    /// Fills it from the device, in the order of `stream`.
    ///
    /// # Errors
    /// When the driver refuses.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn download(
        &mut self,
        from: &CudaView<'_, f32>,
        stream: &Arc<CudaStream>,
    ) -> Result<(), DeviceError> {
        assert_eq!(self.len(), from.len(), "as many floats are copied as there is room for");
        stream.memcpy_dtoh(from, &mut self.memory).doing("copying from the device")?;
        self.copied.record(stream)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A device that has failed copies no more.
        let _failed = self.copied.wait();
    }
}

/// Zeros, in the order of `stream`.
///
/// # Errors
/// When the driver refuses.
pub fn clear(floats: &mut CudaViewMut<'_, f32>, stream: &Arc<CudaStream>) -> Result<(), DeviceError> {
    stream.memset_zeros(floats).doing("clearing device memory")
}
