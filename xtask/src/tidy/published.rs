//! The command in CONTRIBUTING.md that publishes the crates: it names all of them, each behind those that it needs.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Context as _;
use serde_json::Value;

use crate::system::{cargo_metadata, root};

/// Returns what is wrong with the command.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md"))?;
    let command = text.split_once("`cargo publish ").and_then(|(_, rest)| rest.split_once('`'));
    let (command, _) = command.context("CONTRIBUTING.md has no `cargo publish ...`")?;
    let named: Vec<&str> = command.split_whitespace().filter(|word| *word != "-p").collect();
    let metadata = cargo_metadata()?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    // A list of registries would stand for `publish = true` with limits; an empty one for `false`.
    let published: Vec<&Value> = packages.iter().filter(|package| package["publish"].is_null()).collect();
    let names: BTreeSet<&str> = published.iter().filter_map(|package| package["name"].as_str()).collect();
    let place = |name: &str| named.iter().position(|known| *known == name);
    let mut broken = Vec::new();
    let superfluous = named.iter().filter(|name| !names.contains(*name));
    broken.extend(
        superfluous.map(|name| format!("CONTRIBUTING.md publishes {name}, which has no publish = true")),
    );
    for package in published {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(own) = place(name) else {
            broken.push(format!("CONTRIBUTING.md does not publish {name}"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let needed = dependencies.filter(|dependency| dependency["kind"].is_null());
        let needed = needed.filter_map(|dependency| dependency["name"].as_str());
        let late = needed.filter(|needed| place(needed).is_some_and(|needed| needed > own));
        broken.extend(
            late.map(|needed| format!("CONTRIBUTING.md publishes {name} before {needed}, which it needs")),
        );
    }
    Ok(broken)
}
