//! Views as frames: the types of [`crate::views`] in the postcard format, for the dashboard that came with the server.
//!
//! The API answers the same types as JSON. The dashboard reads a report twice per second, and a JSON reader for them
//! would be a tenth of what the browser downloads.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::{FOLLOWED, FrameReader, FrameWriter};
use super::{FrameError, KIND_VIEW};

/// Encodes a view.
///
/// # Errors
/// Returns an error if the type cannot be written in the postcard format. The types of [`crate::views`] can.
pub fn encode<T: Serialize>(view: &T) -> Result<Vec<u8>, FrameError> {
    let mut frame = FrameWriter::new(KIND_VIEW).bytes;
    frame.extend(postcard::to_allocvec(view).map_err(|_| FrameError("the view is not plain data"))?);
    Ok(frame)
}

/// Decodes a view.
///
/// # Errors
/// Returns an error if the bytes are another kind of frame, another version, or not this view.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    let input = FrameReader::new(bytes, KIND_VIEW)?;
    match postcard::take_from_bytes(input.rest) {
        Ok((view, [])) => Ok(view),
        Ok(_) => Err(FOLLOWED),
        Err(_) => Err(FrameError("it is not the requested view")),
    }
}

/// Returns true if the bytes start with the header of a view, not of columns.
#[must_use]
pub fn is_view(bytes: &[u8]) -> bool {
    FrameReader::new(bytes, KIND_VIEW).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::views::{Cause, Culprit, LiveView, RunSummary, VerdictState, WorstVerdict};

    fn runs() -> LiveView {
        let run = RunSummary {
            throughput: Some(1.5),
            batch: Some(64.0),
            efficiency_implied: Some(0.5),
            verdict: Some("one".into()),
            worst: Some(WorstVerdict {
                culprit: Some(Culprit::Rank(1)),
                cause: Cause::Input,
                state: VerdictState::Active,
                cost_share: 0.25,
            }),
            step_times: vec![1e6, 2e6],
            ..fixtures::run_summary()
        };
        LiveView::Runs { runs: vec![run] }
    }

    #[test]
    fn views_round_trip() {
        let bytes = encode(&runs()).unwrap();
        assert!(is_view(&bytes));
        assert_eq!(decode::<LiveView>(&bytes).unwrap(), runs());
    }

    #[test]
    fn a_truncated_view_is_refused() {
        let bytes = encode(&runs()).unwrap();
        for end in 0..bytes.len() {
            assert!(decode::<LiveView>(&bytes[..end]).is_err());
        }
    }
}
