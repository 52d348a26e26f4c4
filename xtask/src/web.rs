//! `cargo xtask web`: builds the dashboard into `target/dist`, ready for the server to embed.
//!
//! The steps are: cargo, wasm-bindgen, content-hashed names, and a `.br` and a `.gz` file next to each asset. Neither
//! node nor trunk is needed. wasm-opt is not used because it does not reduce the compressed size. Unchanged inputs are
//! not built again. A file is rewritten only if its bytes change, so that the server is not rebuilt without need.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::hash::Hasher as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use fnv::FnvHasher;

use crate::system::cargo;

const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// The inputs of the bundle. It is rebuilt if one of them changes.
const INPUTS: [&str; 10] = [
    "web",
    "wire",
    "units",
    "timing",
    "analysis",
    "xtask/src/web.rs",
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    ".cargo",
];

/// How small the bundle is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As small as it is shipped.
    Small,
    /// As it is built soonest. A small one that is up to date will do.
    Any,
}

impl Size {
    fn profile(self) -> &'static str {
        match self {
            Self::Small => "web",
            Self::Any => "web-quick",
        }
    }

    /// Returns the quality of Brotli's compression, of 11. The best takes ten seconds.
    fn brotli_quality(self) -> i32 {
        match self {
            Self::Small => 11,
            Self::Any => 4,
        }
    }
}

/// Builds the bundle unless it is up to date.
pub fn run(size: Size) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?;
    let target = root.join("target/web");
    let dist = root.join("target/dist");
    let stamp = target.join("fingerprint");

    let inputs = fingerprint(root)?;
    let fingerprint = |size: Size| format!("{} {inputs:016x}", size.profile());
    let is_good = |old: String| old == fingerprint(Size::Small) || old == fingerprint(size);
    if dist.join("index.html").is_file() && fs::read_to_string(&stamp).is_ok_and(is_good) {
        eprintln!("web: up to date");
        return Ok(());
    }

    let began = Instant::now();
    ensure_target()?;
    let wasm = compile(&target, size)?;
    let files = assemble(root, &bind(&wasm, &target.join("bindgen"))?)?;
    publish(&files, &dist, size)?;
    fs::write(&stamp, fingerprint(size)).with_context(|| format!("cannot write {}", stamp.display()))?;
    eprintln!("web: {} in {:.0} s", dist.display(), began.elapsed().as_secs_f64());
    Ok(())
}

/// The largest total download of a browser, compressed, in bytes.
const MAX_BYTES: u64 = 735_000;

/// Returns an error if the bundle exceeds its size budget.
pub fn check_size() -> anyhow::Result<()> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target").join("dist");
    let mut bytes = 0;
    for folder in [dist.clone(), dist.join("assets")] {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|extension| extension == "br") {
                bytes += entry.metadata()?.len();
            }
        }
    }
    eprintln!("web: {bytes} bytes as brotli, budget {MAX_BYTES}");
    ensure!(
        bytes <= MAX_BYTES,
        "the dashboard exceeds its size budget; ARCHITECTURE.md describes how to keep it small"
    );
    Ok(())
}

/// Installs the wasm target with rustup if it is missing.
pub fn ensure_target() -> anyhow::Result<()> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().context("cannot run rustc")?;
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout)?.trim());
    if sysroot.join("lib/rustlib").join(WASM_TARGET).is_dir() {
        return Ok(());
    }
    eprintln!("web: installing the target {WASM_TARGET}");
    let status = Command::new("rustup").args(["target", "add", WASM_TARGET]).status().with_context(|| {
        format!("this toolchain lacks {WASM_TARGET}, and rustup cannot be run to install it")
    })?;
    ensure!(status.success(), "`rustup target add {WASM_TARGET}` failed");
    Ok(())
}

fn compile(target: &Path, size: Size) -> anyhow::Result<PathBuf> {
    eprintln!("web: compiling (the first time takes minutes)");
    let mut command = cargo();
    let build = in_profile(command.args(["build", "--lib"]), size.profile());
    let status = build.status().context("cannot run cargo")?;
    ensure!(status.success(), "the dashboard does not compile; see the errors above");
    Ok(target.join(WASM_TARGET).join(size.profile()).join("web.wasm"))
}

/// Completes a cargo command that checks or tests the dashboard, so that it uses the libraries of the quick build.
pub fn for_browser(command: &mut Command) -> &mut Command {
    in_profile(command, Size::Any.profile())
}

/// Completes a cargo command for the dashboard. Its libraries are in a target folder of their own: this build and native builds share no
/// lock and rebuild nothing of each other.
fn in_profile<'a>(command: &'a mut Command, profile: &str) -> &'a mut Command {
    command
        .args(["--package", "paceline-web", "--profile", profile, "--target", WASM_TARGET])
        .args(["--target-dir", "target/web"])
        // Flags meant for the host would break the build for the browser.
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", flags().join("\x1f"))
}

/// Returns compiler flags for two purposes. leptos's `erase_components` gives all views one type, which reduces the
/// download by a twentieth. Remapped paths make the source files in panic messages relative to the registry and the
/// repository, so that the bundle is the same on every machine.
fn flags() -> Vec<String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo")));
    let registry = home.map(|home| home.join("registry/src"));
    let indices = registry.and_then(|registry| fs::read_dir(registry).ok()).into_iter().flatten().flatten();
    let remapped = indices.map(|index| format!("--remap-path-prefix={}=", index.path().display()));
    ["--cfg", "erase_components"].map(str::to_owned).into_iter().chain(remapped).collect()
}

/// The output of wasm-bindgen: the module and its JavaScript glue.
struct Bound {
    wasm: Vec<u8>,
    js: String,
}

fn bind(wasm: &Path, work: &Path) -> anyhow::Result<Bound> {
    eprintln!("web: binding");
    if work.exists() {
        fs::remove_dir_all(work)?;
    }
    wasm_bindgen_cli_support::Bindgen::new()
        .input_path(wasm)
        .web(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .out_name("app")
        .generate(work)
        .context("wasm-bindgen failed")?;
    let snippets = work.join("snippets");
    ensure!(!snippets.exists(), "a dependency ships JavaScript snippets, which the bundle does not include");
    Ok(Bound { wasm: fs::read(work.join("app_bg.wasm"))?, js: fs::read_to_string(work.join("app.js"))? })
}

/// Removes comments and indentation from the glue, a tenth of its size.
fn js_without_comments(js: &str) -> anyhow::Result<String> {
    let mut out = String::with_capacity(js.len());
    for line in js.lines().map(str::trim) {
        ensure!(
            line.matches('`').count() % 2 == 0,
            "a template string of the glue spans several lines: {line}"
        );
        if !["/**", "*", "//"].iter().any(|comment| line.starts_with(comment)) && !line.is_empty() {
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(out)
}

/// Removes the comments of a style sheet.
fn css_without_comments(style: &str) -> String {
    let mut parts = style.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    // An unclosed comment extends to the end.
    parts.fold(first, |out, part| out + part.split_once("*/").map_or("", |(_, rest)| rest.trim_start()))
}

type Files = BTreeMap<String, Vec<u8>>;

/// Gives every asset a name that contains its hash, and inserts these names into the page.
fn assemble(root: &Path, bound: &Bound) -> anyhow::Result<Files> {
    let mut files = Files::new();
    let mut add = |stem: &str, extension: &str, bytes: Vec<u8>| {
        let name = format!("{stem}-{:016x}.{extension}", hash_of(&bytes));
        files.insert(format!("assets/{name}"), bytes);
        name
    };
    let wasm = add("app", "wasm", bound.wasm.clone());
    let js = add("app", "js", js_without_comments(&bound.js)?.into_bytes());
    // The content security policy forbids inline scripts, so a separate file starts the module.
    let boot = add(
        "boot",
        "js",
        format!(
            "import init from './{js}';\n\
             init({{ module_or_path: new URL('./{wasm}', import.meta.url) }}).catch(error => {{\n\
             const text = document.querySelector('#frame p');\n\
             if (text) text.innerText = `The dashboard could not be loaded (${{error.message}}). Reload the page. If that does \
             not help, use a browser with WebAssembly, or the command paceline report, which prints the same figures.`;\n\
             }});\n"
        )
        .into_bytes(),
    );
    let style = fs::read_to_string(root.join("web/style.css")).context("cannot read web/style.css")?;
    let css = add("style", "css", css_without_comments(&style).into_bytes());
    let icon = add("icon", "svg", fs::read(root.join("web/icon.svg")).context("cannot read web/icon.svg")?);

    let mut page = fs::read_to_string(root.join("web/index.html")).context("cannot read web/index.html")?;
    for (place, name) in
        [("{{css}}", css), ("{{boot}}", boot), ("{{js}}", js), ("{{wasm}}", wasm), ("{{icon}}", icon)]
    {
        ensure!(page.contains(place), "web/index.html has no placeholder {place}");
        page = page.replace(place, &format!("/assets/{name}"));
    }
    files.insert("index.html".into(), page.into_bytes());
    Ok(files)
}

/// Writes changed files with their compressed forms, the page last, and removes files that are no longer used.
fn publish(files: &Files, dist: &Path, size: Size) -> anyhow::Result<()> {
    let mut wanted = vec![dist.join("index.html")];
    let (mut raw_total, mut br_total) = (0, 0);
    for (name, bytes) in files {
        let path = dist.join(name);
        let (br, gz) = (beside(&path, "br"), beside(&path, "gz"));
        if fs::read(&path).is_ok_and(|old| old == *bytes) && br.is_file() && gz.is_file() {
            br_total += fs::metadata(&br)?.len() as usize;
        } else {
            let compressed = brotli_of(bytes, size.brotli_quality())?;
            br_total += compressed.len();
            eprintln!("web: {name}: {} bytes, {} as brotli", bytes.len(), compressed.len());
            write(&br, &compressed)?;
            write(&gz, &gzip_of(bytes)?)?;
            write(&path, bytes)?;
        }
        raw_total += bytes.len();
        wanted.extend([path, br, gz]);
    }
    for entry in walk(dist)? {
        if !wanted.contains(&entry) {
            fs::remove_file(&entry)?;
        }
    }
    eprintln!("web: {raw_total} bytes in total, {br_total} as brotli");
    Ok(())
}

fn brotli_of(bytes: &[u8], quality: i32) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    let params = brotli::enc::BrotliEncoderParams { quality, lgwin: 22, ..Default::default() };
    brotli::BrotliCompress(&mut &*bytes, &mut out, &params).context("brotli failed")?;
    Ok(out)
}

fn gzip_of(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

/// Writes through a rename, so that an interrupted build leaves no incomplete asset.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let parent = path.parent().context("the path of an asset has no folder")?;
    fs::create_dir_all(parent)?;
    let part = beside(path, "part");
    fs::write(&part, bytes).with_context(|| format!("cannot write {}", part.display()))?;
    fs::rename(&part, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns a hash that changes with the name or the bytes of any input.
fn fingerprint(root: &Path) -> anyhow::Result<u64> {
    let mut hash = FnvHasher::default();
    for input in INPUTS {
        let path = root.join(input);
        let files = if path.is_dir() { walk(&path)? } else { vec![path] };
        for file in files {
            hash.write(file.strip_prefix(root)?.as_os_str().as_encoded_bytes());
            hash.write(&fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
        }
    }
    Ok(hash.finish())
}

/// Returns all files under `folder`, sorted.
fn walk(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => bail!("{} is neither a file nor a folder", entry.path().display()),
            }
        }
    }
    files.sort();
    Ok(files)
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = FnvHasher::default();
    hash.write(bytes);
    hash.finish()
}
