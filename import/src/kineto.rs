//! Traces by PyTorch's profiler (Kineto): JSON in Chrome's format, one file per rank.
//!
//! Releases of PyTorch differ in what they write; `docs/import.md` has the list. Here it matters that
//!
//! - times are in microseconds, as whole numbers, as decimals, or as decimals from `baseTimeNanoseconds` on;
//! - what ran on the device has `args.stream`, and shares `args.correlation` with the call that launched it;
//! - only some collectives say what they carry and in which group, and only since 2024.

mod doubtful;
mod event;
pub mod figures;
mod host;
mod marked;
mod names;
mod part;
mod self_times;
mod steps;
mod summary;
mod trace;
mod work;

pub use crate::group::Group;
pub(crate) use host::{BACKWARD, INPUT, OPTIMIZER};
pub use marked::Marked;
pub(crate) use names::Names;
pub(crate) use part::STEP;
pub use self_times::HostSum;
pub use steps::{DeviceStep, device_steps};
pub use summary::summary;
pub use trace::{Trace, read};
pub use work::{Carried, Kind, Launch, Work};
