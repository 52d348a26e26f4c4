//! Collect, keep, serve: the server behind the `paceline` program, and the program's commands.
//!
//! A batch's way: [`http`] takes it in, [`store`] makes it durable, [`state`] joins it with the other ranks'
//! and analyses each step once; readers (the live stream, the API, [`metrics`], [`export`]) get snapshots.
//! One task owns the state; nothing else locks it.

pub mod cli;
pub mod clock;
pub mod export;
pub mod http;
pub mod launch;
pub mod metrics;
pub mod printable;
pub mod serve;
pub mod settings;
pub mod state;
pub mod store;
pub mod vitals;
