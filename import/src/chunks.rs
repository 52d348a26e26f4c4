//! Parses the pieces of a text on all cores.
//!
//! One thread splits the text, because a piece can only be found from the end of the piece before it. Splitting takes a fraction of the
//! time that parsing takes. The threads of rayon's pool parse chunks of pieces, and what they make of them is put together in
//! the order of the text, so the number of cores does not change the result.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::pieces::{NotATrace, Piece, Pieces};

/// The size of a chunk, in bytes. It has as many pieces as begin before it is full.
const CHUNK: usize = 1 << 20;
/// The largest number of chunks of this size per core that wait or are parsed. Chunks that are longer count by their bytes.
const AHEAD: usize = 2;

/// The lengths of a piece: of the key, for a field, and of the event or value.
#[derive(Debug)]
struct Lengths {
    key: Option<u32>,
    value: u32,
}

/// Pieces of a text that follow each other.
#[derive(Debug)]
pub(crate) struct Chunk {
    text: Vec<u8>,
    /// Of each piece.
    lengths: Vec<Lengths>,
}

impl Chunk {
    #[cfg(test)]
    pub(crate) fn new(pieces: &[Piece<'_>]) -> Self {
        let mut chunk = Self { text: Vec::new(), lengths: Vec::new() };
        pieces.iter().for_each(|piece| chunk.add(piece));
        chunk
    }

    fn add(&mut self, piece: &Piece<'_>) {
        let (key, value) = match *piece {
            Piece::Event(event) => (None, event),
            Piece::Field(key, value) => (Some(key), value),
        };
        self.text.extend_from_slice(key.unwrap_or_default());
        self.text.extend_from_slice(value);
        // No piece is longer than that.
        self.lengths.push(Lengths { key: key.map(|key| key.len() as u32), value: value.len() as u32 });
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.lengths.len() * size_of::<Lengths>()
    }

    /// Returns the pieces, in the order of the text.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut rest = self.text.as_slice();
        let mut next = move |length: u32| {
            let (next, after) = rest.split_at(length as usize);
            rest = after;
            next
        };
        self.lengths.iter().map(move |&Lengths { key, value }| match key {
            Some(key) => Piece::Field(next(key), next(value)),
            None => Piece::Event(next(value)),
        })
    }
}

/// Chunks that are parsed, in the order of the text, and their size in bytes.
struct Ahead<P> {
    parsed: VecDeque<(usize, Receiver<P>)>,
    bytes: usize,
}

impl<P> Ahead<P> {
    /// Returns where to send what becomes of the chunk after the others.
    fn add(&mut self, chunk: &Chunk) -> SyncSender<P> {
        // It takes one value.
        let (sender, receiver) = sync_channel(1);
        self.parsed.push_back((chunk.bytes(), receiver));
        self.bytes += chunk.bytes();
        sender
    }

    /// Hands the first chunks to `take`, until at most so many bytes are left.
    fn take_until<E>(&mut self, left: usize, take: &mut impl FnMut(P) -> Result<(), E>) -> Result<(), E> {
        while self.bytes > left
            && let Some((bytes, parsed)) = self.parsed.pop_front()
        {
            self.bytes -= bytes;
            // A thread that panics sends nothing. The scope passes its panic on.
            parsed.recv().map_or(Ok(()), &mut *take)?;
        }
        Ok(())
    }
}

/// Parses all pieces of a text by `parse`, chunk by chunk, and hands what becomes of each chunk to `take`, in the order of the text.
/// Returns why the text is not a trace from some byte on, if that is so. The pieces before it are parsed.
///
/// It waits for the threads of rayon's pool, so it must not run on one of them.
///
/// # Errors
/// Returns the first error of `take`. The rest of the text is then neither read nor parsed.
pub(crate) fn parse_all<R: Read, P: Send, E>(
    pieces: &mut Pieces<R>,
    parse: impl Fn(&Chunk) -> P + Sync,
    mut take: impl FnMut(P) -> Result<(), E>,
) -> Result<Option<NotATrace>, E> {
    let most = AHEAD * CHUNK * rayon::current_num_threads();
    let parse = &parse;
    rayon::in_place_scope(|scope| {
        let mut ahead = Ahead { parsed: VecDeque::new(), bytes: 0 };
        loop {
            let (chunk, after) = next(pieces);
            if let After::End(damage) = after {
                // The others may still be at work.
                let last = parse(&chunk);
                ahead.take_until(0, &mut take)?;
                return take(last).map(|()| damage);
            }
            ahead.take_until(most.saturating_sub(chunk.bytes()), &mut take)?;
            let parsed = ahead.add(&chunk);
            // After an error, nothing receives it.
            scope.spawn(move |_| drop(parsed.send(parse(&chunk))));
        }
    })
}

/// What comes after a chunk.
enum After {
    More,
    /// Nothing that can be read, with the reason if the text should go on.
    End(Option<NotATrace>),
}

/// Returns the next chunk, which has no pieces if none are left.
fn next<R: Read>(pieces: &mut Pieces<R>) -> (Chunk, After) {
    let mut chunk = Chunk { text: Vec::new(), lengths: Vec::new() };
    while chunk.bytes() < CHUNK {
        match pieces.piece() {
            Ok(Some(piece)) => chunk.add(&piece),
            Ok(None) => return (chunk, After::End(None)),
            Err(damage) => return (chunk, After::End(Some(damage))),
        }
    }
    (chunk, After::More)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: usize) -> String {
        let event = |number: usize| {
            format!("{{\"number\": {number}, \"long\": \"{}\"}}", "x".repeat(37 * number % 20_000))
        };
        let events: Vec<String> = (0..pieces).map(event).collect();
        format!("{{\"first\": 1, \"traceEvents\": [{}], \"last\": [2]}}", events.join(","))
    }

    fn owned(chunk: &Chunk) -> Vec<String> {
        chunk.pieces().map(|piece| format!("{piece:?}")).collect()
    }

    #[test]
    fn chunks_come_in_the_order_of_the_text() {
        let text = text(600);
        let mut expected = Vec::new();
        let mut pieces = Pieces::new(text.as_bytes());
        while let Some(piece) = pieces.piece().unwrap() {
            expected.push(format!("{piece:?}"));
        }
        let (mut found, mut chunks) = (Vec::new(), 0);
        let take = |parsed: Vec<String>| {
            found.extend(parsed);
            chunks += 1;
            Ok::<(), ()>(())
        };
        let damage = parse_all(&mut Pieces::new(text.as_bytes()), owned, take).unwrap();
        assert!(damage.is_none());
        assert!(chunks > 4, "{chunks} chunks");
        assert!(found == expected, "{} pieces of {}", found.len(), expected.len());
    }

    #[test]
    fn pieces_before_damage_count() {
        let text = text(3).replace("\"last\"", "last");
        let mut found = 0;
        let take = |parsed: Vec<String>| {
            found += parsed.len();
            Ok::<(), ()>(())
        };
        let damage = parse_all(&mut Pieces::new(text.as_bytes()), owned, take).unwrap();
        assert!(matches!(damage, Some(NotATrace::Syntax { .. })), "{damage:?}");
        assert_eq!(found, 4);
    }

    #[test]
    fn an_error_ends_reading() {
        let mut pieces = Pieces::new(b"[".chain(Sevens).take(1 << 30));
        let mut times = 0;
        let take = |_: usize| {
            times += 1;
            if times == 3 { Err(times) } else { Ok(()) }
        };
        let error = parse_all(&mut pieces, |chunk| chunk.pieces().count(), take).unwrap_err();
        assert_eq!(error, 3);
        assert!(pieces.piece().unwrap().is_some(), "the rest is not read");
    }

    /// `7,7,7,` without end.
    struct Sevens;

    impl Read for Sevens {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            buffer.chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(b"7,"));
            Ok(buffer.len() & !1)
        }
    }
}
