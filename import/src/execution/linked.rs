//! JSON of PyTorch's observer, joined with the profiler's times by `chakra_trace_link`: nodes of the device have a category
//! (`cat`), a time (`ts`) and a stream, beside what the node that launched them has.

use std::borrow::Cow;
use std::io::Read;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::graph::{DeviceNode, Graph, Node};
use crate::group::Group;
use crate::kineto::Kind;
use crate::number::{nanos, whole};
use crate::pieces::{End, Piece, Pieces};
use crate::torch;
use crate::unreadable::Unreadable;

/// The categories of what the device ran.
const ON_DEVICE: [&str; 3] = ["kernel", "gpu_memcpy", "gpu_memset"];
/// The part of a name that nodes have which list the groups of the job.
const GROUPS: &str = "process_group:init";
/// The number of values of a tensor: two numbers that identify it, its offset, its elements, their size, and its device.
const TENSOR: usize = 6;

/// A node as it is written.
#[derive(Deserialize)]
struct Written<'a> {
    id: u64,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    /// The node around it; lists of one in some versions.
    #[serde(borrow, alias = "parent")]
    ctrl_deps: Option<&'a RawValue>,
    #[serde(borrow)]
    cat: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    inclusive_dur: Option<&'a RawValue>,
    stream: Option<i64>,
    #[serde(borrow)]
    pg_name: Option<&'a RawValue>,
    #[serde(borrow)]
    inputs: Option<&'a RawValue>,
    #[serde(default)]
    attrs: Vec<Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    name: String,
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
struct Inputs {
    #[serde(default)]
    values: Vec<Value>,
}

/// A group, as the node that lists the groups has it. No ranks are all ranks.
#[derive(Deserialize)]
struct Listed {
    pg_name: String,
    #[serde(default)]
    ranks: Vec<u32>,
    group_size: Option<u32>,
}

/// Reads the nodes of a trace from its plain bytes.
///
/// # Errors
/// Returns an error if it is not JSON with a list of nodes, or if it has too many.
pub(super) fn read(plain: impl Read) -> Result<Graph, Unreadable> {
    let mut pieces = Pieces::with_list(plain, "nodes");
    let mut reading = Reading::default();
    while let Some(piece) = pieces.piece()? {
        if let Piece::Event(node) = piece {
            reading.node(node)?;
        }
    }
    if let End::Early { at, .. } = pieces.end() {
        let remarks = reading.graph.remarks();
        remarks.add(format!("the file ends early, at byte {at} of its text: what follows is missing"));
    }
    Ok(reading.graph)
}

#[derive(Default)]
struct Reading {
    graph: Graph,
    /// The groups that the file lists.
    listed: Vec<Group>,
}

impl Reading {
    fn node(&mut self, text: &[u8]) -> Result<(), Unreadable> {
        let Ok(written) = serde_json::from_slice::<Written<'_>>(text) else {
            self.graph.remarks().add("a node is damaged, and left out");
            return Ok(());
        };
        if written.name.contains(GROUPS) {
            self.list(&written);
        }
        let is_on_device = written.cat.as_deref().is_some_and(|cat| ON_DEVICE.contains(&cat));
        let device_node = is_on_device.then(|| self.device_node(&written));
        self.graph.add(Node {
            id: written.id,
            parent: written.ctrl_deps.and_then(first),
            name: &written.name,
            begin: written.ts.and_then(|ts| nanos(ts.get())),
            took: written.inclusive_dur.and_then(|took| nanos(took.get())).unwrap_or(0),
            device_node,
        })
    }

    fn device_node(&self, written: &Written<'_>) -> DeviceNode {
        let kind = Kind::from_name(&written.name);
        let stream = written.stream.unwrap_or(0);
        if !kind.is_collective() {
            return DeviceNode { kind, stream, bytes: None, group: None, function: None };
        }
        let attribute = |name: &str| {
            written.attrs.iter().find(|attribute| attribute.name == name).map(|attribute| &attribute.value)
        };
        let own = written.pg_name.and_then(|name| serde_json::from_str::<Value>(name.get()).ok());
        let name = own.as_ref().and_then(text).or_else(|| attribute("pg_name").and_then(text));
        let size = attribute("pg_size").and_then(|size| u32::try_from(size.as_u64()?).ok());
        DeviceNode {
            kind,
            stream,
            bytes: written.inputs.and_then(tensor_bytes),
            group: name.map(|name| self.group(name, size)),
            function: attribute("collective_name").and_then(Value::as_str).and_then(torch::function),
        }
    }

    /// Returns the group of this name, with its ranks if the file lists it.
    fn group(&self, name: String, size: Option<u32>) -> Group {
        let listed = self.listed.iter().find(|group| group.name == name);
        listed.cloned().unwrap_or(Group { name, ranks: None, size })
    }

    /// Takes note of the groups that a node lists, as a text in JSON.
    fn list(&mut self, written: &Written<'_>) {
        let inputs = written.inputs.and_then(|inputs| serde_json::from_str::<Inputs>(inputs.get()).ok());
        let text = inputs.and_then(|inputs| inputs.values.first()?.as_str().map(str::to_owned));
        let listed = text.and_then(|text| serde_json::from_str::<Vec<Listed>>(&text).ok());
        for Listed { pg_name, mut ranks, group_size } in listed.into_iter().flatten() {
            ranks.sort_unstable();
            let size = group_size.or_else(|| u32::try_from(ranks.len()).ok()).filter(|&size| size > 0);
            self.graph.world_size(size.unwrap_or(1));
            self.listed.push(Group {
                name: pg_name,
                ranks: Some(ranks).filter(|ranks| !ranks.is_empty()),
                size,
            });
        }
    }
}

/// Returns the number, or the first of a list of numbers.
fn first(written: &RawValue) -> Option<u64> {
    whole(written.get()).or_else(|| serde_json::from_str::<Vec<u64>>(written.get()).ok()?.first().copied())
}

/// Returns a name, which may be written as a number.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the size of all tensors among the inputs of a node, in bytes; `None` if there is none.
fn tensor_bytes(inputs: &RawValue) -> Option<u64> {
    let inputs: Inputs = serde_json::from_str(inputs.get()).ok()?;
    let nested = inputs.values.iter().flat_map(|value| match value.as_array() {
        Some(list) if list.iter().all(Value::is_array) => list.iter().collect(),
        _ => vec![value],
    });
    nested
        .filter_map(tensor)
        .try_fold(None, |sum: Option<u64>, bytes| Some(Some(sum.unwrap_or(0).checked_add(bytes)?)))?
}

fn tensor(value: &Value) -> Option<u64> {
    let values =
        value.as_array().filter(|values| values.len() == TENSOR && values[TENSOR - 1].is_string())?;
    values[3].as_u64()?.checked_mul(values[4].as_u64()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensors_of_a_node_say_what_a_collective_carries() {
        let bytes = |text: &str| tensor_bytes(serde_json::from_str(text).unwrap());
        let list =
            r#"{"values": [[[430, 431, 0, 53120, 4, "cuda:0"], [5, 6, 0, 2, 2, "cuda:0"]], "<Object>", 0]}"#;
        assert_eq!(bytes(list), Some(53_120 * 4 + 4));
        assert_eq!(bytes(r#"{"values": [[5, 6, 0, 10, 4, "cuda:0"]]}"#), Some(40));
        assert_eq!(bytes(r#"{"values": [3, [], "x"]}"#), None);
    }

    #[test]
    fn the_node_around_another_is_a_number_or_a_list() {
        let first_in = |text: &str| first(serde_json::from_str(text).unwrap());
        assert_eq!(
            (first_in("7"), first_in("[7, 8]"), first_in("[]"), first_in("null")),
            (Some(7), Some(7), None, None)
        );
    }
}
