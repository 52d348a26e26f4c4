//! Goodput in words.

use wire::views::ComputedOn;
use wire::views::goodput::{Attempt, Goodput, TimeUse};

/// Says that the start of processes is left out ([`Goodput::knows_start`] is false).
pub const START_UNKNOWN: &str = "When the processes began is not known, so their start is not part of it.";
/// The largest number of uses that the sentence names.
const MAX_NAMED: usize = 4;
/// The smallest share that the sentence names.
const MIN_SHARE: f64 = 0.001;
/// The shortest time that is written in hours of ranks or GPUs.
const MIN_HOURS: f64 = 0.1;

/// Returns what the time that is not goodput went to, largest first: `setup 9.1 %, recovery 4.0 %`. Empty if all of it is
/// goodput.
#[must_use]
pub fn badput(goodput: &Goodput) -> String {
    let uses = TimeUse::ALL.into_iter().filter(|time_use| !time_use.is_productive());
    let mut named: Vec<(TimeUse, f64)> = uses.map(|time_use| (time_use, goodput.share(time_use))).collect();
    named.retain(|(_, share)| *share >= MIN_SHARE);
    named.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let named = named.iter().take(MAX_NAMED);
    named
        .map(|(time_use, share)| format!("{} {}", time_use.title(), units::percent(*share)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns how many ranks the attempts had: `2 ranks`, or `2 to 4 ranks`.
#[must_use]
pub fn ranks(goodput: &Goodput) -> String {
    let (least, most) = goodput.rank_range();
    if least == most {
        units::ranks(most)
    } else {
        format!("{} to {}", units::count(least.into()), units::ranks(most))
    }
}

/// Returns what an attempt did, in a sentence: `Steps 80 to 119 on 2 ranks; 20 steps repeated.`
#[must_use]
pub fn attempt(attempt: &Attempt) -> String {
    let ranks = units::ranks(attempt.ranks);
    let Some((first, last)) = attempt.steps else { return format!("No step yet, on {ranks}.") };
    let steps = format!("Steps {} to {} on {ranks}", units::count(first), units::count(last));
    match attempt.repeated_steps {
        0 => format!("{steps}."),
        1 => format!("{steps}; 1 step repeated."),
        repeated => format!("{steps}; {} steps repeated.", units::count(repeated)),
    }
}

/// Returns a time of all ranks together: `12.5 GPU-hours`, or `9.00 s` if it is short.
#[must_use]
pub fn time(nanos: u64, computed_on: ComputedOn) -> String {
    let hours = nanos as f64 / 3.6e12;
    if hours < MIN_HOURS {
        return units::nanos(nanos as f64);
    }
    format!("{} {}", units::significant(hours), computed_on.hours())
}

/// Returns what a use is, as a phrase.
#[must_use]
pub fn meaning(time_use: TimeUse) -> &'static str {
    match time_use {
        TimeUse::Compute => "forward, backward and update, with the communication that they hide",
        TimeUse::StragglerWait => "waiting for a later rank",
        TimeUse::ExposedTransfer => "transfers that no compute hides",
        TimeUse::Input => "waiting for input, and copying it to the device",
        TimeUse::OtherInSteps => "the rest of steps, and steps with a known length only",
        TimeUse::Launch => "until the process reports",
        TimeUse::Setup => {
            "from its first report to the first step: communicators, data, reading a checkpoint"
        }
        TimeUse::WarmUp => "the first two steps, and compilation later",
        TimeUse::Evaluation => "evaluation between training steps",
        TimeUse::Checkpoint => "checkpoints, as far as training waits for them",
        TimeUse::Hang => "no step ended for so long that it counts as a hang",
        TimeUse::Recovery => "from the last step of an attempt to the first step of the next",
        TimeUse::Repeated => "steps that an earlier attempt had done",
        TimeUse::Ending => "after the last step",
        TimeUse::Between => "time between steps that nothing explains",
    }
}
