//! One thread that turns closed logs into segments, one after another.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use wire::ids::RunId;

use super::directory::Layout;
use super::segment;

/// Logs waiting to be sealed. One that finds no room is sealed at the next start.
const QUEUE: usize = 1_024;

/// A log that nobody writes to any more.
pub struct ClosedLog {
    /// Its run.
    pub run: RunId,
    /// Where it lies.
    pub path: PathBuf,
}

/// Where closed logs are handed over. The thread ends when the last handle is gone.
#[derive(Clone)]
pub struct Sealer {
    queue: SyncSender<ClosedLog>,
}

impl Sealer {
    /// Starts the thread; the join handle ends after the last [`Sealer`] is dropped and all is sealed.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(layout: Layout) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (queue, waiting) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("paceline-seal".into());
        let handle = thread.spawn(move || seal_all(&layout, &waiting))?;
        Ok((Self { queue }, handle))
    }

    /// Hands a log over; never waits.
    pub fn seal(&self, log: ClosedLog) {
        if let Err(error) = self.queue.try_send(log) {
            tracing::warn!(%error, "a log is not sealed now but at the next start");
        }
    }
}

fn seal_all(layout: &Layout, waiting: &Receiver<ClosedLog>) {
    for ClosedLog { run, path } in waiting {
        match segment::seal(&layout.run(&run), &path) {
            Ok(()) => tracing::info!(log = %path.display(), "sealed"),
            Err(error) => tracing::warn!(%error, "a log could not be sealed; it is still read as it is"),
        }
    }
}
