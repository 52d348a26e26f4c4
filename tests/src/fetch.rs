//! What tests take from package registries: bounded in time, kept below `target`, and skipped with a reason where
//! there is no way to them.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Exit code of a program that skipped what it is for: automake's.
pub const SKIPPED: u8 = 77;

/// Downloading takes a minute or two; without a network the programs give up by themselves.
pub const INSTALL_SECONDS: &str = "420";

/// `target/NAME`, beside the programs that are tested.
///
/// # Panics
/// When tests are built without `--release`.
#[must_use]
pub fn folder(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let release = test.ancestors().find(|folder| folder.ends_with("release"));
    release.and_then(Path::parent).expect("tests are built with --release").join(name)
}

/// Fills a folder once: `fill` says why it could not. False, with the reason on standard error, when it could not.
/// A folder that was filled for another `version`, or half, is filled anew.
///
/// # Errors
/// When the folder cannot be made.
pub fn once(
    what: &str,
    folder: &Path,
    version: &str,
    fill: impl FnOnce() -> Result<(), String>,
) -> anyhow::Result<bool> {
    // Written last: a folder that was interrupted has none.
    let complete = folder.join("installed.txt");
    if fs::read_to_string(&complete).is_ok_and(|installed| installed == version) {
        return Ok(true);
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    if let Err(reason) = fill() {
        skip(what, &reason);
        return Ok(false);
    }
    fs::write(complete, version)?;
    Ok(true)
}

/// Says that something is not tested, past the harness, which shows what a test prints only when it fails.
pub fn skip(what: &str, reason: &str) {
    let _unheard = writeln!(std::io::stderr(), "SKIP {what}: {reason}");
}

/// Runs a program for so many seconds at most.
///
/// # Errors
/// When it cannot be run.
pub fn bounded(seconds: &str, program: &Path, arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("timeout").args(["-k", "5", seconds]).arg(program).args(arguments).output()
}

/// Runs a program that must succeed.
///
/// # Errors
/// Its name and the last line of what it complained of.
pub fn succeed(program: &Path, arguments: &[&str]) -> Result<(), String> {
    let why = |said: String| format!("{} {}: {said}", program.display(), arguments.first().unwrap_or(&""));
    match bounded(INSTALL_SECONDS, program, arguments) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(why(said.lines().last().map_or_else(|| output.status.to_string(), str::to_owned)))
        }
        Err(error) => Err(why(error.to_string())),
    }
}
