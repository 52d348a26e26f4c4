//! Pure functions: records in, reports out. No I/O, no clock, no randomness; the same records give the same
//! report, in the server, on the command line, in the browser and in a test.
//!
//! The words and formulas are METRICS.md's; each module names the part it implements.
//!
//! * [`step::analyse`] turns one step's records of all ranks into its ledger, overlap, waits and lateness.
//! * [`report::report`] turns a window of analysed steps into what a person reads.
//! * [`clocks`] aligns the ranks; [`waterfall`] draws one step; [`hang`] says who is waited for.

pub mod activity;
pub mod baseline;
pub mod change_point;
pub mod clocks;
pub mod comm_model;
pub mod compare;
mod cost;
pub mod devices;
pub mod failure;
pub mod frontier;
mod groups;
pub mod hang;
pub mod hosts;
pub mod intervals;
mod join;
pub mod latency;
pub mod loss;
pub mod overhead;
pub mod plan;
pub mod replay;
pub mod report;
pub mod scaling;
pub mod stats;
pub mod step;
pub mod verdict;
pub mod waterfall;
pub mod what_if;
