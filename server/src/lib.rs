//! The server behind the `paceline` program, and the program's commands.
//!
//! [`http`] receives a batch, [`ingest`] passes it to [`state`], which has [`store`] make it durable, joins it with the
//! batches of other ranks and analyzes each step once. [`imports`] makes batches of the files of other tools. Readers (the
//! live stream, the API, [`metrics`], [`export`]) get snapshots. One task owns the state, so the state has no locks.

pub mod captures;
pub mod cli;
pub mod clock;
pub mod export;
pub mod http;
pub mod imports;
pub mod ingest;
pub mod launch;
pub mod metrics;
pub mod printable;
pub mod run_id;
pub mod serve;
pub mod settings;
#[cfg(test)]
mod simulation;
pub mod state;
pub mod store;
pub mod vitals;
