//! The views of the dashboard. A view's own parts are in the folder of its name.

pub mod buckets;
pub mod code;
pub mod compare;
pub mod health;
pub mod overview;
pub mod plan;
pub mod ranks;
pub mod run;
pub mod runs;
pub mod scaling;
pub mod utilization;
