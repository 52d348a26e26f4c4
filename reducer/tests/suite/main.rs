//! Tests of the reducer with real peers: threads, rings of sockets, and processes that are killed.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "tests print why they skip, and child processes report to their parents"
)]

mod collectives;
mod oracle;
mod processes;
mod records;
mod steps;
mod strangers;
mod vectors;
mod worlds;
