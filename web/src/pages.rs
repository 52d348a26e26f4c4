//! The views of the dashboard.

pub mod buckets;
pub mod charts;
pub mod compare;
pub mod distribution;
pub mod export;
mod figures;
pub mod health;
pub mod heatmap;
pub mod latency;
pub mod ledger;
pub mod losses;
pub mod overview;
pub mod plan;
pub mod rank_detail;
pub mod ranks;
pub mod run;
pub mod runs;
pub mod scaling;
pub mod served;
pub mod slice_tables;
pub mod timeline;
pub mod verdict;
pub mod waterfall;
pub mod what_if;
