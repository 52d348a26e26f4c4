//! The processes that a process started, directly or not.

use std::collections::HashMap;
use std::fs;

/// Returns a process and its descendants, parents first.
pub(super) fn with_descendants(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some(parent) =
            fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|stat| parent(&stat))
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut at) = (vec![root], 0);
    while let Some(pid) = found.get(at) {
        found.extend(children.remove(pid).unwrap_or_default());
        at += 1;
    }
    found
}

/// Returns whether a process belongs to the pool in which `torch.compile` compiles. It has up to 32 processes, which wait once
/// all is compiled, and beside them the workers of a data loader would have a small share of the samples.
pub(super) fn compiles(pid: u32) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains("/torch/_inductor/compile_worker/")
}

/// Reads the parent's id from the contents of `/proc/PID/stat`; `None` if the process has ended.
fn parent(stat: &str) -> Option<u32> {
    // The name, in parentheses, may contain any character.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (state != "Z").then(|| fields.next()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_read_despite_a_strange_name() {
        assert_eq!(parent("7 (a) b (c) S 42 7 7 0"), Some(42));
        assert_eq!(parent("7 (a) Z 42 7 7 0"), None);
        assert_eq!(parent(""), None);
    }

    #[test]
    fn processes_that_compile_are_told_by_their_command() {
        use std::os::unix::process::CommandExt as _;

        let mut child = std::process::Command::new("sleep")
            .arg0("/usr/lib/python3/site-packages/torch/_inductor/compile_worker/__main__.py")
            .arg("30")
            .spawn()
            .expect("there is a program sleep");
        // The command is another one until the new process has replaced its image.
        while !compiles(child.id()) && child.try_wait().is_ok_and(|ended| ended.is_none()) {
            std::thread::yield_now();
        }
        let found = compiles(child.id());
        child.kill().and_then(|()| child.wait().map(drop)).expect("the process can be killed");
        assert!(found);
        assert!(!compiles(std::process::id()));
    }

    #[test]
    fn a_child_of_a_child_is_found() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 30 & wait"])
            .spawn()
            .expect("there is a shell");
        let found = loop {
            let found = with_descendants(std::process::id());
            if found.len() >= 3 {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!(found[0], std::process::id());
        assert!(found[1..].contains(&child.id()), "{found:?}");
        let shell_processes = with_descendants(child.id());
        child.kill().and_then(|()| child.wait().map(drop)).expect("the shell can be killed");
        for pid in &shell_processes[1..] {
            let _ended = std::process::Command::new("kill").arg(pid.to_string()).status();
        }
        assert_eq!(shell_processes.len(), 2, "{shell_processes:?}");
    }
}
