//! Activity records, read by the prefix that all of their versions share.
//!
//! Newer releases append fields to records and never move one, at least from CUDA 12.1 to 13.5. A test fills records
//! with NVIDIA's headers of several releases and reads them with this module. Only CUPTI knows the length of a record,
//! so `cuptiActivityGetNextRecord` must step from one to the next. Kinds are plain integers, so that unknown kinds are
//! skipped.

use std::ffi::{CStr, c_char};

/// The values of `CUpti_ActivityKind` that are read.
pub mod kind {
    /// A copy.
    pub const MEMCPY: u32 = 1;
    /// A fill of memory with a value.
    pub const MEMSET: u32 = 2;
    /// A call of the driver.
    pub const DRIVER: u32 = 4;
    /// A call of the runtime.
    pub const RUNTIME: u32 = 5;
    /// A kernel that may run concurrently with others. (Kind 3 would serialize kernels.)
    pub const CONCURRENT_KERNEL: u32 = 10;
    /// The overhead of profiling.
    pub const OVERHEAD: u32 = 17;
    /// The operation of the host to which a call belongs.
    pub const EXTERNAL_CORRELATION: u32 = 39;
}

/// The start and end of an activity, in nanoseconds on CUPTI's clock. Both are 0 if the device did not report them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The start.
    pub start: u64,
    /// The end.
    pub end: u64,
}

/// The place in which an activity ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityOrigin {
    /// The device's ordinal.
    pub device: u32,
    /// The context.
    pub context: u32,
    /// The stream.
    pub stream: u32,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A kernel.
    Kernel {
        /// The times at which the kernel ran.
        times: Times,
        /// The place in which the kernel ran.
        place: ActivityOrigin,
        /// The correlation id of the call that launched the kernel.
        correlation: u32,
        /// The mangled name.
        name: String,
        /// The id of the kernel's node in a CUDA graph, or 0 outside of graphs.
        graph_node: u64,
    },
    /// A copy.
    Memcpy {
        /// The times at which the copy ran.
        times: Times,
        /// The place in which the copy ran.
        place: ActivityOrigin,
        /// The correlation id of the call.
        correlation: u32,
        /// The size of the copy, in bytes.
        bytes: u64,
        /// `CUpti_ActivityMemcpyKind`: 1 to the device, 2 from the device, 8 within the device, 10 between two devices.
        direction: u8,
    },
    /// A fill of memory with a value.
    Memset {
        /// The times at which the fill ran.
        times: Times,
        /// The place in which the fill ran.
        place: ActivityOrigin,
        /// The correlation id of the call.
        correlation: u32,
        /// The size of the fill, in bytes.
        bytes: u64,
    },
    /// The operation of the host to which a call belongs.
    ExternalCorrelation {
        /// The namespace of the id: 3 and 4 belong to PyTorch's profiler, 5 to this crate.
        kind: u32,
        /// The id of the operation.
        id: u64,
        /// The correlation id of the call.
        correlation: u32,
    },
    /// The overhead of profiling.
    Overhead {
        /// The times of the overhead.
        times: Times,
    },
    /// A record of another kind.
    Other {
        /// The kind.
        kind: u32,
    },
}

impl Record {
    /// Reads a record.
    ///
    /// # Safety
    /// `at` must point to an activity record that CUPTI wrote. If it is a kernel's, its name must be null or still
    /// valid.
    #[must_use]
    pub unsafe fn read(at: *const u8) -> Self {
        // SAFETY: the caller guarantees the record, and offsets and widths are those of cupti_activity.h.
        unsafe {
            let times = |offset| Times { start: get(at, offset), end: get(at, offset + 8) };
            let place = |offset| ActivityOrigin {
                device: get(at, offset),
                context: get(at, offset + 4),
                stream: get(at, offset + 8),
            };
            match get::<u32>(at, 0) {
                kind::CONCURRENT_KERNEL => Self::Kernel {
                    times: times(16),
                    place: place(40),
                    correlation: get(at, 92),
                    name: text(get(at, 104)),
                    graph_node: get(at, 144),
                },
                kind::MEMCPY => Self::Memcpy {
                    times: times(16),
                    place: place(32),
                    correlation: get(at, 44),
                    bytes: get(at, 8),
                    direction: get(at, 4),
                },
                kind::MEMSET => Self::Memset {
                    times: times(16),
                    place: place(32),
                    correlation: get(at, 44),
                    bytes: get(at, 8),
                },
                kind::EXTERNAL_CORRELATION => {
                    Self::ExternalCorrelation { kind: get(at, 4), id: get(at, 8), correlation: get(at, 16) }
                }
                kind::OVERHEAD => Self::Overhead { times: times(24) },
                kind => Self::Other { kind },
            }
        }
    }
}

/// Reads the field that lies `offset` bytes after `at`.
///
/// # Safety
/// There must be a valid `T` at `offset` bytes after `at`.
unsafe fn get<T: Copy>(at: *const u8, offset: usize) -> T {
    // SAFETY: the caller guarantees a `T` there. CUPTI's records are packed, so the field may be unaligned.
    unsafe { at.byte_add(offset).cast::<T>().read_unaligned() }
}

/// Returns a copy of a C string, or an empty string for null.
///
/// # Safety
/// `text` must be null or point to a C string.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller guarantees a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
