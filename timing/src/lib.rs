//! Times on a line: aligned clocks, unions of intervals, and the summary of a device's kernels. Training processes and
//! the analysis share these; the verdicts stay in the analysis.
#![warn(missing_docs)]

pub mod activity;
pub mod clocks;
pub mod intervals;
pub mod parts;
