//! The CUDA hook: the driver loads the library into a process that starts to use it (`CUDA_INJECTION64_PATH`).
//!
//! This hook serves jobs that no other hook sees: those on one GPU, and those whose gradients are not reduced by NCCL.
//! It reports no collectives and therefore no steps. It samples the device and records every kernel on demand. A
//! process that calls another hook is observed by that one, so this hook first waits for the others.
//!
//! CUDA is initialized in every process that uses it, and a rank may have several. Only a process that knows its rank
//! qualifies. The first such process with a device in use claims the rank, by binding an abstract socket name, which
//! the kernel grants to one process at a time.

use std::ffi::c_int;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use agent::{Config, Job};

use crate::host::{self, ExitCode};
use crate::observer;

/// How long other hooks may take to be called. Frameworks load a model between their first use of CUDA and their first
/// communicator. A later hook joins the observation in progress.
const PATIENCE: Duration = Duration::from_secs(10);
/// The variable that sets another delay, in seconds.
const VARIABLE: &str = "PACELINE_CUDA_HOOK_SECONDS";
const MIN_WAIT: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(8);

/// Held during a call to the driver, and permanently from process exit on: the driver must not be called while it shuts
/// down.
static ASKING: Mutex<()> = Mutex::new(());

/// Starts the waiting thread. The driver calls this during its own initialization, so its functions cannot be used yet.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the symbol that the driver looks for")]
pub extern "C" fn InitializeInjection() -> c_int {
    host::guarded(|| {
        if let Some(name) = name_of_rank() {
            host::watch_forks();
            let patience = patience();
            let thread = thread::Builder::new().name("paceline-cuda".into());
            // If the thread cannot start, nothing is observed.
            let _thread =
                host::block_signals(|| thread.spawn(move || host::guarded(|| wait(&name, patience))));
        }
    });
    // The driver takes any value other than 0 as success.
    1
}

fn asking() -> MutexGuard<'static, ()> {
    ASKING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stop_asking(_code: ExitCode) {
    std::mem::forget(asking());
}

/// Returns the socket name of this process's rank; `None` if the environment names no server or no rank.
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
        thread::sleep(MIN_WAIT);
    }
    // Registered only now, so that it runs before the driver's own exit handlers.
    host::call_at_exit(stop_asking);
    let mut rest = MIN_WAIT;
    while observer::is_undecided() {
        thread::sleep(rest);
        // A process that uses no device is checked ever less often.
        rest = (rest * 2).min(MAX_WAIT);
        let device = {
            let _asking = asking();
            gpu::driver::used_device()
        };
        if let Some(device) = device {
            if let Some(claim) = claim(name) {
                observer::begin_for(device);
                // The claim lasts as long as the process.
                std::mem::forget(claim);
            }
            return;
        }
    }
}

/// Claims the name unless another process on this host holds it.
fn claim(name: &str) -> Option<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_process_can_claim_a_rank() {
        let name = format!("paceline/test-{}/0", std::process::id());
        let held = claim(&name).expect("the name is free");
        assert!(claim(&name).is_none());
        drop(held);
        assert!(claim(&name).is_some(), "a dropped claim frees the name");
    }
}
