//! What explains a finding beyond the steps that it was made from: the code, devices, hosts and traces of the ranks.
//!
//! A source adds what it shows to the evidence. It changes the cause only if what it shows is stronger than what the steps
//! show.

mod bursts;
mod code;
mod devices;
mod hosts;
mod inferred;
mod last_bucket;
mod trace;

use std::sync::Arc;

use wire::burst::Activity;
use wire::clock::ServerNanos;
use wire::traces::TraceSummary;
use wire::views::captures::TraceComparison;
use wire::views::{BucketStats, Verdict};

use crate::devices::{DeviceState, Samples};
use crate::finding::Finding;
use crate::hosts::Hosts;
use crate::verdict::Findings;
pub(crate) use code::Code;

/// All that is known besides the ledgers of the steps; lists are by rank.
pub(crate) struct Sources<'a> {
    pub(crate) code: Code<'a>,
    pub(crate) device_states: &'a [Vec<DeviceState>],
    pub(crate) hosts: Hosts<'a>,
    pub(crate) bursts: &'a [Option<Activity>],
    /// What differs between the newest traces of two ranks.
    pub(crate) compared: Option<&'a TraceComparison>,
    pub(crate) summaries: &'a [Option<Arc<TraceSummary>>],
    pub(crate) buckets: &'a [BucketStats],
    /// Whether compute is inferred, because only collectives are recorded.
    pub(crate) infers_compute: bool,
    /// Whether the run is imported from files that hold collectives and nothing else.
    pub(crate) has_only_collectives: bool,
}

/// Adds to all findings what the sources show.
pub(crate) fn explain(found: &mut Findings, sources: &Sources<'_>) {
    for finding in found.verdicts.iter_mut().chain(&mut found.notes) {
        explain_one(finding, sources);
    }
    code::settle_loaders(found, &sources.code);
}

/// The order is that in which users read the evidence, and later sources see what earlier ones changed.
fn explain_one(finding: &mut Finding, sources: &Sources<'_>) {
    code::explain(finding, &sources.code);
    if let Some(window) = window(&finding.verdict, &sources.code) {
        devices::explain(finding, &Samples { ranks: sources.device_states, window });
        hosts::explain(finding, &sources.hosts, window);
    }
    bursts::explain(finding, sources.bursts);
    trace::explain(finding, sources.compared);
    trace::explain_imported(finding, sources.summaries);
    trace::explain_idle(finding, sources.summaries);
    last_bucket::explain(finding, sources.buckets);
    if sources.infers_compute {
        inferred::explain(finding);
    }
    if sources.has_only_collectives {
        inferred::explain_unrecorded(finding);
    }
}

/// Returns the window of a verdict, from its first step to the end of its last, on the server's clock.
fn window(verdict: &Verdict, code: &Code<'_>) -> Option<(ServerNanos, ServerNanos)> {
    let (first, last) = verdict.steps;
    Some((code.window(first)?.0, code.window(last)?.1))
}
