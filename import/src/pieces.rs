//! Splits a JSON text into its pieces, without holding it in memory: the events of a trace one by one, and the fields
//! beside them.
//!
//! A trace is an object with a list `traceEvents`, or that list alone. Each piece is checked only when it is parsed, so a
//! damaged event costs that event, and a text that ends early costs what is missing.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;

use memchr::memchr2;

use crate::unpacked::{Swollen, Unpacked};

/// The number of bytes that are read at a time.
const BLOCK: usize = 1 << 18;
/// The longest piece, in bytes. Process groups of a large job take some megabytes.
const MAX_PIECE: usize = 64 << 20;
/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The mark of byte order of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A piece of a trace.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// An element of the list of events.
    Event(&'a [u8]),
    /// A field beside the list of events: its key, without quotes, and its value.
    Field(&'a [u8], &'a [u8]),
}

/// How the text ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// After its last bracket.
    Whole,
    /// After its last bracket, with something behind it from this byte of the uncompressed text on.
    Followed {
        /// The number of the byte.
        at: u64,
    },
    /// Before that, at this byte of the uncompressed text.
    Early {
        /// The number of bytes.
        at: u64,
        /// The error of the file or of its compression, if that ended it.
        error: Option<String>,
    },
}

/// The reason why a text is not a trace.
#[derive(Debug, thiserror::Error)]
pub enum NotATrace {
    /// The text begins with neither an object nor a list.
    #[error("it does not begin with {{ or [, so it is not JSON as profilers write it")]
    NotJson,
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// There is something other than a field or an event.
    #[error("byte {at} of the uncompressed text should begin or end a field or an event, and does not")]
    Syntax {
        /// The number of the byte.
        at: u64,
    },
    /// A piece is too long.
    #[error("the piece at byte {at} is longer than {} MiB", MAX_PIECE >> 20)]
    TooLong {
        /// The number of the first byte.
        at: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    Fields,
    /// In the list of events, which lies in an object if `in_object`.
    Events {
        in_object: bool,
    },
    Over,
}

/// A field beside the list of events, as ranges of the buffer; without a value if it is that list.
struct Field {
    key: Range<usize>,
    value: Option<Range<usize>>,
}

/// The pieces of a text.
pub struct Pieces<R> {
    read: R,
    /// The key of the list whose elements are events.
    list: &'static str,
    buffer: Vec<u8>,
    /// The part of the buffer that is not consumed.
    from: usize,
    to: usize,
    /// The number of bytes before the buffer.
    consumed: u64,
    place: Place,
    /// The first byte behind the text, if there is more.
    followed: Option<u64>,
    /// Whether nothing is left to read, and the error that ended reading.
    ended: bool,
    error: Option<String>,
}

/// Returns a reader of the plain text of `file`, which may be compressed by gzip, whatever its name is. Reading ends with an
/// error, and `swollen` says so, if the text is far longer than the file.
///
/// # Errors
/// Returns an error if the first bytes cannot be read.
pub fn plain<'a>(file: impl Read + 'a, swollen: &Swollen) -> io::Result<Box<dyn Read + 'a>> {
    let mut file = BufReader::with_capacity(BLOCK, file);
    let is_compressed = file.fill_buf()?.starts_with(&GZIP);
    Ok(if is_compressed {
        let mut text = BufReader::with_capacity(BLOCK, Unpacked::new(file, BLOCK, swollen.clone()));
        skip_mark(&mut text);
        Box::new(text)
    } else {
        skip_mark(&mut file);
        Box::new(file)
    })
}

/// Skips the mark of byte order that some editors write before UTF-8. An error is met again where the text is read.
fn skip_mark(text: &mut impl BufRead) {
    if text.fill_buf().is_ok_and(|begin| begin.starts_with(MARK)) {
        text.consume(MARK.len());
    }
}

impl<R: Read> Pieces<R> {
    /// Splits the plain text of a trace that `read` returns.
    #[must_use]
    pub fn new(read: R) -> Self {
        Self::with_list(read, "traceEvents")
    }

    /// Splits a plain text whose events are in the list with this key.
    #[must_use]
    pub fn with_list(read: R, list: &'static str) -> Self {
        Self {
            read,
            list,
            buffer: vec![0; 2 * BLOCK],
            from: 0,
            to: 0,
            consumed: 0,
            place: Place::Start,
            followed: None,
            ended: false,
            error: None,
        }
    }

    /// Returns the next piece; `None` at the end of the text ([`Self::end`] says which end).
    ///
    /// # Errors
    /// Returns an error if the text is not a trace.
    pub fn piece(&mut self) -> Result<Option<Piece<'_>>, NotATrace> {
        loop {
            self.skip(|byte| byte.is_ascii_whitespace() || byte == b',');
            let Some(byte) = self.peek() else {
                return if self.place == Place::Start { Err(NotATrace::Empty) } else { Ok(None) };
            };
            match (self.place, byte) {
                (Place::Start, b'{') => self.enter(Place::Fields),
                (Place::Start, b'[') => self.enter(Place::Events { in_object: false }),
                (Place::Start, _) => return Err(NotATrace::NotJson),
                (Place::Fields, b'}') | (Place::Events { in_object: false }, b']') => self.enter(Place::Over),
                (Place::Events { in_object: true }, b']') => self.enter(Place::Fields),
                (Place::Events { .. }, _) => {
                    let Some(event) = self.value(self.from)? else { return Ok(None) };
                    self.from = event.end;
                    return Ok(Some(Piece::Event(&self.buffer[event])));
                }
                (Place::Fields, b'"') => {
                    let Some(Field { key, value }) = self.field()? else { return Ok(None) };
                    if let Some(value) = value {
                        self.from = value.end;
                        return Ok(Some(Piece::Field(&self.buffer[key], &self.buffer[value])));
                    }
                }
                (Place::Over, _) => {
                    self.followed = Some(self.offset());
                    return Ok(None);
                }
                (Place::Fields, _) => return Err(NotATrace::Syntax { at: self.offset() }),
            }
        }
    }

    /// Returns how the text ended, once [`Self::piece`] has returned `None`.
    #[must_use]
    pub fn end(&self) -> End {
        match self.place {
            Place::Over => self.followed.map_or(End::Whole, |at| End::Followed { at }),
            _ => End::Early { at: self.consumed + self.to as u64, error: self.error.clone() },
        }
    }

    fn offset(&self) -> u64 {
        self.consumed + self.from as u64
    }

    fn enter(&mut self, place: Place) {
        self.place = place;
        self.from += 1;
    }

    /// Returns the ranges of a field's key and of its value in the buffer; no value for the list of events, which it enters.
    /// `None` if the text ends before.
    fn field(&mut self) -> Result<Option<Field>, NotATrace> {
        let Some(quoted) = self.value(self.from)? else { return Ok(None) };
        let key_length = quoted.len();
        let mut at = quoted.end;
        let mut colons = 0;
        // The value may lie beyond the buffer, which moves its content to its front when it reads on.
        loop {
            match self.buffer[at..self.to].first() {
                Some(b':') if colons == 0 => colons = 1,
                Some(byte) if byte.is_ascii_whitespace() => {}
                Some(_) if colons == 1 => break,
                Some(_) => return Err(NotATrace::Syntax { at: self.consumed + at as u64 }),
                None => {
                    let moved = at - self.from;
                    if !self.read_on()? {
                        return Ok(None);
                    }
                    at = self.from + moved;
                    continue;
                }
            }
            at += 1;
        }
        let key = self.from + 1..self.from + key_length - 1;
        if self.buffer[at] == b'[' && self.buffer[key.clone()] == *self.list.as_bytes() {
            self.from = at;
            self.enter(Place::Events { in_object: true });
            return Ok(Some(Field { key, value: None }));
        }
        let Some(value) = self.value(at)? else { return Ok(None) };
        // The buffer may have moved.
        let key = self.from + 1..self.from + key_length - 1;
        Ok(Some(Field { key, value: Some(value) }))
    }

    /// Returns the range of the value at `at`, which is not before the unconsumed part; `None` if the text ends before it
    /// does.
    fn value(&mut self, at: usize) -> Result<Option<Range<usize>>, NotATrace> {
        let mut at = at;
        loop {
            if let Some(length) = value_length(&self.buffer[at..self.to]) {
                // A bracket where a value should be.
                let is_value = length > 0;
                let syntax = NotATrace::Syntax { at: self.consumed + at as u64 };
                return if is_value { Ok(Some(at..at + length)) } else { Err(syntax) };
            }
            let offset = at - self.from;
            if !self.read_on()? {
                return Ok(None);
            }
            at = self.from + offset;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        if self.from == self.to && !self.read_on().ok()? {
            return None;
        }
        Some(self.buffer[self.from])
    }

    fn skip(&mut self, is_skipped: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&is_skipped) {
            self.from += 1;
        }
    }

    /// Reads on behind the unconsumed part, which moves to the front of the buffer. Returns false at the end of the text.
    fn read_on(&mut self) -> Result<bool, NotATrace> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.copy_within(self.from..self.to, 0);
        self.consumed += self.from as u64;
        (self.from, self.to) = (0, self.to - self.from);
        if self.to >= MAX_PIECE {
            return Err(NotATrace::TooLong { at: self.consumed });
        }
        if self.buffer.len() < self.to + BLOCK {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        match self.read.read(&mut self.buffer[self.to..]) {
            Ok(0) => self.ended = true,
            Ok(read) => self.to += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A file that was cut has an end all the same: what lies before it counts.
            Err(error) => (self.ended, self.error) = (true, Some(error.to_string())),
        }
        Ok(!self.ended)
    }
}

/// Returns the length of the JSON value that `text` begins with; `None` if the value may go on behind the text.
fn value_length(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'{' | b'[' => {}
        b'"' => return string_length(text),
        _ => {
            return text
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace());
        }
    }
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at += string_length(&text[at..])? - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the length of the string that `text` begins with, both quotes included; `None` if it may go on behind the text.
///
/// Tools that do not escape names write one that ends in a backslash as if its quote were part of it (`"C:\dir\"`). The string then seems
/// to end at the first quote of the next one. No string of JSON has a line break, and none is followed by anything but a comma, a colon or
/// a bracket: where one would be, it ended at the first escaped quote that is followed so.
fn string_length(text: &[u8]) -> Option<usize> {
    let (mut at, mut escaped) = (1, None);
    loop {
        let begin = at;
        let found = memchr2(b'"', b'\\', text.get(at..)?).map(|found| begin + found);
        if let Some(escaped) = escaped
            && text[begin..found.unwrap_or(text.len())].contains(&b'\n')
        {
            return Some(ended(text, escaped, text.len()).unwrap_or(escaped + 1));
        }
        at = found?;
        match text[at] {
            b'"' => {
                let Some(escaped) = escaped else { return Some(at + 1) };
                return if is_followed(text, at)? {
                    Some(at + 1)
                } else {
                    ended(text, escaped, at).or(Some(at + 1))
                };
            }
            _ => {
                escaped = escaped.or_else(|| (text.get(at + 1) == Some(&b'"')).then_some(at + 1));
                at += 2;
            }
        }
    }
}

/// Returns the length of the string that ends at the first escaped quote, from the one at `first` on and before `end`, that what follows
/// a string follows.
fn ended(text: &[u8], first: usize, end: usize) -> Option<usize> {
    let is_escaped_quote = |at: &usize| text[*at] == b'"' && text[at - 1] == b'\\';
    let at = (first..end).filter(is_escaped_quote).find(|&at| is_followed(text, at) == Some(true))?;
    Some(at + 1)
}

/// Returns whether what may follow a string follows the quote at `at`; `None` if the text ends before.
fn is_followed(text: &[u8], at: usize) -> Option<bool> {
    let next = text[at + 1..].iter().find(|byte| !byte.is_ascii_whitespace())?;
    Some(matches!(next, b',' | b':' | b'}' | b']'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns few bytes at a time, so that every piece crosses the end of what was read.
    struct Dribble<'a>(&'a [u8]);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(3);
            self.0.read(&mut buffer[..most])
        }
    }

    /// Returns the events, the fields and the end of a text, read whole and in small parts.
    fn split(text: &str) -> (Vec<String>, Vec<(String, String)>, End) {
        let whole = split_by(Pieces::new(text.as_bytes()));
        assert_eq!(whole, split_by(Pieces::new(Dribble(text.as_bytes()))));
        whole
    }

    fn split_by<R: Read>(mut pieces: Pieces<R>) -> (Vec<String>, Vec<(String, String)>, End) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (mut events, mut fields) = (Vec::new(), Vec::new());
        while let Some(piece) = pieces.piece().unwrap() {
            match piece {
                Piece::Event(event) => events.push(text(event)),
                Piece::Field(key, value) => fields.push((text(key), text(value))),
            }
        }
        (events, fields, pieces.end())
    }

    #[test]
    fn what_follows_the_text_is_said() {
        let (events, _, end) = split(r#"{"traceEvents": [1]} {"traceEvents": [2]}"#);
        assert_eq!((events.len(), end), (1, End::Followed { at: 21 }));
        assert_eq!(split("[1]\n").2, End::Whole);
    }

    #[test]
    fn a_name_that_ends_in_a_backslash_costs_its_event_only() {
        let text = "[{\"name\": \"C:\\dir\\\",\n \"ts\": 1},\n{\"name\": \"a\\\"b\", \"ts\": 2}]";
        let (events, _, end) = split(text);
        assert_eq!((events.len(), end), (2, End::Whole));
        assert!(events[1].ends_with("\"ts\": 2}"), "{events:?}");
    }

    #[test]
    fn names_that_end_in_a_backslash_cost_their_events_only_in_a_text_of_one_line_too() {
        for (bad, events_left) in [
            (r#"{"name": "C:\x\", "ts": 1}"#, 3),
            (r#"{"ts": 1, "args": {"path": "C:\dir \"quoted\" \"}}"#, 3),
            (r#"{"name": "C:\x\", "cat": "D:\", "ts": 1}"#, 3),
            (r#"{"names": ["C:\x\", "E:\"], "C:\": 1}"#, 3),
        ] {
            let text = format!(
                r#"{{"traceName": "C:\", "traceEvents": [{{"ts": 0}}, {bad}, {{"name": "a\"b, \"", "ts": 2}}], "z": "\\"}}"#
            );
            let (events, fields, end) = split(&text);
            assert_eq!((events.len(), end), (events_left, End::Whole), "{text}");
            assert_eq!((events[1].as_str(), fields.len()), (bad, 2), "{text}");
            assert!(events[2].ends_with("\"ts\": 2}"), "{events:?}");
        }
    }

    #[test]
    fn a_mark_of_byte_order_is_no_part_of_the_text() {
        let mut text = String::new();
        plain(&b"\xef\xbb\xbf[1]"[..], &Swollen::default()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "[1]");
    }

    #[test]
    fn events_and_fields_come_in_the_order_of_the_text() {
        let text =
            r#" {"a": {"x": [1, "}"]}, "traceEvents": [ {"name": "a\"]"} , {} , 3 ], "b": "\\", "c": 1.5}"#;
        let (events, fields, end) = split(text);
        assert_eq!(events, [r#"{"name": "a\"]"}"#, "{}", "3"]);
        let fields: Vec<_> = fields.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(fields, [("a", r#"{"x": [1, "}"]}"#), ("b", r#""\\""#), ("c", "1.5")]);
        assert_eq!(end, End::Whole);
        assert_eq!(split("[{},{}]").0, ["{}", "{}"]);
    }

    #[test]
    fn a_text_that_is_no_trace_is_refused() {
        let first = |text: &str| Pieces::new(text.as_bytes()).piece().map(|_| ()).unwrap_err().to_string();
        assert!(first("").contains("empty"));
        assert!(first("12").contains("not JSON"));
        assert!(first("{3: 4}").contains("byte 1 "));
        assert!(first("{\"a\" 4}").contains("byte 5 "));
        assert!(first("[}").contains("byte 1 "));
        assert!(first("{\"a\": }").contains("byte 6 "));
    }

    #[test]
    fn compressed_text_is_known_by_its_first_bytes() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut packed, b"[{}, {}]").unwrap();
        let packed = packed.finish().unwrap();
        assert_eq!(split_by(Pieces::new(plain(&packed[..], &Swollen::default()).unwrap())).0, ["{}", "{}"]);
        let cut = plain(&packed[..packed.len() - 9], &Swollen::default()).unwrap();
        let (_, _, end) = split_by(Pieces::new(cut));
        assert!(matches!(end, End::Whole | End::Early { error: Some(_), .. }), "{end:?}");
    }

    proptest! {
        /// A text that ends anywhere gives the events that are whole, and says where it ends.
        #[test]
        fn a_text_that_ends_early_gives_what_it_holds(names in prop::collection::vec(".{0,6}", 1..6), cut in 1_usize..200) {
            let events: Vec<String> =
                names.iter().map(|name| serde_json::json!({"name": name, "args": [name]}).to_string()).collect();
            let text = format!("{{\"traceEvents\": [{}], \"z\": 0}}", events.join(", "));
            let mut cut = cut.min(text.len());
            while !text.is_char_boundary(cut) {
                cut -= 1;
            }
            let (found, _, end) = split(&text[..cut]);
            let whole = (0..=events.len()).rfind(|&n| {
                n == 0 || cut >= "{\"traceEvents\": [".len() + events[..n].join(", ").len()
            }).unwrap();
            prop_assert_eq!(&found, &events[..whole]);
            let early = End::Early { at: cut as u64, error: None };
            prop_assert_eq!(end, if cut == text.len() { End::Whole } else { early });
        }
    }
}
