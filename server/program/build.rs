//! Embeds the dashboard that `cargo xtask web` leaves in `target/dist`. Without it the server still builds, and its
//! pages name the missing command.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let manifest = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let dist = manifest.join("../../target/dist");
    // Cargo watches a folder's files only if the folder exists.
    fs::create_dir_all(&dist).expect("target is writable");
    println!("cargo::rerun-if-changed={}", dist.display());
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut files = Vec::new();
    list(&dist, &mut files);
    files.sort();
    let mut code = String::from("static ASSETS: &[Asset] = &[\n");
    for file in files.iter().filter(|file| !is_compressed(file)) {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&dist).expect("dist contains it").to_string_lossy().replace('\\', "/");
        let sibling = |extension: &str| {
            let path = PathBuf::from(format!("{}.{extension}", file.display()));
            embed(&path, &out).map_or_else(|| "None".into(), |bytes| format!("Some({bytes})"))
        };
        let Some(plain) = embed(file, &out) else { continue };
        let (br, gz) = (sibling("br"), sibling("gz"));
        writeln!(code, "    Asset {{ path: {name:?}, plain: {plain}, br: {br}, gz: {gz} }},")
            .expect("writing to a string cannot fail");
    }
    code.push_str("];\n");
    fs::write(out.join("assets.rs"), code).expect("OUT_DIR is writable");
}

/// Returns an expression for a file's bytes. The file is copied first: a later `cargo xtask web` removes files, and
/// cargo may rebuild this crate before it runs this script again. `None` if the file is gone: `cargo xtask web` may run at
/// the same time, and then cargo runs this script again at the next build.
fn embed(file: &Path, out: &Path) -> Option<String> {
    let copy = out.join(file.file_name()?);
    fs::copy(file, &copy).ok()?;
    Some(format!("include_bytes!({copy:?})"))
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { list(&path, files) } else { files.push(path) }
    }
}

fn is_compressed(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "br" || extension == "gz")
}
