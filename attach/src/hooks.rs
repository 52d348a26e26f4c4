//! The hooks, which C and Python call: the only place with `unsafe` code.
#![allow(unsafe_code, reason = "C calls the hooks and `host` through pointers")]

pub mod calls;
pub mod cuda;
#[cfg(test)]
mod edge;
pub(crate) mod host;
pub mod nccl;
pub mod nvtx;
pub mod pytorch;
