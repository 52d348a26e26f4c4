//! Evidence from bursts: what the device of a slow rank does differently from that of another rank.

use timing::activity::is_collective;
use wire::burst::{Activity, KernelTime};

use crate::finding::{Evidence, Finding};

/// The share by which kernels must take longer than on another rank to be reported as slow.
const SLOWER: f64 = 0.05;
/// The additional share of idle time, compared with another rank's device, from which a device is reported to wait for
/// its host.
const IDLER: f64 = 0.05;

/// Compares the burst of a rank with that of another rank, and returns the differences that may explain why the first
/// is slow, each as evidence.
fn differences(own: &Activity, other: &Activity, other_rank: u32) -> Vec<Evidence> {
    let slower = slower(own, other).filter(|ratio| *ratio > 1.0 + SLOWER).map(|ratio| {
        let burst_seconds = own.span_nanos as f64 / 1e9;
        Evidence::SlowerKernels { share: ratio - 1.0, other_rank, burst_seconds }
    });
    let idle = |activity: &Activity| activity.idle_nanos as f64 / activity.span_nanos.max(1) as f64;
    let (own, other) = (idle(own), idle(other));
    let idler = (own > other + IDLER).then_some(Evidence::IdlerDevice { own, other, other_rank });
    slower.into_iter().chain(idler).collect()
}

/// Returns how much longer the kernels take that both ranks run, weighted by their time on the other rank; `None` if
/// there are no such kernels.
fn slower(own: &Activity, other: &Activity) -> Option<f64> {
    let mean = |kernel: &KernelTime| kernel.total_nanos as f64 / kernel.calls.max(1) as f64;
    let compute =
        other.kernels.iter().filter(|kernel| !is_collective(&kernel.name) && kernel.total_nanos > 0);
    let pairs = compute.filter_map(|theirs| {
        let ours =
            own.kernels.iter().find(|ours| (&ours.name, ours.phase) == (&theirs.name, theirs.phase))?;
        Some((theirs.total_nanos as f64 * mean(ours) / mean(theirs), theirs.total_nanos as f64))
    });
    let (ours, theirs) = pairs.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    (theirs > 0.0).then(|| ours / theirs)
}

/// Returns the rank whose burst a suspect's is compared with: the first one with a burst that is not a suspect.
fn peer(bursts: &[Option<Activity>], suspects: &[u32]) -> Option<u32> {
    (0..bursts.len() as u32).find(|rank| !suspects.contains(rank) && bursts[*rank as usize].is_some())
}

/// Adds evidence from bursts to a finding on ranks, if one of them and some other rank have a burst.
pub(super) fn explain(finding: &mut Finding, bursts: &[Option<Activity>]) {
    let Some(culprit) = &finding.verdict.culprit else { return };
    let suspects = culprit.ranks();
    let burst = |rank: u32| bursts.get(rank as usize).and_then(Option::as_ref);
    let both = suspects.first().and_then(|&first| {
        let peer = peer(bursts, suspects)?;
        Some((burst(first)?, burst(peer)?, peer))
    });
    if let Some((own, other, peer)) = both {
        finding.evidence.extend(differences(own, other, peer));
    }
}

#[cfg(test)]
mod tests {
    use timing::activity::{Work, activity};

    use super::*;

    fn kernel(name: &str, begin: i64, end: i64) -> Work<'_> {
        Work { kernel: Some(name), stream: (0, 1, 7), phase: None, ran: (begin, end) }
    }

    #[test]
    fn slow_kernels_and_an_idle_device_are_distinguished() {
        let nccl = "ncclDevKernel_AllReduce";
        let usual = activity(&[kernel("gemm", 0, 90), kernel(nccl, 90, 100)], &[], 0);
        // A collective takes longer on a rank that waits more, which shows nothing about the device.
        let slow = activity(&[kernel("gemm", 0, 108), kernel(nccl, 108, 200)], &[], 0);
        let hungry = activity(&[kernel("gemm", 0, 90), kernel(nccl, 140, 150)], &[], 0);
        assert_eq!(differences(&usual, &usual, 0), []);
        let [Evidence::SlowerKernels { share, other_rank: 3, .. }] = differences(&slow, &usual, 3)[..] else {
            panic!("{:?}", differences(&slow, &usual, 3))
        };
        assert!((share - 0.2).abs() < 0.001, "{share}");
        let [Evidence::IdlerDevice { own, other, other_rank: 3 }] = differences(&hungry, &usual, 3)[..]
        else {
            panic!("{:?}", differences(&hungry, &usual, 3))
        };
        assert!((own - 1.0 / 3.0).abs() < 0.001 && other == 0.0, "{own}, {other}");
        let bursts = [None, Some(usual), None, Some(slow)];
        assert_eq!(
            (peer(&bursts, &[3]), peer(&bursts, &[1, 3]), peer(&bursts, &[0])),
            (Some(1), None, Some(1))
        );
    }
}
