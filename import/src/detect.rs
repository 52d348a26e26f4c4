//! Which format a file is of, by its content.

use std::io::{self, Read};

use serde::Deserialize;

use crate::format::Format;
use crate::pieces::{Piece, Pieces};

/// The number of bytes at the begin of a file that decide.
const HEAD: u64 = 1 << 20;
/// The number of events that decide, in a list of events.
const EVENTS: usize = 64;
/// The first bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";
/// The first bytes of pickles of protocol 2 to 5.
const PICKLES: [&[u8]; 4] = [b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"];

/// The first bytes of files in other encodings, with what to do.
const ENCODINGS: [(&[u8], &str); 12] = [
    (b"\x28\xb5\x2f\xfd", "it is compressed by Zstandard, which is not read: unpack it first (zstd -d FILE)"),
    (b"PK\x03\x04", "it is a ZIP archive: unpack it first (unzip FILE)"),
    (b"\xfd7zXZ\x00", "it is compressed by xz, which is not read: unpack it first (xz -d FILE)"),
    (b"BZh", "it is compressed by bzip2, which is not read: unpack it first (bzip2 -d FILE)"),
    (b"\xff\xfe\x00\x00", UTF_32),
    (b"\x00\x00\xfe\xff", UTF_32),
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
    // Without a mark of byte order.
    (b"{\x00", UTF_16),
    (b"[\x00", UTF_16),
    (b"\x00{", UTF_16),
    (b"\x00[", UTF_16),
];

/// How the periodic dumps of PyTorch's debug server begin (`PeriodicDumper` in `torch.distributed.debug`).
const DEBUG_SERVER: [&[u8]; 4] =
    [b"=== FR Trace", b"=== TorchComms FR Trace", b"=== Rank 0: http", b"PARTIAL DATA: "];

/// What is said of a text in UTF-16.
const UTF_16: &str =
    "it is text in UTF-16, and traces are read in UTF-8: convert it first (iconv -f UTF-16 -t UTF-8)";
/// What is said of a text in UTF-32.
const UTF_32: &str =
    "it is text in UTF-32, and traces are read in UTF-8: convert it first (iconv -f UTF-32 -t UTF-8)";

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detected {
    /// A format that is read. Content that fits no format counts as a trace, and reading it says what is wrong.
    Format(Format),
    /// A format that is known and not read, with the reason.
    Unsupported(&'static str),
}

/// A file whose begin was read ahead. An error that was met there is returned where it was met.
pub(crate) struct Headed<R> {
    head: io::Cursor<Vec<u8>>,
    error: Option<io::Error>,
    rest: R,
}

impl<R: Read> Headed<R> {
    pub(crate) fn new(mut rest: R) -> Self {
        let mut head = Vec::new();
        let error = (&mut rest).take(HEAD).read_to_end(&mut head).err();
        Self { head: io::Cursor::new(head), error, rest }
    }

    pub(crate) fn head(&self) -> &[u8] {
        self.head.get_ref()
    }
}

impl<R: Read> Read for Headed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.head.read(buffer)? {
            0 => match self.error.take() {
                Some(error) => Err(error),
                None => self.rest.read(buffer),
            },
            read => Ok(read),
        }
    }
}

/// Returns the format of a file with these first bytes.
pub(crate) fn detect(head: &[u8]) -> Detected {
    if head.starts_with(PARQUET) {
        return Detected::Format(Format::Stragglers);
    }
    if PICKLES.iter().any(|pickle| head.starts_with(pickle)) {
        return Detected::Format(Format::FlightRecorder);
    }
    if let Some((_, why)) = ENCODINGS.iter().find(|(first, _)| head.starts_with(first)) {
        return Detected::Unsupported(why);
    }
    if DEBUG_SERVER.iter().any(|first| head.starts_with(first)) {
        return Detected::Unsupported(
            "it is a dump of PyTorch's debug server (dump_dir), whose tables and stacks are not read: let the ranks write the flight recorder's \
             own dumps (/fr_dump_file of the debug server), and import these",
        );
    }
    if has_deepspeed_summary(head) {
        return Detected::Unsupported(
            "it is DeepSpeed's summary of communication (log_summary), which sums over steps and names no rank: import traces of PyTorch's profiler of all ranks, or observe the job live (paceline run)",
        );
    }
    let keys = keys(record(head));
    let has = |wanted: &[&str]| wanted.iter().all(|key| keys.iter().any(|found| found == key));
    if has(&["traceEvents"]) {
        return Detected::Format(Format::Kineto);
    }
    if has(&["coll_perf"]) || has(&["header", "metadata"]) {
        return Detected::Format(Format::Inspector);
    }
    if has(&["entries"]) || has(&["pg_config", "version"]) || has(&["pg_config", "pg_status"]) {
        return Detected::Format(Format::FlightRecorder);
    }
    if has(&["nodes", "schema"]) || crate::execution::is_protobuf(head) {
        return Detected::Format(Format::Execution);
    }
    if has(&["workload_graph"]) {
        return Detected::Unsupported(
            "it is a graph for simulators, as Chakra makes of execution traces, which has durations and no start times: import the \
             profiler's trace of the same steps, or what chakra_trace_link makes of it",
        );
    }
    events(head)
}

/// Returns true if a text, such as the output of a job, has the head of a table of DeepSpeed's `CommsLogger`.
fn has_deepspeed_summary(text: &[u8]) -> bool {
    let is_head = |line: &[u8]| {
        let line = line.trim_ascii_start();
        line.starts_with(b"Comm. Op ") && line.windows(12).any(|words| words == b"Message Size")
    };
    text.split(|byte| *byte == b'\n').any(is_head)
}

/// An event, as far as it tells formats apart.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    ph: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    name: std::borrow::Cow<'a, str>,
    #[serde(default)]
    args: Args,
}

impl Event<'_> {
    /// Releases before 0.20.1 write no head, and with marks of cycles, these may be all for a long time.
    fn is_of_horovod(&self) -> bool {
        let is_event = match &*self.ph {
            "B" => self.name.starts_with("NEGOTIATE_"),
            "i" => self.name == "CYCLE_START",
            _ => false,
        };
        is_event || self.args.start_time_since_epoch_in_micros.is_some()
    }
}

#[derive(Default, Deserialize)]
struct Args {
    start_time_since_epoch_in_micros: Option<serde::de::IgnoredAny>,
    mb_id: Option<serde::de::IgnoredAny>,
    model_chunk: Option<serde::de::IgnoredAny>,
    step: Option<serde::de::IgnoredAny>,
}

/// Looks at the first events of a list of events.
fn events(head: &[u8]) -> Detected {
    let mut pieces = Pieces::new(head);
    for _ in 0..EVENTS {
        let Ok(Some(Piece::Event(event))) = pieces.piece() else { break };
        let Ok(event) = serde_json::from_slice::<Event<'_>>(event) else { continue };
        if event.is_of_horovod() {
            return Detected::Format(Format::Horovod);
        }
        let args = &event.args;
        if args.step.is_some() && (args.mb_id.is_some() || args.model_chunk.is_some()) {
            return Detected::Unsupported(
                "it is a timeline of StragglerAnalysis, in which collectives begin when their last rank is there, so that it does not say who \
                 was late: import the table that it was made from (trace-NAME.parquet)",
            );
        }
    }
    Detected::Format(Format::Kineto)
}

/// Returns a text from its first object or list on. A log may begin with lines of other kinds, or with one that was cut.
fn record(text: &[u8]) -> &[u8] {
    let is_json = |line: &[u8]| matches!(line.trim_ascii_start().first(), Some(b'{' | b'['));
    if is_json(text) {
        return text;
    }
    let mut lines = text.split(|byte| *byte == b'\n').scan(0, |next, line| {
        let at = *next;
        *next += line.len() + 1;
        Some((at, line))
    });
    lines.find(|(_, line)| line.starts_with(b"{\"")).map_or(text, |(at, _)| &text[at..])
}

/// Returns the keys of the object that a text begins with, as far as the text goes.
fn keys(text: &[u8]) -> Vec<&str> {
    let (mut keys, mut depth, mut at) = (Vec::new(), 0_usize, 0);
    if !text.trim_ascii_start().starts_with(b"{") {
        return keys;
    }
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let begin = at + 1;
                at = begin;
                while let Some(byte) = text.get(at).filter(|byte| **byte != b'"') {
                    at += if *byte == b'\\' { 2 } else { 1 };
                }
                let is_key =
                    depth == 1 && text.get(at + 1..).unwrap_or_default().trim_ascii_start().starts_with(b":");
                let key = text.get(begin..at).and_then(|key| std::str::from_utf8(key).ok());
                keys.extend(key.filter(|_| is_key));
            }
            _ => {}
        }
        if depth == 0 && at > 0 && *byte == b'}' {
            break;
        }
        at += 1;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides_the_format() {
        for (head, format) in [
            (&b"PAR1\x15\x04"[..], Format::Stragglers),
            (b"\x80\x02}q\x00(X\x07", Format::FlightRecorder),
            (br#"{"comm_lib_version": "2.21", "entries": [{"#, Format::FlightRecorder),
            (br#"{"version": "2.10", "pg_config": {}, "pg_status": {}}"#, Format::FlightRecorder),
            (br#"{"header": {"id": "0x1"}, "metadata": {}, "coll_perf": {"coll": "AllReduce"}}"#, Format::Inspector),
            (br#"{"schemaVersion": 1, "distributedInfo": {"pg_config": [], "version": 2, "entries": []}, "x"#, Format::Kineto),
            (br#"{"traceEvents": [{"name": "\"entries\":"}], "entries": 1}"#, Format::Kineto),
            (br#"[{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1}]"#, Format::Kineto),
            (br#"{"schema": "1.1.1-chakra.0.0.4", "pid": 3, "nodes": ["#, Format::Execution),
            (b"\x07\n\x050.0.4\x06\x08\x01\x12\x02mm", Format::Execution),
            (
                br#"[{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":5}},"#,
                Format::Horovod,
            ),
            (br#"[{"ph": "i", "name": "CYCLE_START", "ts": 1, "s": "g"}]"#, Format::Horovod),
            (br#"[{}, {"ph": "B", "name": "NEGOTIATE_ALLGATHER", "ts": 1, "pid": 1}, "#, Format::Horovod),
            (b"", Format::Kineto),
            (b"NCCL INFO begins\n{\"header\": {\"id\": \"0x1\"}, \"coll_perf\": {}}\n", Format::Inspector),
        ] {
            assert_eq!(detect(head), Detected::Format(format), "{}", head.escape_ascii());
        }
    }

    #[test]
    fn formats_that_are_not_read_are_named() {
        for (head, named) in [
            (&b"\x28\xb5\x2f\xfd\x04"[..], "zstd -d"),
            (b"\xff\xfe{\x00", "UTF-16"),
            (b"{\x00\"\x00", "UTF-16"),
            (b"=== FR Trace ===\n--- Groups ---\n", "/fr_dump_file"),
            (b"\xff\xfe\x00\x00{\x00\x00\x00", "UTF-32"),
            (br#"{"workload_graph": [{"Id": 216, "Name": "aten::flatten""#, "graph for simulators"),
            (b"[INFO] step 1\nComm. Op            Message Size        Count               Total Latency(ms)\nall_reduce\n", "DeepSpeed"),
            (br#"[{"name":"gc","cat":"gc","ph":"X","args":{"step":16,"model_chunk":0,"mb_id":0,"seq_id":0}},"#, "trace-NAME.parquet"),
        ] {
            let found = detect(head);
            assert!(matches!(found, Detected::Unsupported(why) if why.contains(named)), "{found:?}");
        }
    }
}
