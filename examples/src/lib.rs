//! What the example jobs share. Each is a small but real training program:
//!
//! ```text
//! program (src/bin)   what is trained: data, model, loss
//!   Trainer           one step: sampler -> forward -> backward with hooks -> reducer -> AdamW, all marked
//!     ParameterSet    named tensors and the hook that hands gradients over as they become ready
//!     Trouble         planted slowness, so that a verdict can be checked against the truth
//!   Job               environment of the process: agent, ring, reducer
//! ```
//!
//! A job is started once per rank with `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` set, as torchrun
//! and mpirun wrappers do, and alone without them. With `--strong`, the same seed and batch give the same loss
//! curve on any number of ranks, up to the order of additions.

pub mod adamw;
pub mod backend;
pub mod cifar;
pub mod convnet;
mod cores;
pub mod corpus;
pub mod gpt;
pub mod images;
pub mod job;
pub mod options;
pub mod parameters;
pub mod precision;
pub mod random;
pub mod sampler;
pub mod start;
pub mod trainer;
pub mod trouble;
