//! Evidence from traces: the operator or kernel that takes a slow rank longer than another.

use std::sync::Arc;

use wire::ids::{Rank, Step};
use wire::traces::{TraceRowKind, TraceSum, TraceSummary};
use wire::views::captures::TraceComparison;

use crate::finding::{Evidence, Finding, HostBound, HostWork, Reason, Segment, Statement};
use crate::traces;

/// The smallest difference that is evidence, as a share of the step.
const LEAST_SHARE: f64 = 0.05;

/// Adds what differs most to a finding on slow compute, if a trace of one of its ranks is compared with another rank's.
pub(super) fn explain(finding: &mut Finding, compared: Option<&TraceComparison>) {
    if finding.verdict.cause.is_slow_compute() {
        compared.into_iter().for_each(|compared| add(finding, compared));
    }
}

/// Adds what differs most between the first rank that a finding names and the first other rank with a trace, if the run is
/// imported. The traces are of the steps that are judged.
pub(super) fn explain_imported(finding: &mut Finding, summaries: &[Option<Arc<TraceSummary>>]) {
    let Some(culprit) = &finding.verdict.culprit else { return };
    let named = culprit.ranks();
    let summary = |at: usize| Some((Rank(at as u32), &**summaries.get(at)?.as_ref()?));
    let own = named.first().and_then(|rank| summary(*rank as usize));
    let other = (0..summaries.len()).filter(|at| !named.contains(&(*at as u32))).find_map(summary);
    if let Some((own, other)) = own.zip(other) {
        let compared = traces::compare(own, other, Step(finding.verdict.steps.0));
        add(finding, &compared);
    }
}

/// The least share of the idle time of devices that the host must wait for them before, for synchronization to be why.
const SYNCHRONIZES: f64 = 0.5;
/// The least share of the host's own time outside of operators for that code to be why.
const MOSTLY: f64 = 0.5;

/// Says of devices that are idle on all ranks what their hosts do, as traces show it.
///
/// A host that runs ahead of its device keeps it busy. One that waits for its device `s` per step, while the device waits for it
/// `i` per step, does one after the other what both could do at once: up to the smaller of both is saved without the
/// synchronization. If `s` is small, the host has no time to wait: it is too slow itself.
pub(super) fn explain_idle(finding: &mut Finding, summaries: &[Option<Arc<TraceSummary>>]) {
    let idle = finding.evidence.iter().find_map(|evidence| match evidence {
        Evidence::OnUsualRank { segment: Segment::Idle, nanos } => Some(*nanos),
        _ => None,
    });
    let (Some(idle), Statement::AllAlike) = (idle, finding.statement) else { return };
    let bound =
        traces::merged(summaries.iter().flatten().map(|summary| &**summary)).map(|all| host_bound(&all));
    let work = bound.filter(|bound| bound.kernels > 0.0).map(|bound| {
        finding.evidence.push(Evidence::HostBound(bound));
        match bound {
            _ if bound.synchronizing >= SYNCHRONIZES * idle => HostWork::Synchronizes,
            _ if bound.outside >= MOSTLY * (bound.outside + bound.operators) => HostWork::Code,
            _ => HostWork::Launches,
        }
    });
    finding.reason = Some(Reason::DevicesWait(work));
}

fn host_bound(all: &TraceSummary) -> HostBound {
    let per_step = |value: u64| value as f64 / f64::from(all.steps.max(1));
    let sum = |is: &dyn Fn(&TraceSum) -> bool, amount: fn(&TraceSum) -> u64| -> f64 {
        per_step(all.rows.iter().filter(|row| is(row)).map(amount).sum())
    };
    let is_kernel = |row: &TraceSum| row.kind == TraceRowKind::Kernel;
    let waits = |row: &TraceSum| row.kind == TraceRowKind::Runtime && waits(&row.name);
    let works = |row: &TraceSum| {
        row.kind == TraceRowKind::Operator || row.kind == TraceRowKind::Runtime && !self::waits(&row.name)
    };
    let kernels = sum(&is_kernel, |row| row.calls);
    let (synchronizing, operators) = (sum(&waits, |row| row.nanos), sum(&works, |row| row.nanos));
    // The thread of the step is outside of operators also while another thread runs those of the backward pass.
    let no_thread_works = (per_step(all.step_nanos) - operators - synchronizing).max(0.0);
    HostBound {
        synchronizing,
        synchronizations: sum(&waits, |row| row.calls),
        operators,
        outside: sum(&|row| row.kind == TraceRowKind::Outside, |row| row.nanos).min(no_thread_works),
        kernels,
        kernel: sum(&is_kernel, |row| row.nanos) / kernels.max(1.0),
    }
}

/// Returns true if a call of the runtime waits for the device. A plain copy does, and an asynchronous one does not.
fn waits(call: &str) -> bool {
    call.contains("Synchronize") || matches!(call, "cudaMemcpy" | "hipMemcpy" | "hipMemcpyWithStream")
}

fn add(finding: &mut Finding, compared: &TraceComparison) {
    let Some(culprit) = &finding.verdict.culprit else { return };
    let is_of_it =
        culprit.ranks().contains(&compared.rank.0) && !culprit.ranks().contains(&compared.against.0);
    let Some(row) = compared.rows.first().filter(|_| is_of_it) else { return };
    if row.difference() >= LEAST_SHARE * compared.own.step_nanos {
        let (other_rank, step) = (compared.against.0, compared.first_step.0);
        let evidence =
            Evidence::InTrace { name: row.name.clone(), nanos: row.difference(), other_rank, step };
        finding.evidence.insert(0, evidence);
    }
}

#[cfg(test)]
mod tests {
    use wire::views::{Cause, Culprit, Verdict};

    use super::*;
    use crate::wording;

    fn row(kind: TraceRowKind, name: &str, nanos: u64, calls: u64) -> TraceSum {
        TraceSum { kind, name: name.into(), nanos, calls, gap_nanos: 0 }
    }

    /// Says of devices that are idle for 10 ms per step what their hosts do: how long they wait for the device, and how long they are
    /// outside of operators, in milliseconds of two steps.
    fn said(waiting: u64, outside: u64) -> Verdict {
        let verdict = Verdict {
            cost_nanos_per_step: 10_000_000,
            cost_share: 0.4,
            ..Verdict::new(Culprit::All, Cause::Host)
        };
        let mut finding = Finding::new(verdict, Statement::AllAlike);
        finding.evidence.push(Evidence::OnUsualRank { segment: Segment::Idle, nanos: 1e7 });
        let summary = TraceSummary {
            steps: 2,
            step_nanos: 50_000_000,
            rows: vec![
                row(TraceRowKind::Kernel, "gemm", 30_000_000, 1_000),
                row(TraceRowKind::Operator, "aten::mm", 10_000_000, 1_000),
                row(TraceRowKind::Runtime, "cudaLaunchKernel", 5_000_000, 1_000),
                row(TraceRowKind::Runtime, "cudaStreamSynchronize", waiting * 1_000_000, 40),
                row(TraceRowKind::Outside, "(outside of operators)", outside * 1_000_000, 2),
            ],
        };
        explain_idle(&mut finding, &[Some(Arc::new(summary.clone())), Some(Arc::new(summary))]);
        wording::verdict(finding)
    }

    #[test]
    fn idle_devices_wait_for_launches_for_code_or_after_synchronizations() {
        let launches = said(1, 4);
        assert!(
            launches.sentence.contains("launches its kernels more slowly than they run"),
            "{}",
            launches.sentence
        );
        assert!(launches.advice.contains("CUDA graphs"), "{}", launches.advice);
        let synchronizes = said(16, 4);
        assert!(
            synchronizes.sentence.contains("after the host has waited for the device (synchronization)"),
            "{synchronizes:?}"
        );
        assert!(synchronizes.advice.contains(".item()"), "{}", synchronizes.advice);
        let line = "per step, the host waits for the device 8.00 ms in 20.0 calls, takes 7.50 ms for operators and launches and 2.00 ms \
            outside of them; the device runs 500 kernels of 30.0 µs each";
        assert_eq!(synchronizes.evidence[1], line);
        assert!(said(1, 30).sentence.contains("runs code outside of operators"), "{}", said(1, 30).sentence);
    }
}
