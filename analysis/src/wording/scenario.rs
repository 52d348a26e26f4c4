//! The sentences of what-ifs of the latency-bandwidth model.

use wire::views::scaling::{Predicted, Scenario};

/// Says how long the step would be, and how long it is; times in nanoseconds.
pub(crate) fn sentence(step: &Predicted, now: f64) -> String {
    let band = format!("{} to {}", units::nanos(step.low), units::nanos(step.high));
    let (step, now) = (units::nanos(step.value), units::nanos(now));
    format!("A step is predicted to take {step} ({band}); as it is, it takes {now}.")
}

/// Returns the assumptions of what a scenario changes in a run on `own` ranks.
pub(crate) fn assumptions(scenario: &Scenario, own: u32) -> Vec<String> {
    let mut assumptions = Vec::new();
    let mut add = |changes: bool, sentence: &str| {
        if changes {
            assumptions.push(sentence.to_owned());
        }
    };
    add(
        scenario.ranks.is_some_and(|ranks| ranks != own),
        "The batch per rank stays the same, and the links to further ranks are as fast as the measured ones.",
    );
    add(
        scenario.link < 1.0,
        "An all-reduce is a ring, which is as fast as its slowest link, and all links are equally fast now.",
    );
    add(
        scenario.bandwidth > 1.0 || scenario.latency < 1.0,
        "The network limits the transfers. Where the host's copies limit them, a faster network gains less.",
    );
    add(
        scenario.compression > 1.0,
        "Compressing and decompressing take no time, and training converges as before.",
    );
    add(
        scenario.cap_mib.is_some(),
        "Gradients become ready evenly between the times at which the present buckets are ready.",
    );
    assumptions
}
