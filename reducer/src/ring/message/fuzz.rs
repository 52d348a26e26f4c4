//! Fuzzes the messages that a peer, or another program, may send to a port. A message is either read whole, exactly as
//! written, or refused.

use ::fuzz::{Corpus, Verdict};

use super::*;

/// The largest number of addresses in a frame. An address takes at least four bytes on the wire and 24 in memory.
const MAX_ADDRESSES: usize = MAX_FRAME_BYTES / 4;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

fn check(bytes: &[u8], choice: u64) -> Verdict {
    let mut buffer = bytes.to_vec();
    // Half of all cases have the right length, so that the fields after it are reached.
    if let (true, Some(length)) = (choice.is_multiple_of(2), buffer.len().checked_sub(4)) {
        buffer[..4].copy_from_slice(&(length as u32).to_le_bytes());
    }
    let received = buffer.clone();
    match Message::take(&mut buffer) {
        Ok(None) => {
            let announced =
                received.first_chunk::<4>().map_or(usize::MAX, |head| u32::from_le_bytes(*head) as usize);
            ensure(buffer == received && received.len() < announced.saturating_add(4), || {
                "a whole message was not read".into()
            })
        }
        Ok(Some(message)) => {
            let written = message.encode();
            let taken = &received[..received.len() - buffer.len()];
            ensure(received.ends_with(&buffer), || "the bytes after the message changed".into())?;
            ensure(written == taken, || format!("{message:?} is written as {} bytes", written.len()))?;
            match message {
                Message::Welcome { addresses, .. } => {
                    ensure(addresses.len() <= MAX_ADDRESSES, || format!("{} addresses", addresses.len()))
                }
                _ => Ok(()),
            }
        }
        Err(reason) => ensure((10..200).contains(&reason.len()), || format!("the reason is {reason:?}")),
    }
}

#[test]
fn any_bytes_are_read_exactly_or_refused() {
    let corpus = Corpus::folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/messages"));
    corpus.check("ring-message", 30_000, check);
}
