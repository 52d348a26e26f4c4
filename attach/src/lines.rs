//! The lines of the job's own code that hooks know, until the observer thread sends them.

use std::sync::{Mutex, PoisonError};

use wire::event::SpanKind;
use wire::stacks::{Frame, SpanLine};

/// The largest number of lines. A job writes its checkpoints, evaluates, compiles and reads input in few places.
const MAX_LINES: usize = 32;
/// The longest name of a function or file, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// The lines in the order in which they became known.
static KNOWN: Mutex<Vec<SpanLine>> = Mutex::new(Vec::new());

/// Remembers a line once. Lines beyond [`MAX_LINES`] and longer names are ignored.
pub(crate) fn learn(kind: SpanKind, function: &str, file: &str, line: u32) {
    if function.len().max(file.len()) > MAX_NAME_BYTES {
        return;
    }
    let line = SpanLine { kind, frame: Frame { function: function.into(), file: file.into(), line } };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < MAX_LINES && !known.contains(&line) {
        known.push(line);
    }
}

/// Returns the lines after the first `count`.
pub(crate) fn newer_than(count: usize) -> Vec<SpanLine> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).iter().skip(count).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_remembered_once_and_no_more_than_fit() {
        for line in (0..100).chain(0..100) {
            learn(SpanKind::Checkpoint, "save", "train.py", line);
        }
        learn(SpanKind::Input, &"f".repeat(MAX_NAME_BYTES + 1), "train.py", 1);
        let lines: Vec<u32> = newer_than(0).iter().map(|line| line.frame.line).collect();
        assert_eq!(lines, (0..MAX_LINES as u32).collect::<Vec<_>>());
        assert_eq!(newer_than(30).len(), 2);
    }
}
