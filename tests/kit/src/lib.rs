//! Parts that end-to-end tests and benches share: real programs that are started and killed, browsers, monitoring, and
//! the simulator.
//!
//! Everything here has a time limit and cleans up: a program that a test started ends with the test.

pub mod app;
pub mod axe;
pub mod browser;
pub mod collector;
pub mod crossover;
pub mod cuda_ranks;
pub mod devices;
pub mod fake_gpu;
pub mod feed;
pub mod fetch;
pub mod frameworks;
pub mod gallery;
pub mod headers;
pub mod holistic;
pub mod hostile;
pub mod kineto;
pub mod layout;
pub mod layouts;
pub mod meeting;
pub mod mishaps;
pub mod monitoring;
pub mod nvidia;
pub mod pipeline;
pub mod predictions;
pub mod programs;
pub mod results;
pub mod simulator;
pub mod small_disk;
pub mod spread;
pub mod stacks;
pub mod stored;
pub mod torch;
