//! A server's request to a rank, in the answer to a batch, for a short recording: a burst of its device, or its stacks.

use serde::{Deserialize, Serialize};

use crate::clock::ServerNanos;

/// The longest recording, in milliseconds. All records of a burst must fit into memory.
pub const MAX_MILLIS: u16 = 5_000;

/// The header that asks for a burst.
const BURST_HEADER: &str = "paceline-burst";
/// The header that asks for stacks.
const STACKS_HEADER: &str = "paceline-stacks";

/// What a rank is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// A burst of its device.
    pub burst: Option<RecordingRequest>,
    /// The stacks of its threads.
    pub stacks: Option<RecordingRequest>,
}

impl Requests {
    /// Returns the names and values of the headers that ask for this.
    pub fn headers(self) -> impl Iterator<Item = (&'static str, String)> {
        let all = [(BURST_HEADER, self.burst), (STACKS_HEADER, self.stacks)];
        all.into_iter().filter_map(|(name, request)| Some((name, request?.to_header())))
    }

    /// Reads the requests from headers. `header` returns the value of the header of a name.
    pub fn from_headers<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Self {
        let of = |name| RecordingRequest::from_header(header(name)?);
        Self { burst: of(BURST_HEADER), stacks: of(STACKS_HEADER) }
    }
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
    pub fn at(now: ServerNanos, millis: u16) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_round_trips_through_its_header_and_invalid_text_is_none() {
        let request = RecordingRequest { number: 1_795_317_959_159, millis: 1_000 };
        let requests = Requests { stacks: Some(request), burst: None };
        let headers: Vec<(&str, String)> = requests.headers().collect();
        let of =
            |name: &str| headers.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str());
        assert_eq!(Requests::from_headers(of), requests);
        assert_eq!(RecordingRequest::from_header(&request.to_header()), Some(request));
        for text in ["", "7", "7 ", "7 0", "7 5001", "x 100", "7 100 9", "-1 100"] {
            assert_eq!(RecordingRequest::from_header(text), None, "{text:?}");
        }
    }
}
