//! The definitions of the terms on the page, in short. docs/metrics.md and docs/glossary.md have them in full.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The name, as on the page.
    pub name: &'static str,
    pub means: &'static str,
}

const fn term(name: &'static str, means: &'static str) -> Term {
    Term { name, means }
}

pub const TERMS: [Term; 41] = [
    term("step time", "The mean time from one observed step to the next. Costs and shares refer to it."),
    term("throughput", "Samples per second over all ranks, in the unit that the job counts."),
    term(
        "overlap",
        "The share of communication that is hidden behind compute: hidden communication / communication, over all ranks \
         and steps.",
    ),
    term(
        "goodput",
        "The time in steps that advance the job, as a share of the wall time of all ranks: from the start of the first \
         process to the end of the run, restarts included.",
    ),
    term(
        "account",
        "Where the wall time goes, over all ranks together. Each part is what the time would be less without it, so that \
         waiting counts where it is caused; the parts sum to the whole.",
    ),
    term(
        "MFU",
        "Model FLOPs utilization: the floating-point operations of the samples per second, forward and backward, as a \
         share of what the devices of all ranks could execute.",
    ),
    term(
        "implied efficiency",
        "The mean over ranks of compute time / step time, from this run alone. Measured efficiency compares it with a \
         run on fewer ranks.",
    ),
    term(
        "efficiency",
        "Implied efficiency is the mean over ranks of compute time / step time. Measured efficiency is the throughput \
         per rank / the throughput per rank of a baseline run on fewer ranks.",
    ),
    term(
        "healthy period",
        "The longest stretch of steps that no verdict covers, of at least 20 steps. The run is compared with itself.",
    ),
    term(
        "cost",
        "The time that each affected step would save if the culprit were like the other ranks. The step is replayed \
         from its records with the culprit fixed.",
    ),
    term(
        "confidence",
        "High: at least 100 steps have the fault, in most of them the culprit is last, and its excess is clear. \
         Medium: enough evidence to name the culprit, but not for high.",
    ),
    term("cause", "The part of the step, or the condition of its rank, that explains the lost time."),
    term("onset", "The step in which the culprit's local work changed, with the range in which it may lie."),
    term("local work", "The rank's step less exposed communication: what the rank does itself."),
    term(
        "lateness",
        "How much later than the median rank a rank starts its collectives, as the mean over buckets.",
    ),
    term("input", "Waiting for a batch of samples, or making it."),
    term("h2d", "Copying the batch from the host to the device."),
    term("forward", "Forward compute."),
    term("backward", "Backward compute, without exposed communication."),
    term("optimizer", "The update of the parameters."),
    term("device idle", "Time in which the device ran nothing and the trace does not say why."),
    term("other", "Time of a step that no phase and no communication claims."),
    term("exposed wait", "Waiting in a collective for a later rank while nothing is computed."),
    term("exposed transfer", "Transfer of a collective that no compute hides."),
    term("imbalance", "The part of the exposed wait that steady differences in local work explain."),
    term("compute drift", "Compute that takes longer than in the baseline run."),
    term("residual", "What the losses do not explain: time between the ranks' steps, and clock error."),
    term("ideal step", "The step if nothing but compute took time: implied efficiency × step time."),
    term("bucket", "A group of gradients that one all-reduce sums over all ranks."),
    term("wait", "The time from a rank's own start of a collective to the start of the last rank."),
    term("transfer", "The time from the start of the last rank to the end of the collective."),
    term("ready", "The last gradient of the bucket is computed."),
    term("launch", "The bucket's collective is handed to the communicator."),
    term("algbw", "Algorithm bandwidth: payload / transfer time."),
    term("busbw", "Bus bandwidth: algbw × 2(n − 1)/n for an all-reduce over n ranks."),
    term(
        "clock bound",
        "The largest error that a rank's times can have after alignment to the server's clock.",
    ),
    term("drift", "How much faster or slower a rank's clock runs than the server's."),
    term(
        "own overhead",
        "What recording costs: the median of (observed step / neighboring shadow step) − 1, with its 95 % interval.",
    ),
    term(
        "noise",
        "The largest difference between two runs that chance alone usually makes (95 %). A difference within it counts \
         as the same. Where the noise is not known, a difference counts from 1 %.",
    ),
    term("change", "Whether the compared run is better or worse than the baseline, beyond noise."),
    term("shadow step", "A step that is not observed. It shows what a step takes without recording."),
];

#[must_use]
pub fn find(name: &str) -> Option<&'static Term> {
    TERMS.iter().find(|term| term.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_is_in_the_documentation() {
        let docs = [include_str!("../../../docs/metrics.md"), include_str!("../../../docs/glossary.md")];
        let docs = docs.concat().to_lowercase();
        let missing: Vec<&str> =
            TERMS.iter().map(|term| term.name).filter(|name| !docs.contains(&name.to_lowercase())).collect();
        assert!(missing.is_empty(), "not in docs: {missing:?}");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = TERMS.iter().map(|term| term.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TERMS.len());
        assert_eq!(find("overlap").map(|term| term.name), Some("overlap"));
    }
}
