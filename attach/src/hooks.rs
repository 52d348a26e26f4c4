//! The hooks, which C and Python call. Only they and [`crate::host`] have `unsafe` code.
#![allow(unsafe_code, reason = "C calls the hooks through pointers")]

pub mod calls;
pub mod cuda;
#[cfg(test)]
mod edge;
mod events;
pub mod nccl;
pub mod nvtx;
pub mod pytorch;
