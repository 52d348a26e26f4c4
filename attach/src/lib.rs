//! `libpaceline_attach.so`: the agent that observes an unmodified job.
//!
//! The library only reacts to calls from its host process and never harms that process. It lets no panic escape, never
//! blocks a caller, bounds all memory it uses, and does nothing in a forked child.
//!
//! ```text
//!   threads of the job and of NCCL       the observer thread
//!   nccl::plugin --entries--> call log --> collect --> place --> the agent's recorder
//!                             (rings)      one         its step
//!                                          collective
//! ```
//!
//! * The hooks receive calls. [`hooks::nccl`]: NCCL loads the library as its profiler plugin. [`hooks::calls`]: the
//!   dynamic loader places the library's functions in front of NCCL's. [`hooks::nvtx`]: NVTX sends its ranges to the
//!   library. [`hooks::pytorch`]: Python code reports collectives of backends other than NCCL. [`hooks::cuda`]: the
//!   CUDA driver loads the library, for jobs whose collectives no other hook sees; only the device is sampled.
//! * [`call_log`] is the call log. A hook appends one entry per call to a ring of the calling thread and does nothing
//!   else on that thread.
//! * `marks` identifies the collectives that follow an optimizer update, when PyTorch reports updates.
//! * [`infer::collect`] assembles collectives from entries, and [`infer::messages`] assembles sends and receives.
//!   [`infer::gpu_clock`] converts the GPU's time to the host's clock. [`infer::steps`] finds the training steps, which
//!   an unmodified job does not mark, in the order of its collectives. `infer::blocking` decides whether a rank
//!   computes while a collective runs. [`infer::place`] writes the records. The result of each depends on its inputs
//!   alone.
//! * `sampling` selects the steps to observe in full, which keeps the overhead within its budget.
//! * `observer` is the thread that runs all of this every few milliseconds and passes the records to the agent.

pub mod call_log;
pub mod hooks;
mod host;
pub mod infer;
mod labels;
mod layouts;
mod lines;
mod marks;
mod memory;
mod message;
mod observer;
mod python_stacks;
mod resumed;
mod sampling;
mod software;
mod table;
mod traces;
mod workload;
