//! What the dashboard decides, in plain Rust without a browser: where a link leads, what a range covers, in which order
//! rows come. The client calls these functions from its components, and they are tested natively.
//!
//! * [`route`] knows the addresses of the views, and [`range`] the ranges in them.
//! * [`sort`] decides the order of a table's rows, and [`filter`] which of them a typed word finds.
//! * [`pointer`] turns a pointer into gestures, and [`step_chart`] says what they do on charts over steps. [`brush`] selects a
//!   range with a pointer, and [`bands`] places what happened on the time line.
//! * [`commands`] finds what a user types, [`news`] says what changed, and [`trust`] what limits a report.
//! * [`ranks`] orders ranks and says what differs between them, and [`pins`] keeps the pinned ones.
//! * [`periods`] decides which steps count as now, and which as the healthy period.
//! * [`utilization`] says how devices and hosts are used, [`scaling`] how a job scales, and [`plan`] how long a training takes.
//! * [`what_if`] has the sliders of the what-if panel.
//! * [`verdict`] has short texts for verdicts, and [`terms`] the definitions of terms.
//! * [`runs`] has the list of runs, and [`buckets`] the waterfall of a step.

pub mod attributes;
pub mod bands;
pub mod brush;
pub mod buckets;
pub mod commands;
pub mod filter;
pub mod flame;
pub mod news;
pub mod periods;
pub mod pins;
pub mod plan;
pub mod pointer;
pub mod points;
pub mod range;
pub mod ranks;
pub mod route;
pub mod runs;
pub mod scaling;
pub mod sort;
pub mod step_chart;
pub mod terms;
pub mod trust;
pub mod utilization;
pub mod verdict;
pub mod what_if;
