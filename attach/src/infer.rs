//! From logged calls to collectives, and from collectives to steps. Each result depends on its inputs alone.

mod blocking;
pub mod collect;
pub mod collective;
mod early;
pub mod gpu_clock;
pub mod messages;
pub(crate) mod phases;
pub mod place;
pub mod steps;
mod waits;
