//! Tests that a short fault is reported, however many steps the run has.

use testkit::programs::{Server, get_json, paceline, report};
use testkit::simulator::{FaultKind, Plan, Simulation};
use testkit::stored::store;

#[test]
fn a_fault_of_100_of_3000_steps_is_in_every_report_over_all_steps() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let plan =
        Plan { steps: 3_000, ..Plan::small(7) }.with_fault_in(1_200..1_300, 2, FaultKind::Input, 15_000_000);
    let simulation = Simulation::run(&plan);
    let run = simulation.batches[0].batch.run.to_string();
    store(data.path(), &simulation.batches)?;

    let restored = report(data.path(), &run)?;
    let fault = &restored["past_faults"][0];
    assert_eq!(fault["culprit"]["rank"], 2, "{restored:#}");
    assert_eq!(fault["cause"], "input");
    let near = |at: usize, step: u64| fault["steps"][at].as_u64().is_some_and(|is| is.abs_diff(step) <= 2);
    assert!(near(0, 1_200) && near(1, 1_299), "{fault}");
    assert_eq!(restored["past_faults"].as_array().map(Vec::len), Some(1));

    let text = paceline(&["report", &run, "--data", &data.path().to_string_lossy()])?;
    let text = String::from_utf8(text.stdout)?;
    assert!(text.contains("Earlier fault: rank 2, input, steps 1,"), "{text}");

    let server = Server::start(data.path())?;
    for window in ["recent", "all"] {
        let served = get_json(&format!("{}/api/v1/runs/{run}?window={window}", server.address))?;
        assert_eq!(served["past_faults"], restored["past_faults"], "window={window}");
    }
    Ok(())
}
