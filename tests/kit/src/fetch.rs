//! Downloads from package registries. Downloads are limited in time and stored under `target`. If a registry cannot be
//! reached, the test is skipped with a reason.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::programs;

/// The exit code of a program that skipped its task, as in automake.
pub const SKIPPED: u8 = 77;

/// The longest time for a download, in seconds. Downloads take a minute or two, and programs without a network give up
/// earlier.
pub const INSTALL_SECONDS: &str = "420";

/// Returns `target/NAME`, next to the folder of the tested programs.
///
/// # Panics
/// Panics if this program has no file.
#[must_use]
pub fn folder(name: &str) -> PathBuf {
    programs::folder().with_file_name(name)
}

/// Fills a folder once with `fill`. Returns false and prints the reason on standard error if `fill` fails. A folder
/// that was filled for another `version`, or not completely, is filled again. Of several tests, one fills it and the
/// others wait.
///
/// # Errors
/// Returns an error if the folder cannot be created.
pub fn once(
    what: &str,
    folder: &Path,
    version: &str,
    fill: impl FnOnce() -> Result<(), String>,
) -> anyhow::Result<bool> {
    // Released when the file is closed, also by a process that is killed.
    let lock = lock_of(folder)?;
    lock.lock()?;
    // This file is written last, so an incomplete folder does not have it.
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

/// Opens the file next to a folder that is locked while the folder is filled.
fn lock_of(folder: &Path) -> std::io::Result<fs::File> {
    let mut file = folder.as_os_str().to_owned();
    file.push(".lock");
    folder.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::File::create(file)
}

/// Prints that a test is skipped. The line bypasses the test harness, which shows the output of failed tests only.
pub fn skip(what: &str, reason: &str) {
    let _unheard = writeln!(std::io::stderr(), "SKIP {what}: {reason}");
}

/// Runs a program for at most `seconds` seconds.
///
/// # Errors
/// Returns an error if the program cannot be run.
pub fn bounded(seconds: &str, program: &Path, arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("timeout").args(["-k", "5", seconds]).arg(program).args(arguments).output()
}

/// Runs a program that must succeed.
///
/// # Errors
/// Returns the program's name, its first argument and the last line of its standard error.
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
