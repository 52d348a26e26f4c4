//! The NVTX hook: the library receives the ranges that a process marks.
//!
//! `NVTX_INJECTION64_PATH` names the library. Any object that is built with NVTX's headers then calls [`injection`]
//! when it marks its first range. NCCL marks its calls, with a payload that describes them ([`payload`]); the job marks
//! ranges by name ([`words`]). If another hook reports NCCL's collectives in more detail, only the job's own ranges are
//! recorded.
//!
//! Ranges describe the host. A range around a collective gives its time of enqueueing. Of the job's ranges, those of
//! input and of copies to the device are recorded, since a device may wait for them. A range around forward or backward
//! says when work was enqueued and not when the device did it, so it is not recorded. Ranges that start and end on
//! different threads (`nvtxRangeStart`) are not received.

mod injection;
mod payload;
mod ranges;
mod words;

pub use injection::assumptions;
