//! The traces of several ranks as one job.
