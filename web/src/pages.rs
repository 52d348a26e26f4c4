//! The views.

pub mod buckets;
pub mod charts;
pub mod figures;
pub mod heatmap;
pub mod ledger;
pub mod overview;
pub mod rank_detail;
pub mod ranks;
pub mod run;
pub mod runs;
pub mod slice_tables;
pub mod verdict;
pub mod waterfall;
