//! `libpaceline_agent.so`: observes a job that knows nothing of Paceline.
//!
//! It is loaded by something else, does nothing until that something calls it, and never does anything to its host:
//! no panic leaves it, no call waits, nothing grows without bound, and a forked child of an observed process is left
//! alone.
//!
//! ```text
//!   NCCL's threads                      one thread of ours
//!   nccl::plugin --entries--> trail --> collect --> place --> agent's recorder
//!                 (rings)               one         its step
//!                                       collective
//! ```
//!
//! * [`nccl`], [`calls`] and [`nvtx`] are doors: NCCL loads this library as its profiler plugin, the loader puts its
//!   functions before NCCL's, and NVTX takes it as the receiver of ranges.
//!   [`pytorch`] is called from Python, for collectives that something else carries. [`cuda`] is for jobs of which they see
//!   nothing: the driver loads this library, and only devices are looked at.
//!   What a callback is told goes as one entry into its thread's ring ([`trail`]), and that is all that happens on the
//!   threads of others.
//! * `marks` remembers which collectives follow an update of the parameters, where PyTorch tells of those.
//! * [`collect`] makes collectives of entries, [`messages`] of sends and receives, [`gpu_clock`] puts the GPU's time on
//!   the host's clock, [`steps`] finds the training steps, which nobody marks here, in the order of collectives,
//!   `blocking` whether a rank computes while one runs, and [`place`] makes records of it. All are plain functions of
//!   what they are given.
//! * `sampling` says which steps are observed in full, so that it costs no more than it may.
//! * [`observer`] is the thread that does it, every few milliseconds, and hands the records to the agent.
#![allow(unsafe_code, reason = "it is called from C, through pointers: by the doors, and `host`")]

mod blocking;
pub mod calls;
pub mod collect;
pub mod cuda;
#[cfg(test)]
mod edge;
pub mod gpu_clock;
mod host;
mod marks;
pub mod messages;
pub mod nccl;
pub mod nvtx;
mod observer;
pub mod place;
pub mod pytorch;
mod sampling;
pub mod steps;
mod table;
pub mod trail;
