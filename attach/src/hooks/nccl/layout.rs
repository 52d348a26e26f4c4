//! The layout of what NCCL passes to a profiler plugin, for each version of the interface.
//!
//! Offsets and codes are those of NVIDIA's public headers (`src/include/plugin/profiler` of NCCL 2.30, x86-64). A test
//! drives the plugin with descriptions that are laid out by an independent table. Fields are read by offset, and codes
//! as plain integers: an enum would be undefined behavior if NCCL passed a newer code.

use std::ffi::{CStr, c_char, c_void};

use super::names::{bytes_of_code, bytes_of_name, function_of_name};
use crate::call_log::Function;

/// Types of events, as bits of the activation mask.
pub mod event {
    /// A group of operations launched as one kernel. NCCL reports it to plugins that request any event inside it, and
    /// [`MESSAGE`] to plugins that request kernels.
    pub const GROUP: u64 = 1 << 0;
    /// A collective, from the call to the enqueueing of its kernel.
    pub const COLLECTIVE: u64 = 1 << 1;
    /// A send or a receive, from the call to the enqueueing of its kernel.
    pub const MESSAGE: u64 = 1 << 2;
    /// The part of a kernel that serves one channel, as it runs on the GPU.
    pub const KERNEL_CHANNEL: u64 = 1 << 6;
}

/// The state in which a kernel's channel reports its end.
pub const KERNEL_CHANNEL_STOP: i32 = 22;

/// The layout of one version of the interface.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Whether the type of an event has 64 bits instead of 8.
    wide_type: bool,
    /// The communicator's number. From version 4 on, NCCL passes it only when it creates the communicator.
    communicator: Option<usize>,
    seq: usize,
    function: usize,
    count: usize,
    datatype: usize,
    channels: usize,
    /// Whether function and data type are codes instead of names.
    coded: bool,
    /// The fields of a message; `None` if NCCL reports sends and receives only on request.
    message: Option<MessageLayout>,
    /// Whether kernels are reported.
    has_kernels: bool,
    /// The time stamp of the GPU's clock. If present, the arguments of [`KERNEL_CHANNEL_STOP`] contain one too.
    gpu_time: Option<usize>,
}

/// The layout of a send or a receive.
#[derive(Clone, Copy, Debug)]
struct MessageLayout {
    communicator: Option<usize>,
    function: usize,
    datatype: usize,
    count: usize,
    peer: usize,
    channels: Option<usize>,
}

const PARENT: usize = 8;
const RANK: usize = 16;

/// Version 1 (NCCL 2.23).
pub const V1: Layout = Layout {
    wide_type: false,
    communicator: Some(32),
    seq: 40,
    function: 48,
    count: 72,
    datatype: 84,
    channels: 104,
    coded: true,
    message: None,
    has_kernels: false,
    gpu_time: None,
};
/// Version 2 (NCCL 2.24 and 2.25).
pub const V2: Layout = Layout { datatype: 88, coded: false, ..V1 };
/// Version 3 (NCCL 2.26).
pub const V3: Layout = Layout {
    channels: 96,
    message: Some(MessageLayout {
        communicator: Some(32),
        function: 40,
        datatype: 56,
        count: 64,
        peer: 72,
        channels: None,
    }),
    has_kernels: true,
    ..V2
};
/// Version 4 (NCCL 2.27).
pub const V4: Layout = Layout {
    communicator: None,
    seq: 24,
    function: 32,
    count: 56,
    datatype: 72,
    channels: 80,
    message: Some(MessageLayout {
        communicator: None,
        function: 24,
        datatype: 40,
        count: 48,
        peer: 56,
        channels: Some(60),
    }),
    gpu_time: Some(32),
    ..V3
};
/// Version 5 (NCCL 2.28).
pub const V5: Layout = Layout { wide_type: true, ..V4 };
/// Version 6 (NCCL 2.29 and later).
pub const V6: Layout = V5;

/// A collective as NCCL describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The communicator's number; `None` if the context holds it.
    pub communicator: Option<u64>,
    /// The operation.
    pub function: Function,
    /// The index among the collectives of this function on this communicator.
    pub seq: u64,
    /// The payload, in bytes.
    pub bytes: u64,
    /// The number of channels assigned.
    pub channels: u8,
}

/// A send or a receive as NCCL describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The communicator's number; `None` if the context holds it.
    pub communicator: Option<u64>,
    /// The reporting rank, by its rank in the communicator.
    pub rank: u32,
    /// The rank at the other end.
    pub peer: u32,
    /// Whether this is a send.
    pub is_sent: bool,
    /// The payload, in bytes.
    pub bytes: u64,
    /// The number of channels assigned. Before version 4, the largest possible number.
    pub channels: u8,
}

/// The start of a kernel's channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelChannel {
    /// The handle of the collective.
    pub parent: u64,
    /// The start, by the GPU's clock.
    pub gpu: Option<u64>,
}

/// An event by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description {
    /// See [`event::COLLECTIVE`].
    Collective(Collective),
    /// See [`event::GROUP`].
    Group,
    /// See [`event::MESSAGE`].
    Message(Message),
    /// See [`event::KERNEL_CHANNEL`].
    KernelChannel(KernelChannel),
    /// Any other event, which was not requested.
    Other,
}

impl Layout {
    /// Returns whether this version reports when a collective's kernel ran, and not only when it was enqueued.
    #[must_use]
    pub fn has_kernels(&self) -> bool {
        self.has_kernels
    }

    /// Reads a description.
    ///
    /// # Safety
    /// `at` must point to an event's description of this version of the interface.
    #[must_use]
    pub unsafe fn description(&self, at: *const c_void) -> Description {
        // SAFETY: the caller guarantees the version, and with it the offsets.
        unsafe {
            let kind = if self.wide_type { read::<u64>(at, 0) } else { u64::from(read::<u8>(at, 0)) };
            match kind {
                event::COLLECTIVE => Description::Collective(self.collective(at)),
                event::GROUP => Description::Group,
                event::MESSAGE => self.message(at).map_or(Description::Other, Description::Message),
                event::KERNEL_CHANNEL => Description::KernelChannel(KernelChannel {
                    parent: read::<u64>(at, PARENT),
                    gpu: self.gpu_time.map(|offset| read::<u64>(at, offset)),
                }),
                _ => Description::Other,
            }
        }
    }

    /// Reads the description of a collective.
    ///
    /// # Safety
    /// As for [`Self::description`]; the event must be a collective.
    unsafe fn collective(&self, at: *const c_void) -> Collective {
        // SAFETY: the caller guarantees a collective's description of this version.
        unsafe {
            let (function, width) = if self.coded {
                let function = Function::from_code(read::<u8>(at, self.function));
                (function, bytes_of_code(read::<u8>(at, self.datatype).into()))
            } else {
                let function = function_of_name(name(at, self.function)).unwrap_or(Function::Other);
                (function, bytes_of_name(name(at, self.datatype)))
            };
            Collective {
                communicator: self.communicator.map(|offset| read::<u64>(at, offset)),
                function,
                seq: read::<u64>(at, self.seq),
                bytes: read::<u64>(at, self.count).saturating_mul(width),
                channels: read::<u8>(at, self.channels),
            }
        }
    }

    /// Reads the description of a send or a receive.
    ///
    /// # Safety
    /// As for [`Self::description`]; the event must be a send or a receive.
    unsafe fn message(&self, at: *const c_void) -> Option<Message> {
        let layout = self.message?;
        // SAFETY: the caller guarantees a message's description of this version.
        unsafe {
            Some(Message {
                communicator: layout.communicator.map(|offset| read::<u64>(at, offset)),
                rank: read::<i32>(at, RANK).try_into().ok()?,
                peer: read::<i32>(at, layout.peer).try_into().ok()?,
                is_sent: match name(at, layout.function) {
                    b"Send" => true,
                    b"Recv" => false,
                    _ => return None,
                },
                bytes: read::<u64>(at, layout.count).saturating_mul(bytes_of_name(name(at, layout.datatype))),
                channels: layout.channels.map_or(u8::MAX, |offset| read::<u8>(at, offset)),
            })
        }
    }

    /// Returns whether [`KERNEL_CHANNEL_STOP`] reports the end of a channel with the GPU's time.
    #[must_use]
    pub fn has_gpu_time(&self) -> bool {
        self.gpu_time.is_some()
    }

    /// Reads the GPU's time from the arguments of [`KERNEL_CHANNEL_STOP`].
    ///
    /// # Safety
    /// `arguments` must be null or point to the arguments of that state, of this version of the interface.
    #[must_use]
    pub unsafe fn stop_time(&self, arguments: *const c_void) -> Option<u64> {
        // SAFETY: the arguments are not null, so the caller guarantees that they are valid. The time is their first
        // field.
        (self.has_gpu_time() && !arguments.is_null()).then(|| unsafe { read::<u64>(arguments, 0) })
    }
}

/// Reads a field.
///
/// # Safety
/// There must be a `T` at `offset` bytes after `at`.
unsafe fn read<T: Copy>(at: *const c_void, offset: usize) -> T {
    // SAFETY: the caller guarantees a `T` there.
    unsafe { at.byte_add(offset).cast::<T>().read_unaligned() }
}

/// Reads the string that a field points to.
///
/// # Safety
/// There must be a pointer at `offset` bytes after `at`, which is null or points to a C string.
unsafe fn name<'a>(at: *const c_void, offset: usize) -> &'a [u8] {
    // SAFETY: the caller guarantees the pointer and its string.
    unsafe { text(read::<*const c_char>(at, offset)) }
}

/// Reads a string; empty if the pointer is null.
///
/// # Safety
/// `text` must be null or point to a C string.
unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: `text` is not null, so the caller guarantees a C string.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

#[cfg(test)]
mod fuzz;
