//! Execution traces of PyTorch and Chakra: what depends on what in the work of a rank, one file per rank.
//!
//! What PyTorch's observer writes has no times, nor has what Chakra's converter makes for simulators, which has durations alone.
//! Both are refused. Two forms have times of what the device ran, and become a trace as PyTorch's profiler has it:
//!
//! - JSON in which `chakra_trace_link` has joined the observer's nodes with the profiler's kernels ([`linked`]);
//! - Chakra's own format, if its nodes have start times ([`protobuf`]).

mod graph;
mod linked;
mod protobuf;

use std::io::Read;

use crate::source::RankRecording;
use crate::unreadable::Unreadable;

pub(crate) use protobuf::is_protobuf;

/// Why most execution traces are not read, and what to read instead.
const NO_TIMES: &str = "it is an execution trace of PyTorch or Chakra without start times of what the device ran: it says what depends on what and \
                        not when it ran. Import the profiler's trace of the same steps, or what chakra_trace_link makes of both";

/// Reads a trace from its plain bytes, which are JSON or not.
///
/// # Errors
/// Returns an error if it has no times, if it has no work of a device, or if it cannot be read.
pub(crate) fn read(plain: impl Read, is_protobuf: bool) -> Result<RankRecording, Unreadable> {
    let graph = if is_protobuf { protobuf::read(plain)? } else { linked::read(plain)? };
    Ok(graph.trace()?.into())
}
