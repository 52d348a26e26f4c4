//! NVIDIA's libraries as they are found at run time. Nothing here is linked: with no driver, no NCCL and no CUPTI
//! everything builds, loads and says what is missing.
//!
//! * [`library`] finds and opens one library; the rest of the crate is the few functions of each that are used, as
//!   tables of function pointers with plain integers: an enum would be undefined behaviour the day a library
//!   answers with a code that is newer than this crate.
//! * [`driver`], [`nccl`], [`cupti`], [`nvml`] ask one library each; [`probe`] asks all, and gives a typed reason for
//!   whatever is not there.
//! * [`meter`] times what others put on their streams.
//! * with the feature `cuda`: [`device`] works on a GPU (streams, timed events, memory, two kernels) and
//!   [`nccl::communicator`] reduces over several.
//!
//! `unsafe` lives in this crate and nowhere above it: a caller sees safe functions and values.
#![allow(
    unsafe_code,
    reason = "functions of libraries that are found at run time are called here, and only here"
)]

mod background;
pub mod cupti;
#[cfg(feature = "cuda")]
pub mod device;
pub mod driver;
pub mod library;
pub mod meter;
pub mod nccl;
pub mod nvml;
pub mod probe;
