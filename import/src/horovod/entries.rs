//! The entries of a timeline, each by itself.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use wire::batch::MAX_RANKS;
use wire::event::Function;

use super::tensor;
use crate::chunks::Chunk;
use crate::number::nanos;
use crate::pieces::Piece;

/// The longest part of a name that is kept, in bytes.
const MAX_NAME: usize = 128;
/// The activity that only fused operations have.
pub(super) const FUSION: &str = "MEMCPY_IN_FUSION_BUFFER";

/// An entry, as far as it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It cannot be read.
    Damaged,
    /// It should have a time and has none.
    Untimed,
    /// When the timeline begins, in microseconds since 1970.
    Start { micros: i64 },
    /// The name of a tensor.
    Name { tensor: u64, name: String },
    /// What happened to a tensor, in nanoseconds since the timeline began.
    Timed { tensor: u64, nanos: i64, what: What },
}

/// What happened to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The first rank asked for an operation. The function is missing if it is not one of a collective.
    Negotiate(Option<Function>),
    /// A rank is ready.
    Ready { rank: u32 },
    /// Rank 0 began an operation, which has a function if it is a collective, or an activity in one.
    Begin { function: Option<Function>, is_fusion: bool },
    /// What began last has ended. An operation states the size of its output, in bytes.
    End { output: Option<u64> },
    /// Rank 0 began a cycle, whichever tensor is named.
    Cycle,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    ph: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(default)]
    pid: u64,
    #[serde(borrow)]
    args: Option<Args<'a>>,
}

#[derive(Deserialize)]
struct Args<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    start_time_since_epoch_in_micros: Option<i64>,
    #[serde(borrow)]
    dtype: Option<Cow<'a, str>>,
    #[serde(borrow)]
    shape: Option<Cow<'a, str>>,
}

/// Returns the entries of a part of the text that count.
pub(super) fn entries(chunk: &Chunk) -> Vec<Entry> {
    let mut found = Vec::new();
    for piece in chunk.pieces() {
        let Piece::Event(event) = piece else { continue };
        match serde_json::from_slice::<Event<'_>>(event) {
            Ok(event) if event.ph == "M" => metadata(&event, &mut found),
            Ok(event) => found.extend(timed(&event)),
            Err(_) => found.push(Entry::Damaged),
        }
    }
    found
}

fn metadata(event: &Event<'_>, found: &mut Vec<Entry>) {
    let Some(args) = &event.args else { return };
    if let Some(micros) = args.start_time_since_epoch_in_micros {
        found.push(Entry::Start { micros });
    }
    if let Some(name) = &args.name {
        let name = name[..name.floor_char_boundary(MAX_NAME)].to_owned();
        found.push(Entry::Name { tensor: event.pid, name });
    }
}

fn timed(event: &Event<'_>) -> Option<Entry> {
    let Some(nanos) = event.ts.and_then(|ts| nanos(ts.get())) else { return Some(Entry::Untimed) };
    let what = match &*event.ph {
        "B" => begin(&event.name),
        "E" => What::End { output: event.args.as_ref().and_then(output) },
        "X" => What::Ready { rank: event.name.parse().ok().filter(|&rank| rank < MAX_RANKS)? },
        "i" if event.name == "CYCLE_START" => What::Cycle,
        _ => return None,
    };
    Some(Entry::Timed { tensor: event.pid, nanos, what })
}

fn begin(name: &str) -> What {
    match name.strip_prefix("NEGOTIATE_") {
        Some(operation) => What::Negotiate(tensor::function(operation)),
        None => What::Begin { function: tensor::function(name), is_fusion: name == FUSION },
    }
}

fn output(args: &Args<'_>) -> Option<u64> {
    tensor::bytes(args.dtype.as_deref()?, args.shape.as_deref()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Entry> {
        entries(&Chunk::new(&[Piece::Event(text.as_bytes())]))
    }

    #[test]
    fn an_entry_says_what_happened() {
        let timed = |what| vec![Entry::Timed { tensor: 3, nanos: 5_000, what }];
        for (text, entries) in [
            (
                r#"{"ph": "B", "name": "NEGOTIATE_ALLGATHER", "ts": 5, "pid": 3}"#,
                timed(What::Negotiate(Some(Function::AllGather))),
            ),
            (r#"{"ph": "X", "name": "7", "ts": 5, "pid": 3, "dur": 0}"#, timed(What::Ready { rank: 7 })),
            (r#"{"ph": "X", "name": "99999999", "ts": 5, "pid": 3, "dur": 0}"#, vec![]),
            (
                r#"{"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 5, "pid": 3}"#,
                timed(What::Begin { function: None, is_fusion: true }),
            ),
            (
                r#"{"ph": "E", "ts": 5, "pid": 3, "args": {"dtype": "float32", "shape": "[2, 3]"}}"#,
                timed(What::End { output: Some(24) }),
            ),
            (r#"{"ph": "i", "name": "CYCLE_START", "ts": 5, "pid": 3, "s": "g"}"#, timed(What::Cycle)),
            (r#"{"ph": "B", "name": "ALLREDUCE", "pid": 3}"#, vec![Entry::Untimed]),
            (r#"{"ph": "B", "name"#, vec![Entry::Damaged]),
            (r#"{"ph": "M", "pid": 3}"#, vec![]),
        ] {
            assert_eq!(read(text), entries, "{text}");
        }
    }

    #[test]
    fn metadata_say_when_a_timeline_begins_and_name_its_tensors() {
        let name = Entry::Name { tensor: 3, name: "ö".repeat(MAX_NAME / 2) };
        let text = format!(
            r#"{{"ph": "M", "pid": 3, "args": {{"name": "{}", "start_time_since_epoch_in_micros": 9}}}}"#,
            "ö".repeat(MAX_NAME)
        );
        assert_eq!(read(&text), [Entry::Start { micros: 9 }, name]);
    }
}
