//! The sentence on a hang.

use crate::finding::Stall;

/// The largest number of ranks that are named.
const MAX_NAMED: usize = 8;

pub(crate) fn hang(stall: &Stall<'_>) -> String {
    let Stall { since_seconds, furthest, behind, silent, have_started } = *stall;
    let no_step = format!("No step has completed for {since_seconds:.0} s");
    let (Some(furthest), false) = (furthest, behind.is_empty()) else {
        return format!("{no_step}; all ranks have launched the same collectives.");
    };
    let names: Vec<String> = behind.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = match behind.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {} more", units::count(more as u64)),
    };
    let (noun, verb) = if behind.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
    let furthest = units::count(furthest.0);
    let done = if have_started { "finished" } else { "started" };
    let silence = match (silent, behind.len()) {
        (0, _) => String::new(),
        (_, 1) => ", and no data arrives from it".into(),
        (silent, all) => {
            let (silent, all) = (units::count(silent as u64), units::count(all as u64));
            format!(", and no data arrives from {silent} of these {all} ranks")
        }
    };
    format!("{no_step}: {noun} {}{more} {verb} not {done} collective {furthest}{silence}.", names.join(", "))
}
