//! The NCCL hook: the library is NCCL's profiler plugin.
//!
//! NCCL takes the newest of the symbols `ncclProfiler_v1` to `ncclProfiler_v6` that it knows. All versions call the
//! same five functions. They differ in the offsets of the fields in an event's description ([`layout`]).

pub mod layout;
pub(crate) mod names;
pub mod plugin;

pub use layout::KERNEL_CHANNEL_STOP;
pub use layout::event::{COLLECTIVE, GROUP, KERNEL_CHANNEL};
pub use plugin::ncclProfiler_v5;
