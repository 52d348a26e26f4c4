//! The door of NCCL: this library is its profiler plugin.
//!
//! NCCL takes the newest of the symbols `ncclProfiler_v1` to `ncclProfiler_v6` that it knows. All versions call the same
//! five functions; what differs is where in an event's description a field lies ([`layout`]).

pub mod layout;
pub(crate) mod names;
pub mod plugin;

pub use layout::KERNEL_CHANNEL_STOP;
pub use layout::event::{COLLECTIVE, GROUP, KERNEL_CHANNEL};
pub use plugin::ncclProfiler_v5;
