//! A server with a full or a read-only disk.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::fetch;
use crate::programs::{Server, program, wait_until};

/// A server whose data directory is a separate, tiny disk in a mount namespace that ends with the server.
pub struct SmallDisk {
    pub server: Server,
    /// The path of the disk outside the namespace.
    root: PathBuf,
    /// The file with the server's log lines.
    complaints: PathBuf,
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _never_written = std::fs::remove_file(&self.complaints);
    }
}

impl SmallDisk {
    /// Starts the server on a disk with little room. Returns `None` and prints the reason on standard error if this user may not create a
    /// namespace.
    ///
    /// # Errors
    /// Returns an error if the server does not start.
    pub fn start(data: &Path) -> anyhow::Result<Option<Self>> {
        Self::mounted(
            "mount -t tmpfs -o size=1m none \"$1\" && head -c 1015808 /dev/zero > \"$1/ballast\"",
            data,
        )
    }

    /// Starts the server on a copy of a data directory, on a disk without any room.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start`].
    pub fn start_full(data: &Path) -> anyhow::Result<Option<Self>> {
        let script = "cp -a \"$1\" \"$1.copy\" && mount -t tmpfs -o size=1m none \"$1\" && cp -a \"$1.copy/.\" \"$1\" \
                      && rm -r \"$1.copy\" && { head -c 2m /dev/zero > \"$1/ballast\" 2>/dev/null || true; }";
        Self::mounted(script, data)
    }

    /// Starts the server on a data directory that is mounted read-only.
    ///
    /// # Errors
    /// Returns the errors of [`Self::start`].
    pub fn start_read_only(data: &Path) -> anyhow::Result<Option<Self>> {
        Self::mounted("mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"", data)
    }

    /// Starts the server after a script has mounted the data directory, which is its argument.
    fn mounted(script: &str, data: &Path) -> anyhow::Result<Option<Self>> {
        let made = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).output();
        if !made.is_ok_and(|output| output.status.success()) {
            fetch::skip(
                "a full or read-only disk",
                "this user cannot create a mount namespace (unshare --map-root-user --mount)",
            );
            return Ok(None);
        }
        let mut command = Command::new("unshare");
        let script = format!("{script} && exec \"$0\" serve --listen 127.0.0.1:0 --data \"$1\" 2>\"$2\"");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]).arg(program("paceline")).arg(data);
        let complaints = data.with_extension("stderr");
        let server = Server::spawn({
            command.arg(&complaints);
            command
        })?;
        let root = Path::new("/proc").join(server.pid().to_string()).join("root");
        let root = root.join(data.strip_prefix("/")?);
        Ok(Some(Self { server, root, complaints }))
    }

    /// Returns what the server has printed on standard error.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub fn complaints(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(&self.complaints)?)
    }

    /// Returns the number of batches that the server deferred because its disk was full.
    fn deferred(&self) -> Option<f64> {
        let answer = ureq::get(format!("{}/metrics", self.server.address)).call();
        let metrics = answer.ok()?.body_mut().read_to_string().ok()?;
        let line = metrics.lines().find(|line| line.starts_with("paceline_server_deferred_total "))?;
        line.split(' ').nth(1)?.parse().ok()
    }

    /// Waits until the disk has been full for ten batches.
    ///
    /// # Errors
    /// Returns an error if the disk does not fill.
    pub fn wait_until_full(&self) -> anyhow::Result<()> {
        wait_until("the disk to be full", || self.deferred().filter(|deferred| *deferred >= 10.0))?;
        Ok(())
    }

    /// Returns every file on the disk.
    ///
    /// # Errors
    /// Returns an error if the disk cannot be read.
    pub fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let (mut folders, mut files) = (vec![self.root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        Ok(files)
    }

    /// Frees most of the disk.
    ///
    /// # Errors
    /// Returns an error if the space was freed before.
    pub fn make_room(&self) -> anyhow::Result<()> {
        std::fs::remove_file(self.root.join("ballast")).context("cannot make room on the small disk")
    }
}
