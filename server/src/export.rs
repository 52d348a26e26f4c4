//! What is left after a run, for other tools: traces and the report as text.

pub mod comparison;
pub mod perfetto;
pub mod text;
