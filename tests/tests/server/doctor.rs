//! Tests of `paceline doctor` on machines that lack something: every missing part has a reason, typed for programs and
//! in a sentence for users. None of the tests needs a GPU.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::programs::program;
use testkit::{fetch, nvidia};

/// Runs doctor in an environment of only `variables`, and returns its output.
fn doctor(variables: &[(&str, &OsStr)], arguments: &[&str]) -> anyhow::Result<String> {
    let nowhere = tempfile::tempdir()?;
    let output = Command::new(program("paceline"))
        .arg("doctor")
        .args(arguments)
        .env_clear()
        .env("HOME", nowhere.path())
        .envs(variables.iter().copied())
        .output()?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && complaints.is_empty(), "{:?}: {complaints}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

fn found(variables: &[(&str, &OsStr)]) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&doctor(variables, &["--json"])?)?)
}

fn sentence(part: &Value) -> &str {
    part["sentence"].as_str().unwrap_or_default()
}

#[test]
fn without_libraries_each_part_names_what_was_searched() -> anyhow::Result<()> {
    let found = found(&[])?;
    if found["driver"]["status"] == "present" || found["driver"]["problem"] != "not_found" {
        fetch::skip("doctor without a driver", "this machine has one");
        return Ok(());
    }
    for part in ["driver", "nccl", "cupti"] {
        assert_eq!(found[part]["reason"], "library", "{found}");
        assert_eq!(found[part]["problem"], "not_found", "{found}");
    }
    assert_eq!(found["nvml"]["reason"], "not_found", "{found}");
    assert!(sentence(&found["nccl"]).contains("libnccl.so.2"), "{found}");
    assert!(sentence(&found["nccl"]).contains("PACELINE_NCCL"), "the sentence has no fix: {found}");
    let text = doctor(&[], &[])?;
    assert!(text.contains("driver    missing: the NVIDIA driver (libcuda) is not on this machine"), "{text}");
    Ok(())
}

#[test]
fn a_driver_library_without_a_device_is_distinguished_from_a_missing_library() -> anyhow::Result<()> {
    let Some(driver) = nvidia::driver()? else { return Ok(()) };
    let found = found(&[("LD_LIBRARY_PATH", driver.as_os_str())])?;
    if found["driver"]["status"] == "present" {
        fetch::skip("doctor without a device", "this machine has one");
        return Ok(());
    }
    assert_eq!(found["driver"]["reason"], "no_device", "{found}");
    assert!(sentence(&found["driver"]).contains("CUDA_VISIBLE_DEVICES"), "{found}");
    assert_eq!(found["nvml"]["reason"], "no_kernel_module", "{found}");
    Ok(())
}

#[test]
fn a_broken_library_that_is_named_is_reported() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let garbage = folder.path().join("libnccl.so.2");
    std::fs::write(&garbage, "no library")?;
    let broken = found(&[("PACELINE_NCCL", garbage.as_os_str())])?;
    assert_eq!(broken["nccl"]["problem"], "not_loadable", "{broken}");
    assert!(sentence(&broken["nccl"]).contains(&*garbage.to_string_lossy()), "{broken}");
    let other = found(&[("PACELINE_NCCL", OsStr::new("libm.so.6"))])?;
    assert_eq!(other["nccl"]["problem"], "incomplete", "{other}");
    assert_eq!(other["nccl"]["function"], "ncclGetVersion", "{other}");
    Ok(())
}

#[test]
fn cupti_is_found_in_python_packages_and_has_the_hosts_clock() -> anyhow::Result<()> {
    let Some(driver) = nvidia::driver()? else { return Ok(()) };
    for (package, version) in [("nvidia-cuda-cupti-cu12", "12.8.90"), ("nvidia-cuda-cupti", "13.3.75")] {
        let Some(wheel) = nvidia::wheel(package, version)? else { return Ok(()) };
        let packages = ("PYTHONPATH", wheel.as_os_str());
        let found = found(&[packages, ("LD_LIBRARY_PATH", driver.as_os_str())])?;
        assert_eq!(found["cupti"]["status"], "present", "{found}");
        assert_eq!(found["cupti"]["origin"], "python_packages", "{found}");
        assert_eq!(found["cupti"]["is_realtime"], true, "{found}");
        let path = found["cupti"]["path"].as_str().context("no path")?;
        assert!(Path::new(path).starts_with(&wheel), "{found}");
    }
    Ok(())
}

#[test]
fn the_python_environment_that_is_first_on_the_path_is_searched() -> anyhow::Result<()> {
    let Some(wheel) = nvidia::wheel("nvidia-nccl-cu13", "2.28.9")? else { return Ok(()) };
    let environment = tempfile::tempdir()?;
    let (programs, python) = (environment.path().join("bin"), environment.path().join("lib/python3.12"));
    std::fs::create_dir_all(&programs)?;
    std::fs::create_dir_all(&python)?;
    std::fs::write(programs.join("python3"), "")?;
    std::os::unix::fs::symlink(&wheel, python.join("site-packages"))?;
    let found = found(&[("PATH", programs.as_os_str())])?;
    assert_eq!(found["nccl"]["origin"], "python_packages", "{found}");
    let path = found["nccl"]["path"].as_str().context("no path")?;
    assert!(Path::new(path).starts_with(&wheel), "not the library that the environment links to: {found}");
    Ok(())
}

#[test]
fn cupti_without_a_driver_needs_the_driver() -> anyhow::Result<()> {
    let Some(wheel) = nvidia::wheel("nvidia-cuda-cupti", "13.3.75")? else { return Ok(()) };
    let found = found(&[("PYTHONPATH", wheel.as_os_str())])?;
    if found["driver"]["problem"] != "not_found" {
        fetch::skip("CUPTI without a driver", "this machine has one");
        return Ok(());
    }
    assert_eq!(found["cupti"]["reason"], "needs_driver", "{found}");
    Ok(())
}

#[test]
fn the_profiler_interface_depends_on_the_release_of_nccl() -> anyhow::Result<()> {
    let releases = [
        ("nvidia-nccl-cu12", "2.20.5", Value::Null, false),
        ("nvidia-nccl-cu13", "2.28.9", Value::from(5), true),
    ];
    for (package, release, interface, gpu_times) in releases {
        let Some(wheel) = nvidia::wheel(package, release)? else { return Ok(()) };
        let found = found(&[("PYTHONPATH", wheel.as_os_str())])?;
        let nccl = &found["nccl"];
        let version = ["major", "minor", "patch"].map(|part| nccl["version"][part].to_string()).join(".");
        assert_eq!(
            (version.as_str(), &nccl["origin"]),
            (release, &Value::from("python_packages")),
            "{found}"
        );
        assert_eq!(
            (&nccl["profiler_api"], &nccl["gpu_times"]),
            (&interface, &Value::from(gpu_times)),
            "{found}"
        );
    }
    Ok(())
}

#[test]
fn a_tool_that_already_observes_is_named() -> anyhow::Result<()> {
    let injected = found(&[("NVTX_INJECTION64_PATH", OsStr::new("/opt/nsight/libToolsInjection64.so"))])?;
    let holders = injected["holders"].as_array().context("no list")?;
    let named =
        |holder: &Value| holder["what"].as_str().unwrap_or_default().contains("libToolsInjection64.so");
    assert!(holders.iter().any(named), "{injected}");
    Ok(())
}
