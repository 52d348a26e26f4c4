//! The batches that agents would have sent.

use wire::attributes::{Attributes, MAX_VALUE_BYTES};
use wire::batch::{Batch, Bye, Hello, Instrumentation, Note};
use wire::clock::{ClockAnchor, UnixNanos};
use wire::ids::{BatchSeq, Incarnation, Rank, RunId};

use super::{Found, clocks};
use crate::records::RankRecords;
use crate::source::OfRank;

/// The largest number of records of a batch: far fewer than the wire format allows, so that no batch is too long.
const RECORDS: usize = 16_384;

/// Returns the batches of all ranks, so that the ranks' steps arrive together.
pub(super) fn batches(run: &RunId, name: &str, world_size: u32, found: &[Found]) -> Vec<Batch> {
    let mut rounds: Vec<Vec<Batch>> = Vec::new();
    let is_of_first = |one: &Found| found.first().is_some_and(|first| first.file == one.file);
    let recorded: Vec<clocks::Recorded<'_>> = found
        .iter()
        .map(|found| clocks::Recorded {
            records: &found.records,
            is_of_first: is_of_first(found),
            error_nanos: found.of.error_nanos(),
        })
        .collect();
    let clocks = clocks::align(&recorded);
    for (Found { rank, file, of, records }, clock) in found.iter().zip(clocks) {
        let batch = Batch {
            run: run.clone(),
            rank: Rank(*rank),
            world_size,
            incarnation: Incarnation(of.identity(file)),
            seq: BatchSeq(0),
            anchor: anchor(records),
            probes: clocks::probes(records.begin, clock),
            drops: Vec::new(),
            notes: Vec::new(),
            events: Vec::new(),
        };
        for (round, batch) in of_rank(&batch, name, file, of, records).into_iter().enumerate() {
            if rounds.len() == round {
                rounds.push(Vec::new());
            }
            rounds[round].push(batch);
        }
    }
    rounds.into_iter().flatten().collect()
}

/// Returns the batches of a rank: the identity first, and the goodbye with the last records.
fn of_rank(empty: &Batch, name: &str, file: &str, of: &OfRank, records: &RankRecords) -> Vec<Batch> {
    let hello = Hello {
        name: name.to_owned(),
        host: String::new(),
        clock: String::new(),
        pid: 0,
        local_rank: empty.rank.0,
        sample_unit: String::new(),
        parameters: 0,
        instrumentation: Instrumentation::Trace,
    };
    let first =
        Batch { notes: vec![Note::Hello(hello), Note::Attributes(attributes(file, of))], ..empty.clone() };
    let empty = Batch { probes: Vec::new(), ..empty.clone() };
    let parts =
        records.events.chunks(RECORDS).map(|events| Batch { events: events.to_vec(), ..empty.clone() });
    let summary = records.summary.clone().map(Note::Traced);
    let goodbye = Note::Bye(Bye { completed: true, reason: String::new() });
    let goodbye = Batch { notes: summary.into_iter().chain([goodbye]).collect(), ..empty.clone() };
    let all = std::iter::once(first).chain(parts).chain(std::iter::once(goodbye));
    all.zip(0..).map(|(batch, seq)| Batch { seq: BatchSeq(seq), ..batch }).collect()
}

fn attributes(file: &str, of: &OfRank) -> Attributes {
    let value = |text: &str| text[..text.floor_char_boundary(MAX_VALUE_BYTES)].replace(',', "_");
    let software = of.nccl.iter().map(|nccl| ("nccl".to_owned(), value(nccl)));
    let labels = [("file", Some(file)), ("device", of.device.as_deref())];
    let labels = labels.into_iter().filter_map(|(key, text)| Some((key.to_owned(), value(text?))));
    Attributes { labels: labels.collect(), software: software.collect() }
}

fn anchor(records: &RankRecords) -> ClockAnchor {
    ClockAnchor { mono: records.begin, unix: UnixNanos(records.begin.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kineto::Trace;
    use wire::clock::MonoNanos;
    use wire::event::{Event, StepRecord};
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
        let records = RankRecords { events: vec![event; RECORDS + 1], ..RankRecords::default() };
        let run = RunId::new("one").unwrap();
        let found = [(0, "a"), (1, "b")].map(|(rank, file)| Found {
            rank,
            file: file.to_owned(),
            of: Trace::default().into(),
            records: records.clone(),
        });
        let batches = batches(&run, "job", 2, &found);
        assert_eq!(batches.len(), 2 * 4);
        assert!(matches!(batches[0].notes[0], Note::Hello(_)) && matches!(batches[7].notes[0], Note::Bye(_)));
        assert_eq!(
            batches.iter().map(|batch| (batch.rank.0, batch.seq.0)).take(4).collect::<Vec<_>>(),
            [(0, 0), (1, 0), (0, 1), (1, 1)]
        );
        assert_eq!(batches.iter().map(|batch| batch.events.len()).max(), Some(RECORDS));
        assert_ne!(batches[0].incarnation, batches[1].incarnation);
    }
}
