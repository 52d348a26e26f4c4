//! The code that the example jobs share. Each job is a small but complete training program:
//!
//! ```text
//! program (src/bin)   the task: data, model, loss
//!   Trainer           one step, with all its marks: sampler -> forward -> backward with hooks -> reducer -> AdamW
//!     ParameterSet    named tensors, and the hook that passes each gradient on as soon as it is ready
//!     Trouble         planted slowness, to check verdicts against a known cause
//!   Job               the environment of the process: agent, ring, reducer
//! ```
//!
//! To run a job on several ranks, start one process per rank with `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`
//! set, as torchrun and wrappers for mpirun do. Without these variables, a job runs alone. With `--strong`, the same
//! seed and batch give the same loss curve on any number of ranks, up to the order of additions.

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
mod peak;
pub mod precision;
pub mod random;
pub mod sampler;
pub mod start;
pub mod trainer;
pub mod trouble;
pub mod world_rank;
