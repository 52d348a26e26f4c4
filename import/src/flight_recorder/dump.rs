//! What a dump holds.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Deref;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use wire::event::Function;

use crate::calls::{Call, Calls};
use crate::group::Group;
use crate::remarks::Remarks;
use crate::torch;

/// The largest number of collectives of a dump. The recorder keeps 2,000 by default.
const MAX_ENTRIES: usize = 500_000;
/// The name under which a job's first group, which has all ranks, is described.
const WORLD: &str = "default_pg";

/// How far a collective got, as far as the dump says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The host issued it.
    Issued,
    /// The device began it.
    Started,
    /// It ended.
    Ended,
}

/// A collective or message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its group, as an index of [`Dump::groups`].
    pub group: u32,
    /// Its number among the collectives of its group.
    pub number: u64,
    /// Its name in PyTorch, without that of the backend: `all_reduce`.
    pub name: String,
    /// Whether it is a message between two ranks.
    pub is_message: bool,
    /// The number of elements that the rank passes to it, and that it gets.
    pub elements: (u64, u64),
    /// The type of the elements, or the types.
    pub types: String,
    /// What the rank passes to it, in bytes.
    pub bytes: Option<u64>,
    /// How far it got.
    pub state: State,
    /// When the host issued it, in nanoseconds since 1970.
    pub created: i64,
    /// When the host noticed that it had ended.
    pub ended: Option<i64>,
    /// How long it took on the device, in nanoseconds.
    pub took: Option<u64>,
}

impl Entry {
    /// Returns its function.
    #[must_use]
    pub fn function(&self) -> Function {
        torch::function(&self.name).unwrap_or(Function::Other)
    }
}

/// The collectives of a group that a rank counted, whether or not the dump holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The group, as an index of [`Dump::groups`].
    pub group: u32,
    /// The number of the last one that the host issued; 0 if there is none.
    pub issued: u64,
    /// The number of the last one that ended; 0 if there is none.
    pub ended: u64,
}

/// A dump of a rank.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// The release of NCCL.
    pub nccl: Option<String>,
    /// The least number of ranks that the job has by the groups that the dump lists.
    pub world_size: Option<u32>,
    /// The groups of the entries and of what is counted.
    pub groups: Vec<Group>,
    /// What the rank counted. Messages count with the collectives of their group.
    pub counted: Vec<Counted>,
    /// The collectives and messages, in the order in which they were issued.
    pub entries: Vec<Entry>,
    /// What is missing.
    pub remarks: Remarks,
}

impl Dump {
    /// Reads a dump from JSON or from a pickle.
    pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(from)?;
        if !written.version.starts_with("2.") {
            return Err(D::Error::custom(format!(
                "its version is {}, and only 2.x is read, which PyTorch writes since 2.4",
                written.version
            )));
        }
        Ok(written.dump())
    }

    /// Returns the collectives in the form that other logs have as well. Messages are not among them.
    pub(crate) fn calls(&self) -> Calls {
        let call = |entry: &Entry| Call {
            function: entry.function(),
            group: entry.group,
            count: entry.number,
            bytes: entry.bytes.unwrap_or(0),
            issued: Some(entry.created),
            took: entry.took,
            seen: entry.ended,
            ran: None,
        };
        let collectives = self.entries.iter().filter(|entry| !entry.is_message);
        Calls::new(collectives.map(call), self.groups.clone())
    }
}

/// A dump as it is written.
#[derive(Deserialize)]
struct Written<'a> {
    version: String,
    #[serde(default, alias = "nccl_version")]
    comm_lib_version: Option<String>,
    #[serde(default)]
    pg_config: BTreeMap<String, WrittenGroup>,
    #[serde(default)]
    pg_status: BTreeMap<String, WrittenStatus>,
    #[serde(default, borrow)]
    entries: Entries<'a>,
}

#[derive(Deserialize)]
struct WrittenGroup {
    #[serde(default)]
    desc: String,
    #[serde(default)]
    ranks: String,
}

impl WrittenGroup {
    fn ranks(&self) -> Option<Vec<u32>> {
        serde_json::from_str::<Vec<u32>>(&self.ranks).ok()
    }
}

/// Numbers of the last collectives of a group.
#[derive(Deserialize)]
struct WrittenStatus {
    #[serde(default)]
    last_enqueued_collective: WrittenNumber,
    #[serde(default)]
    last_completed_collective: WrittenNumber,
}

/// A number, as pickles have it, or its text, as JSON does; -1 where there is none.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum WrittenNumber {
    Whole(i64),
    Text(String),
    #[default]
    Other,
}

impl WrittenNumber {
    /// Returns the number; 0 if there is none.
    fn count(&self) -> u64 {
        let number = match self {
            Self::Whole(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
            Self::Other => None,
        };
        number.and_then(|number| number.try_into().ok()).unwrap_or(0)
    }
}

#[derive(Deserialize)]
struct WrittenEntry<'a> {
    #[serde(borrow)]
    process_group: (Cow<'a, str>, Cow<'a, str>),
    collective_seq_id: u64,
    #[serde(default)]
    is_p2p: bool,
    #[serde(borrow)]
    profiling_name: Cow<'a, str>,
    #[serde(default)]
    input_sizes: Elements,
    #[serde(default)]
    output_sizes: Elements,
    #[serde(default, borrow)]
    input_dtypes: Vec<Cow<'a, str>>,
    #[serde(default, borrow)]
    state: Cow<'a, str>,
    #[serde(default)]
    retired: bool,
    time_created_ns: i64,
    #[serde(default)]
    time_discovered_completed_ns: Option<i64>,
    #[serde(default)]
    duration_ms: Option<f64>,
}

/// The entries of a dump, at most [`MAX_ENTRIES`].
#[derive(Default)]
struct Entries<'a>(Vec<WrittenEntry<'a>>);

impl<'a> Deref for Entries<'a> {
    type Target = [WrittenEntry<'a>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InTurn<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for InTurn<'a> {
            type Value = Entries<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of entries")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = list.next_element()? {
                    if entries.len() == MAX_ENTRIES {
                        return Err(A::Error::custom(format!("it has more than {MAX_ENTRIES} entries")));
                    }
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        from.deserialize_seq(InTurn(std::marker::PhantomData))
    }
}

/// The number of elements of each tensor.
#[derive(Default)]
struct Elements(Vec<u64>);

impl Elements {
    fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, &elements| sum.saturating_add(elements))
    }
}

impl<'de> Deserialize<'de> for Elements {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let sizes = Vec::<Vec<i64>>::deserialize(from)?;
        let elements = |sizes: Vec<i64>| {
            sizes.iter().fold(1_u64, |product, &size| product.saturating_mul(size.max(0).unsigned_abs()))
        };
        Ok(Self(sizes.into_iter().map(elements).collect()))
    }
}

impl Written<'_> {
    fn dump(&self) -> Dump {
        let highest = self.pg_config.values().filter_map(WrittenGroup::ranks).flatten().max();
        let says_states = self.entries.iter().any(|entry| entry.state != "scheduled");
        let mut dump = Dump {
            nccl: self.comm_lib_version.clone().filter(|version| !version.is_empty()),
            world_size: highest.map(|highest| highest.saturating_add(1)),
            ..Dump::default()
        };
        let mut known = Known::default();
        for entry in self.entries.iter() {
            let group = known.group(self, &entry.process_group.0, &entry.process_group.1);
            dump.entries.push(entry.read(group, says_states));
        }
        for (name, status) in self.statuses() {
            let described = self.pg_config.get(name).map_or("", |group| &group.desc);
            dump.counted.push(Counted {
                group: known.group(self, name, described),
                issued: status.last_enqueued_collective.count(),
                ended: status.last_completed_collective.count(),
            });
        }
        dump.groups = known.groups;
        if dump.entries.iter().any(|entry| entry.is_message) {
            dump.remarks.add("messages between two ranks are left out");
        }
        dump
    }

    /// Returns what is counted, by the names of the groups. The dump has it by the numbers that the process gives its groups as it makes
    /// them, and names rise in that order, too, but with gaps: other processes make groups of which this one is not a member.
    fn statuses(&self) -> Vec<(&str, &WrittenStatus)> {
        let mut names: Vec<&str> = self.pg_config.keys().map(String::as_str).collect();
        let mut counted: Vec<(&str, &WrittenStatus)> =
            self.pg_status.iter().map(|(number, status)| (number.as_str(), status)).collect();
        let number = |text: &str| text.parse::<u64>().ok();
        if names.len() != counted.len() || names.iter().any(|name| number(name).is_none()) {
            // Only where both agree is it known which is which.
            counted.retain(|(number, _)| *number == "0" && self.pg_config.contains_key("0"));
            return counted;
        }
        names.sort_unstable_by_key(|name| number(name));
        counted.sort_unstable_by_key(|(name, _)| number(name));
        names.into_iter().zip(counted).map(|(name, (_, status))| (name, status)).collect()
    }
}

/// The groups that a dump names.
#[derive(Default)]
struct Known<'a> {
    numbers: HashMap<(&'a str, &'a str), u32>,
    groups: Vec<Group>,
}

impl<'a> Known<'a> {
    /// Returns the index of a group.
    fn group(&mut self, written: &Written<'_>, name: &'a str, described: &'a str) -> u32 {
        let next = self.groups.len() as u32;
        let group = *self.numbers.entry((name, described)).or_insert(next);
        if group == next {
            // A group that is listed without its name is the one that was made last, of the same name.
            let listed = written.pg_config.get(name).filter(|_| !name.is_empty());
            let ranks = listed.and_then(WrittenGroup::ranks).filter(|ranks| !ranks.is_empty());
            let size = ranks.as_ref().map(|ranks| ranks.len() as u32);
            self.groups.push(Group { name: titled(name, described), ranks, size });
        }
        group
    }
}

/// Returns a name for a group: its own, and how the job describes it.
fn titled(name: &str, described: &str) -> String {
    if described.is_empty() || described == "undefined" {
        name.to_owned()
    } else {
        format!("{name} ({described})")
    }
}

/// Returns true for the group of all ranks.
pub(super) fn is_world(group: &Group) -> bool {
    group.name.ends_with(&format!("({WORLD})"))
}

impl WrittenEntry<'_> {
    /// Reads the entry. A backend that never says states, as gloo's, says that a collective ended by retiring it.
    fn read(&self, group: u32, says_states: bool) -> Entry {
        let name = self.profiling_name.split_once(':').map_or(&*self.profiling_name, |(_, name)| name);
        let state = match &*self.state {
            "completed" => State::Ended,
            "started" => State::Started,
            _ if self.retired && !says_states => State::Ended,
            _ => State::Issued,
        };
        let sized = self.input_sizes.0.iter().zip(&self.input_dtypes);
        let bytes = sized.map(|(elements, kind)| elements.checked_mul(torch::element_bytes(kind)?));
        let bytes = bytes.collect::<Option<Vec<u64>>>().filter(|bytes| !bytes.is_empty());
        let mut types: Vec<&str> = self.input_dtypes.iter().map(AsRef::as_ref).collect();
        types.dedup();
        Entry {
            group,
            number: self.collective_seq_id,
            name: name.split(' ').next().unwrap_or(name).to_owned(),
            is_message: self.is_p2p,
            elements: (self.input_sizes.sum(), self.output_sizes.sum()),
            types: types.join(", "),
            bytes: bytes.map(|bytes| bytes.into_iter().fold(0, u64::saturating_add)),
            state,
            created: self.time_created_ns,
            ended: self.time_discovered_completed_ns.filter(|&at| at > 0),
            took: self
                .duration_ms
                .filter(|millis| (0.0..1e12).contains(millis))
                .map(|millis| (millis * 1e6) as u64),
        }
    }
}
