//! Faults in simulated jobs: drawn times, real server code. These figures are not measurements.

use testkit::simulator::{FaultKind, Plan, Simulation};

use crate::cases::{Class, Simulated};
use crate::judge::{Found, Kind, Outcome, Planted};

fn kind(class: Class) -> FaultKind {
    match class {
        Class::Input => FaultKind::Input,
        Class::Compute => FaultKind::Compute,
        Class::Work => FaultKind::MoreWork,
        Class::Host => FaultKind::Host,
        Class::Network => FaultKind::Network,
    }
}

fn plan(seed: u64, ranks: usize, steps: u64) -> Plan {
    let ranks_per_host = if ranks > 8 { 8 } else { 2 };
    Plan { ranks, ranks_per_host, steps, jitter: 0.03, late: 50_000_000, ..Plan::small(seed) }
}

pub fn faulty(seed: u64, case: &Simulated) -> Outcome {
    let plan = plan(seed, case.ranks, case.steps);
    let simulation =
        Simulation::run(&plan.with_fault_in(case.bad.clone(), case.rank, kind(case.class), case.nanos));
    let found = found(&simulation);
    let cost_millis = simulation.cost_nanos_per_step / 1e6;
    let planted = Planted {
        class: case.class,
        slow: vec![case.rank as u32],
        millis: case.nanos as f64 / 1e6,
        bad_share: (case.bad.end - case.bad.start) as f64 / case.steps as f64,
        bad: (case.bad.start, case.bad.end),
        cost_millis,
        standard_error: 0.0,
        measured: 0,
        share: cost_millis / (found.step_millis - cost_millis),
    };
    outcome(case.ranks, Some(planted), found)
}

pub fn healthy(seed: u64) -> Outcome {
    let ranks = 2_usize << (seed % 9);
    outcome(ranks, None, found(&Simulation::run(&plan(seed, ranks, 200))))
}

fn found(simulation: &Simulation) -> Found {
    Found::from_report(&simulation.received().report(usize::MAX, simulation.end()))
}

fn outcome(ranks: usize, planted: Option<Planted>, found: Found) -> Outcome {
    Outcome { kind: Kind::Simulated, job: "simulated".into(), ranks, planted, found, load: String::new() }
}
