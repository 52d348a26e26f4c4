//! What crosses a process boundary: identifiers, clocks, events, batches, their codec, and the views.
//!
//! This crate promises three absences: it does **no I/O**, it starts **no threads**, and it **reads no
//! clock**. Push bytes in, get values out; the same code runs in the agent, the server, the browser
//! (`wasm32`) and the fuzzer.
//!
//! * [`event`] is what an agent records; [`batch`] is how records travel; [`codec`] is how they look as bytes.
//! * [`views`] and [`live`] are what a server answers: JSON for what is small, typed columns for what is dense.

pub mod batch;
pub mod burst;
pub mod clock;
pub mod codec;
pub mod device;
pub mod event;
pub mod host;
pub mod ids;
pub mod live;
pub mod views;
