//! Ways in which bytes go wrong.

use std::ops::Range;

use proptest::collection::vec;
use proptest::num;
use proptest::prelude::{Strategy, any};
use proptest::prop_oneof;
use proptest::sample::Index;

use crate::Corpus;

/// Mutations of one input.
const MOST_MUTATIONS: usize = 8;
/// Longest input: bounds are reached by numbers in it, seldom by its length.
const MOST_BYTES: usize = 1 << 20;
/// Longest span that is deleted or copied as it is.
const MOST_SPAN: usize = 64;
/// What a span is repeated to at most.
const MOST_REPEATED: usize = 1 << 14;

const BYTES: [u8; 10] = [0, 1, 2, 0x0f, 0x40, 0x41, 0x7f, 0x80, 0xfe, 0xff];
/// Numbers next to which lengths, counts and times go wrong.
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

/// One change. What it needs of `place`, `length` and `value` depends on the way.
#[derive(Clone, Debug)]
struct Mutation {
    way: Way,
    place: Index,
    other: Index,
    length: usize,
    value: u64,
}

/// What is done at a place.
#[derive(Clone, Copy, Debug)]
enum Way {
    FlipBit,
    SetByte,
    Insert,
    Delete,
    Duplicate,
    Repeat,
    Truncate,
    /// A number of four or eight bytes, little endian.
    Number4,
    Number8,
    /// A number of seven bits a byte (LEB128), in place of the one that lies there.
    Varint,
    /// The beginning of this and the end of another entry.
    Splice,
    /// A span of another entry.
    Graft,
    /// A word in place of another.
    Word,
    WordInserted,
    WordDeleted,
}

/// Half of the changes leave everything where it is, or lengths and counts before it were always wrong.
const OF_BYTES: [Way; 16] = [
    Way::FlipBit,
    Way::FlipBit,
    Way::FlipBit,
    Way::SetByte,
    Way::SetByte,
    Way::Number4,
    Way::Number8,
    Way::Number8,
    Way::Insert,
    Way::Delete,
    Way::Duplicate,
    Way::Truncate,
    Way::Varint,
    Way::Splice,
    Way::Graft,
    Way::Repeat,
];
/// Half of the changes of a text are to whole words, since readers of text stop at the first odd byte.
const OF_TEXT: [Way; 16] = [
    Way::FlipBit,
    Way::SetByte,
    Way::Insert,
    Way::Delete,
    Way::Splice,
    Way::Repeat,
    Way::Number4,
    Way::Graft,
    Way::Word,
    Way::Word,
    Way::Word,
    Way::Word,
    Way::Word,
    Way::WordInserted,
    Way::WordInserted,
    Way::WordDeleted,
];

/// Entries of a corpus, each with one to eight mutations. Shrinks to fewer and smaller ones.
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
    let mutation = (0..ways.len(), any::<Index>(), any::<Index>(), 1..=MOST_SPAN, num::u64::ANY).prop_map(
        move |(way, place, other, length, value)| Mutation { way: ways[way], place, other, length, value },
    );
    // Mostly few: of many, one is sure to spoil what comes first, and nothing behind it is read.
    let mutations = prop_oneof![3 => vec(mutation.clone(), 1..=2), 1 => vec(mutation, 1..=MOST_MUTATIONS)];
    (any::<Index>(), mutations).prop_map(move |(entry, mutations)| {
        let mut bytes = entries[entry.index(entries.len())].clone();
        for mutation in mutations {
            mutation.apply(&mut bytes, &entries, &words);
            bytes.truncate(MOST_BYTES);
        }
        bytes
    })
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>, entries: &[Vec<u8>], words: &[Vec<u8>]) {
        // Behind the last byte is a place too.
        let at = self.place.index(bytes.len() + 1);
        let span = at..bytes.len().min(at + self.length);
        let number = self.number();
        match self.way {
            Way::FlipBit => flip(bytes.get_mut(at), |byte| byte ^ (1 << (self.value % 8))),
            Way::SetByte => flip(bytes.get_mut(at), |_| BYTES[self.value as usize % BYTES.len()]),
            Way::Insert => insert(bytes, at, &self.value.to_le_bytes()[..1 + self.length % 8]),
            Way::Delete => drop(bytes.drain(span)),
            Way::Duplicate => {
                let copied = bytes[span].to_vec();
                insert(bytes, self.other.index(bytes.len() + 1), &copied);
            }
            Way::Repeat => {
                let times = 1 + self.value as usize % (1 + MOST_REPEATED / span.len().max(1));
                let copied = bytes[span.clone()].repeat(times);
                insert(bytes, span.end, &copied);
            }
            Way::Truncate => bytes.truncate(at),
            Way::Number4 => overwrite(bytes, at, &(number as u32).to_le_bytes()),
            Way::Number8 => overwrite(bytes, at, &number.to_le_bytes()),
            Way::Varint => {
                let end = at + bytes[at..].iter().take_while(|&&byte| byte & 0x80 != 0).count() + 1;
                let end = end.min(bytes.len()).max(at);
                bytes.splice(at..end, varint(number));
            }
            Way::Splice => {
                let other = &entries[self.other.index(entries.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[self.value as usize % (other.len() + 1)..]);
            }
            Way::Graft => {
                let other = &entries[self.other.index(entries.len())];
                let from = self.value as usize % (other.len() + 1);
                insert(bytes, at, &other[from..other.len().min(from + self.length)]);
            }
            Way::Word => replace_word(bytes, self.place, &words[self.other.index(words.len())]),
            Way::WordInserted => insert(bytes, at, &words[self.other.index(words.len())]),
            Way::WordDeleted => replace_word(bytes, self.place, b""),
        }
    }

    /// An extreme number, or one next to it.
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

/// In place of as many bytes; at the end there may be fewer.
fn overwrite(bytes: &mut Vec<u8>, at: usize, with: &[u8]) {
    let end = bytes.len().min(at + with.len());
    bytes.splice(at..end, with.iter().copied());
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

/// Where words lie: letters, digits and what stands in names and numbers.
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
