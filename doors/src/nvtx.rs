//! The door of NVTX: this library receives the ranges that a process marks.
//!
//! `NVTX_INJECTION64_PATH` names it. Whatever is built with NVTX's headers then calls [`injection`] when it marks its
//! first range: NCCL, whose ranges are its calls with a payload of what they do ([`payload`]), and the job itself, whose
//! ranges have names ([`words`]). Where another door tells more of NCCL's collectives, only the job's own are taken.
//!
//! Ranges are the host's. A range around a collective says when it was enqueued; of the job's, those of input and of
//! copies to the device are what the host waits for. A range around forward or backward says when work was enqueued and
//! nothing of when the device did it, so that it is not recorded. Ranges that begin and end on different threads
//! (`nvtxRangeStart`) are not received.

mod injection;
mod payload;
mod ranges;
mod words;

pub use injection::assumptions;
