//! The reducer against real peers: threads, rings of sockets, and processes that are killed.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "tests say why they skip, and children report to their parents"
)]

mod collectives;
mod oracle;
mod processes;
mod records;
mod steps;
mod strangers;
mod vectors;
mod worlds;
