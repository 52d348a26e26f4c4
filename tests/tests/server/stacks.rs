//! Tests of the native stacks of jobs with the reducer.

use anyhow::{Context as _, ensure};
use testkit::programs::{Job, report};

#[test]
fn a_slow_rank_of_a_rust_job_is_explained_by_its_function() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let data_path = data.path().to_string_lossy();
    let start = ["-n", "2", "--data", &data_path, "--"];
    let job = ["char_lm", "--steps", "320", "--batch", "2", "--dim", "64", "--layers", "2"];
    let trouble = ["--slow-rank", "1", "--slow-phase", "input", "--slow-ms", "30"];
    let (code, printed, complaints) = Job::start(&[&start[..], &job, &trouble].concat())?.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    let report = report(data.path(), "latest")?;
    let verdicts = report["verdicts"].as_array().context("no verdicts")?;
    let slow =
        verdicts.iter().find(|verdict| verdict["culprit"]["rank"] == 1).context("rank 1 is not named")?;
    // The trouble of slow input is work in this function.
    let found = slow["evidence"][0].as_str().unwrap_or_default();
    let share = found.strip_prefix("its main thread was in examples::trouble::Trouble::input in ");
    let share: f64 =
        share.and_then(|text| text.split(' ').next()).with_context(|| format!("{slow:#}"))?.parse()?;
    // Of steps of about 40 ms, 30 ms are planted. Samples that keep step with the job would all be of the same place.
    ensure!((50.0..95.0).contains(&share), "{slow:#}");
    Ok(())
}
