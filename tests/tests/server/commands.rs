//! Tests of the commands that use runs on disk, or start a job several times: compare, check, plan, scale, sweep.

use std::path::Path;

use anyhow::{Context as _, ensure};
use testkit::programs::{Job, paceline, report};
use testkit::simulator::{Plan, Simulation};
use testkit::stored;
use wire::views::{Figure, MemoryGrowth, MemoryKind, Missing};

/// Runs `paceline ARGUMENTS`. Returns the exit code, the standard output and the standard error.
fn said(arguments: &[&str]) -> anyhow::Result<(i32, String, String)> {
    let output = paceline(arguments)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
}

fn train(data: &Path, more: &[&str]) -> anyhow::Result<String> {
    let data_text = data.to_string_lossy();
    let mut arguments = vec!["-n", "2", "--data", &data_text, "--", "char_lm", "--steps", "60"];
    arguments.extend(more);
    let (code, printed, complaints) = Job::start(&arguments)?.finish()?;
    ensure!(code == 0, "{printed}{complaints}");
    Ok(report(data, "latest")?["run"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_slower_run_fails_the_check() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy().into_owned();
    // A step takes three times as long, which is clear even on a busy machine.
    let healthy = train(data.path(), &[])?;
    let slow = train(data.path(), &["--slow-rank", "1", "--slow-phase", "input", "--slow-ms", "100"])?;

    let (code, printed, _) = said(&["compare", &healthy, &slow, "--data", &data_text])?;
    assert_eq!(code, 0);
    assert!(printed.starts_with(&format!("A step of {slow} takes")), "{printed}");
    assert!(printed.contains("% longer than a step of"), "{printed}");
    assert!(printed.contains("New verdicts:\n  Rank 1 waits for its input"), "{printed}");

    // The baseline of a CI job is a file.
    let baseline = data.path().join("baseline.json");
    std::fs::write(&baseline, serde_json::to_vec(&report(data.path(), &healthy)?)?)?;
    let baseline = baseline.to_string_lossy();
    let check = |run: &str, limit: &str| {
        said(&["check", run, "--against", &baseline, "--max-step-time", limit, "--data", &data_text])
    };
    let (code, printed, _) = check(&slow, "+20%")?;
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("step time, median") && printed.contains("FAILED"), "{printed}");
    let (code, printed, _) = check(&healthy, "+20%")?;
    assert_eq!(code, 0, "{printed}");
    let (code, printed, _) = check(&healthy, "1us")?;
    assert_eq!(code, 1, "{printed}");

    let new =
        |run: &str| said(&["check", run, "--against", &baseline, "--no-new-verdicts", "--data", &data_text]);
    let (code, printed, _) = new(&slow)?;
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("\n  Rank 1 waits for its input"), "it says which verdict is new: {printed}");
    let mut grows = report(data.path(), &healthy)?;
    grows["memory"] = serde_json::json!([growth()?]);
    let grown = data.path().join("grown.json");
    std::fs::write(&grown, serde_json::to_vec(&grows)?)?;
    let (code, printed, _) = new(&grown.to_string_lossy())?;
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("\n  The memory of rank 0 grows all along."), "{printed}");
    Ok(())
}

/// Memory that grows, as in a report.
fn growth() -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::to_value(MemoryGrowth {
        kind: MemoryKind::Host,
        ranks: vec![0],
        first_rank: 0,
        from_bytes: 1 << 30,
        to_bytes: 2 << 30,
        over_seconds: 60.0,
        bytes_per_second: 1e7,
        left_bytes: Figure::Known(1 << 30),
        time_left: Missing::NoMemoryLimit.into(),
        is_urgent: true,
        sentence: "The memory of rank 0 grows all along.".into(),
        advice: String::new(),
    })?)
}

#[test]
fn a_job_that_fails_before_it_sends_records_is_told_to_look_at_its_own_output() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy().into_owned();
    let (code, printed, _) = said(&["run", "--data", &data_text, "--", "sh", "-c", "exit 3"])?;
    assert_eq!(code, 3, "{printed}");
    assert!(printed.contains("The job failed before it sent any records"), "{printed}");
    assert!(!printed.contains("Stored in"), "nothing was stored: {printed}");
    Ok(())
}

#[test]
fn a_check_without_usable_input_exits_with_2() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let data_text = data.path().to_string_lossy().into_owned();
    let wrong = data.path().join("wrong.json");
    std::fs::write(&wrong, "{}")?;
    let wrong = wrong.to_string_lossy();
    for (baseline, complaint) in
        [(&*wrong, "is not a report of this version"), ("unknown", "there is no run \"unknown\"")]
    {
        let (code, _, complained) =
            said(&["check", &wrong, "--against", baseline, "--max-step-time", "+3%", "--data", &data_text])?;
        assert_eq!(code, 2, "{complained}");
        assert!(complained.contains(complaint), "{complained}");
    }
    let (code, _, complained) = said(&["check", "--against", "x.json", "--max-step-time", "fast"])?;
    assert_eq!(code, 2);
    assert!(complained.contains("+3%"), "the error has no example of a limit: {complained}");
    Ok(())
}

#[test]
fn a_plan_matches_known_durations() -> anyhow::Result<()> {
    let known = ["--params", "7e9", "--tokens", "1e12", "--peak", "1e15", "--mfu", "0.4"];
    let (code, printed, _) = said(&[&["plan"], &known[..], &["--ranks", "8,64,256,1024"]].concat())?;
    assert_eq!(code, 0);
    for days in ["169.10", "25.07", "7.79", "2.71"] {
        assert!(printed.contains(days), "{days} is not in:\n{printed}");
    }
    let memory =
        ["--memory", "80e9", "--layers", "32", "--hidden", "4096", "--heads", "32", "--sequence", "4096"];
    let more = ["--micro-batch", "1", "--failure-hours", "50000", "--checkpoint", "30", "--restart", "300"];
    let (code, printed, complained) =
        said(&[&["plan"], &known[..], &memory, &more, &["--ranks", "64"]].concat())?;
    assert_eq!(code, 0, "{complained}");
    // 16 bytes for each of 7e9 parameters, and 34 x 4096 x 4096 x 32 bytes more; sqrt(2 x 30 s x 50,000 h / 64) less 30 s.
    for expected in ["112.0 GB too large", "20.0 GB fits", "3 h 36 min", "compute"] {
        assert!(printed.contains(expected), "{expected} is not in:\n{printed}");
    }
    let (code, _, complained) = said(&["plan", "--params", "7e9", "--peak", "1e15", "--ranks", "8"])?;
    assert_eq!((code, complained.contains("give --mfu, such as 0.4")), (1, true), "{complained}");
    let (code, _, complained) =
        said(&["plan", "--params", "0", "--tokens", "1e12", "--peak", "1e15", "--mfu", "2", "--ranks", "8"])?;
    assert_eq!(code, 2);
    assert!(complained.contains("7e9"), "{complained}");
    Ok(())
}

#[test]
fn a_plan_by_a_run_has_the_band_of_its_model() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let plan = Plan { first_bucket_bytes: 256 << 10, ..Plan::small(7) };
    stored::store(data.path(), &Simulation::run(&plan).batches)?;
    let data_text = data.path().to_string_lossy();
    let known = ["plan", "--params", "7e9", "--tokens", "1e12", "--peak", "1e15", "--mfu", "0.4"];
    let by_run = ["--run", "latest", "--data", &data_text, "--ranks", "4,1024"];
    let (code, printed, complained) = said(&[&known[..], &by_run].concat())?;
    assert_eq!(code, 0, "{complained}");
    assert!(
        printed.contains("days, band") && printed.contains("model of run simulated-7 on 4 ranks"),
        "{printed}"
    );
    let (_, printed, _) = said(&[&known[..], &by_run, &["--json"]].concat())?;
    let planned: serde_json::Value = serde_json::from_str(&printed)?;
    for row in planned["plan"].as_array().expect("there are rows") {
        let number = |value: &serde_json::Value| value.as_f64().expect("a number");
        let (low, high) = (number(&row["efficiency_range"][0]), number(&row["efficiency_range"][1]));
        assert!((low..=high).contains(&number(&row["efficiency"])) && low < high, "{row}");
        let days = |efficiency: f64| number(&row["ideal_days"]) / efficiency;
        for (at, efficiency) in [(0, high), (1, low)] {
            assert!((number(&row["days_range"][at]) / days(efficiency) - 1.0).abs() < 1e-9, "{row}");
        }
    }
    Ok(())
}

/// The efficiencies in the file are the ratios of the throughputs that the jobs themselves print.
#[test]
fn a_scaling_study_runs_every_world_size_and_measures_efficiency() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let (data_text, file) = (data.path().to_string_lossy().into_owned(), data.path().join("scale.csv"));
    let file_text = file.to_string_lossy();
    let scale = ["scale", "-n", "2,1", "--repeats", "2", "-o", &file_text, "--data", &data_text];
    let job = ["--", "char_lm", "--steps", "60", "--strong", "--batch", "8", "--dim", "64", "--layers", "2"];
    let (code, printed, complained) = said(&[&scale[..], &job].concat())?;
    assert_eq!(code, 0, "{printed}{complained}");
    assert!(printed.contains("Strong scaling: the total batch is the same."), "{printed}");
    assert!(printed.contains("(Karp and Flatt, 1990)"), "{printed}");
    let csv = std::fs::read_to_string(file)?;
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let at = |name: &str| rows[0].iter().position(|column| *column == name).expect("the column exists");
    let worlds: Vec<(&str, &str)> = rows[1..].iter().map(|row| (row[0], row[1])).collect();
    assert_eq!(worlds, [("1", "0"), ("2", "0"), ("1", "1"), ("2", "1")], "{csv}");
    let number = |row: usize, column: usize| rows[row][column].parse::<f64>().expect("a number");
    for (base, own) in [(1, 2), (3, 4)] {
        let ratio = number(own, at("samples_per_second")) / number(base, at("samples_per_second")) / 2.0;
        assert!((number(own, at("efficiency")) - ratio).abs() < 1e-5, "{csv}");
        assert!((number(base, at("efficiency")) - 1.0).abs() < 1e-9, "{csv}");
        assert_eq!(number(base, at("batch_per_rank")), 2.0 * number(own, at("batch_per_rank")), "{csv}");
        assert_eq!(rows[own][at("scaling")], "strong");
    }
    let (code, _, complained) = said(&["scale", "-n", "2", "--", "char_lm"])?;
    assert_eq!(code, 1, "{complained}");
    assert!(complained.contains("such as -n 1,2,4"), "{complained}");
    Ok(())
}

/// Sweeps the bucket caps of a job on two ranks. Returns what the sweep prints, and the rows of its CSV file.
fn swept(caps: &str, job: &[&str]) -> anyhow::Result<(String, Vec<Vec<String>>)> {
    let data = tempfile::tempdir()?;
    let (data_text, file) = (data.path().to_string_lossy().into_owned(), data.path().join("sweep.csv"));
    let file_text = file.to_string_lossy();
    let sweep = ["sweep", "--bucket-cap", caps, "-n", "2", "-o", &file_text, "--data", &data_text, "--"];
    let (code, printed, complained) = said(&[&sweep[..], job].concat())?;
    assert_eq!(code, 0, "{printed}{complained}");
    let csv = std::fs::read_to_string(file)?;
    let rows = csv.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect();
    Ok((printed, rows))
}

#[test]
fn a_sweep_runs_every_cap_and_names_the_best_one() -> anyhow::Result<()> {
    let (printed, rows) = swept("0.25,4", &["char_lm", "--steps", "60"])?;
    assert!(printed.contains(" MiB is best: "), "{printed}");
    assert!(!printed.contains("accuracy"), "the job states none: {printed}");
    assert_eq!(rows[0][..4], ["bucket_cap_mib", "run", "buckets", "seconds_per_step"]);
    assert_eq!(rows[0][4..6], ["seconds_per_step_p95", "samples_per_second"]);
    assert_eq!((rows[0][9].as_str(), rows[1][9].as_str()), ("accuracy", ""), "{rows:?}");
    let number = |column: usize| rows[1][column].parse::<f64>().expect("a number");
    assert!(number(4) > number(3) * 0.9 && number(5) > 0.0, "{rows:?}");
    let (first, second) = (&rows[1], &rows[2]);
    assert_eq!((rows.len(), &*first[0], &*second[0], &*second[2]), (3, "0.25", "4", "1"), "{rows:?}");
    let small: usize = first[2].parse()?;
    assert!(small > 1, "the cap did not reach the job: {rows:?}");
    Ok(())
}

#[test]
fn a_sweep_has_the_accuracy_that_the_job_states() -> anyhow::Result<()> {
    let (printed, rows) = swept("0.03125,4", &["digits", "--steps", "60"])?;
    // The job prints on rank 0: `held out: 250 of 359 correct, 69.6 %`.
    let held_out = printed.lines().filter_map(|line| line.split_once("held out: ")?.1.split_once(" correct"));
    let told: Vec<f64> = held_out
        .map(|(counts, _)| {
            let (right, of) = counts.split_once(" of ").context("two counts")?;
            Ok(right.parse::<f64>()? / of.parse::<f64>()?)
        })
        .collect::<anyhow::Result<_>>()?;
    let stated: Vec<f64> = rows[1..].iter().map(|row| row[9].parse()).collect::<Result<_, _>>()?;
    let is_as_told = stated.iter().zip(&told).all(|(stated, told)| (stated - told).abs() <= 0.5e-4 + 1e-9);
    assert!(stated.len() == 2 && told.len() == 2 && is_as_told, "{told:?} {stated:?} {printed}");
    let table = printed.lines().skip_while(|line| !line.contains("samples/s"));
    let last: Vec<&str> = table.take(3).filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(last, ["accuracy", &format!("{:.4}", stated[0]), &format!("{:.4}", stated[1])], "{printed}");
    Ok(())
}
