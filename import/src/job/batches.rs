//! The batches that agents would have sent.

use std::io;

use wire::attributes::{Attributes, MAX_VALUE_BYTES};
use wire::batch::{Batch, Bye, Hello, Instrumentation, Note};
use wire::clock::{ClockAnchor, MonoNanos, UnixNanos};
use wire::codec;
use wire::event::Event;
use wire::ids::{BatchSeq, Incarnation, Rank, RunId};

use super::clocks::{Clock, probes};
use crate::records::RankRecords;
use crate::source::RankRecording;

/// The largest number of records of a batch: far fewer than the wire format allows, so that no batch is too long.
const RECORDS: usize = 16_384;
/// The largest number of records of all ranks that are sent together, if ranks are few enough. The server holds them until it has all
/// ranks of their steps.
const RECORDS_TOGETHER: usize = 1 << 19;
/// The smallest limit for the records of a batch, however many ranks there are.
const FEWEST_RECORDS: usize = 64;

/// Batches that may be sent in any order, because each is of another rank.
pub type Round = Vec<Vec<u8>>;

/// Packs the records of a rank into batches.
pub(super) struct Packer<'a> {
    pub(super) run: &'a RunId,
    pub(super) name: &'a str,
    pub(super) world_size: u32,
    pub(super) rank: u32,
    pub(super) file: &'a str,
    pub(super) recording: &'a RankRecording,
    /// The number of ranks that have a file.
    pub(super) ranks: usize,
    pub(super) goodbye: &'a Bye,
}

/// The batches of a rank.
pub(super) struct Packed {
    /// The identity. It lacks probes of the clock, which are known when all ranks are.
    hello: Batch,
    /// When the first step begins.
    begin: MonoNanos,
    /// The batches after it, packed: the records, and the goodbye.
    frames: Vec<Vec<u8>>,
}

impl Packer<'_> {
    /// Packs the records of the rank, which are taken.
    ///
    /// # Errors
    /// Returns an error if the compressor fails ([`codec::encode`]).
    pub(super) fn pack(&self, records: &mut RankRecords) -> io::Result<Packed> {
        let begin = records.begin;
        let empty = self.empty(begin);
        let parts = records.events.chunks(records_of_batch(self.ranks));
        let parts = parts.map(|events| Batch { events: events.to_vec(), ..empty.clone() });
        let summary = records.summary.take().map(Note::Traced);
        let goodbye = Note::Bye(self.goodbye.clone());
        let goodbye = Batch { notes: summary.into_iter().chain([goodbye]).collect(), ..empty.clone() };
        let numbered =
            parts.chain([goodbye]).zip(1..).map(|(batch, seq)| Batch { seq: BatchSeq(seq), ..batch });
        let frames = numbered.map(|batch| codec::encode(&batch)).collect::<io::Result<_>>()?;
        records.events = Vec::new();
        Ok(Packed { hello: Batch { notes: self.identity(), ..empty }, begin, frames })
    }

    fn empty(&self, begin: MonoNanos) -> Batch {
        Batch {
            run: self.run.clone(),
            rank: Rank(self.rank),
            world_size: self.world_size,
            incarnation: Incarnation(self.recording.identity(self.file)),
            seq: BatchSeq(0),
            anchor: ClockAnchor { mono: begin, unix: UnixNanos(begin.0) },
            probes: Vec::new(),
            drops: Vec::new(),
            notes: Vec::new(),
            events: Vec::new(),
        }
    }

    fn identity(&self) -> Vec<Note> {
        let hello = Hello {
            name: self.name.to_owned(),
            host: String::new(),
            clock: String::new(),
            pid: 0,
            local_rank: self.rank,
            sample_unit: String::new(),
            parameters: 0,
            instrumentation: Instrumentation::Trace,
        };
        vec![Note::Hello(hello), Note::Attributes(attributes(self.file, self.recording))]
    }
}

impl Packed {
    /// Changes the records, and leaves out those for which `change` returns false.
    ///
    /// # Errors
    /// Returns an error if the compressor fails ([`codec::encode`]), or if a batch that it packed cannot be read.
    pub(super) fn change(&mut self, mut change: impl FnMut(&mut Event) -> bool) -> io::Result<()> {
        for frame in &mut self.frames {
            let mut batch = codec::decode(frame).map_err(io::Error::other)?;
            batch.events.retain_mut(&mut change);
            *frame = codec::encode(&batch)?;
        }
        Ok(())
    }
}

/// Returns the largest number of records of a batch in a job of so many ranks.
fn records_of_batch(ranks: usize) -> usize {
    (RECORDS_TOGETHER / ranks.max(1)).clamp(FEWEST_RECORDS, RECORDS)
}

/// Returns the batches of all ranks in rounds, so that the ranks' steps arrive together.
///
/// # Errors
/// Returns an error if the compressor fails ([`codec::encode`]).
pub(super) fn rounds(ranks: Vec<Packed>, clocks: Vec<Clock>) -> io::Result<Vec<Round>> {
    let mut rounds: Vec<Round> = Vec::new();
    for (Packed { hello, begin, frames }, clock) in ranks.into_iter().zip(clocks) {
        let hello = codec::encode(&Batch { probes: probes(begin, clock), ..hello })?;
        for (round, frame) in std::iter::once(hello).chain(frames).enumerate() {
            if rounds.len() == round {
                rounds.push(Vec::new());
            }
            rounds[round].push(frame);
        }
    }
    Ok(rounds)
}

fn attributes(file: &str, recording: &RankRecording) -> Attributes {
    let value = |text: &str| text[..text.floor_char_boundary(MAX_VALUE_BYTES)].replace(',', "_");
    let software = recording.nccl.iter().map(|nccl| ("nccl".to_owned(), value(nccl)));
    let labels = [("file", Some(file)), ("device", recording.device.as_deref())];
    let labels = labels.into_iter().filter_map(|(key, text)| Some((key.to_owned(), value(text?))));
    Attributes { labels: labels.collect(), software: software.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kineto::Trace;
    use wire::event::StepRecord;
    use wire::ids::Step;

    #[test]
    fn a_rank_says_hello_sends_its_records_and_says_goodbye() {
        let event = Event::Step(StepRecord {
            step: Step(3),
            begin: MonoNanos(0),
            end: MonoNanos(1),
            samples: 0,
            shadow: false,
        });
        let run = RunId::new("one").unwrap();
        let recording: RankRecording = Trace::default().into();
        let packed = [(0, "a"), (1, "b")].map(|(rank, file)| {
            let mut records = RankRecords { events: vec![event; RECORDS + 1], ..RankRecords::default() };
            let goodbye = &Bye { completed: true, reason: String::new() };
            Packer {
                run: &run,
                name: "job",
                world_size: 2,
                rank,
                file,
                recording: &recording,
                ranks: 2,
                goodbye,
            }
            .pack(&mut records)
            .unwrap()
        });
        let clocks = vec![Clock { offset: 0, bound: 0 }; 2];
        let rounds = rounds(packed.into(), clocks).unwrap();
        let batches: Vec<Batch> =
            rounds.iter().flatten().map(|frame| codec::decode(frame).unwrap()).collect();
        assert_eq!(batches.len(), 2 * 4);
        assert!(matches!(batches[0].notes[0], Note::Hello(_)) && matches!(batches[7].notes[0], Note::Bye(_)));
        assert_eq!(
            batches
                .iter()
                .map(|batch| (batch.rank.0, batch.seq.0, batch.probes.len()))
                .take(4)
                .collect::<Vec<_>>(),
            [(0, 0, 2), (1, 0, 2), (0, 1, 0), (1, 1, 0)]
        );
        assert_eq!(batches.iter().map(|batch| batch.events.len()).max(), Some(RECORDS));
        assert_ne!(batches[0].incarnation, batches[1].incarnation);
        assert_eq!([1, 64, 1_024, 16_384].map(records_of_batch), [RECORDS, 8_192, 512, 64]);
    }
}
