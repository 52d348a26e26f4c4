//! End-to-end tests of the dashboard in a real Chromium.

mod access;
mod buckets;
mod code;
mod devices;
mod everywhere;
mod imports;
mod key;
mod links;
mod live_job;
mod questions;
mod runs;
mod scaling;
mod traces;
mod views;
