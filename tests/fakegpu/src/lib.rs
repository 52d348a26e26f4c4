//! A test double of a GPU: stands in for libcuda, libnccl, libcupti and libnvidia-ml in one process, over host memory and virtual time.
//!
//! Nothing that is measured with it is a figure of any GPU. It is there so that the code which drives a GPU runs in
//! tests, with event times that are known exactly: an operation costs what [`time`] says, starts when its stream, the
//! events that the stream waits for and the host's call allow, and does its work on host memory when all that is
//! known. A collective ends when the last rank has come. Ranks are threads.
//!
//! Not modelled: contention for copy engines and multiprocessors, the legacy default stream's implicit waits, capture,
//! several devices' memories (all are one), the fusing of NCCL's groups into one kernel.
#![allow(unsafe_code, reason = "its callers are C, and what they pass are pointers")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "all read or write what a caller in C passes for that")]
#![allow(clippy::missing_safety_doc, reason = "the functions are CUDA's and NCCL's, documented there")]
#![allow(missing_docs, reason = "as above")]
#![allow(non_snake_case, reason = "as above")]

mod cuda;
mod cupti;
mod machine;
mod nccl;
mod nvml;
mod out;
mod time;
