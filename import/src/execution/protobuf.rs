//! Chakra's format: messages of Protocol Buffers one after another, each after its length (`et_def.proto` of MLCommons). The
//! first one is about the trace, the others are nodes.

use std::io::{self, BufRead, BufReader, Read};

use prost::Message;
use wire::event::Function;

use super::graph::{DeviceNode, Graph, Node};
use crate::format::Format;
use crate::group::Group;
use crate::kineto::Kind;
use crate::unreadable::Unreadable;

/// The longest message, in bytes.
const MAX_MESSAGE: u64 = 16 << 20;
/// The largest number of bytes of a length.
const MAX_LENGTH: u32 = 10;

/// The message about the trace, with its attributes not yet read.
#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(bytes = "vec", repeated, tag = "2")]
    attributes: Vec<Vec<u8>>,
}

/// A node, without its inputs and outputs.
#[derive(Clone, PartialEq, Message)]
struct Written {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    ctrl_deps: Vec<u64>,
    /// 0 if it is not known.
    #[prost(uint64, tag = "6")]
    start_time_micros: u64,
    #[prost(uint64, tag = "7")]
    duration_micros: u64,
    #[prost(message, repeated, tag = "10")]
    attributes: Vec<Attribute>,
}

/// An attribute. At most one of its values is written, of the types that count.
#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, optional, tag = "7")]
    int32: Option<i32>,
    #[prost(int64, optional, tag = "9")]
    int64: Option<i64>,
    #[prost(uint32, optional, tag = "11")]
    uint32: Option<u32>,
    #[prost(uint64, optional, tag = "13")]
    uint64: Option<u64>,
    #[prost(bool, optional, tag = "27")]
    bool: Option<bool>,
    #[prost(string, optional, tag = "29")]
    string: Option<String>,
}

impl Attribute {
    fn number(&self) -> Option<i64> {
        self.int64
            .or_else(|| self.uint64?.try_into().ok())
            .or(self.int32.map(i64::from))
            .or(self.uint32.map(i64::from))
    }
}

impl Written {
    fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.attribute(name)?.number()
    }

    /// Returns what the node is on the device; `None` if it ran on the host, or not at all.
    fn device_node(&self) -> Option<DeviceNode> {
        if self.attribute("is_cpu_op").is_some_and(|attribute| attribute.bool == Some(true)) {
            return None;
        }
        let by_name = Kind::from_name(&self.name);
        let kind = match self.kind {
            // COMP_NODE
            4 => by_name,
            // COMM_SEND_NODE, COMM_RECV_NODE
            5 | 6 => Kind::Collective(Function::SendReceive),
            // COMM_COLL_NODE
            7 => match (self.number("comm_type").and_then(function), by_name) {
                (Some(function), _) | (None, Kind::Collective(function)) => Kind::Collective(function),
                _ => Kind::Collective(Function::Other),
            },
            _ => return None,
        };
        let group = self.attribute("pg_name").and_then(|attribute| attribute.string.clone());
        Some(DeviceNode {
            kind,
            stream: self.number("stream").unwrap_or(0),
            bytes: self.number("comm_size").and_then(|bytes| bytes.try_into().ok()),
            group: group.map(|name| Group { name, ranks: None, size: None }),
            function: match kind {
                Kind::Collective(function) => Some(function),
                _ => None,
            },
        })
    }
}

/// Returns the function of a collective, by its number in `CollectiveCommType`.
fn function(number: i64) -> Option<Function> {
    Some(match number {
        0 => Function::AllReduce,
        1 => Function::Reduce,
        2 => Function::AllGather,
        5 => Function::Broadcast,
        6 => Function::AllToAll,
        7 | 8 => Function::ReduceScatter,
        3 | 4 | 9 => Function::Other,
        _ => return None,
    })
}

/// Returns true if a file begins as such a trace does.
pub(crate) fn is_protobuf(head: &[u8]) -> bool {
    let mut rest = head;
    let Ok(Some(length)) = length(&mut rest) else { return false };
    let Some(message) = usize::try_from(length).ok().and_then(|length| rest.get(..length)) else {
        return false;
    };
    let Ok(metadata) = Metadata::decode(message) else { return false };
    let is_word =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte));
    let is_attribute = |bytes: &Vec<u8>| {
        Attribute::decode(&**bytes)
            .is_ok_and(|attribute| !attribute.name.is_empty() && is_word(&attribute.name))
    };
    // Nothing but these fields is in it.
    metadata.encoded_len() == message.len()
        && !message.is_empty()
        && is_word(&metadata.version)
        && metadata.attributes.iter().all(is_attribute)
}

/// Reads the nodes of a trace from its plain bytes.
///
/// # Errors
/// Returns an error if a message is too long or there are too many. A file that ends early, or is damaged from some place on, gives
/// what it holds.
pub(super) fn read(plain: impl Read) -> Result<Graph, Unreadable> {
    let mut messages = BufReader::new(plain);
    let mut graph = Graph::default();
    let mut message = Vec::new();
    for number in 0_u64.. {
        match next(&mut messages, &mut message) {
            Ok(true) if number == 0 => {}
            Ok(true) => match Written::decode(&*message) {
                Ok(written) => graph.add(node(&written))?,
                Err(_) => graph.remarks().add("a node is damaged, and left out"),
            },
            Ok(false) => break,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(Unreadable::Malformed {
                    format: Format::Execution,
                    why: format!("message {number} has no length of at most {} MiB", MAX_MESSAGE >> 20),
                });
            }
            Err(error) => {
                graph.remarks().add(format!("the file ends early, in message {number}: {error}"));
                break;
            }
        }
    }
    Ok(graph)
}

fn node(written: &Written) -> Node<'_> {
    let nanos = |micros: u64| i64::try_from(micros).ok()?.checked_mul(1_000);
    Node {
        id: written.id,
        parent: written.ctrl_deps.first().copied(),
        name: &written.name,
        begin: nanos(written.start_time_micros).filter(|&begin| begin > 0),
        took: nanos(written.duration_micros).unwrap_or(0),
        device_node: written.device_node(),
    }
}

/// Reads a message. Returns false at the end of the file.
fn next(messages: &mut impl BufRead, message: &mut Vec<u8>) -> io::Result<bool> {
    let Some(length) = length(messages)? else { return Ok(false) };
    if length > MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    message.clear();
    messages.take(length).read_to_end(message)?;
    if (message.len() as u64) < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(true) }
}

/// Reads the length of a message; `None` at the end of the file.
fn length(messages: &mut impl Read) -> io::Result<Option<u64>> {
    let mut length = 0_u64;
    for at in 0..MAX_LENGTH {
        let mut byte = [0];
        if messages.read(&mut byte)? == 0 {
            return if at == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        length |= u64::from(byte[0] & 0x7f).checked_shl(7 * at).unwrap_or(0);
        if byte[0] < 0x80 {
            return Ok(Some(length));
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &impl Message) -> Vec<u8> {
        message.encode_length_delimited_to_vec()
    }

    fn metadata() -> Metadata {
        Metadata { version: "0.0.4".into(), attributes: Vec::new() }
    }

    #[test]
    fn a_file_is_known_by_its_first_message() {
        let attribute =
            Attribute { name: "schema".into(), string: Some("1.0.1".into()), ..Attribute::default() };
        let pytorch = Metadata { version: String::new(), attributes: vec![attribute.encode_to_vec()] };
        assert!(is_protobuf(&framed(&metadata())) && is_protobuf(&framed(&pytorch)));
        let odd = Metadata { version: "a b".into(), ..metadata() };
        for other in [
            &b""[..],
            b"{\n \"schema\": 1}",
            b"[\n{\"ph\": \"B\"}]",
            b"\x07\n\x050.0",
            b"\x00",
            &framed(&odd),
        ] {
            assert!(!is_protobuf(other), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn nodes_of_the_host_are_no_work_of_the_device() {
        let attribute = |name: &str| Attribute { name: name.into(), ..Attribute::default() };
        let node = |kind: i32, is_cpu: Option<bool>| Written {
            kind,
            name: "k".into(),
            attributes: is_cpu
                .map(|is_cpu| Attribute { bool: Some(is_cpu), ..attribute("is_cpu_op") })
                .into_iter()
                .chain([Attribute { int64: Some(2), ..attribute("comm_type") }])
                .collect(),
            ..Written::default()
        };
        let kind = |kind: i32, is_cpu| node(kind, is_cpu).device_node().map(|node| node.kind);
        assert_eq!((kind(7, Some(true)), kind(1, Some(false))), (None, None));
        assert_eq!(kind(7, Some(false)), Some(Kind::Collective(Function::AllGather)));
        assert_eq!((kind(4, Some(false)), kind(4, None)), (Some(Kind::Compute), Some(Kind::Compute)));
        assert_eq!(kind(5, Some(false)), Some(Kind::Collective(Function::SendReceive)));
    }

    #[test]
    fn a_file_that_ends_early_gives_what_it_holds() {
        let node = Written { id: 1, kind: 4, start_time_micros: 5, duration_micros: 2, ..Written::default() };
        let text = [framed(&metadata()), framed(&node), framed(&node)].concat();
        let trace = read(&text[..text.len() - 1]).unwrap().trace().unwrap();
        assert_eq!((trace.work.len(), trace.work[0].begin, trace.work[0].end), (1, 5_000, 7_000));
        assert_eq!(trace.remarks.iter().count(), 1);
        let long = [framed(&metadata()), vec![0xff; 9], vec![0x01]].concat();
        assert!(matches!(read(&long[..]), Err(Unreadable::Malformed { .. })));
        let undated = Written { start_time_micros: 0, ..node };
        let text = [framed(&metadata()), framed(&undated)].concat();
        assert!(matches!(read(&text[..]).unwrap().trace(), Err(Unreadable::Unsupported(_))));
    }
}
