//! The driver's library, libcuda, and the devices that it finds. Queries create no context, so they cost no device
//! memory.

use std::ffi::{CStr, c_char, c_int, c_uint};

use serde::Serialize;

use crate::library::{Absent, Library, LibraryNames, Origin};

const WANTED: LibraryNames = LibraryNames {
    name: "the NVIDIA driver (libcuda)",
    // The second name may be the toolkit's stub, which reports that it is one.
    files: &["libcuda.so.1", "libcuda.so"],
    variable: None,
    packages: &[],
};

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR` of cuda.h.
const CAPABILITY: [c_int; 2] = [75, 76];

/// Result codes of cuda.h.
mod code {
    use super::c_int;

    pub(super) const SUCCESS: c_int = 0;
    pub(super) const STUB_LIBRARY: c_int = 34;
    pub(super) const NO_DEVICE: c_int = 100;
    pub(super) const SYSTEM_NOT_READY: c_int = 802;
    pub(super) const SYSTEM_DRIVER_MISMATCH: c_int = 803;
    pub(super) const COMPAT_NOT_SUPPORTED: c_int = 804;
}

/// Returns the values of cuda.h that this crate relies on, by name. A test compares them with the header.
#[doc(hidden)]
#[must_use]
pub fn assumptions() -> Vec<(&'static str, u64)> {
    let codes = [
        ("CUDA_SUCCESS", code::SUCCESS),
        ("CUDA_ERROR_STUB_LIBRARY", code::STUB_LIBRARY),
        ("CUDA_ERROR_NO_DEVICE", code::NO_DEVICE),
        ("CUDA_ERROR_SYSTEM_NOT_READY", code::SYSTEM_NOT_READY),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", code::SYSTEM_DRIVER_MISMATCH),
        ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", code::COMPAT_NOT_SUPPORTED),
        ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", CAPABILITY[0]),
        ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", CAPABILITY[1]),
    ];
    codes.into_iter().map(|(name, code)| (name, code as u64)).collect()
}
/// The size of the buffer for the driver's texts, in bytes. Every device name fits.
const NAME_BYTES: usize = 256;

/// The reason why there is no usable driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NoDriver {
    /// The driver's library cannot be used.
    #[error(transparent)]
    Library {
        /// The reason.
        #[serde(flatten)]
        #[from]
        absent: Absent,
    },
    /// `CUDA_ERROR_NO_DEVICE`.
    #[error(
        "the driver's library is installed but finds no device: no GPU is visible to this process (check \
         CUDA_VISIBLE_DEVICES and the container's devices), or the kernel module is not loaded"
    )]
    NoDevice,
    /// `CUDA_ERROR_STUB_LIBRARY`: the library is the toolkit's stub for linking, not the driver's.
    #[error(
        "libcuda is the toolkit's stub, which is for linking only: put the driver's library before it on the path"
    )]
    Stub,
    /// `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH` or `CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE`.
    #[error(
        "libcuda does not match the kernel module ({code}): after an update of the driver, reload the module or \
         restart the machine"
    )]
    Mismatch {
        /// The driver's code.
        code: c_int,
    },
    /// `CUDA_ERROR_SYSTEM_NOT_READY`.
    #[error("the system is not ready ({code}): on a machine with NVSwitch, start the fabric manager")]
    NotReady {
        /// The driver's code.
        code: c_int,
    },
    /// Any other result code.
    #[error("{function} returned {code} (CUresult of cuda.h)")]
    Refused {
        /// The function.
        function: &'static str,
        /// The driver's code.
        code: c_int,
    },
}

/// A GPU, as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The index of the device among those that this process sees.
    pub ordinal: c_int,
    /// The name of the model.
    pub name: String,
    /// The compute capability, as (major, minor).
    pub compute_capability: (c_int, c_int),
    /// The size of the device's memory, in bytes.
    pub memory_bytes: usize,
    /// The address on the PCI bus. Unlike the ordinal, it is the same in every process.
    pub pci_bus_id: String,
}

/// A working driver.
#[derive(Debug)]
pub struct Driver {
    /// The library, libcuda.
    pub library: Library,
    /// The newest CUDA release that the driver supports: 13000 stands for 13.0.
    pub cuda_version: c_int,
    /// The devices, at least one.
    pub devices: Vec<Device>,
}

/// The facts about a driver that are reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriverFacts {
    /// The path of the library.
    pub path: std::path::PathBuf,
    /// The place in which the library was found.
    pub origin: Origin,
    /// The newest CUDA release that the driver supports, as (major, minor).
    pub cuda: (c_int, c_int),
    /// The devices, at least one.
    pub devices: Vec<Device>,
}

/// The driver's functions, as cuda.h declares them.
struct Functions {
    init: unsafe extern "C" fn(c_uint) -> c_int,
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    count: unsafe extern "C" fn(*mut c_int) -> c_int,
    get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int,
    name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    memory: unsafe extern "C" fn(*mut usize, c_int) -> c_int,
    attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int,
    bus: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
}

impl Functions {
    fn new(library: &Library) -> Result<Self, Absent> {
        // SAFETY: the types are those of cuda.h, unchanged since these functions were introduced (CUDA 3.2 and before).
        unsafe {
            Ok(Self {
                init: library.function("cuInit")?,
                version: library.function("cuDriverGetVersion")?,
                count: library.function("cuDeviceGetCount")?,
                get: library.function("cuDeviceGet")?,
                name: library.function("cuDeviceGetName")?,
                memory: library.function("cuDeviceTotalMem_v2")?,
                attribute: library.function("cuDeviceGetAttribute")?,
                bus: library.function("cuDeviceGetPCIBusId")?,
            })
        }
    }

    fn device(&self, ordinal: c_int) -> Result<Device, NoDriver> {
        let (mut device, mut memory_bytes, mut capability) = (0, 0, [0; 2]);
        // SAFETY: each call writes one integer to a valid place, or fails and writes nothing.
        unsafe {
            check("cuDeviceGet", (self.get)(&raw mut device, ordinal))?;
            check("cuDeviceTotalMem", (self.memory)(&raw mut memory_bytes, device))?;
            for (value, attribute) in capability.iter_mut().zip(CAPABILITY) {
                check("cuDeviceGetAttribute", (self.attribute)(value, attribute, device))?;
            }
        }
        Ok(Device {
            ordinal,
            name: text("cuDeviceGetName", self.name, device)?,
            compute_capability: (capability[0], capability[1]),
            memory_bytes,
            pci_bus_id: text("cuDeviceGetPCIBusId", self.bus, device)?,
        })
    }
}

impl Driver {
    /// Opens the driver's library, initializes it and lists its devices.
    ///
    /// # Errors
    /// Returns the reason if there is no usable driver or no device.
    pub fn open() -> Result<Self, NoDriver> {
        let library = Library::open(&WANTED)?;
        let functions = Functions::new(&library)?;
        let (mut cuda_version, mut count) = (0, 0);
        // SAFETY: cuInit may be called at any time and repeatedly. The other calls write one integer each to a valid
        // place.
        unsafe {
            check("cuInit", (functions.init)(0))?;
            check("cuDriverGetVersion", (functions.version)(&raw mut cuda_version))?;
            check("cuDeviceGetCount", (functions.count)(&raw mut count))?;
        }
        if count == 0 {
            return Err(NoDriver::NoDevice);
        }
        let devices = (0..count).map(|ordinal| functions.device(ordinal)).collect::<Result<_, _>>()?;
        Ok(Self { library, cuda_version, devices })
    }

    /// Returns the facts that are reported.
    #[must_use]
    pub fn facts(&self) -> DriverFacts {
        DriverFacts {
            path: self.library.path.clone(),
            origin: self.library.origin,
            cuda: (self.cuda_version / 1_000, self.cuda_version % 1_000 / 10),
            devices: self.devices.clone(),
        }
    }
}

/// Returns the driver's library if this process has already loaded it.
pub(crate) fn mapped() -> Option<Library> {
    Library::mapped(&WANTED)
}

/// A device that this process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedDevice {
    /// The index of the device among those that this process sees.
    pub ordinal: u32,
    /// The address on the PCI bus.
    pub bus_id: String,
}

impl UsedDevice {
    /// Describes a device by its handle, which is its ordinal.
    fn new(device: c_int, bus: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int) -> Option<Self> {
        let bus_id = text("cuDeviceGetPCIBusId", bus, device).ok()?;
        Some(Self { ordinal: u32::try_from(device).ok()?, bus_id })
    }
}

/// Returns the device of the calling thread's context, without opening or initializing anything. Returns `None` if this
/// process has not loaded the driver or the thread has no context.
#[must_use]
pub fn current() -> Option<UsedDevice> {
    let library = mapped()?;
    // SAFETY: the types are those of cuda.h.
    let (current, bus) = unsafe {
        (
            library.function::<unsafe extern "C" fn(*mut c_int) -> c_int>("cuCtxGetDevice").ok()?,
            library
                .function::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>("cuDeviceGetPCIBusId")
                .ok()?,
        )
    };
    let mut device = 0;
    // SAFETY: the call writes one integer to a valid place, or fails and writes nothing.
    check("cuCtxGetDevice", unsafe { current(&raw mut device) }).ok()?;
    UsedDevice::new(device, bus)
}

/// Returns the first device on which this process has an active primary context, which frameworks and the CUDA runtime
/// use. Opens, initializes and creates nothing. Returns `None` if there is no such device or the driver is not
/// initialized.
#[must_use]
pub fn used_device() -> Option<UsedDevice> {
    let library = mapped()?;
    let functions = Functions::new(&library).ok()?;
    // SAFETY: the type is that of cuda.h.
    let state = unsafe {
        library
            .function::<unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_int>(
                "cuDevicePrimaryCtxGetState",
            )
            .ok()?
    };
    let mut count = 0;
    // SAFETY: the call writes one integer to a valid place.
    check("cuDeviceGetCount", unsafe { (functions.count)(&raw mut count) }).ok()?;
    let used = (0..count).find_map(|ordinal| {
        let (mut device, mut flags, mut is_active) = (0, 0, 0);
        // SAFETY: each call writes integers to valid places, or fails and writes nothing.
        unsafe {
            check("cuDeviceGet", (functions.get)(&raw mut device, ordinal)).ok()?;
            check("cuDevicePrimaryCtxGetState", state(device, &raw mut flags, &raw mut is_active)).ok()?;
        }
        (is_active != 0).then_some(device)
    });
    UsedDevice::new(used?, functions.bus)
}

/// Returns the text that a function of the driver writes for a device.
fn text(
    function: &'static str,
    write: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    device: c_int,
) -> Result<String, NoDriver> {
    let mut bytes = [0_u8; NAME_BYTES];
    // SAFETY: the driver writes at most `NAME_BYTES` bytes, including a final zero.
    check(function, unsafe { write(bytes.as_mut_ptr().cast(), NAME_BYTES as c_int, device) })?;
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    Ok(text.to_string_lossy().into_owned())
}

/// Converts a `CUresult` to a reason.
fn check(function: &'static str, code: c_int) -> Result<(), NoDriver> {
    Err(match code {
        code::SUCCESS => return Ok(()),
        code::STUB_LIBRARY => NoDriver::Stub,
        code::NO_DEVICE => NoDriver::NoDevice,
        code::SYSTEM_NOT_READY => NoDriver::NotReady { code },
        code::SYSTEM_DRIVER_MISMATCH | code::COMPAT_NOT_SUPPORTED => NoDriver::Mismatch { code },
        code => NoDriver::Refused { function, code },
    })
}
