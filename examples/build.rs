//! Concatenates the sources of the example jobs' own crates into one text for them to train on.
#![allow(clippy::print_stdout, reason = "a build script passes instructions to cargo on standard output")]

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let variable = |name: &str| env::var(name).map(PathBuf::from).map_err(io::Error::other);
    let workspace = variable("CARGO_MANIFEST_DIR")?.join("..");
    let mut text = Vec::new();
    for crate_name in ["wire", "agent", "reducer", "examples"] {
        let sources = workspace.join(crate_name).join("src");
        println!("cargo::rerun-if-changed={}", sources.display());
        collect(&sources, &mut text)?;
    }
    fs::write(variable("OUT_DIR")?.join("corpus.txt"), text)
}

fn collect(directory: &Path, text: &mut Vec<u8>) -> io::Result<()> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, text)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            // Almost all source text is ASCII. The few other characters would only enlarge the vocabulary.
            text.extend(fs::read(&path)?.into_iter().filter(u8::is_ascii));
        }
    }
    Ok(())
}
