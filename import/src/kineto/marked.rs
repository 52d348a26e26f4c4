//! Steps as the host marks them.

/// A step that the job told the profiler of, on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marked {
    /// Its number.
    pub number: u64,
    /// When it began, in nanoseconds on the trace's clock.
    pub begin: i64,
    /// When it ended.
    pub end: i64,
}

/// Returns the step in which the host was at a time: the last one that had begun. `None` before the first.
pub(super) fn step_at(marked: &[Marked], at: i64) -> Option<usize> {
    marked.partition_point(|step| step.begin <= at).checked_sub(1)
}
