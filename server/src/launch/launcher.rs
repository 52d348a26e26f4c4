//! Commands that start the ranks of a job themselves.

use std::ffi::{OsStr, OsString};
use std::path::Path;

const PROGRAMS: [&str; 8] =
    ["torchrun", "accelerate", "deepspeed", "composer", "horovodrun", "mpirun", "mpiexec", "srun"];
/// Programs that run another command, whose ranks they do not know: environments of Python and shells.
const WRAPPERS: [&str; 9] = ["uv", "poetry", "pdm", "pixi", "hatch", "conda", "env", "bash", "sh"];
/// The endings of scripts.
const SCRIPTS: [&str; 2] = [".py", ".sh"];

/// Returns whether a command starts the ranks itself: a launcher, or a script. A script may call a launcher or
/// `torch.multiprocessing.spawn`, or its framework starts the other ranks, as Lightning does.
#[must_use]
pub fn starts_its_ranks(command: &[OsString]) -> bool {
    let Some(program) = command.first() else { return false };
    let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.starts_with("python")
        || PROGRAMS.contains(&name)
        || WRAPPERS.contains(&name)
        || SCRIPTS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(command: &str) -> bool {
        starts_its_ranks(&command.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn launchers_and_scripts_start_their_ranks() {
        for command in [
            "torchrun --nproc-per-node 4 train.py",
            "/opt/env/bin/torchrun train.py",
            "python -m torch.distributed.run train.py",
            "python3.11 -u spawn.py",
            "./train.sh --epochs 3",
            "uv run torchrun train.py",
            "accelerate launch train.py",
            "mpirun -n 4 ./train",
        ] {
            assert!(starts(command), "{command}");
        }
        for command in ["char_lm torchrun", "./torchrunner", "./train"] {
            assert!(!starts(command), "{command}");
        }
    }
}
