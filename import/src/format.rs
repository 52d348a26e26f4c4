//! The formats of files that are read.

use std::fmt;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A trace by PyTorch's profiler.
    Kineto,
    /// A dump of PyTorch's flight recorder.
    FlightRecorder,
    /// A log of NCCL Inspector.
    Inspector,
    /// Operations of ranks as ByteDance's StragglerAnalysis publishes them.
    Stragglers,
    /// A timeline of Horovod.
    Horovod,
    /// An execution trace of PyTorch or Chakra.
    Execution,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kineto => "a trace of PyTorch's profiler",
            Self::FlightRecorder => "a dump of PyTorch's flight recorder",
            Self::Inspector => "a log of NCCL Inspector",
            Self::Stragglers => "a table of StragglerAnalysis",
            Self::Horovod => "a timeline of Horovod",
            Self::Execution => "an execution trace of PyTorch or Chakra",
        })
    }
}
