//! What has to be true of a process before candle is touched.
//!
//! candle's worker threads spin, which ruins a machine that several ranks share, and glibc gives large tensors
//! back to the kernel after every operation, which costs a fifth of the step. Both are settings of the
//! environment that are read before `main`. Setting variables of a running process is `unsafe` (another thread
//! may read them), so the program starts itself anew, once, in the same process: the launcher sees one pid.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::cores;

/// What is set where it is not set already.
const SETTINGS: [(&str, &str); 3] = [
    ("RAYON_NUM_THREADS", "1"),
    // 32 MiB is the most that glibc takes.
    ("MALLOC_MMAP_THRESHOLD_", "33554432"),
    ("MALLOC_TRIM_THRESHOLD_", "2147483647"),
];
/// Present after the second start, so that there is no third.
const STARTED: &str = "PACELINE_EXAMPLE_STARTED";

/// Runs `body` in a prepared process; an error is one line on standard error and exit code 1.
#[allow(clippy::print_stderr, reason = "the one place where the programs report their failure")]
pub fn main(body: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    if std::env::var_os(STARTED).is_none() {
        eprintln!("error: cannot start anew with settings for candle: {}", exec_prepared());
        return ExitCode::FAILURE;
    }
    cores::bind();
    compute_here();
    match body() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let place = agent::launcher::membership().ok().flatten();
            let rank = place.map(|place| format!("rank {}: ", place.rank)).unwrap_or_default();
            // A cause that its outer error already quotes is not said twice.
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

/// Makes this thread, which trains, the one worker of candle's pool. A worker of its own would take turns with it on
/// the rank's core, spinning, and its work would be in nobody's processor time. No other thread uses the pool.
fn compute_here() {
    if std::env::var("RAYON_NUM_THREADS").is_ok_and(|threads| threads == "1") {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
        // Nothing has used the pool yet; had it, the old way would go on.
        let _built_before = pool;
    }
}

/// Returns only when that failed.
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
