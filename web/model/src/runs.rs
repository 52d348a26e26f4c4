//! The list of runs: which runs it shows, in which order, and what a row says beyond its figures.
//!
//! * [`filter`] decides which runs are shown, and [`order`] in which order and in which groups.
//! * [`verdict`] and [`course`] are a row's verdict in short and its step time as a line.
//! * [`choices`] are the runs that a list offers, by name.
//! * [`overlay`] is the chart of the ticked runs.

pub mod choices;
pub mod course;
pub mod filter;
pub mod order;
pub mod overlay;
pub mod verdict;
