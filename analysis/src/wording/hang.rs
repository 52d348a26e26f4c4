//! The sentence on a hang.

use wire::batch::Instrumentation;
use wire::event::Function;
use wire::ids::{Rank, Seq};
use wire::views::Standing;

use crate::finding::Stall;

/// The largest number of ranks that are named.
const MAX_NAMED: usize = 8;
/// The largest number of places that are named.
const MAX_STANDING: usize = 3;

pub(crate) fn hang(stall: &Stall<'_>) -> String {
    let Stall { since_seconds, furthest, suspects, silent, have_started, instrumentation, is_before_steps } =
        *stall;
    let no_step = match is_before_steps {
        true => waited(since_seconds),
        false => format!("No step has completed for {since_seconds:.0} s"),
    };
    let (Some(furthest), false) = (furthest, suspects.is_empty()) else {
        return format!("{no_step}; all ranks have launched the same collectives.");
    };
    let names = names(suspects);
    let (noun, verb) = if suspects.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
    let furthest = collective(furthest, instrumentation);
    let done = if have_started { "finished" } else { "started" };
    let silence = match (silent, suspects.len()) {
        (0, _) => String::new(),
        (_, 1) => ", and no data arrives from it".into(),
        (silent, all) => {
            let (silent, all) = (units::count(silent as u64), units::count(all as u64));
            format!(", and no data arrives from {silent} of these {all} ranks")
        }
    };
    format!("{no_step}: {noun} {names} {verb} not {done} {furthest}{silence}.")
}

fn waited(seconds: f64) -> String {
    format!("No step has completed yet, after {seconds:.0} s of waiting")
}

/// Returns the sentence on ranks that wait for each other before the first step, each in another collective.
pub(crate) fn hang_in_different(
    since_seconds: f64,
    awaited: &[(Seq, Vec<Rank>)],
    instrumentation: Instrumentation,
) -> String {
    let place = |(seq, ranks): &(Seq, Vec<Rank>)| {
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{noun} {} in {}", names(ranks), collective(*seq, instrumentation))
    };
    let all: Vec<String> = awaited.iter().take(MAX_STANDING).map(place).collect();
    format!("{} in different collectives: {}.", waited(since_seconds), all.join(", "))
}

/// Returns sentences that say where ranks stand, with a space before each.
pub(crate) fn standing(standing: &[Standing]) -> String {
    let sentence = |standing: &Standing| {
        let (noun, verb) = if standing.ranks.len() == 1 { ("Rank", "is") } else { ("Ranks", "are") };
        format!(" {noun} {} {verb} in {}.", names(&standing.ranks), standing.at)
    };
    standing.iter().take(MAX_STANDING).map(sentence).collect()
}

/// Returns the name of a collective. The hooks of an unmodified job count the collectives of each function.
pub(super) fn collective(seq: Seq, instrumentation: Instrumentation) -> String {
    if instrumentation.numbers_by_function() {
        let (function, count) = (Function::from_seq(seq), Function::count_from_seq(seq));
        return format!("{} {}", function.name(), units::count(count));
    }
    format!("collective {}", units::count(seq.0))
}

/// Returns the numbers of ranks, at most [`MAX_NAMED`] of them.
fn names(ranks: &[Rank]) -> String {
    let names: Vec<String> = ranks.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = match ranks.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {} more", units::count(more as u64)),
    };
    format!("{}{more}", names.join(", "))
}
