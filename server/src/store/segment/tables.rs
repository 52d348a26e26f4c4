//! Converts batches to the rows of a segment's tables.

use parquet::errors::ParquetError;
use wire::batch::Batch;
use wire::clock::ServerNanos;
use wire::event::Event;

use super::table::Table;

pub(super) const BATCHES: [&str; 5] = ["life", "batch", "received_ns", "anchor_mono_ns", "anchor_unix_ns"];
pub(super) const PROBES: [&str; 6] =
    ["life", "batch", "sent_ns", "server_received_ns", "server_sent_after_ns", "received_after_ns"];
pub(super) const STEPS: [&str; 8] =
    ["life", "batch", "rank", "step", "begin_ns", "duration_ns", "samples", "shadow"];
pub(super) const SPANS: [&str; 8] =
    ["life", "batch", "rank", "step", "kind", "begin_ns", "duration_ns", "cpu_ns"];
pub(super) const BUCKETS: [&str; 13] = [
    "life",
    "batch",
    "rank",
    "step",
    "comm",
    "seq",
    "bucket",
    "bytes",
    "ready_ns",
    "launch_after_ns",
    "start_after_ns",
    "duration_ns",
    "source",
];

/// The five tables of a segment.
pub(super) struct Tables {
    batches: Table<5>,
    probes: Table<6>,
    steps: Table<8>,
    spans: Table<8>,
    buckets: Table<13>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            batches: Table::new(BATCHES),
            probes: Table::new(PROBES),
            steps: Table::new(STEPS),
            spans: Table::new(SPANS),
            buckets: Table::new(BUCKETS),
        }
    }
}

impl Tables {
    pub(super) fn push(&mut self, at: ServerNanos, batch: &Batch, life: i64) {
        let key = batch.seq.0 as i64;
        self.batches.push([life, key, at.0, batch.anchor.mono.0, batch.anchor.unix.0]);
        for probe in &batch.probes {
            // Differences wrap here and below, so that every value is restored exactly.
            let inside = probe.server_sent.0.wrapping_sub(probe.server_received.0);
            let round = probe.received.0.wrapping_sub(probe.sent.0);
            self.probes.push([life, key, probe.sent.0, probe.server_received.0, inside, round]);
        }
        let rank = i64::from(batch.rank.0);
        for event in &batch.events {
            match event {
                Event::Step(r) => self.steps.push([
                    life,
                    key,
                    rank,
                    r.step.0 as i64,
                    r.begin.0,
                    r.end.0.wrapping_sub(r.begin.0),
                    r.samples as i64,
                    i64::from(r.shadow),
                ]),
                Event::Span(r) => self.spans.push([
                    life,
                    key,
                    rank,
                    r.step.0 as i64,
                    r.kind as i64,
                    r.begin.0,
                    r.end.0.wrapping_sub(r.begin.0),
                    r.cpu_nanos as i64,
                ]),
                Event::Bucket(r) => self.buckets.push([
                    life,
                    key,
                    rank,
                    r.step.0 as i64,
                    i64::from(r.comm.0),
                    r.seq.0 as i64,
                    i64::from(r.bucket.0),
                    r.bytes as i64,
                    r.ready.0,
                    r.launch.0.wrapping_sub(r.ready.0),
                    r.start.0.wrapping_sub(r.launch.0),
                    r.end.0.wrapping_sub(r.start.0),
                    r.source as i64,
                ]),
                Event::Started(_) => {}
            }
        }
    }

    /// Makes the rows of each incarnation adjacent, because similar values next to each other compress better. Only the
    /// table of batches keeps the order of arrival.
    pub(super) fn group(&mut self) {
        self.probes.group();
        self.steps.group();
        self.spans.group();
        self.buckets.group();
    }

    /// Encodes the tables. Returns the name and content of each file.
    pub(super) fn encode(&self) -> Result<[(&'static str, Vec<u8>); 5], ParquetError> {
        Ok([
            ("batches.parquet", self.batches.encode()?),
            ("probes.parquet", self.probes.encode()?),
            ("steps.parquet", self.steps.encode()?),
            ("spans.parquet", self.spans.encode()?),
            ("buckets.parquet", self.buckets.encode()?),
        ])
    }
}
