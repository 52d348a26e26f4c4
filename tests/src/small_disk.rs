//! A server whose disk is full.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::fetch;
use crate::programs::{Server, program, wait_until};

/// A server whose data directory is a disk of its own, of some pages, in a mount namespace that ends with it. Its log
/// lines go to the same disk.
pub struct SmallDisk {
    /// The server.
    pub server: Server,
    /// The disk, as seen from outside of the namespace.
    root: PathBuf,
}

impl SmallDisk {
    /// Starts the server; `None`, with the reason on standard error, where this user may not make a namespace.
    ///
    /// # Errors
    /// When the server does not start.
    pub fn start(data: &Path) -> anyhow::Result<Option<Self>> {
        let made = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).output();
        if !made.is_ok_and(|output| output.status.success()) {
            fetch::skip(
                "a full disk",
                "this user cannot make a mount namespace (unshare --map-root-user --mount)",
            );
            return Ok(None);
        }
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs -o size=1m none \"$1\" && head -c 1015808 /dev/zero > \"$1/ballast\" \
                      && exec \"$0\" serve --listen 127.0.0.1:0 --data \"$1\" 2>\"$1/stderr\"";
        command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(program("paceline")).arg(data);
        let server = Server::spawn(command)?;
        let root = Path::new("/proc").join(server.pid().to_string()).join("root");
        let root = root.join(data.strip_prefix("/")?);
        Ok(Some(Self { server, root }))
    }

    /// How many batches the server did not take, since it had no room for them.
    fn deferred(&self) -> Option<f64> {
        let answer = ureq::get(format!("{}/metrics", self.server.address)).call();
        let metrics = answer.ok()?.body_mut().read_to_string().ok()?;
        let line = metrics.lines().find(|line| line.starts_with("paceline_server_deferred_total "))?;
        line.split(' ').nth(1)?.parse().ok()
    }

    /// Waits until the disk has been full for some batches.
    ///
    /// # Errors
    /// When it does not fill.
    pub fn wait_until_full(&self) -> anyhow::Result<()> {
        wait_until("the disk to be full", || self.deferred().filter(|deferred| *deferred >= 10.0))?;
        Ok(())
    }

    /// Every file on the disk.
    ///
    /// # Errors
    /// When it cannot be read.
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
    /// When that was done before.
    pub fn make_room(&self) -> anyhow::Result<()> {
        std::fs::remove_file(self.root.join("ballast")).context("making room on the small disk")
    }
}
