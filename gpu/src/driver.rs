//! The driver's library, libcuda: is there a driver, and which devices does it have? No context is made, so that
//! asking costs no device memory.

use std::ffi::{CStr, c_char, c_int, c_uint};

use serde::Serialize;

use crate::library::{Absent, Library, Origin, Wanted};

const WANTED: Wanted = Wanted {
    name: "the NVIDIA driver (libcuda)",
    // The second is the toolkit's, which says that it is a stub.
    files: &["libcuda.so.1", "libcuda.so"],
    variable: None,
    packages: &[],
};

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR` of cuda.h.
const CAPABILITY: [c_int; 2] = [75, 76];

/// Answers, as cuda.h has them.
mod code {
    use super::c_int;

    pub(super) const SUCCESS: c_int = 0;
    pub(super) const STUB_LIBRARY: c_int = 34;
    pub(super) const NO_DEVICE: c_int = 100;
    pub(super) const SYSTEM_NOT_READY: c_int = 802;
    pub(super) const SYSTEM_DRIVER_MISMATCH: c_int = 803;
    pub(super) const COMPAT_NOT_SUPPORTED: c_int = 804;
}

/// What of cuda.h is relied on here, by the names that it has there: to be compared with the header itself.
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
    codes.into_iter().map(|(name, code)| (name, code as u64)).chain(crate::meter::assumptions()).collect()
}
/// Long enough for every name that the driver has.
const NAME_BYTES: usize = 256;

/// Why there is no usable driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NoDriver {
    /// There is no library.
    #[error(transparent)]
    Library {
        /// What is wrong with it.
        #[serde(flatten)]
        #[from]
        absent: Absent,
    },
    /// `CUDA_ERROR_NO_DEVICE`.
    #[error(
        "the driver's library is here and finds no device: no GPU is visible to this process (CUDA_VISIBLE_DEVICES, \
         the container's devices), or the kernel module is not loaded"
    )]
    NoDevice,
    /// `CUDA_ERROR_STUB_LIBRARY`: the toolkit's library for linking, not the driver's.
    #[error(
        "libcuda is the toolkit's stub, which is for linking only: put the driver's library before it on the path"
    )]
    Stub,
    /// `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH` or `CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE`.
    #[error(
        "libcuda does not match the kernel module ({code}): after an update of the driver, load the module anew or \
         restart the machine"
    )]
    Mismatch {
        /// The driver's code.
        code: c_int,
    },
    /// `CUDA_ERROR_SYSTEM_NOT_READY`.
    #[error("the system is not ready ({code}): on machines with NVSwitch, the fabric manager must run")]
    NotReady {
        /// The driver's code.
        code: c_int,
    },
    /// Any other answer.
    #[error("{function} answers {code} (CUresult of cuda.h)")]
    Refused {
        /// Which call.
        function: &'static str,
        /// The driver's code.
        code: c_int,
    },
}

/// A GPU as the driver names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its number among those visible to this process.
    pub ordinal: c_int,
    /// Its name.
    pub name: String,
    /// Compute capability, as (major, minor).
    pub compute_capability: (c_int, c_int),
    /// Memory, in bytes.
    pub memory_bytes: usize,
    /// Its address on the PCI bus: the same for every process, unlike the ordinal.
    pub pci_bus_id: String,
}

/// A driver that works.
#[derive(Debug)]
pub struct Driver {
    /// libcuda.
    pub library: Library,
    /// The newest CUDA that it supports: 13000 is 13.0.
    pub cuda_version: c_int,
    /// At least one.
    pub devices: Vec<Device>,
}

/// What of a driver is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriverFacts {
    /// The file.
    pub path: std::path::PathBuf,
    /// How it was found.
    pub origin: Origin,
    /// The newest CUDA that it supports, as (major, minor).
    pub cuda: (c_int, c_int),
    /// At least one.
    pub devices: Vec<Device>,
}

/// The functions that are used, as cuda.h declares them.
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
    fn of(library: &Library) -> Result<Self, Absent> {
        // SAFETY: the types are those of cuda.h, which have not changed since these functions came (3.2 and before).
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
        // SAFETY: each call writes one integer to the place it is given, or fails and writes nothing.
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
    /// Opens the driver's library, initialises it and lists its devices.
    ///
    /// # Errors
    /// When there is no driver or no device; the reason says which.
    pub fn open() -> Result<Self, NoDriver> {
        let library = Library::open(&WANTED)?;
        let functions = Functions::of(&library)?;
        let (mut cuda_version, mut count) = (0, 0);
        // SAFETY: cuInit may be called at any time and any number of times; the others write one integer each.
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

    /// What there is to tell of it.
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

/// The driver's library, if this process has it already.
pub(crate) fn mapped() -> Option<Library> {
    Library::mapped(&WANTED)
}

/// A device as the process that uses it knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedDevice {
    /// Its number among those that this process sees.
    pub ordinal: u32,
    /// Its PCI address.
    pub bus_id: String,
}

impl UsedDevice {
    /// A device's handle is its number.
    fn of(device: c_int, bus: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int) -> Option<Self> {
        let bus_id = text("cuDeviceGetPCIBusId", bus, device).ok()?;
        Some(Self { ordinal: u32::try_from(device).ok()?, bus_id })
    }
}

/// The device that the calling thread works on; `None` where this process has no driver, or the thread no context.
/// Nothing is opened or initialised for it.
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
    // SAFETY: one integer is written, or the call fails and writes nothing.
    check("cuCtxGetDevice", unsafe { current(&raw mut device) }).ok()?;
    UsedDevice::of(device, bus)
}

/// The first device that this process has a primary context on, which frameworks and the CUDA runtime use; `None`
/// where it has none, or the driver is not initialised. Nothing is opened, initialised or made for it.
#[must_use]
pub fn in_use() -> Option<UsedDevice> {
    let library = mapped()?;
    let functions = Functions::of(&library).ok()?;
    // SAFETY: the type is that of cuda.h.
    let state = unsafe {
        library
            .function::<unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_int>(
                "cuDevicePrimaryCtxGetState",
            )
            .ok()?
    };
    let mut count = 0;
    // SAFETY: one integer is written.
    check("cuDeviceGetCount", unsafe { (functions.count)(&raw mut count) }).ok()?;
    let used = (0..count).find_map(|ordinal| {
        let (mut device, mut flags, mut is_active) = (0, 0, 0);
        // SAFETY: each call writes integers to the places it is given, or fails and writes nothing.
        unsafe {
            check("cuDeviceGet", (functions.get)(&raw mut device, ordinal)).ok()?;
            check("cuDevicePrimaryCtxGetState", state(device, &raw mut flags, &raw mut is_active)).ok()?;
        }
        (is_active != 0).then_some(device)
    });
    UsedDevice::of(used?, functions.bus)
}

/// A text that the driver writes into a buffer.
fn text(
    function: &'static str,
    write: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    device: c_int,
) -> Result<String, NoDriver> {
    let mut bytes = [0_u8; NAME_BYTES];
    // SAFETY: the driver writes at most as many bytes as it is told, the last of them a zero.
    check(function, unsafe { write(bytes.as_mut_ptr().cast(), NAME_BYTES as c_int, device) })?;
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    Ok(text.to_string_lossy().into_owned())
}

/// A `CUresult` as a reason.
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
