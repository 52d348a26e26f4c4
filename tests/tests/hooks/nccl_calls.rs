//! Tests of the library in front of NCCL's functions (LD_PRELOAD), in a job with an NCCL without a profiler interface,
//! on the fake GPU in real time. The measured times of collectives are those that the fake GPU gives them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use serde_json::Value;
use testkit::fake_gpu;
use testkit::fetch;
use testkit::programs::{program, report};

const LIBRARIES: [&str; 2] = ["libcuda.so.1", "libnccl.so.2"];

/// Returns the time of a collective on the fake GPU: 20 us plus 1 ns per five bytes.
fn collective_nanos(floats: f64) -> f64 {
    20_000.0 + floats * 4.0 / 5.0
}

/// Runs the job under `paceline run --attach`. Returns its report and its output.
fn observed(release: &str, more: &[&str]) -> anyhow::Result<(Value, String)> {
    let (libraries, data) = (fake_gpu::installed_as(&LIBRARIES)?, tempfile::tempdir()?);
    let output = Command::new(program("paceline"))
        .args(["run", "--attach", "-n", "1", "--data"])
        .arg(data.path())
        .arg("--")
        .arg(program("old_nccl_job"))
        .args(["--steps", "300"])
        .args(more)
        .env("LD_LIBRARY_PATH", libraries.path())
        .env("FAKEGPU_REAL_TIME", "1")
        .env("FAKEGPU_NCCL_VERSION", release)
        .env_remove("PACELINE_SERVER")
        .output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    Ok((report(data.path(), "latest")?, printed))
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

#[test]
fn an_nccl_without_a_profiler_interface_is_timed_with_events_around_its_calls() -> anyhow::Result<()> {
    let (report, printed) = observed("22005", &[])?;
    ensure!(
        printed.contains("by CUDA events around its calls (LD_PRELOAD): it has no profiler"),
        "{printed}"
    );
    let buckets = report["buckets"].as_array().map_or(0, Vec::len);
    ensure!(buckets == 2, "{buckets} buckets: {report}");
    // This job has no forward pass, so no pause shows where a step begins, and the smallest collective comes first.
    for (at, floats) in [(0, f64::from(1 << 18)), (1, f64::from(1 << 20))] {
        let bytes = number(&report, &format!("/buckets/{at}/bytes"));
        ensure!(bytes == 4.0 * floats, "bucket {at}: {bytes} bytes");
        // A single rank has no wait. Differences of 32-bit floats of milliseconds are off by some ten nanoseconds.
        let found = number(&report, &format!("/buckets/{at}/transfer_nanos/median"));
        let true_nanos = collective_nanos(floats);
        ensure!((found - true_nanos).abs() < 200.0, "bucket {at}: found {found}, expected {true_nanos}");
    }
    // 9 ms of backward, and then the second bucket.
    let step = number(&report, "/local_step_time_nanos/median") / 1e6;
    ensure!((9.2..11.5).contains(&step), "a step of {step} ms");
    ensure!(report["steps"].as_u64() > Some(100), "{} steps", report["steps"]);
    Ok(())
}

#[test]
fn calls_in_a_group_have_the_time_of_the_group() -> anyhow::Result<()> {
    let (report, _) = observed("22403", &["--grouped"])?;
    let both = collective_nanos(f64::from(1 << 20)) + collective_nanos(f64::from(1 << 18));
    for at in 0..2 {
        let found = number(&report, &format!("/buckets/{at}/transfer_nanos/median"));
        ensure!((found - both).abs() < 200.0, "bucket {at}: {found}, not {both}: {}", report["buckets"]);
    }
    Ok(())
}

#[test]
fn the_phases_of_a_device_are_timed_by_events() -> anyhow::Result<()> {
    let (report, _) = observed("22005", &["--phases"])?;
    let steps = number(&report, "/steps");
    ensure!(steps > 100.0, "{steps} steps");
    // The update of a step runs after its last collective, in the next step.
    for (phase, millis) in [("forward", 2.0), ("backward", 9.0), ("optimizer", 1.0)] {
        let found = number(&report, &format!("/ledger/0/{phase}_nanos")) / steps / 1e6;
        ensure!((found - millis).abs() < 0.2, "{phase}: {found} ms, not {millis}: {}", report["ledger"]);
    }
    // The first collective is hidden by the second part of the backward pass, and the second one is not.
    let (all, hidden) = (collective_nanos(f64::from(1 << 20)) + collective_nanos(f64::from(1 << 18)), 0.797);
    let exposed = number(&report, "/ledger/0/exposed_transfer_nanos") / steps;
    ensure!((exposed / all - (1.0 - hidden)).abs() < 0.05, "{exposed} ns of {all} are exposed");
    ensure!(testkit::programs::gap(&report, "phases").is_none(), "{}", report["gaps"]);
    Ok(())
}

/// Observes half of a job: the other stage of the pipeline is not observed.
#[test]
fn messages_of_a_pipeline_stage_are_timed() -> anyhow::Result<()> {
    let (report, _) = observed("22005", &["--stages", "--steps", "600"])?;
    let (sent, received) = (f64::from(1 << 20), f64::from(1 << 18));
    let buckets = report["buckets"].as_array().cloned().unwrap_or_default();
    let transfer_nanos = |function: &str, floats: f64| -> anyhow::Result<f64> {
        let is_it =
            |bucket: &&Value| bucket["function"] == function && number(bucket, "/bytes") == 4.0 * floats;
        let found = buckets.iter().find(is_it);
        Ok(number(
            found.ok_or_else(|| anyhow::anyhow!("no {function} of {floats}: {report}"))?,
            "/transfer_nanos/median",
        ))
    };
    // The other stage is waiting already, so the message takes only its transfer time.
    let found = transfer_nanos("send_receive", sent)?;
    ensure!((found - collective_nanos(sent)).abs() < 200.0, "{found}, not {}", collective_nanos(sent));
    // The other stage computes for 3 ms, beginning when it has received the message.
    let found = transfer_nanos("send_receive", received)? - 3e6;
    let least = collective_nanos(received);
    ensure!((least - 200.0..least + 300_000.0).contains(&found), "found {found} and 3 ms, expected {least}");
    let found = transfer_nanos("all_reduce", received)?;
    ensure!((least - 200.0..least + 100_000.0).contains(&found), "found {found}, expected {least}");
    // 6 ms of compute without the wait.
    let computed = number(&report, "/ledger/0/backward_nanos") / number(&report, "/steps") / 1e6;
    ensure!((5.9..7.0).contains(&computed), "{computed} ms of compute: {}", report["ledger"]);
    Ok(())
}

#[test]
fn a_release_with_a_profiler_interface_is_not_timed_by_calls() -> anyhow::Result<()> {
    let (libraries, library) = (fake_gpu::installed_as(&LIBRARIES)?, program("libpaceline_attach.so"));
    let job = |variables: &[(&str, &str)]| {
        Command::new(program("old_nccl_job"))
            .args(["--steps", "20"])
            .env("LD_PRELOAD", &library)
            .env("LD_LIBRARY_PATH", libraries.path())
            .env("FAKEGPU_REAL_TIME", "1")
            .envs(variables.iter().copied())
            .output()
    };
    let server = [
        ("PACELINE_SERVER", "http://127.0.0.1:9"),
        ("PACELINE_RUN_ID", "r"),
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
    ];
    // In the first job, NCCL 2.28.9 uses a profiler instead of this library. In the second job there is no server.
    // Neither is observed, and neither prints an error.
    for variables in [&server[..], &[("FAKEGPU_NCCL_VERSION", "22005")]] {
        let output = job(variables)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success() && said.is_empty(), "{said}");
        ensure!(String::from_utf8_lossy(&output.stdout).contains("20 steps"), "it lacks steps");
    }
    Ok(())
}

#[test]
fn a_program_without_nccl_is_not_affected_by_the_preloaded_library() -> anyhow::Result<()> {
    let output = Command::new("sh")
        .args(["-c", "echo untouched"])
        .env("LD_PRELOAD", program("libpaceline_attach.so"))
        .output()?;
    ensure!(output.status.success() && output.stdout == b"untouched\n" && output.stderr.is_empty());
    Ok(())
}

/// Compiles C into a library if the name contains `.so`, otherwise into a program.
fn compiled(folder: &Path, name: &str, source: &str) -> anyhow::Result<PathBuf> {
    let (file, to) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&file, source)?;
    let shared: &[&str] = if name.contains(".so") { &["-shared", "-fPIC"] } else { &["-ldl"] };
    let (source, target) = (file.to_string_lossy(), to.to_string_lossy());
    let arguments = [&["-o", &target, &source], shared].concat();
    fetch::succeed(Path::new("cc"), &arguments).map_err(anyhow::Error::msg)?;
    Ok(to)
}

/// Tests a job built like PyTorch's packages: NCCL is part of the library that calls it, and Python loads that library
/// for itself only. The calls must reach its own NCCL, even if the process has another one.
#[test]
fn a_library_that_contains_nccl_calls_its_own_nccl() -> anyhow::Result<()> {
    const ALL_REDUCE: &str = "int ncclAllReduce(const void *from, void *to, unsigned long count, int type, int op, \
                              void *comm, void *stream)";
    let folder = tempfile::tempdir()?;
    let another = compiled(folder.path(), "libnccl.so.2", &format!("{ALL_REDUCE} {{ return 9; }}\n"))?;
    let job = "int job(void) { return ncclAllReduce(0, 0, 1, 7, 0, 0, 0); }";
    let own = compiled(folder.path(), "libjob.so", &format!("{ALL_REDUCE} {{ return 42; }}\n{job}\n"))?;
    let program_of_job = compiled(
        folder.path(),
        "job",
        "#include <dlfcn.h>\n#include <stdio.h>\n\
         int main(int count, char **words) {\n\
         void *library = 0;\n\
         for (int at = 1; at < count; at++) library = dlopen(words[at], RTLD_NOW | RTLD_LOCAL);\n\
         int (*job)(void) = (int (*)(void))dlsym(library, \"job\");\n\
         printf(\"%d\\n\", job());\nreturn 0;\n}\n",
    )?;
    for libraries in [vec![&own], vec![&another, &own]] {
        let output = Command::new(&program_of_job)
            .args(&libraries)
            .env("LD_PRELOAD", program("libpaceline_attach.so"))
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(said == "42\n", "{libraries:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
