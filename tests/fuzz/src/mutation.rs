//! Mutations of bytes.

use std::ops::Range;

use proptest::collection::vec;
use proptest::num;
use proptest::prelude::{Strategy, any};
use proptest::prop_oneof;
use proptest::sample::Index;

use crate::Corpus;

/// The largest number of mutations of one input.
const MAX_MUTATIONS: usize = 8;
/// The largest length of an input. Bounds are usually reached by numbers in an input, seldom by its length.
const MAX_BYTES: usize = 1 << 20;
/// The largest length of a span that is deleted or copied.
const MAX_SPAN: usize = 64;
/// The largest length to which a span is repeated.
const MAX_REPEATED: usize = 1 << 14;

const BYTES: [u8; 10] = [0, 1, 2, 0x0f, 0x40, 0x41, 0x7f, 0x80, 0xfe, 0xff];
/// Numbers near which handling of lengths, counts and times often fails.
const NUMBERS: [u64; 18] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x1_0000,
    0x1_0001,
    i32::MAX as u64,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// One change. The operation determines which of `place`, `length` and `value` it uses.
#[derive(Clone, Debug)]
struct Mutation {
    operation: Operation,
    place: Index,
    other: Index,
    length: usize,
    value: u64,
}

/// The kind of change at a place.
#[derive(Clone, Copy, Debug)]
enum Operation {
    FlipBit,
    SetByte,
    Insert,
    Delete,
    Duplicate,
    Repeat,
    Truncate,
    /// A little-endian number of four or eight bytes.
    Number4,
    Number8,
    /// A number with seven bits per byte (LEB128), in place of the number there.
    Varint,
    /// The beginning of this entry and the end of another entry.
    Splice,
    /// A span of another entry.
    Graft,
    /// A word in place of another word.
    Word,
    WordInserted,
    WordDeleted,
}

/// Half of the changes keep the length, because otherwise lengths and counts before the change would always be wrong.
const OF_BYTES: [Operation; 16] = [
    Operation::FlipBit,
    Operation::FlipBit,
    Operation::FlipBit,
    Operation::SetByte,
    Operation::SetByte,
    Operation::Number4,
    Operation::Number8,
    Operation::Number8,
    Operation::Insert,
    Operation::Delete,
    Operation::Duplicate,
    Operation::Truncate,
    Operation::Varint,
    Operation::Splice,
    Operation::Graft,
    Operation::Repeat,
];
/// Half of the changes of a text affect whole words, because parsers of text stop at the first invalid byte.
const OF_TEXT: [Operation; 16] = [
    Operation::FlipBit,
    Operation::SetByte,
    Operation::Insert,
    Operation::Delete,
    Operation::Splice,
    Operation::Repeat,
    Operation::Number4,
    Operation::Graft,
    Operation::Word,
    Operation::Word,
    Operation::Word,
    Operation::Word,
    Operation::Word,
    Operation::WordInserted,
    Operation::WordInserted,
    Operation::WordDeleted,
];

/// Returns a strategy for damaged entries: entries of a corpus with one to eight mutations. Shrinks to fewer and
/// smaller mutations.
pub fn spoilt(corpus: &Corpus) -> impl Strategy<Value = Vec<u8>> + use<> {
    let entries: Vec<Vec<u8>> = corpus.all().map(<[u8]>::to_vec).collect();
    let mut words: Vec<Vec<u8>> = corpus.all_words().to_vec();
    let is_text = !words.is_empty();
    if is_text {
        words.extend(
            entries.iter().flat_map(|entry| ranges_of_words(entry).map(|range| entry[range].to_vec())),
        );
    }
    let ways = if is_text { OF_TEXT } else { OF_BYTES };
    let mutation = (0..ways.len(), any::<Index>(), any::<Index>(), 1..=MAX_SPAN, num::u64::ANY).prop_map(
        move |(operation, place, other, length, value)| Mutation {
            operation: ways[operation],
            place,
            other,
            length,
            value,
        },
    );
    // Few mutations are more likely. With many, one usually damages the beginning, and the rest is not read.
    let mutations = prop_oneof![3 => vec(mutation.clone(), 1..=2), 1 => vec(mutation, 1..=MAX_MUTATIONS)];
    (any::<Index>(), mutations).prop_map(move |(entry, mutations)| {
        let mut bytes = entries[entry.index(entries.len())].clone();
        for mutation in mutations {
            mutation.apply(&mut bytes, &entries, &words);
            bytes.truncate(MAX_BYTES);
        }
        bytes
    })
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>, entries: &[Vec<u8>], words: &[Vec<u8>]) {
        // The position after the last byte is a valid place too.
        let at = self.place.index(bytes.len() + 1);
        let span = at..bytes.len().min(at + self.length);
        let number = self.number();
        match self.operation {
            Operation::FlipBit => flip(bytes.get_mut(at), |byte| byte ^ (1 << (self.value % 8))),
            Operation::SetByte => flip(bytes.get_mut(at), |_| BYTES[self.value as usize % BYTES.len()]),
            Operation::Insert => insert(bytes, at, &self.value.to_le_bytes()[..1 + self.length % 8]),
            Operation::Delete => drop(bytes.drain(span)),
            Operation::Duplicate => {
                let copied = bytes[span].to_vec();
                insert(bytes, self.other.index(bytes.len() + 1), &copied);
            }
            Operation::Repeat => {
                let times = 1 + self.value as usize % (1 + MAX_REPEATED / span.len().max(1));
                let copied = bytes[span.clone()].repeat(times);
                insert(bytes, span.end, &copied);
            }
            Operation::Truncate => bytes.truncate(at),
            Operation::Number4 => overwrite(bytes, at, &(number as u32).to_le_bytes()),
            Operation::Number8 => overwrite(bytes, at, &number.to_le_bytes()),
            Operation::Varint => {
                let end = at + bytes[at..].iter().take_while(|&&byte| byte & 0x80 != 0).count() + 1;
                let end = end.min(bytes.len()).max(at);
                bytes.splice(at..end, varint(number));
            }
            Operation::Splice => {
                let other = &entries[self.other.index(entries.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[self.value as usize % (other.len() + 1)..]);
            }
            Operation::Graft => {
                let other = &entries[self.other.index(entries.len())];
                let start = self.value as usize % (other.len() + 1);
                insert(bytes, at, &other[start..other.len().min(start + self.length)]);
            }
            Operation::Word => replace_word(bytes, self.place, &words[self.other.index(words.len())]),
            Operation::WordInserted => insert(bytes, at, &words[self.other.index(words.len())]),
            Operation::WordDeleted => replace_word(bytes, self.place, b""),
        }
    }

    /// Returns an extreme number, or in one of four cases an arbitrary one.
    fn number(&self) -> u64 {
        let extreme = NUMBERS[self.value as usize % NUMBERS.len()];
        if self.length.is_multiple_of(4) { self.value } else { extreme }
    }
}

fn flip(byte: Option<&mut u8>, change: impl FnOnce(u8) -> u8) {
    if let Some(byte) = byte {
        *byte = change(*byte);
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, more: &[u8]) {
    bytes.splice(at..at, more.iter().copied());
}

/// Overwrites as many bytes as `replacement` has, or fewer at the end.
fn overwrite(bytes: &mut Vec<u8>, at: usize, replacement: &[u8]) {
    let end = bytes.len().min(at + replacement.len());
    bytes.splice(at..end, replacement.iter().copied());
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn replace_word(bytes: &mut Vec<u8>, place: Index, word: &[u8]) {
    let ranges: Vec<_> = ranges_of_words(bytes).collect();
    if !ranges.is_empty() {
        bytes.splice(ranges[place.index(ranges.len())].clone(), word.iter().copied());
    }
}

/// Returns the ranges of words: letters, digits, and other characters of names and numbers.
fn ranges_of_words(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at + bytes[at..].iter().position(|&byte| is_word(byte))?;
        let length = bytes[begin..].iter().take_while(|&&byte| is_word(byte)).count();
        at = begin + length;
        Some(begin..at)
    })
}
