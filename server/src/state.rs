//! The state of all runs. One task owns it ([`hub`]), and readers get snapshots.

pub mod budget;
pub mod clocks;
pub mod collection;
pub mod command;
mod course;
pub mod detail;
pub mod devices;
mod faults;
pub mod hub;
pub mod incoming;
pub mod layouts;
pub mod lives;
pub mod not_shown;
pub mod older;
mod own_code;
mod pace;
pub mod ranks;
mod recalled;
pub mod refusal;
pub mod replay;
pub mod run;
pub mod snapshot;
pub mod stacks;
pub mod steps;
pub mod stored_steps;
mod task;
pub mod usage;
