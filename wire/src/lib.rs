//! The data that crosses a process boundary: identifiers, clocks, events, batches, their codec, and the views.
//!
//! This crate does **no I/O**, starts **no threads** and **reads no clock**. Bytes go in and values come out. The same
//! code runs in the agent, the server, the browser (`wasm32`) and the fuzz targets.
//!
//! * [`event`] is what an agent records, [`batch`] is what it sends, and [`codec`] is the binary format of a batch.
//! * [`views`] and [`live`] are what a server answers: JSON for small data, typed columns for large data.
#![warn(missing_docs)]

pub mod attributes;
pub mod batch;
pub mod burst;
pub mod clock;
pub mod codec;
pub mod device;
pub mod event;
#[doc(hidden)]
pub mod fixtures;
pub mod host;
pub mod ids;
pub mod layout;
pub mod live;
pub mod request;
pub mod stacks;
pub mod traces;
pub mod usage;
pub mod views;
pub mod workload;
