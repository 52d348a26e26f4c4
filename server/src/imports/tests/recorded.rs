//! Recorded jobs with known answers: the answers hold however ranks are numbered, and however what was recorded is split. The recordings
//! are not part of the repository; without them, there is nothing to check.

use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use serde_json::Value;
use wire::batch::Batch;
use wire::clock::ServerNanos;
use wire::event::Event;
use wire::ids::BatchSeq;
use wire::views::{Cause, Culprit, Missing, Report};

use super::*;
use crate::state::run::Run;

/// What is right for a recorded job.
#[derive(Clone, Copy, Debug)]
enum Right {
    /// This rank is named, for this cause, and no other.
    Named(u32, Cause),
    /// The job hangs, and this rank is behind.
    Behind(u32),
    /// This rank is late, at a cost that is not known.
    Late(u32),
    /// No rank is named.
    Nobody,
}

const CASES: [(&str, Right); 10] = [
    ("clock_off_60s", Right::Named(2, Cause::Compute)),
    ("cut_file_matched_from_end", Right::Named(2, Cause::Host)),
    ("ddp_slow_rank_long_allreduce", Right::Named(2, Cause::Compute)),
    ("fr_empty_entries", Right::Behind(2)),
    ("hang_not_in_report", Right::Behind(2)),
    ("kernel_at_ts_0", Right::Named(2, Cause::Compute)),
    ("late_in_every_collective_flight_recorder", Right::Late(2)),
    ("late_in_every_collective_kineto", Right::Named(3, Cause::Host)),
    ("two_traces_in_one_file", Right::Named(2, Cause::Compute)),
    ("unknown_collective_kernels", Right::Nobody),
];

/// By how much times may differ where another rank is the first one, in nanoseconds: clocks are aligned to its clock, in whole nanoseconds.
const ROUNDED_NANOS: u64 = 100;

/// Returns the files of a recorded job in the order of their names: name and plain content. `None` if they are not there.
pub(super) fn recorded(job: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(job);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        let _written = writeln!(io::stderr(), "SKIP: there is no folder {}", folder.display());
        return None;
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_none_or(|ending| ending != "txt"));
    paths.sort();
    let read = |path: PathBuf| {
        let mut content = Vec::new();
        let file = std::fs::File::open(&path).expect("the file opens");
        import::pieces::plain(file, &import::Swollen::default())
            .and_then(|mut file| file.read_to_end(&mut content))
            .expect("the file is read");
        (path.file_name().expect("a name").to_string_lossy().into_owned(), content)
    };
    Some(paths.into_iter().map(read).collect())
}

/// Returns the file of rank `from` as that of rank `to`.
fn renumbered((name, content): &(String, Vec<u8>), from: usize, to: usize) -> (String, Vec<u8>) {
    let name = name.replacen(&from.to_string(), &to.to_string(), 1);
    let content = match std::str::from_utf8(content) {
        Ok(text) => text
            .replace(&format!(r#""nccl","rank":{from},"#), &format!(r#""nccl","rank":{to},"#))
            .into_bytes(),
        Err(_) => content.clone(),
    };
    (name, content)
}

/// Returns all orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let longer =
        |order: Vec<usize>| (0..count).map(move |at| [&order[..at], &[count - 1], &order[at..]].concat());
    orders(count - 1).into_iter().flat_map(longer).collect()
}

/// Returns the batches of an import of files, in order.
fn batches(files: &[(String, Vec<u8>)], read: impl Fn(&[u8]) -> Box<dyn Read + '_>) -> Vec<Batch> {
    let mut all = Files::default();
    for (name, content) in files {
        all.add(name, import::read(name, read(content)));
    }
    let id = RunId::new("one").expect("the id is valid");
    let read = all.join(&id, "one").expect("the files are of one job");
    read.rounds.iter().flatten().map(|frame| wire::codec::decode(frame).expect("a batch")).collect()
}

fn report(batches: Vec<Batch>) -> Report {
    let mut run: Option<Run> = None;
    for batch in batches {
        let run = run.get_or_insert_with(|| Run::new(batch.run.clone(), batch.world_size, ServerNanos(0)));
        run.apply(batch, ServerNanos(0)).expect("the run takes the batches of an import");
    }
    run.expect("an import has batches").report(usize::MAX, ServerNanos(0))
}

pub(super) fn imported(files: &[(String, Vec<u8>)]) -> Report {
    report(batches(files, |content| Box::new(content)))
}

/// Returns what a report says of ranks: who, why and at what cost, in nanoseconds per step, in the order in which it is said.
fn said(report: &Report, original: impl Fn(u32) -> u32) -> Vec<(u32, String, u64)> {
    let mut said: Vec<(u32, String, u64)> = Vec::new();
    for verdict in report.verdicts.iter().chain(&report.notes) {
        let ranks = verdict.culprit.as_ref().map_or(&[][..], Culprit::ranks);
        said.extend(
            ranks
                .iter()
                .map(|&rank| (original(rank), verdict.cause.name().to_owned(), verdict.cost_nanos_per_step)),
        );
    }
    if let Some(hang) = &report.hang {
        said.extend(hang.ranks.iter().map(|rank| (original(rank.0), "behind".into(), 0)));
    }
    if let Some(Missing::UnknownCost { rank, nanos, .. } | Missing::LateAtNoCost { rank, nanos, .. }) =
        report.verdicts_missing
    {
        said.push((original(rank), "late".into(), nanos));
    }
    said
}

#[test]
fn answers_hold_in_every_order_of_the_ranks() {
    for (case, right) in CASES {
        let Some(files) = recorded(&format!("cases/{case}")) else { continue };
        let mut first = None;
        for order in orders(files.len()) {
            let named: Vec<_> =
                files.iter().enumerate().map(|(rank, file)| renumbered(file, rank, order[rank])).collect();
            let report = imported(&named);
            let original = |rank: u32| {
                order.iter().position(|&number| number == rank as usize).expect("a rank of the job") as u32
            };
            let said = said(&report, original);
            let expected = match right {
                Right::Named(rank, cause) => vec![(rank, cause.name())],
                Right::Behind(rank) => vec![(rank, "behind")],
                Right::Late(rank) => vec![(rank, "late")],
                Right::Nobody => Vec::new(),
            };
            let who: Vec<(u32, &str)> = said.iter().map(|(rank, why, _)| (*rank, why.as_str())).collect();
            assert_eq!(who, expected, "{case} {order:?}");
            let mut nanos: Vec<(u32, u64)> = said.iter().map(|(rank, _, nanos)| (*rank, *nanos)).collect();
            nanos.extend(
                report.last_ranks.iter().map(|last| (original(last.rank.0), last.nanos_per_step as u64)),
            );
            nanos.sort_unstable();
            let first = first.get_or_insert_with(|| nanos.clone());
            let is_alike =
                |(a, b): (&(u32, u64), &(u32, u64))| a.0 == b.0 && a.1.abs_diff(b.1) <= ROUNDED_NANOS;
            assert!(
                first.len() == nanos.len() && first.iter().zip(&nanos).all(is_alike),
                "{case} {order:?}: {nanos:?} and not {first:?}"
            );
        }
    }
}

/// Returns few bytes at a time.
struct Dribble<'a>(&'a [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(1_013);
        self.0.read(&mut buffer[..most])
    }
}

/// Returns the batches with at most so many records each: those of a batch after each other, or the first of each rank, then the second, and
/// so on.
fn split(batches: &[Batch], most: usize, in_rounds: bool) -> Vec<Batch> {
    let mut split: Vec<Batch> = Vec::new();
    for batch in batches {
        // A batch that is read has its records by kind. Those of a step come before its end, as agents and imports send them.
        let mut sorted = batch.events.clone();
        sorted.sort_by_key(|event| match event {
            Event::Step(record) => (record.step, true),
            Event::Span(record) => (record.step, false),
            Event::Bucket(record) => (record.step, false),
            Event::Started(record) => (record.step, false),
        });
        let mut events = sorted.as_slice();
        while events.len() > most {
            let (some, rest) = events.split_at(most);
            split.push(Batch {
                events: some.to_vec(),
                notes: Vec::new(),
                probes: Vec::new(),
                ..batch.clone()
            });
            events = rest;
        }
        split.push(Batch { events: events.to_vec(), ..batch.clone() });
    }
    let mut next = std::collections::HashMap::new();
    for batch in &mut split {
        let seq = next.entry(batch.rank).or_insert(0);
        batch.seq = BatchSeq(*seq);
        *seq += 1;
    }
    if in_rounds {
        split.sort_by_key(|batch| (batch.seq, batch.rank));
    }
    split
}

#[test]
fn how_a_recording_is_split_changes_nothing_in_the_report() {
    let cases = CASES.iter().map(|(case, _)| format!("cases/{case}"));
    for case in cases.chain(["traces/torchrec_a2a_opt2_runB".into()]) {
        let Some(files) = recorded(&case) else { continue };
        let whole = batches(&files, |content| Box::new(content));
        let text = |batches: Vec<Batch>| -> Value {
            serde_json::to_value(report(batches)).expect("a report is JSON")
        };
        let expected = text(whole.clone());
        assert_eq!(
            text(batches(&files, |content| Box::new(Dribble(content)))),
            expected,
            "{case}: read in parts"
        );
        for (most, in_rounds) in [(1, false), (7, true), (64, false), (64, true)] {
            let split = split(&whole, most, in_rounds);
            assert!(split.len() >= whole.len());
            assert_eq!(text(split), expected, "{case}: at most {most} records, in rounds: {in_rounds}");
        }
    }
}
