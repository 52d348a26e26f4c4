//! What a server asks a rank for in the answer to a batch: a short recording, of its device (a burst) or of its stacks, a
//! trace of a few steps, and how often to send batches.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::ServerNanos;
use crate::ids::Step;

/// The longest recording, in milliseconds. All records of a burst must fit into memory.
pub const MAX_MILLIS: u16 = 5_000;

/// The header that asks for a burst.
const BURST_HEADER: &str = "paceline-burst";
/// The header that asks for stacks.
const STACKS_HEADER: &str = "paceline-stacks";
/// The header that asks for a trace.
const TRACE_HEADER: &str = "paceline-trace";
/// The header with the time between batches, in milliseconds.
const INTERVAL_HEADER: &str = "paceline-batch-interval";

/// The shortest time between batches that an agent accepts, in milliseconds: a batch must not cost the job too much.
const MIN_INTERVAL_MILLIS: u16 = 50;
/// The longest time between batches that an agent accepts, in milliseconds: a rank that is silent for longer seems dead.
const MAX_INTERVAL_MILLIS: u16 = 5_000;

/// What a rank is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// A burst of its device.
    pub burst: Option<RecordingRequest>,
    /// The stacks of its threads.
    pub stacks: Option<RecordingRequest>,
    /// A trace of some steps.
    pub trace: Option<TraceRequest>,
    /// The time between batches.
    pub batch_interval: Option<Duration>,
}

impl Requests {
    /// Returns the names and values of the headers that ask for this.
    pub fn headers(self) -> impl Iterator<Item = (&'static str, String)> {
        let recordings = [(BURST_HEADER, self.burst), (STACKS_HEADER, self.stacks)];
        let recordings =
            recordings.into_iter().filter_map(|(name, request)| Some((name, request?.to_header())));
        let interval =
            self.batch_interval.map(|interval| (INTERVAL_HEADER, interval.as_millis().to_string()));
        let trace = self.trace.map(|trace| (TRACE_HEADER, trace.to_header()));
        recordings.chain(trace).chain(interval)
    }

    /// Reads the requests from headers. `header` returns the value of the header of a name.
    pub fn from_headers<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Self {
        let recording = |name| RecordingRequest::from_header(header(name)?);
        let batch_interval = header(INTERVAL_HEADER).and_then(interval_from_header);
        let trace = header(TRACE_HEADER).and_then(TraceRequest::from_header);
        Self { burst: recording(BURST_HEADER), stacks: recording(STACKS_HEADER), trace, batch_interval }
    }
}

/// Parses the time between batches; `None` if it is not one that an agent accepts.
fn interval_from_header(text: &str) -> Option<Duration> {
    let millis: u16 = text.parse().ok()?;
    let is_accepted = (MIN_INTERVAL_MILLIS..=MAX_INTERVAL_MILLIS).contains(&millis);
    is_accepted.then(|| Duration::from_millis(millis.into()))
}

/// A server's request to a rank for a short recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecordingRequest {
    /// The number of the request. Later requests have larger numbers.
    pub number: u64,
    /// The length of the recording, in milliseconds; at most [`MAX_MILLIS`].
    pub millis: u16,
}

impl RecordingRequest {
    /// The time for which a rank is asked, in milliseconds, in addition to the length of the recording. Agents send a
    /// heartbeat every two seconds.
    pub const PATIENCE_MILLIS: u64 = 10_000;

    /// Creates a request numbered by the server's time in milliseconds, so that its number is larger than those of an
    /// earlier server process.
    #[must_use]
    pub fn new(now: ServerNanos, millis: u16) -> Self {
        Self { number: now.0.max(0).unsigned_abs() / 1_000_000, millis }
    }

    /// Returns whether the rank is still to be asked at `now`. A request expires, because a job may have no agent that
    /// can answer it.
    #[must_use]
    pub fn is_current(self, now: ServerNanos) -> bool {
        let patience = Self::PATIENCE_MILLIS + u64::from(self.millis);
        now.0.max(0).unsigned_abs() / 1_000_000 < self.number + patience
    }

    /// Formats the request for its header.
    fn to_header(self) -> String {
        format!("{} {}", self.number, self.millis)
    }

    /// Parses the value of a header; `None` if it is not a valid request.
    fn from_header(text: &str) -> Option<Self> {
        let (number, millis) = text.split_once(' ')?;
        let millis = millis.parse().ok().filter(|millis| (1..=MAX_MILLIS).contains(millis))?;
        Some(Self { number: number.parse().ok()?, millis })
    }
}

/// A server's request to a rank for a trace of some steps by PyTorch's profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// The number of the capture. Later captures have larger numbers.
    pub number: u64,
    /// The first step. A rank that is beyond it begins with its next step.
    pub first: Step,
    /// The number of steps: 1 to [`Self::MAX_STEPS`].
    pub steps: u8,
}

impl TraceRequest {
    /// The largest number of steps of a trace.
    pub const MAX_STEPS: u8 = 20;
    /// The largest number of ranks of a capture.
    pub const MAX_RANKS: usize = 4;
    /// The largest size of a compressed trace, in bytes.
    pub const MAX_BYTES: u64 = 64 << 20;

    /// Creates a request numbered by the server's time, as [`RecordingRequest::new`] does.
    #[must_use]
    pub fn new(now: ServerNanos, first: Step, steps: u8) -> Self {
        Self { number: now.0.max(0).unsigned_abs() / 1_000_000, first, steps }
    }

    /// Returns whether the rank is still to be asked at `now`, as for [`RecordingRequest::is_current`].
    #[must_use]
    pub fn is_current(self, now: ServerNanos) -> bool {
        now.0.max(0).unsigned_abs() / 1_000_000 < self.number + RecordingRequest::PATIENCE_MILLIS
    }

    /// Formats the request for its header.
    fn to_header(self) -> String {
        format!("{} {} {}", self.number, self.first, self.steps)
    }

    /// Parses the value of a header; `None` if it is not a valid request.
    fn from_header(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let number = words.next()?.parse().ok()?;
        let first = Step(words.next()?.parse().ok()?);
        let steps = words.next()?.parse().ok().filter(|steps| (1..=Self::MAX_STEPS).contains(steps))?;
        words.next().is_none().then_some(Self { number, first, steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_round_trips_through_its_header_and_invalid_text_is_none() {
        let request = RecordingRequest { number: 1_795_317_959_159, millis: 1_000 };
        let batch_interval = Some(Duration::from_millis(500));
        let trace = Some(TraceRequest { number: 1_795_317_959_160, first: Step(1_200), steps: 20 });
        let requests = Requests { stacks: Some(request), burst: None, trace, batch_interval };
        let headers: Vec<(&str, String)> = requests.headers().collect();
        let value =
            |name: &str| headers.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str());
        assert_eq!(Requests::from_headers(value), requests);
        assert_eq!(RecordingRequest::from_header(&request.to_header()), Some(request));
        for text in ["", "7", "7 ", "7 0", "7 5001", "x 100", "7 100 9", "-1 100"] {
            assert_eq!(RecordingRequest::from_header(text), None, "{text:?}");
        }
        for text in ["", "7", "7 1", "7 1 0", "7 1 21", "x 1 3", "7 1 3 9", "7 -1 3"] {
            assert_eq!(TraceRequest::from_header(text), None, "{text:?}");
        }
        for (text, millis) in
            [("50", Some(50)), ("5000", Some(5_000)), ("49", None), ("5001", None), ("1 s", None)]
        {
            assert_eq!(interval_from_header(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }
}
