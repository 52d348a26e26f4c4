//! `cargo xtask tidy`: rules of this repository that the compiler does not know. A rule that is not run decays.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::system::{cargo_metadata, root};

mod texts;

/// Who may import whom, by crate (ARCHITECTURE.md). `tests` may import anything; nothing imports it. The fuzzer imports
/// nothing of ours, so that every crate's tests may use it.
const MAY_IMPORT: [(&str, &[&str]); 16] = [
    ("paceline-fuzz", &[]),
    ("paceline-wire", &["paceline-fuzz"]),
    ("paceline-agent", &["paceline-fuzz", "paceline-wire"]),
    (
        "paceline-reducer",
        &["paceline-agent", "paceline-fuzz", "paceline-gpu", "paceline-timing", "paceline-wire"],
    ),
    ("paceline-units", &[]),
    ("paceline-timing", &["paceline-wire"]),
    ("paceline-analysis", &["paceline-timing", "paceline-units", "paceline-wire"]),
    ("paceline-fakegpu", &[]),
    ("paceline-gpu", &["paceline-timing", "paceline-wire"]),
    ("paceline-doors", &["paceline-agent", "paceline-fuzz", "paceline-gpu", "paceline-wire"]),
    (
        "paceline",
        &[
            "paceline-analysis",
            "paceline-fuzz",
            "paceline-gpu",
            "paceline-timing",
            "paceline-units",
            "paceline-wire",
        ],
    ),
    ("paceline-viz", &["paceline-fuzz", "paceline-units", "paceline-wire"]),
    ("paceline-web", &["paceline-viz", "paceline-analysis", "paceline-units", "paceline-wire"]),
    ("paceline-examples", &["paceline-agent", "paceline-reducer", "paceline-wire"]),
    (
        "paceline-tests",
        &[
            "paceline-wire",
            "paceline-fuzz",
            "paceline-agent",
            "paceline-reducer",
            "paceline-analysis",
            "paceline-gpu",
            "paceline-timing",
            "paceline-doors",
            "paceline",
            "paceline-examples",
        ],
    ),
    ("xtask", &[]),
];

/// Files longer than this have two subjects.
const MOST_LINES: usize = 700;

/// Checks all rules; the error lists every place that breaks one.
pub fn run() -> anyhow::Result<()> {
    let files = tracked_files()?;
    let mut broken = directions()?;
    broken.extend(sources(&files)?);
    broken.extend(goldens(&files)?);
    broken.extend(texts::check(&files)?);
    ensure!(broken.is_empty(), "{} rules are broken:\n  {}", broken.len(), broken.join("\n  "));
    eprintln!("   tidy: {} files keep the rules", files.len());
    Ok(())
}

/// Files of the repository, relative to its root: tracked, or new and not ignored.
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

/// Dependencies between members point one way. Those for development count too: a test is code.
fn directions() -> anyhow::Result<Vec<String>> {
    let metadata = cargo_metadata()?;
    let allowed: BTreeMap<&str, &[&str]> = MAY_IMPORT.into_iter().collect();
    let mut broken = Vec::new();
    for package in metadata["packages"].as_array().context("cargo metadata lists no packages")? {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may) = allowed.get(name) else {
            broken.push(format!("{name} is not in the table of who may import whom (xtask/src/tidy.rs)"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let own = dependencies
            .filter_map(|dependency| dependency["name"].as_str())
            .filter(|dependency| allowed.contains_key(dependency));
        broken.extend(
            own.filter(|dependency| !may.contains(dependency))
                .map(|dependency| format!("{name} imports {dependency}, which points the wrong way")),
        );
    }
    Ok(broken)
}

/// Rules for every source file.
fn sources(files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let text = fs::read_to_string(root().join(path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut complain = |what: &str| broken.push(format!("{}: {what}", path.display()));
        if !text.starts_with("//!") {
            complain("says nothing about itself: begin with a //! line");
        }
        if path.file_name().is_some_and(|name| name == "mod.rs") {
            complain("name the file after its module (foo.rs beside foo/)");
        }
        if text.lines().count() > MOST_LINES {
            complain("is longer than 700 lines: which two subjects does it have?");
        }
        if is_program(path) && text.contains(concat!("#[", "test]")) {
            complain("is a program, whose tests are not run: move what is tested to a library");
        }
        // Written apart, so that this file keeps its own rule.
        for marker in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
            if text.contains(marker) {
                complain(&format!("has a leftover {marker}"));
            }
        }
    }
    Ok(broken)
}

/// Sources of programs. `xtask` has no library either.
fn is_program(path: &Path) -> bool {
    path.starts_with("xtask") || path.ends_with("src/main.rs") || path.iter().any(|folder| folder == "bin")
}

/// A golden file that no source names is one that no test reads.
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
    Ok(orphans.map(|path| format!("{}: no test names this golden file", path.display())).collect())
}
