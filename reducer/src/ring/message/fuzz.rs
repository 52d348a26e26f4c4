//! What a peer, or a stranger on the port, may send: a message is read whole and as it was written, or not at all.

use ::fuzz::{Corpus, Verdict};

use super::*;

/// Names of 24 bytes for each four on the wire.
const MOST_ADDRESSES: usize = MAX_FRAME_BYTES / 4;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

fn check(bytes: &[u8], choice: u64) -> Verdict {
    let mut buffer = bytes.to_vec();
    // With the right length in half of all cases, so that the fields behind it are reached.
    if let (true, Some(length)) = (choice.is_multiple_of(2), buffer.len().checked_sub(4)) {
        buffer[..4].copy_from_slice(&(length as u32).to_le_bytes());
    }
    let before = buffer.clone();
    match Message::take(&mut buffer) {
        Ok(None) => {
            let announced =
                before.first_chunk::<4>().map_or(usize::MAX, |head| u32::from_le_bytes(*head) as usize);
            ensure(buffer == before && before.len() < announced.saturating_add(4), || {
                "a whole message waits".into()
            })
        }
        Ok(Some(message)) => {
            let written = message.encode();
            let taken = &before[..before.len() - buffer.len()];
            ensure(before.ends_with(&buffer), || "what follows is not what followed".into())?;
            ensure(written == taken, || format!("{message:?} is written as {} bytes", written.len()))?;
            match message {
                Message::Welcome { addresses, .. } => {
                    ensure(addresses.len() <= MOST_ADDRESSES, || format!("{} addresses", addresses.len()))
                }
                _ => Ok(()),
            }
        }
        Err(reason) => ensure((10..200).contains(&reason.len()), || format!("it says {reason:?}")),
    }
}

#[test]
fn messages() {
    let corpus = Corpus::folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/messages"));
    corpus.check("ring-message", 30_000, check);
}
