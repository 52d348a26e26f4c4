//! Where fields lie in what NCCL passes to a profiler plugin, by version of the interface.
//!
//! Offsets and codes are those of NVIDIA's public headers (`src/include/plugin/profiler` of NCCL 2.30, x86-64); a test
//! drives the plugin with descriptions that are laid out by a table of their own. Fields are read by offset, codes as
//! plain integers: an enum would be undefined behaviour the day NCCL passes a newer one.

use std::ffi::{CStr, c_char, c_void};

use super::names::{bytes_of_code, bytes_of_name, function_of_name};
use crate::trail::Function;

/// Types of events, as bits of the activation mask.
pub mod event {
    /// What is launched as one kernel. NCCL tells of it to whoever asks for what is in it, and of [`MESSAGE`] to
    /// whoever asks for kernels.
    pub const GROUP: u64 = 1 << 0;
    /// A collective, from the call to the enqueueing of its kernel.
    pub const COLLECTIVE: u64 = 1 << 1;
    /// A send or a receive, from the call to the enqueueing of its kernel.
    pub const MESSAGE: u64 = 1 << 2;
    /// The part of a kernel that serves one channel, as it runs on the GPU.
    pub const KERNEL_CHANNEL: u64 = 1 << 6;
}

/// The state in which a kernel's channel says when it stopped.
pub const KERNEL_CHANNEL_STOP: i32 = 22;

/// One version of the interface.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The type of an event has 64 bits instead of 8.
    wide_type: bool,
    /// The communicator's number; from version 4 on it is told once, when the communicator is made.
    communicator: Option<usize>,
    seq: usize,
    function: usize,
    count: usize,
    datatype: usize,
    channels: usize,
    /// Function and data type are codes instead of names.
    coded: bool,
    /// `None` where NCCL tells of sends and receives only to whoever asks for them.
    message: Option<MessageLayout>,
    /// Kernels are told of.
    has_kernels: bool,
    /// Time stamps of the GPU's clock, here and in the arguments of [`KERNEL_CHANNEL_STOP`].
    gpu_time: Option<usize>,
}

/// Fields of a send or a receive.
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
    /// `None` where the context says it.
    pub communicator: Option<u64>,
    /// What it does.
    pub function: Function,
    /// The how manieth of its function on its communicator.
    pub seq: u64,
    /// Payload, in bytes.
    pub bytes: u64,
    /// Channels it is spread over.
    pub channels: u8,
}

/// A send or a receive as NCCL describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// `None` where the context says it.
    pub communicator: Option<u64>,
    /// Whose it is, by its rank in the communicator.
    pub rank: u32,
    /// Who is at the other end.
    pub peer: u32,
    /// A send.
    pub is_sent: bool,
    /// Payload, in bytes.
    pub bytes: u64,
    /// Channels it is spread over; as many as there may be before version 4.
    pub channels: u8,
}

/// The beginning of a kernel's channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelChannel {
    /// The handle of its collective.
    pub parent: u64,
    /// When it began by the GPU's clock.
    pub gpu: Option<u64>,
}

/// What an event is.
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
    /// Anything else, which was not asked for.
    Other,
}

impl Layout {
    /// Whether this version tells when a collective's kernel ran, and not only when it was enqueued.
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
        // SAFETY: the caller vouches for the version, and with it for the offsets.
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

    /// # Safety
    /// As [`Self::description`], of a collective.
    unsafe fn collective(&self, at: *const c_void) -> Collective {
        // SAFETY: the caller vouches for it.
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

    /// # Safety
    /// As [`Self::description`], of a send or a receive.
    unsafe fn message(&self, at: *const c_void) -> Option<Message> {
        let layout = self.message?;
        // SAFETY: the caller vouches for it.
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

    /// Whether a channel's end is told with the GPU's time, in [`KERNEL_CHANNEL_STOP`].
    #[must_use]
    pub fn has_gpu_time(&self) -> bool {
        self.gpu_time.is_some()
    }

    /// The GPU's time in the arguments of [`KERNEL_CHANNEL_STOP`].
    ///
    /// # Safety
    /// `arguments` must be null or point to the arguments of that state, of this version of the interface.
    #[must_use]
    pub unsafe fn stop_time(&self, arguments: *const c_void) -> Option<u64> {
        // SAFETY: the caller vouches for it; the time is the first field.
        (self.has_gpu_time() && !arguments.is_null()).then(|| unsafe { read::<u64>(arguments, 0) })
    }
}

/// # Safety
/// There must be a `T` so many bytes after `at`.
unsafe fn read<T: Copy>(at: *const c_void, offset: usize) -> T {
    // SAFETY: the caller vouches for it.
    unsafe { at.byte_add(offset).cast::<T>().read_unaligned() }
}

/// # Safety
/// There must be a pointer so many bytes after `at`, which is null or points to a text that a zero ends.
unsafe fn name<'a>(at: *const c_void, offset: usize) -> &'a [u8] {
    // SAFETY: the caller vouches for it.
    unsafe { text(read::<*const c_char>(at, offset)) }
}

/// # Safety
/// `text` must be null or point to a text that a zero ends.
unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: the caller vouches for it.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

#[cfg(test)]
mod fuzz;
