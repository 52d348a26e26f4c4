//! Pickles that hold plain data, read without running anything.
//!
//! A pickle is a program for a machine with a stack. Its instructions for texts, numbers, lists, tuples and dictionaries
//! are read here. Those that name a class or call a function are refused: reading a file must not run what it says.
//! Libraries for pickles copy a value wherever it is used again, and a file of a kilobyte can ask for that without end.
//! Here values are numbered and kept once, and [`Value`] visits a bounded number of them.

use std::cell::Cell;
use std::collections::HashMap;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// The first byte of a pickle of protocol 2 and later.
pub(crate) const FIRST: u8 = 0x80;
/// The largest number of values, including repeated ones. They take at most 48 bytes each.
const MAX_VALUES: usize = 8_000_000;
/// The largest number of values that are visited, and the deepest: a value may hold itself.
const MAX_VISITS: u32 = 32_000_000;
const MAX_DEPTH: u32 = 32;

/// The reason why a pickle is not read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NotPlain {
    /// It asks to run something.
    #[error(
        "byte {at} asks to make an object of a class or to call a function, which is never done (instruction {code:#04x}): write the \
         dump as JSON, with _dump_fr_trace_json"
    )]
    Code {
        /// The position of the instruction.
        at: usize,
        /// The instruction.
        code: u8,
    },
    /// It is damaged.
    #[error("byte {at} of it is damaged: {what}")]
    Damaged {
        /// The position of the instruction.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// It ends early.
    #[error("it ends early, at byte {at}: the process that wrote it was probably killed")]
    EndsEarly {
        /// Its length.
        at: usize,
    },
    /// It has too many values.
    #[error("it has more than {MAX_VALUES} values")]
    TooMany,
}

/// A value. Those that hold others name them by number.
#[derive(Clone, Debug)]
enum Node {
    None,
    Bool(bool),
    Whole(i64),
    Real(f64),
    /// A text, as a range of the bytes.
    Text(usize, usize),
    List(Vec<u32>),
    /// Keys and values in turn.
    Dict(Vec<u32>),
}

/// A pickle, parsed.
pub(crate) struct Pickle<'a> {
    bytes: &'a [u8],
    nodes: Vec<Node>,
    root: u32,
    visits: Cell<u32>,
}

impl<'a> Pickle<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, NotPlain> {
        let mut machine = Machine {
            bytes,
            at: 0,
            nodes: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            pushed: 0,
        };
        loop {
            let began = machine.at;
            let code = machine.byte()?;
            if code == b'.' {
                let root = machine.pop(began)?;
                return Ok(Self { bytes, nodes: machine.nodes, root, visits: Cell::new(0) });
            }
            machine.run(code, began)?;
        }
    }

    pub(crate) fn value(&self) -> Value<'a, '_> {
        Value { pickle: self, node: self.root, depth: 0 }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<u32>,
    marks: Vec<usize>,
    memo: HashMap<u64, u32>,
    pushed: usize,
}

impl Machine<'_> {
    fn run(&mut self, code: u8, began: usize) -> Result<(), NotPlain> {
        match code {
            0x80 => self.skip(1),
            // The length of what follows, which is known anyway.
            0x95 => self.skip(8),
            b'(' => {
                self.marks.push(self.stack.len());
                self.count()
            }
            b'N' => self.push(Node::None),
            0x88 => self.push(Node::Bool(true)),
            0x89 => self.push(Node::Bool(false)),
            b'K' => self.whole(1, false),
            b'M' => self.whole(2, false),
            b'J' => self.whole(4, true),
            0x8a => self.long(began),
            b'G' => {
                let bits = self.take(8)?.try_into().map_or(0, u64::from_be_bytes);
                self.push(Node::Real(f64::from_bits(bits)))
            }
            b'X' => self.text(4),
            0x8c => self.text(1),
            0x8d => self.text(8),
            b'}' => self.push(Node::Dict(Vec::new())),
            b']' => self.push(Node::List(Vec::new())),
            b')' => self.push(Node::List(Vec::new())),
            0x85..=0x87 => self.tuple(usize::from(code - 0x84), began),
            b't' => {
                let begin = self.mark(began)?;
                self.tuple(self.stack.len() - begin, began)
            }
            b'q' | b'r' | 0x94 => self.remember(code, began),
            b'h' | b'j' => self.recall(code, began),
            b'a' => self.extend(1, began),
            b's' => self.extend(2, began),
            b'e' | b'u' => {
                let begin = self.mark(began)?;
                self.extend(self.stack.len() - begin, began)
            }
            b'0' => self.pop(began).map(|_| ()),
            _ => Err(NotPlain::Code { at: began, code }),
        }
    }

    fn byte(&mut self) -> Result<u8, NotPlain> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, length: usize) -> Result<&[u8], NotPlain> {
        let end = self.at.checked_add(length).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or(NotPlain::EndsEarly { at: self.bytes.len() })?;
        let begin = std::mem::replace(&mut self.at, end);
        Ok(&self.bytes[begin..end])
    }

    fn skip(&mut self, length: usize) -> Result<(), NotPlain> {
        self.take(length).map(|_| ())
    }

    /// Reads a number of up to eight bytes, the lowest first.
    fn unsigned(&mut self, length: usize) -> Result<u64, NotPlain> {
        Ok(self.take(length)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn count(&mut self) -> Result<(), NotPlain> {
        self.pushed += 1;
        if self.pushed > MAX_VALUES { Err(NotPlain::TooMany) } else { Ok(()) }
    }

    fn push(&mut self, node: Node) -> Result<(), NotPlain> {
        self.count()?;
        self.stack.push(self.nodes.len() as u32);
        self.nodes.push(node);
        Ok(())
    }

    fn pop(&mut self, at: usize) -> Result<u32, NotPlain> {
        self.stack.pop().ok_or(NotPlain::Damaged { at, what: "it uses a value that is not there" })
    }

    fn mark(&mut self, at: usize) -> Result<usize, NotPlain> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len());
        mark.ok_or(NotPlain::Damaged { at, what: "it ends a list that did not begin" })
    }

    fn whole(&mut self, length: usize, signed: bool) -> Result<(), NotPlain> {
        let number = self.unsigned(length)?;
        let number = if signed { i64::from(number as u32 as i32) } else { number as i64 };
        self.push(Node::Whole(number))
    }

    /// Reads a number of any length. A longer one than eight bytes is none that a dump has.
    fn long(&mut self, at: usize) -> Result<(), NotPlain> {
        let length = usize::from(self.byte()?);
        if length > 8 {
            return Err(NotPlain::Damaged { at, what: "a number is too large" });
        }
        let number = self.unsigned(length)?;
        let shift = 64 - 8 * length as u32;
        let number = if length == 0 { 0 } else { (number << shift) as i64 >> shift };
        self.push(Node::Whole(number))
    }

    fn text(&mut self, bytes_of_length: usize) -> Result<(), NotPlain> {
        let length = usize::try_from(self.unsigned(bytes_of_length)?).unwrap_or(usize::MAX);
        self.skip(length)?;
        self.push(Node::Text(self.at - length, self.at))
    }

    fn tuple(&mut self, length: usize, at: usize) -> Result<(), NotPlain> {
        let items = self.top(length, at)?;
        self.push(Node::List(items))
    }

    /// Takes values from the top of the stack.
    fn top(&mut self, length: usize, at: usize) -> Result<Vec<u32>, NotPlain> {
        let begin = self.stack.len().checked_sub(length);
        let begin = begin.ok_or(NotPlain::Damaged { at, what: "it uses a value that is not there" })?;
        Ok(self.stack.split_off(begin))
    }

    fn remember(&mut self, code: u8, at: usize) -> Result<(), NotPlain> {
        let key = match code {
            b'q' => self.unsigned(1)?,
            b'r' => self.unsigned(4)?,
            _ => self.memo.len() as u64,
        };
        let value =
            *self.stack.last().ok_or(NotPlain::Damaged { at, what: "it keeps a value that is not there" })?;
        self.count()?;
        self.memo.insert(key, value);
        Ok(())
    }

    fn recall(&mut self, code: u8, at: usize) -> Result<(), NotPlain> {
        let key = self.unsigned(if code == b'h' { 1 } else { 4 })?;
        let value = self.memo.get(&key).copied();
        let value =
            value.ok_or(NotPlain::Damaged { at, what: "it uses a value again that it did not keep" })?;
        self.count()?;
        self.stack.push(value);
        Ok(())
    }

    /// Adds the topmost values to the list or dictionary below them.
    fn extend(&mut self, length: usize, at: usize) -> Result<(), NotPlain> {
        let items = self.top(length, at)?;
        let target = self.stack.last().and_then(|&target| self.nodes.get_mut(target as usize));
        match target {
            Some(Node::List(list)) => list.extend(items),
            Some(Node::Dict(pairs)) if items.len().is_multiple_of(2) => pairs.extend(items),
            _ => {
                return Err(NotPlain::Damaged {
                    at,
                    what: "it fills something that is not a list or dictionary",
                });
            }
        }
        Ok(())
    }
}

/// A value of a pickle, which anything that serde knows can be made of.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a, 'p> {
    pickle: &'p Pickle<'a>,
    node: u32,
    depth: u32,
}

impl<'a, 'p> Value<'a, 'p> {
    fn held(self, node: u32) -> Self {
        Self { node, depth: self.depth + 1, ..self }
    }

    /// Counts a visit.
    fn visited(self) -> Result<(), de::value::Error> {
        let visits = self.pickle.visits.get() + 1;
        self.pickle.visits.set(visits);
        if visits > MAX_VISITS || self.depth > MAX_DEPTH {
            return Err(de::Error::custom("its values hold each other too often or too deep"));
        }
        Ok(())
    }
}

impl<'de> Deserializer<'de> for Value<'de, '_> {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.visited()?;
        match &self.pickle.nodes[self.node as usize] {
            Node::None => visitor.visit_unit(),
            Node::Bool(value) => visitor.visit_bool(*value),
            Node::Whole(value) => visitor.visit_i64(*value),
            Node::Real(value) => visitor.visit_f64(*value),
            Node::Text(from, to) => match std::str::from_utf8(&self.pickle.bytes[*from..*to]) {
                Ok(text) => visitor.visit_borrowed_str(text),
                Err(_) => Err(de::Error::custom(format!("the text at byte {from} is not UTF-8"))),
            },
            Node::List(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.iter().map(|&item| self.held(item))))
            }
            Node::Dict(pairs) => visitor.visit_map(MapDeserializer::new(
                pairs.chunks_exact(2).map(|pair| (self.held(pair[0]), self.held(pair[1]))),
            )),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.pickle.nodes[self.node as usize] {
            Node::None => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// What is not wanted is not visited.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier
    }
}

impl<'a> IntoDeserializer<'a, de::value::Error> for Value<'a, '_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[test]
    fn plain_data_is_read() {
        // {"a": [1, -1, None], "b": ("a", 258)}, as protocol 2 writes it.
        let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xff\xff\xff\xffNeX\x01\x00\x00\x00bq\x03h\x01M\x02\x01\x86u.";
        #[derive(Debug, PartialEq, Deserialize)]
        struct Plain {
            a: Vec<Option<i64>>,
            b: (String, u64),
        }
        let pickle = Pickle::parse(bytes).unwrap();
        let plain = Plain::deserialize(pickle.value()).unwrap();
        assert_eq!(plain, Plain { a: vec![Some(1), Some(-1), None], b: ("a".into(), 258) });
    }

    #[test]
    fn long_numbers_have_signs() {
        let number = |bytes: &[u8]| i64::deserialize(Pickle::parse(bytes).unwrap().value()).unwrap();
        assert_eq!(number(b"\x80\x02\x8a\x01\xff."), -1);
        assert_eq!(number(b"\x80\x02\x8a\x00."), 0);
        assert_eq!(number(b"\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), i64::MIN);
    }

    #[test]
    fn code_is_refused_and_damage_is_named() {
        let error = |bytes: &[u8]| Pickle::parse(bytes).map(|_| ()).unwrap_err();
        // os.system("true")
        let code = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.";
        assert_eq!(error(code), NotPlain::Code { at: 2, code: b'c' });
        assert_eq!(error(b"\x80\x02X\xff\xff\xff\xffab"), NotPlain::EndsEarly { at: 9 });
        assert!(matches!(error(b"\x80\x02e."), NotPlain::Damaged { at: 2, .. }));
        assert!(matches!(error(b"\x80\x02h\x07."), NotPlain::Damaged { at: 2, .. }));
    }

    #[test]
    fn values_that_hold_each_other_end() {
        // A list that holds itself, and forty lists that each hold the one before twice.
        let cycle = Pickle::parse(b"\x80\x02]q\x00h\x00a.").unwrap();
        assert!(BTreeMap::<String, String>::deserialize(cycle.value()).is_err());
        #[derive(Deserialize)]
        struct Deep(#[allow(dead_code, reason = "only its depth counts")] Vec<Deep>);
        assert!(Deep::deserialize(cycle.value()).is_err());
        let mut doubled = b"\x80\x02]".to_vec();
        (0..16).for_each(|_| doubled.extend(b"q\x00h\x00\x86"));
        doubled.push(b'.');
        assert!(Deep::deserialize(Pickle::parse(&doubled).unwrap().value()).is_ok());
        (0..12).for_each(|_| drop(doubled.splice(doubled.len() - 1.., *b"q\x00h\x00\x86.")));
        assert!(Deep::deserialize(Pickle::parse(&doubled).unwrap().value()).is_err(), "2^28 lists");
    }
}
