//! What slows all ranks all the time.

use std::collections::BTreeMap;
use std::sync::Arc;

use timing::clocks::ClockFit;
use wire::clock::MonoNanos;
use wire::device::throttle;
use wire::host::{HostFigure, HostSample};
use wire::views::Culprit;

use super::*;
use crate::hosts::{HostHistory, RankHost};
use crate::verdict::tests::{MS, healthy};
use crate::wording;

const SECOND: i64 = 1_000_000_000;

/// 400 steps of 25 ms.
fn steps() -> Vec<StepAnalysis> {
    let mut steps = healthy(400);
    for (at, step) in (0..).zip(&mut steps) {
        let begin = ServerNanos(at * 25 * MS as i64);
        step.window = Some((begin, begin + 25 * MS as i64));
    }
    steps
}

fn host(figure: HostFigure, millis: u64) -> Option<RankHost> {
    host_with(&[(figure, millis)])
}

fn host_with(more: &[(HostFigure, u64)]) -> Option<RankHost> {
    let mut history = HostHistory::default();
    for at in 1..=10 {
        let usual = [
            (HostFigure::Interval, 1_000),
            (HostFigure::Capacity, 1_000),
            (HostFigure::Ran, 700),
            (HostFigure::Busy, 720),
            (HostFigure::Stolen, 0),
            (HostFigure::Waited, 0),
        ];
        let figures: BTreeMap<HostFigure, u64> =
            usual.iter().chain(more).map(|&(figure, millis)| (figure, millis * MS)).collect();
        history.add(&HostSample { at: MonoNanos(at * SECOND), cores: "0".into(), figures });
    }
    Some(RankHost { pid: 1, history: Arc::new(history) })
}

fn device(clock: u64, reasons: u64) -> Vec<DeviceState> {
    let state = |at| DeviceState {
        at: ServerNanos(at * SECOND),
        clock: Some(clock),
        most: 2_000,
        reasons,
        retries: None,
    };
    (0..10).map(state).collect()
}

fn found(hosts: &[Option<RankHost>], devices: &[Vec<DeviceState>]) -> Findings {
    let (steps, fits) = (steps(), vec![Some(ClockFit::exact()); hosts.len()]);
    let mut found = Findings::default();
    let observed: Vec<&StepAnalysis> = steps.iter().collect();
    add(&mut found, &observed, &Hosts { ranks: hosts, fits: &fits }, devices, 0.05);
    found
}

#[test]
fn a_limit_or_a_lack_of_memory_of_all_ranks_is_a_verdict_on_all() {
    for (figure, words) in [
        (HostFigure::Throttled, "All ranks lose time to their CPU limit (cgroup), which costs"),
        (HostFigure::MemoryPressure, "All ranks lose time to a lack of memory, which costs"),
    ] {
        let all = found(&[host(figure, 300), host(figure, 250), host(figure, 300), host(figure, 350)], &[]);
        let [finding] = &all.verdicts[..] else { panic!("{all:?}") };
        let said = wording::verdict(finding.clone());
        assert_eq!((said.culprit, said.cause), (Some(Culprit::All), Cause::Host));
        assert!(
            said.sentence.starts_with(words) && (said.cost_share - 0.3).abs() < 0.01,
            "{}",
            said.sentence
        );
        // One rank that is not slowed is none of all.
        let three = found(&[host(figure, 300), host(figure, 300), host(figure, 10), host(figure, 300)], &[]);
        assert_eq!((three.verdicts.len(), three.notes.len()), (0, 0));
    }
}

#[test]
fn a_lack_of_memory_on_the_host_is_that_of_the_ranks_that_read_pages_back() {
    let short = |faults| host_with(&[(HostFigure::MemoryPressure, 300), (HostFigure::MajorFaults, faults)]);
    let verdicts = |faults: [u64; 4]| found(&faults.map(short), &[]).verdicts.len();
    assert_eq!(verdicts([0, 0, 1, 0]), 0, "all ranks of a host see the pressure that one of them feels");
    assert_eq!((verdicts([0; 4]), verdicts([1; 4])), (1, 1));
}

#[test]
fn clocks_that_are_lowered_on_all_devices_are_a_verdict_unless_for_their_power_cap() {
    let hot = device(1_500, throttle::THERMAL);
    let all = found(&[], &[hot.clone(), hot.clone(), hot.clone(), hot.clone()]);
    let [finding] = &all.verdicts[..] else { panic!("{all:?}") };
    let said = wording::verdict(finding.clone());
    assert_eq!(said.cause, Cause::ClockThrottle);
    let words = "All ranks compute more slowly because their GPUs lowered their clocks (temperature), which costs up to";
    assert!(said.sentence.starts_with(words), "{}", said.sentence);
    let line = "the GPUs of 4 of 4 ranks report lowered clocks, in 100 % of the samples: 1500 MHz, against 2000 MHz at full clock";
    assert_eq!(said.evidence, [line]);
    let capped = device(1_500, throttle::POWER_CAP);
    assert!(found(&[], &[capped.clone(), capped.clone(), capped.clone(), capped]).verdicts.is_empty());
    let cool = device(2_000, 0);
    assert!(found(&[], &[hot.clone(), hot, cool.clone(), cool]).verdicts.is_empty());
}
