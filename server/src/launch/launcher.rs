//! Programs that start the ranks of a job themselves.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The launchers' programs.
const PROGRAMS: [&str; 8] =
    ["torchrun", "accelerate", "deepspeed", "composer", "horovodrun", "mpirun", "mpiexec", "srun"];
/// The launchers' modules, which Python runs with `-m`.
const MODULES: [&str; 6] = [
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "deepspeed.launcher.runner",
    "composer.cli.launcher",
];

/// Returns whether a command starts a launcher.
#[must_use]
pub fn is_launcher(command: &[OsString]) -> bool {
    let Some((program, arguments)) = command.split_first() else { return false };
    let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    if name.starts_with("python") {
        // Python's own options come before the module.
        let is_option = |word: &&OsString| word.to_str().is_some_and(|word| word.starts_with('-'));
        let options = arguments.iter().take_while(is_option).count();
        let is_module = options > 0 && arguments[options - 1] == "-m";
        let module = arguments.get(options).filter(|_| is_module);
        return module.and_then(|module| module.to_str()).is_some_and(|module| MODULES.contains(&module));
    }
    PROGRAMS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(command: &str) -> bool {
        is_launcher(&command.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn launchers_are_recognized_by_program_or_module() {
        for command in [
            "torchrun --nproc-per-node 4 train.py",
            "/opt/env/bin/torchrun train.py",
            "python -m torch.distributed.run train.py",
            "python3.11 -u -m torch.distributed.launch train.py",
            "accelerate launch train.py",
            "mpirun -n 4 ./train",
        ] {
            assert!(is(command), "{command}");
        }
        for command in [
            "python train.py -m torch.distributed.run",
            "python -m train",
            "char_lm torchrun",
            "./torchrunner",
        ] {
            assert!(!is(command), "{command}");
        }
    }
}
