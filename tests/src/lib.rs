//! End-to-end tests and the simulator.
