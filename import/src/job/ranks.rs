//! Which rank each file is of.

use std::collections::BTreeMap;

use wire::batch::MAX_RANKS;

use super::NotAJob;
use crate::format::Format;
use crate::source::{RankRecording, Source};

/// What a file holds of a rank, with the name of the file.
pub(super) struct RankFile {
    pub(super) file: String,
    pub(super) recording: RankRecording,
}

/// What files hold, by rank.
pub(super) struct Placed {
    pub(super) ranks: BTreeMap<u32, RankFile>,
    pub(super) world_size: u32,
    pub(super) remarks: Vec<String>,
}

/// Parts of file names before a rank, as tools write them.
const BEFORE_RANK: [&str; 4] = ["rank", "worker", ".w", "gpu"];

/// Finds the rank of each file: as the file says, or as the names of the files say, or by the order of the names.
pub(super) fn place(mut sources: Vec<Source>) -> Result<Placed, NotAJob> {
    if sources.is_empty() {
        return Err(NotAJob::Empty);
    }
    sources.sort_by_key(|source| natural(&source.file));
    let all: Vec<(String, Format, RankRecording)> = sources
        .into_iter()
        .flat_map(|Source { file, format, ranks }| {
            ranks.into_iter().map(move |recording| (file.clone(), format, recording))
        })
        .collect();
    let mut remarks = Vec::new();
    let said: Option<Vec<u32>> = all.iter().map(|(.., recording)| recording.rank).collect();
    let named = || distinct(all.iter().map(|(file, format, _)| rank_in_name(file, *format)).collect());
    let numbers = match said {
        Some(said) => said,
        None => named().unwrap_or_else(|| {
            remarks.push("neither the traces nor the names of the files say which rank they are of: ranks are numbered by the order of the names".into());
            (0..all.len() as u32).collect()
        }),
    };
    let mut ranks: BTreeMap<u32, RankFile> = BTreeMap::new();
    for (rank, (file, _, recording)) in numbers.into_iter().zip(all) {
        if rank >= MAX_RANKS {
            return Err(NotAJob::TooManyRanks { file, rank });
        }
        if let Some(first) = ranks.get(&rank) {
            return Err(NotAJob::SameRank { rank, first: first.file.clone(), second: file });
        }
        ranks.insert(rank, RankFile { file, recording });
    }
    let stated =
        ranks.values().filter_map(|rank| rank.recording.world_size).max().map(|stated| stated.min(MAX_RANKS));
    let fewest = ranks.last_key_value().map_or(1, |(&rank, _)| rank + 1);
    let world_size = stated.unwrap_or(fewest).max(fewest);
    if stated.is_none() && world_size > 1 {
        remarks.push(format!("no trace says how many ranks the job has: it is taken to have {world_size}"));
    }
    Ok(Placed { ranks, world_size, remarks })
}

fn distinct(ranks: Option<Vec<u32>>) -> Option<Vec<u32>> {
    let ranks = ranks?;
    let mut sorted = ranks.clone();
    sorted.sort_unstable();
    sorted.dedup();
    (sorted.len() == ranks.len()).then_some(ranks)
}

/// Returns the rank in the name of a file: `rank-3`, `worker3`, `.w3.` The flight recorder and Chakra write it last, whatever is before.
fn rank_in_name(file: &str, format: Format) -> Option<u32> {
    let file = file.to_ascii_lowercase();
    let last = || {
        let stem = [".gz", ".json", ".pkl", ".pickle", ".et"]
            .iter()
            .fold(&*file, |stem, end| stem.trim_end_matches(end));
        let digits = stem.bytes().rev().take_while(u8::is_ascii_digit).count();
        stem[stem.len() - digits..].parse().ok()
    };
    let marked = BEFORE_RANK.iter().find_map(|prefix| {
        file.match_indices(prefix).find_map(|(at, _)| {
            let digits = file[at + prefix.len()..].trim_start_matches(['-', '_', '=']);
            let length = digits.bytes().take_while(u8::is_ascii_digit).count();
            digits[..length].parse().ok()
        })
    });
    let is_last = matches!(format, Format::FlightRecorder | Format::Execution);
    marked.or_else(|| if is_last { last() } else { None })
}

/// Returns a key by which names sort as people expect: `rank2` before `rank10`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest[text..].bytes().take_while(u8::is_ascii_digit).count();
        key.push((rest[..text].to_owned(), rest[text..text + digits].parse().unwrap_or(u64::MAX)));
        rest = &rest[text + digits..];
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kineto::Trace;

    fn source(file: &str, rank: Option<u32>, world_size: Option<u32>) -> Source {
        let trace = Trace { rank, world_size, ..Trace::default() };
        Source { file: file.into(), format: Format::Kineto, ranks: vec![trace.into()] }
    }

    fn ranks(sources: Vec<Source>) -> (Vec<(u32, String)>, u32, usize) {
        let placed = place(sources).unwrap();
        let ranks = placed.ranks.into_iter().map(|(rank, placed)| (rank, placed.file)).collect();
        (ranks, placed.world_size, placed.remarks.len())
    }

    #[test]
    fn ranks_are_those_of_the_traces_then_of_the_names_then_of_their_order() {
        let (said, world, remarks) = ranks(vec![source("a", Some(5), Some(8)), source("b", Some(1), None)]);
        assert_eq!((said, world, remarks), (vec![(1, "b".into()), (5, "a".into())], 8, 0));
        let (named, world, _) =
            ranks(vec![source("rank-10.json", None, None), source("rank-2.json", Some(0), None)]);
        assert_eq!((named, world), (vec![(2, "rank-2.json".into()), (10, "rank-10.json".into())], 11));
        assert_eq!(
            rank_in_name("samples__resnet50_num_workers_4__worker3.pt.trace.json.gz", Format::Kineto),
            Some(3)
        );
        assert_eq!(rank_in_name("nccl_trace_12", Format::FlightRecorder), Some(12));
        assert_eq!(rank_in_name("trace-7.json.gz", Format::FlightRecorder), Some(7));
        assert_eq!(rank_in_name("trace-7.json.gz", Format::Kineto), None);
        assert_eq!(rank_in_name("resnet50.8npus.3.et", Format::Execution), Some(3));
        let (ordered, world, remarks) = ranks(vec![source("x10", None, None), source("x9", None, None)]);
        assert_eq!((ordered, world, remarks), (vec![(0, "x9".into()), (1, "x10".into())], 2, 2));
    }

    #[test]
    fn two_files_of_one_rank_are_refused() {
        let twice = place(vec![source("a", Some(1), None), source("b", Some(1), None)]);
        let error = NotAJob::SameRank { rank: 1, first: "a".into(), second: "b".into() };
        assert_eq!(twice.err(), Some(error));
        assert_eq!(place(Vec::new()).err(), Some(NotAJob::Empty));
    }
}
