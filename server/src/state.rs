//! The state of all runs. One task owns it ([`hub`]), and readers get snapshots.

pub mod budget;
pub mod collection;
pub mod command;
pub mod detail;
pub mod hub;
mod pace;
pub mod query;
pub mod recall;
pub mod refusal;
pub mod restore;
pub mod run;
pub mod snapshot;
pub mod steps;
mod task;
