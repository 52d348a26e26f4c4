//! `cargo xtask wheel`: the Python package, for `pip install`, into `target/wheels`.
//!
//! The wheel has the package's modules, its native part, the agent's library, and the program with the dashboard in it. One
//! wheel serves all Pythons from 3.9 on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::system::{Profile, root, step, target};
use crate::web;

/// The pinned release of maturin, which builds the wheel. It comes from the Python package index.
const MATURIN: &str = "maturin==1.16.0";
/// The oldest glibc that the wheel runs on: that of RHEL 9. Rust's standard library on a machine with a newer one needs
/// nothing newer than this.
const GLIBC: (u32, u32) = (2, 34);
/// The largest wheel that is shipped, in bytes.
const MAX_BYTES: u64 = 20_000_000;

/// Builds the wheel: into `target/wheels` what is shipped, and into `target/debug/wheels` what is tested.
pub fn run(profile: Profile) -> anyhow::Result<PathBuf> {
    if profile == Profile::Release {
        web::run(web::Size::Small)?;
        web::check_size()?;
    }
    step("building the program and the agent's library", profile.build(&["paceline"]).arg("--lib"))?;
    let package = root().join("python/paceline");
    for (folder, file) in [("bin", "paceline"), ("lib", "libpaceline_attach.so")] {
        let (from, folder) = (profile.folder().join(file), package.join(folder));
        check_glibc(&from)?;
        fs::create_dir_all(&folder)?;
        fs::copy(&from, folder.join(file)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let place = if profile == Profile::Release { target() } else { profile.folder() };
    let wheels = place.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let tag = format!("manylinux_{}_{}", GLIBC.0, GLIBC.1);
    let mut command = Command::new(maturin()?);
    command.args([
        "build",
        "--profile",
        profile.name(),
        "--locked",
        "--compatibility",
        &tag,
        "--manifest-path",
    ]);
    command.arg(root().join("python/Cargo.toml")).arg("--out").arg(&wheels);
    step("building the wheel", &mut command)?;
    let wheel = fs::read_dir(&wheels)?.next().context("maturin built no wheel")??.path();
    let bytes = wheel.metadata()?.len();
    let is_small = bytes <= MAX_BYTES || profile == Profile::Dev;
    ensure!(is_small, "{} has {bytes} bytes, more than {MAX_BYTES}", wheel.display());
    eprintln!("wheel: {}, {:.1} MB", wheel.display(), bytes as f64 / 1e6);
    Ok(wheel)
}

/// Returns the folder of maturin's virtual environment.
fn environment() -> PathBuf {
    root().join("target/maturin")
}

/// Returns whether maturin is installed.
pub fn is_prepared() -> bool {
    fs::read_to_string(environment().join("installed.txt")).is_ok_and(|installed| installed == MATURIN)
}

/// Returns maturin. Installs it if it is not installed.
fn maturin() -> anyhow::Result<PathBuf> {
    let folder = environment();
    let program = folder.join("bin/maturin");
    if is_prepared() {
        return Ok(program);
    }
    step("creating a virtual environment", Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut install = Command::new(folder.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", MATURIN]);
    step("installing maturin from the Python package index", &mut install)?;
    fs::write(folder.join("installed.txt"), MATURIN)?;
    Ok(program)
}

/// Fails if a program or library needs a newer glibc than the wheel's tag says.
fn check_glibc(file: &Path) -> anyhow::Result<()> {
    let output = Command::new("objdump").arg("-T").arg(file).output().context("cannot run objdump")?;
    ensure!(output.status.success(), "objdump: {}", String::from_utf8_lossy(&output.stderr));
    for symbol in String::from_utf8_lossy(&output.stdout).lines() {
        let version = symbol.split("GLIBC_").nth(1).map(|rest| rest.split(')').next().unwrap_or(rest));
        let mut numbers = version.into_iter().flat_map(|version| version.split('.'));
        let mut number = || numbers.next().and_then(|text| text.trim().parse::<u32>().ok());
        if let (Some(major), Some(minor)) = (number(), number())
            && (major, minor) > GLIBC
        {
            bail!("{} needs a newer glibc than {}.{}: {symbol}", file.display(), GLIBC.0, GLIBC.1);
        }
    }
    Ok(())
}
