//! The processes of a job on this host. They inherit the run's id in their environment.

use std::fs;

use wire::ids::RunId;

/// Returns the ids of all processes on this host.
pub(super) fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns whether a process belongs to a run; `None` if that cannot be read: of a process that ends or begins, one of another
/// user, or a thread of the kernel.
pub(super) fn is_of(pid: u32, run: &RunId) -> Option<bool> {
    let variable = format!("PACELINE_RUN_ID={run}");
    let environment = fs::read(format!("/proc/{pid}/environ")).ok().filter(|read| !read.is_empty())?;
    Some(environment.split(|&byte| byte == 0).any(|entry| entry == variable.as_bytes()))
}
