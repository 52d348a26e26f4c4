//! Pure functions from records to reports: no I/O, no clock, no randomness. The same records give the same report in
//! the server, on the command line, in the browser and in a test.
//!
//! The figures and their formulas are defined in `docs/metrics.md`.
//!
//! * [`step::analyze`] turns the records of one step on all ranks into its ledger, overlap, waits and lateness.
//! * [`report::report`] turns a window of analyzed steps into the report that users read.
//! * [`waterfall`] draws one step.
//! * [`hang`] names the ranks that a hung run waits for.

mod account;
pub mod baseline;
pub mod cascade;
pub mod change_point;
pub mod checkpoints;
pub mod comm_model;
pub mod compare;
mod cost;
pub mod devices;
mod evidence;
pub mod failure;
mod finding;
pub mod fixtures;
pub mod frontier;
pub mod goodput;
mod groups;
pub mod hang;
pub mod hosts;
mod in_passes;
mod join;
mod last_ranks;
pub mod latency;
mod layouts;
pub mod long_steps;
pub mod loss;
pub mod memory;
pub mod mfu;
mod outside;
pub mod overhead;
mod overlap;
pub mod plan;
pub mod rate;
pub mod records;
pub mod replay;
pub mod report;
pub mod scaling;
mod slowed;
pub mod stacks;
pub mod stats;
pub mod step;
pub mod study;
pub mod sweep;
pub mod traces;
mod trend;
pub mod verdict;
pub mod waterfall;
pub mod what_if;
pub mod wording;
