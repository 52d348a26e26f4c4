//! Computes the version of the live format: a checksum of all sources of this crate, so that a change to any type that
//! goes to the dashboard changes the version. A dashboard of another version is asked to reload.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let sources = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src");
    println!("cargo::rerun-if-changed={}", sources.display());
    let mut files = Vec::new();
    list(&sources, &mut files);
    files.sort();
    let mut checksum = crc32fast::Hasher::new();
    for file in &files {
        checksum.update(&fs::read(file).expect("a source can be read"));
    }
    let checksum = checksum.finalize();
    println!("cargo::rustc-env=PACELINE_LIVE_VERSION={}", (checksum >> 16) as u16 ^ checksum as u16);
    println!("cargo::rustc-env=PACELINE_LIVE_SOURCES={}", files.len());
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources can be listed") {
        let path = entry.expect("the sources can be listed").path();
        if path.is_dir() { list(&path, files) } else { files.push(path) }
    }
}
