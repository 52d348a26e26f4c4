//! The start of a rank: ties the process to its launcher, then replaces it by the rank's command.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// The variable with the launcher's process id.
pub(super) const PARENT: &str = "PACELINE_LAUNCHER_PID";

/// Asks the kernel to kill this process when the launcher dies, then replaces the process by the command. Otherwise a
/// launcher that is killed would leave its ranks running.
///
/// # Errors
/// Returns an error if the launcher is already gone, or if the command cannot be run.
pub fn become_command(command: &[OsString]) -> anyhow::Result<Infallible> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot tie this rank to its launcher")?;
    let launcher = std::env::var(PARENT).ok().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    if launcher.is_some() && getppid() != launcher {
        bail!("the launcher has exited");
    }
    let (program, arguments) = command.split_first().context("no command")?;
    let error = Command::new(program).args(arguments).env_remove(PARENT).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
