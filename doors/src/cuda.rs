//! The door of CUDA: the driver loads this library into a process that begins to use it (`CUDA_INJECTION64_PATH`).
//!
//! For what the other doors do not see: a job on one GPU, or one whose gradients something else than NCCL carries.
//! Nothing tells of collectives here, and so of steps; what is told is what its device does, and on demand every
//! kernel. A process in which another door opens is theirs; so that these may come first, this one waits.
//!
//! CUDA is initialised in every process that uses it, and a rank may have several. So only a process that knows its rank
//! counts, and of those the first that keeps a device in use for a while: it holds a name that the kernel gives to one
//! process at a time.

use std::ffi::c_int;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use agent::{Config, Job};

use crate::host::{self, ExitCode};
use crate::observer;

/// How long other doors may take to open: frameworks load a model between their first use of CUDA and their first
/// communicator. What is later joins what is observed then.
const PATIENCE: Duration = Duration::from_secs(10);
/// Names another patience, in seconds.
const VARIABLE: &str = "PACELINE_CUDA_DOOR_SECONDS";
const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(8);

/// Held while the driver is asked something, and for good when the process ends: the driver is not asked while it is
/// taken down.
static ASKING: Mutex<()> = Mutex::new(());

/// What the driver calls while it initialises itself, so that nothing of it may be used yet.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the symbol that the driver looks for")]
pub extern "C" fn InitializeInjection() -> c_int {
    host::guarded(|| {
        if let Some(name) = name_of_rank() {
            host::watch_forks();
            let patience = patience();
            let thread = thread::Builder::new().name("paceline-cuda".into());
            // Where no thread can be started, nothing is observed.
            let _thread =
                host::without_signals(|| thread.spawn(move || host::guarded(|| wait(&name, patience))));
        }
    });
    // The driver takes anything but 0 for success.
    1
}

fn asking() -> MutexGuard<'static, ()> {
    ASKING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stop_asking(_code: ExitCode) {
    std::mem::forget(asking());
}

/// What one process of a rank may call itself; `None` where the environment names no server or no rank.
fn name_of_rank() -> Option<String> {
    let job = Job { name: String::new(), sample_unit: String::new(), parameters: 0 };
    let config = Config::from_env(job).ok()??;
    Some(format!("paceline/{}/{}", config.run, config.rank))
}

fn patience() -> Duration {
    let seconds = std::env::var(VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(PATIENCE, |seconds: u32| Duration::from_secs(seconds.into()))
}

fn wait(name: &str, patience: Duration) {
    let began = Instant::now();
    while observer::is_undecided() && began.elapsed() < patience {
        thread::sleep(LOOK_EVERY);
    }
    // Not before, so that it comes before what the driver does then.
    host::at_exit(stop_asking);
    let mut rest = LOOK_EVERY;
    while observer::is_undecided() {
        thread::sleep(rest);
        // A process that uses no device at all is looked at ever less often.
        rest = (rest * 2).min(LOOK_AT_LEAST_EVERY);
        let device = {
            let _asking = asking();
            gpu::driver::in_use()
        };
        if let Some(device) = device {
            if let Some(claim) = claim(name) {
                observer::begin_for(device);
                // As long as the process lives.
                std::mem::forget(claim);
            }
            return;
        }
    }
}

/// The name, if no other process on this host has it.
fn claim(name: &str) -> Option<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_of_a_rank_counts() {
        let name = format!("paceline/test-{}/0", std::process::id());
        let held = claim(&name).expect("nobody has it");
        assert!(claim(&name).is_none());
        drop(held);
        assert!(claim(&name).is_some(), "who ends gives it back");
    }
}
