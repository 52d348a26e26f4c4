//! Tests that the layouts of DDP's buckets are those that PyTorch itself tells.

use std::process::Output;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::programs::{Server, get_json, report};
use testkit::torch::Torch;

use super::pytorch::{attached, run, script, torchrun_of};

const STEPS: &str = "150";

/// What is known of a job: its layouts, its report, and what the job printed of its module.
struct Known {
    layouts: Value,
    report: Value,
    told: Value,
}

fn told(output: &Output) -> anyhow::Result<Value> {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = printed.lines().find_map(|line| Some(line.split_once("told ")?.1.to_owned()));
    Ok(serde_json::from_str(&line.with_context(|| printed.clone())?)?)
}

/// Runs the job. Its layouts are read by a server that was started after the job's own.
fn known(torch: &Torch, more: &[&str]) -> anyhow::Result<Known> {
    let data = tempfile::tempdir()?;
    let job = torchrun_of(torch, &[&[&*script("layouts.py"), STEPS], more].concat());
    let output = run(|| attached(data.path(), &job))?;
    let report = report(data.path(), "latest")?;
    let server = Server::start(data.path())?;
    let name = report["run"].as_str().context("the report names no run")?;
    let layouts = get_json(&format!("{}/api/v1/runs/{name}/layouts", server.address))?;
    Ok(Known { layouts, report, told: told(&output)? })
}

fn list<'a>(value: &'a Value, field: &str) -> Vec<&'a Value> {
    value.as_array().into_iter().flatten().map(|entry| &entry[field]).collect()
}

fn setting<'a>(report: &'a Value, name: &str) -> Option<&'a str> {
    let attributes = report["attributes"].as_array().into_iter().flatten();
    attributes.filter(|attribute| attribute["name"] == name).find_map(|attribute| attribute["value"].as_str())
}

/// Checks the layouts before and after the rebuild, and the names in the report.
fn rebuilt(torch: &Torch) -> anyhow::Result<()> {
    let Known { layouts, report, told } = known(torch, &[])?;
    let [module] = &layouts.as_array().context("no list")?[..] else { anyhow::bail!("{layouts:#}") };
    ensure!(module["class"] == "Model" && module["different"] == json!([]), "{module:#}");
    let [first, second] = &module["layouts"].as_array().context("no layouts")?[..] else {
        anyhow::bail!("{module:#}");
    };
    ensure!(first["since"] == 0 && json!(list(&first["buckets"], "bytes")) == told["first"], "{first:#}");
    ensure!(json!(list(&first["buckets"], "parameters")) == json!([told["names"]]), "{first:#}\n{told:#}");
    ensure!(second["since"] == 1 && second["generation"] == 1, "{second:#}");
    let parameters = json!(list(&second["buckets"], "parameters"));
    ensure!(
        parameters == told["rebuilt"] && list(&second["buckets"], "parameters").len() > 1,
        "{second:#}\n{told:#}"
    );
    let elements: u64 = list(&second["buckets"], "elements")
        .iter()
        .flat_map(|sizes| sizes.as_array().into_iter().flatten())
        .filter_map(Value::as_u64)
        .sum();
    ensure!(elements == 3 * (300 * 300 + 300) + 2 * 300 + 3_010, "{second:#}");
    // Each of the module's buckets is named in the report, and no other collective.
    let named: Vec<&Value> =
        list(&report["buckets"], "parameters").into_iter().filter(|named| !named.is_null()).collect();
    let first_names: Vec<&Value> = named.iter().map(|list| &list["first"][0]).collect();
    let expected: Vec<&Value> =
        told["rebuilt"].as_array().into_iter().flatten().map(|list| &list[0]).collect();
    ensure!(first_names == expected, "{:#}\n{told:#}", report["buckets"]);
    ensure!(setting(&report, "ddp bucket_cap_mb") == Some("0.5"), "{:#}", report["attributes"]);
    ensure!(setting(&report, "ddp broadcast_buffers") == Some("yes"), "{:#}", report["attributes"]);
    ensure!(setting(&report, "ddp comm_hook") == Some("none"), "{:#}", report["attributes"]);
    Ok(())
}

/// Checks that unused parameters are named. DDP does not rebuild the buckets then.
fn unused(torch: &Torch) -> anyhow::Result<()> {
    let Known { layouts, report, told } = known(torch, &["unused"])?;
    let all = layouts[0]["layouts"].as_array().context("no layouts")?;
    let [only] = &all[..] else { anyhow::bail!("{layouts:#}") };
    ensure!(json!(list(&only["buckets"], "bytes")) == told["first"], "{only:#}");
    let names: Vec<&Value> = list(&only["buckets"], "parameters")
        .into_iter()
        .flat_map(|names| names.as_array().into_iter().flatten())
        .collect();
    let unused = only["unused"].as_array().context("no unused parameters")?;
    let mut unused: Vec<&Value> =
        unused.iter().filter_map(|at| names.get(at.as_u64()? as usize).copied()).collect();
    unused.sort_by_key(|name| name.to_string());
    ensure!(json!(unused) == json!(["spare.bias", "spare.weight"]), "{only:#}");
    ensure!(told["unused"] == json!(["spare.weight", "spare.bias"]), "{told:#}");
    ensure!(setting(&report, "ddp find_unused_parameters") == Some("yes"), "{:#}", report["attributes"]);
    Ok(())
}

fn are_those_that_pytorch_tells(torch: &Torch) -> anyhow::Result<()> {
    if torch.is_installed()? {
        rebuilt(torch)?;
        unused(torch).context("with unused parameters")?;
    }
    Ok(())
}

#[test]
fn layouts_are_those_that_pytorch_tells() -> anyhow::Result<()> {
    are_those_that_pytorch_tells(&Torch::newest())
}

#[test]
fn layouts_are_those_that_an_older_release_tells() -> anyhow::Result<()> {
    Torch::old_for("layouts").map_or(Ok(()), |torch| are_those_that_pytorch_tells(&torch))
}
