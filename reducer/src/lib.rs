//! A bucketed, overlapped gradient all-reduce, instrumented from the inside.
