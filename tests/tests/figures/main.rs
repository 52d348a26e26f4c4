//! End-to-end tests of published figures: against the truth of simulated jobs, and of real jobs with planted faults.

mod laws;
mod mfu;
mod predictions;
mod recorded;
mod truth;
mod verdicts;
mod what_if;
