//! Logs of NCCL Inspector, a plugin of NCCL: one JSON object per line and collective, one file per process.
//!
//! A line says how long a collective took and when the plugin wrote it, which is after its end. With
//! `NCCL_INSPECTOR_DUMP_VERBOSE=1`, it also says when the host was told that the kernel began and ended on each channel.
//! The plugin writes the newest collective of each communicator at an interval, so that most collectives may be missing.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;
use wire::event::Function;

use crate::calls::{Call, Calls, MAX_CALLS};
use crate::format::Format;
use crate::group::Group;
use crate::remarks::Remarks;
use crate::source::{Content, RankRecording};
use crate::unreadable::Unreadable;

/// The longest line, in bytes. A verbose one has some hundred bytes for each of at most 64 channels.
const MAX_LINE: u64 = 1 << 20;

#[derive(Deserialize)]
struct Line {
    header: Header,
    #[serde(default)]
    metadata: Metadata,
    coll_perf: Performance,
}

#[derive(Deserialize)]
struct Header {
    id: String,
    rank: u32,
    n_ranks: u32,
}

#[derive(Default, Deserialize)]
struct Metadata {
    dump_timestamp_us: Option<u64>,
}

#[derive(Deserialize)]
struct Performance {
    coll: String,
    coll_sn: u64,
    #[serde(default)]
    coll_msg_size_bytes: u64,
    coll_exec_time_us: Option<u64>,
    #[serde(default)]
    coll_timing_source: String,
    event_trace_ts: Option<Times>,
}

/// Times in microseconds since 1970, 0 where they are not known.
#[derive(Deserialize)]
struct Times {
    #[serde(default)]
    coll_start_ts: u64,
    #[serde(default)]
    kernel_events: Vec<Channel>,
}

#[derive(Deserialize)]
struct Channel {
    #[serde(default)]
    kernel_start_ts: u64,
    #[serde(default)]
    kernel_stop_ts: u64,
}

/// Reads a log from its plain bytes.
///
/// # Errors
/// Returns an error if no line of it is one of a collective.
pub(crate) fn read(plain: impl Read) -> Result<RankRecording, Unreadable> {
    let mut reading = Reading::default();
    let mut lines = BufReader::new(plain);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => reading.line(line.trim_ascii())?,
            Err(error) => {
                let remarks = &mut reading.remarks;
                remarks.add(format!("the file is damaged, and the rest of it left out: {error}"));
                break;
            }
        }
    }
    reading.finished()
}

/// The lowest and the highest number of the collectives of one function on a communicator.
struct Numbers {
    lowest: u64,
    highest: u64,
}

#[derive(Default)]
struct Reading {
    calls: Calls,
    groups: HashMap<(String, u32), u32>,
    /// The rank of the process in each group.
    ranks: Vec<u32>,
    numbers: HashMap<(u32, Function), Numbers>,
    remarks: Remarks,
}

impl Reading {
    fn line(&mut self, line: &[u8]) -> Result<(), Unreadable> {
        if line.is_empty() {
            return Ok(());
        }
        let Ok(line) = serde_json::from_slice::<Line>(line) else {
            self.remarks.add("a line is damaged, or not one of a collective, and left out");
            return Ok(());
        };
        let Header { id, rank, n_ranks } = line.header;
        let next = self.calls.groups.len() as u32;
        let group = *self.groups.entry((id.clone(), rank)).or_insert(next);
        if group == next {
            self.calls.groups.push(Group { name: id, ranks: None, size: Some(n_ranks) });
            self.ranks.push(rank);
        }
        let Some(call) = call(group, line.metadata, &line.coll_perf) else {
            self.remarks.add("messages between two ranks are left out");
            return Ok(());
        };
        let first = Numbers { lowest: call.count, highest: call.count };
        let numbers = self.numbers.entry((group, call.function)).or_insert(first);
        *numbers =
            Numbers { lowest: numbers.lowest.min(call.count), highest: numbers.highest.max(call.count) };
        if self.calls.calls.len() == MAX_CALLS {
            return Err(Unreadable::TooLarge {
                format: Format::Inspector,
                most: format!("{MAX_CALLS} collectives"),
            });
        }
        self.calls.calls.push(call);
        Ok(())
    }

    /// The rank is that in the largest communicator. In a smaller one, a rank has another number.
    fn finished(mut self) -> Result<RankRecording, Unreadable> {
        if self.calls.calls.is_empty() {
            return Err(Unreadable::NoCollective(Format::Inspector));
        }
        let size = |at: &usize| self.calls.groups[*at].size;
        let largest = (0..self.ranks.len()).max_by_key(|at| (size(at), std::cmp::Reverse(*at))).unwrap_or(0);
        let groups = &self.calls.groups;
        let is_largest =
            |group: &&Group| group.size == groups[largest].size && group.name == groups[largest].name;
        let processes = groups.iter().filter(is_largest);
        if processes.count() > 1 {
            return Err(Unreadable::Malformed {
                format: Format::Inspector,
                why: "its lines are of several ranks: import one file per process, as the plugin writes them"
                    .into(),
            });
        }
        let issued =
            self.numbers.values().map(|numbers| (numbers.highest - numbers.lowest).saturating_add(1));
        let issued = issued.fold(0, u64::saturating_add);
        let missing = issued.saturating_sub(self.calls.calls.len() as u64);
        if missing > 0 {
            self.remarks.add(format!(
                "{missing} of {issued} collectives are missing: the plugin writes the newest one of each communicator at its interval"
            ));
        }
        let (rank, world_size) = (self.ranks[largest], self.calls.groups[largest].size);
        let calls = Calls::new(self.calls.calls, self.calls.groups);
        let recording = RankRecording::new(Some(rank), world_size, Content::Calls(calls));
        Ok(RankRecording { remarks: self.remarks, ..recording })
    }
}

/// Returns a collective; `None` for a message.
fn call(group: u32, metadata: Metadata, performance: &Performance) -> Option<Call> {
    let function = match &*performance.coll {
        "AllReduce" => Function::AllReduce,
        "AllGather" => Function::AllGather,
        "ReduceScatter" => Function::ReduceScatter,
        "Broadcast" => Function::Broadcast,
        "Reduce" => Function::Reduce,
        "AlltoAll" | "AllToAll" => Function::AllToAll,
        "Send" | "Recv" | "SendRecv" => return None,
        _ => Function::Other,
    };
    let nanos = |micros: u64| i64::try_from(micros).ok()?.checked_mul(1_000).filter(|&nanos| nanos > 0);
    let times = performance.event_trace_ts.as_ref();
    let channels = || times.into_iter().flat_map(|times| &times.kernel_events);
    let begin = channels().filter_map(|channel| nanos(channel.kernel_start_ts)).min();
    let end = channels().filter_map(|channel| nanos(channel.kernel_stop_ts)).max();
    // The time from call to call of the host does not say how long the device took.
    let is_of_kernel = performance.coll_timing_source != "collective_cpu";
    Some(Call {
        function,
        group,
        count: performance.coll_sn,
        bytes: performance.coll_msg_size_bytes,
        issued: times.and_then(|times| nanos(times.coll_start_ts)),
        took: performance
            .coll_exec_time_us
            .filter(|_| is_of_kernel)
            .and_then(|micros| micros.checked_mul(1_000)),
        seen: metadata.dump_timestamp_us.and_then(nanos),
        ran: begin.zip(end).filter(|(begin, end)| begin <= end),
    })
}
