//! A test double of a GPU. One library replaces libcuda, libnccl, libcupti and libnvidia-ml, over host memory and
//! virtual time.
//!
//! Figures that are measured with it are not those of any GPU. It lets tests run the code that drives a GPU, with event
//! times that are known exactly. An operation takes the time that [`time`] defines. It starts when its stream, the
//! events that the stream waits for and the host's call allow, and it performs its work on host memory once these times
//! are known. A collective ends after the last rank has started it. Ranks are threads.
//!
//! The following is not modeled: contention for copy engines and multiprocessors, the implicit waits of the legacy
//! default stream, capture, separate memories of devices, and the fusion of NCCL's groups into one kernel.
#![allow(unsafe_code, reason = "the callers are C code and pass pointers")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "they access pointers that the caller passes for that")]
#![allow(clippy::missing_safety_doc, reason = "CUDA and NCCL document these functions")]
#![allow(non_snake_case, reason = "the names are those of CUDA and NCCL")]

mod cuda;
mod cupti;
mod machine;
mod nccl;
mod nvml;
mod out;
mod time;
