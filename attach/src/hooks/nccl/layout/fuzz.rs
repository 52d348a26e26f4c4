//! Fuzzes the plugin with descriptions that NCCL would never pass, each directly before unreadable memory. The plugin
//! must read exactly the fields that NVIDIA's headers define, and nothing beyond the description.

use std::cell::Cell;
use std::ffi::CStr;

use ::fuzz::{Corpus, Verdict};
use serde_json::Value;

use super::*;
use crate::call_log::{Handle, Kind};
use crate::hooks::edge::Edge;
use crate::hooks::nccl::plugin::{ncclProfiler_v1, ncclProfiler_v3, ncclProfiler_v6};

const GOLDEN: &str = include_str!("../../../../../tests/golden/nccl_profiler.json");
/// The number of inputs that the plugin's functions are called with. The plugin appends entries to its thread's ring,
/// and other tests count the entries that rings lose.
const MAX_CALLS: u32 = 1_500;
/// The strings that pointers point to: names that NCCL uses, and others. The number 0 stands for a null pointer.
const TEXTS: [&CStr; 12] = [
    c"AllReduce",
    c"Send",
    c"Recv",
    c"ncclFloat32",
    c"Broadcast",
    c"ncclFloat64",
    c"",
    c"\xff\xfe not UTF-8",
    c"AllReduc",
    c"AllReduce ",
    c"ReduceScatter",
    c"a name that is far longer than any that NCCL has ever given to a function or to a type of data",
];
const VERSIONS: [(&str, Layout); 6] = [("1", V1), ("2", V2), ("3", V3), ("4", V4), ("5", V5), ("6", V6)];

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

/// A description and NVIDIA's table of its offsets.
struct Described<'a> {
    table: &'a Value,
    bytes: Vec<u8>,
}

impl Described<'_> {
    fn offset(&self, field: &str) -> Option<usize> {
        Some(self.table["offsets"][field].as_u64()? as usize)
    }

    fn number<const N: usize>(&self, field: &str) -> Option<[u8; N]> {
        let at = self.offset(field)?;
        Some(self.bytes[at..at + N].try_into().expect("the field is in the description"))
    }

    fn u64(&self, field: &str) -> Option<u64> {
        self.number(field).map(u64::from_le_bytes)
    }

    fn i32(&self, field: &str) -> Option<i32> {
        self.number(field).map(i32::from_le_bytes)
    }

    fn text(&self, field: &str) -> &'static [u8] {
        match self.u64(field).unwrap_or(0) {
            0 => b"",
            number => TEXTS[number as usize % TEXTS.len()].to_bytes(),
        }
    }

    /// Replaces the number of a string by a pointer to it.
    fn point(&self, bytes: &mut [u8], field: &str) {
        let (Some(at), Some(number)) = (self.offset(field), self.u64(field)) else { return };
        let text =
            if number == 0 { 0 } else { TEXTS[number as usize % TEXTS.len()].as_ptr().expose_provenance() };
        bytes[at..at + 8].copy_from_slice(&(text as u64).to_le_bytes());
    }

    fn collective(&self, is_coded: bool) -> Collective {
        let (function, width) = if is_coded {
            let [function] = self.number("coll.func").expect("all versions have this field");
            let [datatype] = self.number("coll.datatype").expect("all versions have this field");
            (Function::from_code(function), bytes_of_code(usize::from(datatype)))
        } else {
            let function = function_of_name(self.text("coll.func")).unwrap_or(Function::Other);
            (function, bytes_of_name(self.text("coll.datatype")))
        };
        let [channels] =
            self.number("coll.nChannels").or(self.number("coll.nMaxChannels")).expect("one of the two");
        Collective {
            communicator: self.u64("coll.commHash"),
            function,
            seq: self.u64("coll.seqNumber").expect("all versions have this field"),
            bytes: self.u64("coll.count").expect("all versions have this field").saturating_mul(width),
            channels,
        }
    }

    fn message(&self) -> Option<Message> {
        let is_sent = match self.text("p2p.func") {
            b"Send" => true,
            b"Recv" => false,
            _ => return None,
        };
        Some(Message {
            communicator: self.u64("p2p.commHash"),
            rank: self.i32("rank")?.try_into().ok()?,
            peer: self.i32("p2p.peer")?.try_into().ok()?,
            is_sent,
            bytes: self.u64("p2p.count")?.saturating_mul(bytes_of_name(self.text("p2p.datatype"))),
            channels: self.number::<1>("p2p.nChannels").map_or(u8::MAX, |[channels]| channels),
        })
    }

    fn expected(&self, layout: &Layout) -> Description {
        let kind = if layout.wide_type { self.u64("type") } else { Some(u64::from(self.bytes[0])) };
        match kind {
            Some(event::COLLECTIVE) => Description::Collective(self.collective(layout.coded)),
            Some(event::GROUP) => Description::Group,
            Some(event::MESSAGE) if layout.message.is_some() => {
                self.message().map_or(Description::Other, Description::Message)
            }
            Some(event::KERNEL_CHANNEL) => Description::KernelChannel(KernelChannel {
                parent: self.u64("parentObj").expect("all versions have this field"),
                gpu: self.u64("kernelCh.pTimer"),
            }),
            _ => Description::Other,
        }
    }
}

/// Checks the plugin's answers: always success, and a handle of this library or none.
fn is_answered(described: &Edge, arguments: &Edge, at: usize, context: u64) -> Verdict {
    let mut handle = ptr_of(0xdead_beef);
    let (start, state, stop) = match at {
        0 => (ncclProfiler_v1.start_event, ncclProfiler_v1.record_event_state, ncclProfiler_v1.stop_event),
        1 => (ncclProfiler_v3.start_event, ncclProfiler_v3.record_event_state, ncclProfiler_v3.stop_event),
        _ => (ncclProfiler_v6.start_event, ncclProfiler_v6.record_event_state, ncclProfiler_v6.stop_event),
    };
    let context = ptr_of(context);
    // SAFETY: the description is one of that version, and a context is a number that is only looked up.
    let codes = unsafe {
        [
            start(context, &raw mut handle, described.pointer()),
            state(handle, KERNEL_CHANNEL_STOP, arguments.pointer()),
            state(context, KERNEL_CHANNEL_STOP, std::ptr::null()),
            state(context, -1, arguments.pointer()),
            stop(handle),
            stop(context),
        ]
    };
    ensure(codes == [0; 6], || format!("the plugin returned {codes:?}"))?;
    let bits = handle.addr() as u64;
    let is_ours = Handle::from_bits(bits).is_some_and(|(_, kind)| kind != Kind::Unobserved);
    ensure(bits == 0 || is_ours, || format!("the plugin wrote the handle {bits:#x}"))
}

fn ptr_of(bits: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(bits as usize)
}

#[test]
fn any_description_is_read_by_the_layout_of_its_version() {
    let golden: Value = serde_json::from_str(GOLDEN).expect("the golden file is JSON");
    let corpus = Corpus::folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/nccl"));
    let calls = Cell::new(0);
    corpus.check("nccl", 30_000, |bytes, choice| {
        let (version, layout) = &VERSIONS[choice as usize % VERSIONS.len()];
        let table = &golden["versions"][*version];
        let size = |field: &str| table[field].as_u64().expect("the table has it") as usize;
        let mut bytes = bytes.to_vec();
        bytes.resize(size("descriptor_bytes"), 0);
        let described = Described { table, bytes };
        let expected = described.expected(layout);
        let mut bytes = described.bytes.clone();
        // The plugin follows only the pointers of the event's own type, so the other pointers may have any value.
        let kind = if layout.wide_type { described.u64("type").unwrap_or(0) } else { u64::from(bytes[0]) };
        match kind {
            event::COLLECTIVE if !layout.coded => {
                ["coll.func", "coll.datatype"].iter().for_each(|field| described.point(&mut bytes, field));
            }
            event::MESSAGE => {
                ["p2p.func", "p2p.datatype"].iter().for_each(|field| described.point(&mut bytes, field));
            }
            _ => {}
        }
        let (at_edge, arguments) = (Edge::new(&bytes), Edge::new(&bytes[..size("arguments_bytes")]));
        // SAFETY: the description is one of this version, and its pointers to strings are valid.
        let found = unsafe { layout.description(at_edge.pointer()) };
        ensure(found == expected, || format!("version {version}: found {found:?} instead of {expected:?}"))?;
        calls.set(calls.get() + 1);
        match *version {
            _ if calls.get() > MAX_CALLS => Ok(()),
            "1" => is_answered(&at_edge, &arguments, 0, choice),
            "3" => is_answered(&at_edge, &arguments, 1, choice),
            "6" => is_answered(&at_edge, &arguments, 2, choice),
            _ => Ok(()),
        }
    });
}
