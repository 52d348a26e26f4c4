//! Activity records, by the prefix that all versions share.
//!
//! Records grow from release to release and never move a field, from CUDA 12.1 to 13.5 at least: a test fills them by
//! NVIDIA's own headers of several releases and reads them here. Only CUPTI knows how long a record is: step from one
//! to the next with `cuptiActivityGetNextRecord`. Kinds are plain integers, so that one which is newer than this crate
//! is passed over.

use std::ffi::{CStr, c_char};

/// `CUpti_ActivityKind`s that are read.
pub mod kind {
    /// A copy.
    pub const MEMCPY: u32 = 1;
    /// Memory set to a value.
    pub const MEMSET: u32 = 2;
    /// A kernel that may run beside others. (Kind 3 makes kernels run one after the other.)
    pub const CONCURRENT_KERNEL: u32 = 10;
    /// What profiling itself cost.
    pub const OVERHEAD: u32 = 17;
    /// Which of the host's operations something belongs to.
    pub const EXTERNAL_CORRELATION: u32 = 39;
}

/// From when until when, in nanoseconds of CUPTI's clock. Both are 0 where the device did not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// It began.
    pub start: u64,
    /// It ended.
    pub end: u64,
}

/// Where something ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
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
        /// When it ran.
        times: Times,
        /// Where.
        place: Place,
        /// Joins it with the call that launched it.
        correlation: u32,
        /// Its mangled name.
        name: String,
        /// The node of the CUDA graph that it is, 0 outside graphs.
        graph_node: u64,
    },
    /// A copy.
    Memcpy {
        /// When it ran.
        times: Times,
        /// Where.
        place: Place,
        /// Joins it with its call.
        correlation: u32,
        /// How much, in bytes.
        bytes: u64,
        /// `CUpti_ActivityMemcpyKind`: 1 to the device, 2 from it, 8 within it, 10 between two.
        direction: u8,
    },
    /// Memory was set.
    Memset {
        /// When it ran.
        times: Times,
        /// Where.
        place: Place,
        /// Joins it with its call.
        correlation: u32,
        /// How much, in bytes.
        bytes: u64,
    },
    /// An operation of the host's.
    ExternalCorrelation {
        /// Who gave the number: 3 and 4 are PyTorch's profiler, 5 is ours.
        kind: u32,
        /// The number.
        id: u64,
        /// The call that it belongs to.
        correlation: u32,
    },
    /// What profiling cost.
    Overhead {
        /// When.
        times: Times,
    },
    /// Anything else.
    Other {
        /// Its kind.
        kind: u32,
    },
}

impl Record {
    /// Reads a record.
    ///
    /// # Safety
    /// `at` must point to an activity record that CUPTI wrote, and the name of a kernel in it must be null or still be
    /// there.
    #[must_use]
    pub unsafe fn read(at: *const u8) -> Self {
        // SAFETY: the caller vouches for the record; offsets and widths are those of cupti_activity.h.
        unsafe {
            let times = |offset| Times { start: get(at, offset), end: get(at, offset + 8) };
            let place = |offset| Place {
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

/// # Safety
/// There must be a `T` so many bytes after `at`.
unsafe fn get<T: Copy>(at: *const u8, offset: usize) -> T {
    // SAFETY: the caller vouches for it. CUPTI's records are packed to 8 bytes, and some fields lie less evenly.
    unsafe { at.byte_add(offset).cast::<T>().read_unaligned() }
}

/// # Safety
/// `text` must be null or point to a text that a zero ends.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller vouches for it.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
