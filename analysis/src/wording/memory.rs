//! Memory that grows, in words.

use wire::views::{Culprit, MemoryGrowth, MemoryKind, TimeLeft};

use super::Who;

/// The time from which how much is left is not said more precisely, in days: jobs seldom run longer.
const LONG_DAYS: f64 = 30.0;
/// The ratio of the latest time to the soonest from which the latest says nothing.
const WIDE: f64 = 10.0;

/// Returns the sentence and the advice. `ranks` is the number of ranks of the run.
pub(crate) fn words(growth: &MemoryGrowth, ranks: u32) -> (String, String) {
    let named = match growth.ranks[..] {
        [rank] => Culprit::Rank(rank),
        _ if growth.ranks.len() == ranks as usize => Culprit::All,
        _ => Culprit::Ranks(growth.ranks.clone()),
    };
    let who = Who::new(Some(&named), false);
    let whose = match growth.ranks.len() {
        1 => String::new(),
        _ => format!(" on rank {}", growth.first_rank),
    };
    let (what, limit, advice) = match growth.kind {
        MemoryKind::Host => ("memory", "the memory of its host (or its cgroup's limit)", OF_HOST),
        MemoryKind::Device => ("device memory", "its device", OF_DEVICE),
    };
    let rate = units::rate(growth.bytes_per_second, "B/s");
    let grown = format!(
        "the {what} of {} grows all along, by {rate}{whose}: from {} to {} in {}",
        who.name(),
        units::bytes(growth.from_bytes),
        units::bytes(growth.to_bytes),
        units::nanos(growth.over_seconds * 1e9)
    );
    let outlook = match growth.time_left.as_result() {
        Ok(left) => format!("At this rate, {limit} is full {}", time_left(left)),
        Err(reason) => format!("When it is full is not known, because {reason}"),
    };
    (format!("{}. {outlook}.", units::capitalized(&grown)), advice.to_owned())
}

const OF_HOST: &str = "Find what is kept in every step: tensors in a list (store loss.item() and not loss), samples that are \
    cached in the data set, metrics over all steps. tracemalloc compares two steps.";
const OF_DEVICE: &str = "Find what is kept in every step: a loss that is summed with its graph (use detach() or item()), outputs in \
    a list, hooks that are registered again. torch.cuda.memory._record_memory_history shows who allocates.";

/// Returns when: `in 8 to 9 min`, `in about 8 min`, or only the earliest time if the latest is hardly known.
pub(crate) fn time_left(left: &TimeLeft) -> String {
    if left.soonest_seconds >= LONG_DAYS * 86_400.0 {
        return format!("in more than {LONG_DAYS} days");
    }
    let (unit, seconds) = match left.soonest_seconds {
        short if short < 120.0 => ("s", 1.0),
        short if short < 7_200.0 => ("min", 60.0),
        short if short < 172_800.0 => ("hours", 3_600.0),
        _ => ("days", 86_400.0),
    };
    let [soonest, latest] =
        [left.soonest_seconds, left.latest_seconds].map(|time| units::count((time / seconds).round() as u64));
    if left.latest_seconds > WIDE * left.soonest_seconds {
        format!("in {soonest} {unit} at the earliest")
    } else if soonest == latest {
        format!("in about {soonest} {unit}")
    } else {
        format!("in {soonest} to {latest} {unit}")
    }
}
