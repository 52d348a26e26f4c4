//! End-to-end tests of training frameworks and trackers, with the real libraries: `paceline run` observes an unmodified
//! script of two ranks over gloo, and names the rank whose data set sleeps, with the line.

mod engines;
mod job;
mod plain;
mod trackers;
mod trainers;
