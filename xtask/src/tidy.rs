//! `cargo xtask tidy`: rules of this repository that the compiler does not check.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::system::{cargo_metadata, root};

mod circles;
mod published;
mod texts;

/// The crates that each crate may import (ARCHITECTURE.md). No crate imports `tests`, `benches` or `accept`. The fuzzer
/// imports no other member, so that the tests of every crate can use it.
const MAY_IMPORT: [(&str, &[&str]); 26] = [
    ("paceline-fuzz", &[]),
    ("paceline-wire", &["paceline-fuzz"]),
    ("paceline-background", &[]),
    ("paceline-agent", &["paceline-fuzz", "paceline-wire"]),
    ("paceline-stacks", &["paceline-agent", "paceline-background", "paceline-wire"]),
    (
        "paceline-reducer",
        &[
            "paceline-agent",
            "paceline-background",
            "paceline-fuzz",
            "paceline-gpu",
            "paceline-stacks",
            "paceline-timing",
            "paceline-wire",
        ],
    ),
    ("paceline-units", &[]),
    ("paceline-timing", &["paceline-wire"]),
    ("paceline-analysis", &["paceline-timing", "paceline-units", "paceline-wire"]),
    ("paceline-import", &["paceline-fuzz", "paceline-timing", "paceline-wire"]),
    ("paceline-fakegpu", &[]),
    ("paceline-gpu", &["paceline-background", "paceline-timing", "paceline-wire"]),
    (
        "paceline-attach",
        &[
            "paceline-agent",
            "paceline-background",
            "paceline-fuzz",
            "paceline-gpu",
            "paceline-stacks",
            "paceline-wire",
        ],
    ),
    ("paceline", &["paceline-server"]),
    (
        "paceline-server",
        &[
            "paceline-agent",
            "paceline-analysis",
            "paceline-background",
            "paceline-fuzz",
            "paceline-gpu",
            "paceline-import",
            "paceline-timing",
            "paceline-units",
            "paceline-wire",
        ],
    ),
    ("paceline-python", &[]),
    ("paceline-viz", &["paceline-fuzz", "paceline-units", "paceline-wire"]),
    ("paceline-model", &["paceline-analysis", "paceline-viz", "paceline-units", "paceline-wire"]),
    (
        "paceline-web",
        &["paceline-model", "paceline-viz", "paceline-analysis", "paceline-units", "paceline-wire"],
    ),
    ("paceline-examples", &["paceline-agent", "paceline-reducer", "paceline-wire"]),
    (
        "paceline-testkit",
        &[
            "paceline-agent",
            "paceline-analysis",
            "paceline-gpu",
            "paceline-server",
            "paceline-reducer",
            "paceline-wire",
        ],
    ),
    (
        "paceline-benches",
        &[
            "paceline-server",
            "paceline-analysis",
            "paceline-background",
            "paceline-stacks",
            "paceline-testkit",
            "paceline-timing",
            "paceline-wire",
        ],
    ),
    (
        "paceline-accept",
        &[
            "paceline-agent",
            "paceline-gpu",
            "paceline-reducer",
            "paceline-testkit",
            "paceline-timing",
            "paceline-wire",
        ],
    ),
    (
        "paceline-tests",
        &[
            "paceline-testkit",
            "paceline-wire",
            "paceline-fuzz",
            "paceline-agent",
            "paceline-reducer",
            "paceline-analysis",
            "paceline-gpu",
            "paceline-timing",
            "paceline-attach",
            "paceline-server",
            "paceline-import",
            "paceline-examples",
            "paceline-units",
        ],
    ),
    ("xtask", &[]),
    ("paceline-wasm-runner", &[]),
];

/// The largest number of lines in a file. A longer file usually has two subjects.
const MAX_LINES: usize = 700;

/// Checks all rules. The error lists every violation.
pub fn run() -> anyhow::Result<()> {
    let files = tracked_files()?;
    let mut broken = directions()?;
    broken.extend(sources(&files)?);
    broken.extend(goldens(&files)?);
    broken.extend(circles::check(&files)?);
    broken.extend(texts::check(&files)?);
    broken.extend(published::check()?);
    ensure!(broken.is_empty(), "{} violations:\n  {}", broken.len(), broken.join("\n  "));
    eprintln!("   tidy: {} files follow the rules", files.len());
    Ok(())
}

/// Returns the files of the repository, relative to its root: tracked, or new and not ignored.
fn tracked_files() -> anyhow::Result<Vec<PathBuf>> {
    let listing = Command::new("git")
        .current_dir(root())
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("cannot run git")?;
    ensure!(listing.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&listing.stderr));
    let names = String::from_utf8(listing.stdout)?;
    Ok(names.lines().map(PathBuf::from).filter(|path| root().join(path).is_file()).collect())
}

/// Checks that dependencies between members point one way. Development dependencies count too, because tests are code.
fn directions() -> anyhow::Result<Vec<String>> {
    let metadata = cargo_metadata()?;
    let allowed: BTreeMap<&str, &[&str]> = MAY_IMPORT.into_iter().collect();
    let mut broken = Vec::new();
    for package in metadata["packages"].as_array().context("cargo metadata lists no packages")? {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may) = allowed.get(name) else {
            broken.push(format!("{name} is missing from the table MAY_IMPORT in xtask/src/tidy.rs"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let own = dependencies
            .filter_map(|dependency| dependency["name"].as_str())
            .filter(|dependency| allowed.contains_key(dependency));
        broken.extend(
            own.filter(|dependency| !may.contains(dependency))
                .map(|dependency| format!("{name} imports {dependency}, which MAY_IMPORT does not allow")),
        );
    }
    Ok(broken)
}

/// Checks the rules for source files.
fn sources(files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let text = fs::read_to_string(root().join(path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut complain = |what: &str| broken.push(format!("{}: {what}", path.display()));
        if !text.starts_with("//!") {
            complain("has no module doc: begin it with a //! line");
        }
        if path.file_name().is_some_and(|name| name == "mod.rs") {
            complain("is a mod.rs: name it after its module (foo.rs next to foo/)");
        }
        if text.lines().count() > MAX_LINES {
            complain("is longer than 700 lines: split it by subject");
        }
        if is_program(path) && text.contains(concat!("#[", "test]")) {
            complain("is a program with tests, which are not run: move the tested code to a library");
        }
        // Split in two, so that this file does not violate the rule.
        for marker in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
            if text.contains(marker) {
                complain(&format!("has a leftover {marker}"));
            }
        }
    }
    Ok(broken)
}

/// Returns true for sources of programs. `xtask` has no library either.
fn is_program(path: &Path) -> bool {
    path.starts_with("xtask") || path.ends_with("src/main.rs") || path.iter().any(|folder| folder == "bin")
}

/// Checks that a source names every golden file. No test reads a golden file without a name in a source.
fn goldens(files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let is_golden = |path: &&PathBuf| {
        path.to_string_lossy().contains("golden")
            && path.extension().is_none_or(|extension| extension != "rs")
    };
    let mut sources = String::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        sources.push_str(&fs::read_to_string(root().join(path))?);
    }
    let named = |path: &Path| path.file_name().is_some_and(|name| sources.contains(&*name.to_string_lossy()));
    let orphans = files.iter().filter(is_golden).filter(|path| !named(path));
    Ok(orphans.map(|path| format!("{}: no source names this golden file", path.display())).collect())
}
