//! Bindings to NVIDIA's libraries, which are found at run time.
//!
//! Nothing is linked. Without the driver, NCCL or CUPTI, everything builds and loads, and errors name the missing
//! library.
//!
//! - [`library`] finds and opens a library. The other modules declare the few functions that they use as tables of
//!   function pointers. These functions pass plain integers instead of enums, because a code that is newer than this
//!   crate would be undefined behavior in an enum.
//! - [`driver`], [`nccl`], [`cupti`] and [`nvml`] each query one library. [`probe`] queries all of them and returns a
//!   typed reason for each that is missing.
//! - [`meter`] times the work that the job enqueues on its own streams.
//! - With the feature `cuda`, [`device`] runs work on a GPU (streams, timed events, memory, two kernels), and
//!   [`nccl::communicator`] reduces over several GPUs.
//!
//! The `unsafe` code of these bindings is in this crate only. Its callers see safe functions and values.
#![warn(missing_docs)]
#![allow(unsafe_code, reason = "this crate calls functions of libraries that are found at run time")]

pub mod cupti;
#[cfg(feature = "cuda")]
pub mod device;
pub mod driver;
pub mod library;
pub mod meter;
pub mod nccl;
pub mod nvml;
pub mod probe;
