//! Real training jobs.
