//! Prepares the process before candle starts.
//!
//! Two defaults slow down training. candle's worker threads spin, which disturbs the other ranks of a shared machine.
//! And glibc returns the memory of large tensors to the kernel after every operation, which costs a fifth of the step.
//! Both can be changed only by environment variables that are read before `main`. Setting variables of a running
//! process is `unsafe`, because another thread may read them. The program therefore executes itself once more in the
//! same process, and the launcher sees a single pid.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::cores;

/// The environment variables to set, unless they are set already.
const SETTINGS: [(&str, &str); 3] = [
    ("RAYON_NUM_THREADS", "1"),
    // 32 MiB is the largest threshold that glibc accepts.
    ("MALLOC_MMAP_THRESHOLD_", "33554432"),
    ("MALLOC_TRIM_THRESHOLD_", "2147483647"),
];
/// Set for the second execution, so that there is no third.
const STARTED: &str = "PACELINE_EXAMPLE_STARTED";

/// Runs `body` in a prepared process. An error is printed as one line on standard error, with exit code 1.
#[allow(clippy::print_stderr, reason = "the programs report their failure here")]
pub fn main(body: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    if std::env::var_os(STARTED).is_none() {
        eprintln!("error: cannot restart with settings for candle: {}", exec_prepared());
        return ExitCode::FAILURE;
    }
    cores::bind();
    compute_here();
    match body() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let place = agent::launcher::membership().ok().flatten();
            let rank = place.map(|place| format!("rank {}: ", place.rank)).unwrap_or_default();
            // Causes that the outer error already quotes are not repeated.
            let mut line = error.to_string();
            for cause in error.chain().skip(1).map(ToString::to_string) {
                if !line.contains(&cause) {
                    line = format!("{line}: {cause}");
                }
            }
            eprintln!("{rank}error: {}", line.replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// Makes the training thread the only worker of candle's pool. A separate worker would compete with the training thread
/// for the rank's core by spinning, and its work would be missing from the training thread's processor time. No other
/// thread uses the pool.
fn compute_here() {
    if std::env::var("RAYON_NUM_THREADS").is_ok_and(|threads| threads == "1") {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
        // An error means that the pool is in use already, and candle then uses that pool. This early in `main` it is
        // not.
        let _built_before = pool;
    }
}

/// Executes the program again with the settings. Returns only on failure.
fn exec_prepared() -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| OsString::from("paceline-example"));
    let missing = SETTINGS.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    Command::new(program).arg0(name).args(arguments).envs(missing).env(STARTED, "1").exec()
}
