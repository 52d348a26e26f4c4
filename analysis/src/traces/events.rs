//! The events of a trace that have a duration, read one by one: a trace may be larger than memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::{BufReader, Read};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use wire::views::captures::TraceRowKind;

use super::TraceError;

/// The largest number of events that are kept. Each takes 40 bytes.
const MAX_EVENTS: usize = 8_000_000;
/// The largest number of different names that are kept. Others count as one.
const MAX_NAMES: usize = 65_536;
/// The longest name that is kept, in characters.
const MAX_NAME_CHARS: usize = 200;
/// The name of the names beyond [`MAX_NAMES`].
const OTHER: u32 = 0;
/// The name of all steps together.
pub(super) const STEP: u32 = 1;

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    Step,
    Operator,
    Range,
    Runtime,
    Device,
}

impl Category {
    pub(super) fn kind(self) -> TraceRowKind {
        match self {
            Self::Step => TraceRowKind::Outside,
            Self::Operator => TraceRowKind::Operator,
            Self::Range => TraceRowKind::Range,
            Self::Runtime => TraceRowKind::Runtime,
            Self::Device => TraceRowKind::Kernel,
        }
    }

    /// Returns the category of an event; `None` if it is not counted. Before 2022, categories were written in capitals.
    fn of(category: &str, name: &str) -> Option<Self> {
        match category {
            "user_annotation" | "cpu_op" | "Operator" if name.starts_with("ProfilerStep#") => {
                Some(Self::Step)
            }
            "cpu_op" | "Operator" => Some(Self::Operator),
            "user_annotation" => Some(Self::Range),
            "cuda_runtime" | "cuda_driver" | "Runtime" => Some(Self::Runtime),
            "kernel" | "gpu_memcpy" | "gpu_memset" | "Kernel" | "Memcpy" | "Memset" => Some(Self::Device),
            _ => None,
        }
    }
}

/// An event. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) category: Category,
    pub(super) name: u32,
    pub(super) thread: u32,
    pub(super) begin: f64,
    pub(super) end: f64,
    /// The number that a launch and its kernel share; 0 if there is none.
    pub(super) correlation: u64,
}

/// Texts by number.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
}

impl Names {
    fn new() -> Self {
        let mut names = Self::default();
        assert_eq!((names.number("(other names)"), names.number("(steps)")), (OTHER, STEP));
        names
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        if self.texts.len() >= MAX_NAMES {
            return OTHER;
        }
        let number = self.texts.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        self.texts.push(text.chars().take(MAX_NAME_CHARS).collect());
        number
    }

    pub(super) fn get(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", String::as_str)
    }
}

/// The events of a trace.
pub(super) struct Events {
    pub(super) list: Vec<Event>,
    pub(super) names: Names,
    threads: HashMap<String, u32>,
    /// The time that others are counted from, in microseconds: close to them, a fraction of a microsecond counts.
    base: Option<f64>,
}

/// Reads the events of a trace: an object with `traceEvents`, or a list of events.
pub(super) fn read(trace: impl Read) -> Result<Events, TraceError> {
    let mut events = Events { list: Vec::new(), names: Names::new(), threads: HashMap::new(), base: None };
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 20, trace));
    let read = json.deserialize_any(&mut Trace(&mut events));
    if events.list.len() > MAX_EVENTS {
        return Err(TraceError::TooManyEvents(MAX_EVENTS));
    }
    read?;
    json.end()?;
    Ok(events)
}

struct Trace<'a>(&'a mut Events);

impl<'de> Visitor<'de> for &mut Trace<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "traceEvents" {
                map.next_value_seed(List(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        List(self.0).visit_seq(list)
    }
}

struct List<'a>(&'a mut Events);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(written) = list.next_element::<Written>()? {
            self.0.add(&written);
            if self.0.list.len() > MAX_EVENTS {
                return Err(A::Error::custom("too many events"));
            }
        }
        Ok(())
    }
}

/// An event as it is written. Times are in microseconds.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow, default)]
    ph: Cow<'a, str>,
    #[serde(borrow, default)]
    cat: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default)]
    pid: Id,
    #[serde(default)]
    tid: Id,
    #[serde(default)]
    ts: Number,
    #[serde(default)]
    dur: Number,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    #[serde(default)]
    correlation: Number,
}

/// A process or a thread, which is written as a number or a text.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Id {
    Number(i64),
    Text(String),
    #[default]
    None,
}

/// A number; 0 if something else is written.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(from = "AnyNumber")]
struct Number(f64);

#[derive(Deserialize)]
#[serde(untagged)]
enum AnyNumber {
    Number(f64),
    Other(IgnoredAny),
}

impl From<AnyNumber> for Number {
    fn from(any: AnyNumber) -> Self {
        match any {
            AnyNumber::Number(number) => Self(number),
            AnyNumber::Other(_) => Self(0.0),
        }
    }
}

impl Events {
    fn add(&mut self, written: &Written<'_>) {
        let Some(category) = Category::of(&written.cat, &written.name).filter(|_| written.ph == "X") else {
            return;
        };
        let thread = match (&written.pid, &written.tid) {
            (Id::Number(pid), Id::Number(tid)) => format!("{pid} {tid}"),
            (Id::Text(pid), Id::Number(tid)) => format!("{pid} {tid}"),
            (_, Id::Text(tid)) => tid.clone(),
            _ => String::new(),
        };
        let count = self.threads.len() as u32;
        let thread = *self.threads.entry(thread).or_insert(count);
        let name = self.names.number(&written.name);
        let begin = (written.ts.0 - *self.base.get_or_insert(written.ts.0)) * 1_000.0;
        let end = begin + written.dur.0.max(0.0) * 1_000.0;
        let correlation = written.args.correlation.0.max(0.0) as u64;
        self.list.push(Event { category, name, thread, begin, end, correlation });
    }
}
