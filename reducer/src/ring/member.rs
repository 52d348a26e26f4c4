//! A rank's side of the control connection: the state that the rank's threads share, and the control thread.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use wire::ids::Rank;

use super::hub::HubHandle;
use super::message::Message;
use super::poll::poll_until;
use super::signal::Signal;
use crate::error::CommError;

/// The state that the communication thread, the control thread and the abort handles of a rank share.
pub(super) struct Shared {
    rank: Rank,
    verdict: OnceLock<CommError>,
    /// A signal that is raised with the verdict and never cleared.
    pub(super) ended: Signal,
    begun: AtomicU64,
    outbox: Mutex<Vec<Message>>,
    outgoing: Signal,
}

impl Shared {
    pub(super) fn new(rank: Rank) -> io::Result<Self> {
        Ok(Self {
            rank,
            verdict: OnceLock::new(),
            ended: Signal::new()?,
            begun: AtomicU64::new(0),
            outbox: Mutex::new(Vec::new()),
            outgoing: Signal::new()?,
        })
    }

    pub(super) fn verdict(&self) -> Option<CommError> {
        self.verdict.get().cloned()
    }

    /// Returns the verdict. If there is none yet, the result of `otherwise` becomes the verdict.
    pub(super) fn verdict_or(&self, otherwise: impl FnOnce() -> CommError) -> CommError {
        let verdict = self.verdict.get_or_init(otherwise).clone();
        self.ended.raise();
        verdict
    }

    pub(super) fn await_verdict(&self, patience: Duration) -> Option<CommError> {
        let mut fds = [PollFd::from_borrowed_fd(self.ended.fd(), PollFlags::IN)];
        // The verdict itself shows whether the signal was raised or the deadline has passed.
        let _raised = poll_until(&mut fds, Some(Instant::now() + patience));
        self.verdict()
    }

    pub(super) fn set_begun(&self, begun: u64) {
        self.begun.store(begun, Ordering::Relaxed);
    }

    /// Hands a message to the control thread.
    pub(super) fn send(&self, message: Message) {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        self.outgoing.raise();
    }

    /// Gives up. This rank's collectives fail at once, those of the other ranks as soon as the hub forwards the
    /// verdict.
    pub(super) fn give_up(&self, reason: &str) {
        let verdict = CommError::RankFailed { rank: self.rank, reason: reason.into() };
        self.send(Message::Verdict(verdict.clone()));
        self.verdict_or(|| verdict);
    }

    fn take_outgoing(&self) -> Vec<Message> {
        self.outgoing.clear();
        std::mem::take(&mut *self.outbox.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A rank's membership in the ring. Dropping it tells the hub that the rank leaves.
pub(super) struct Membership {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    hub: Option<HubHandle>,
}

impl Membership {
    /// Starts the control thread on a connection that the hub has welcomed. `buffer` holds the bytes that were read
    /// after the welcome message.
    pub(super) fn start(
        stream: TcpStream,
        buffer: Vec<u8>,
        shared: Arc<Shared>,
        hub: Option<HubHandle>,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let mut member = Member { stream, buffer, shared: shared.clone(), hub_left: false };
        let thread =
            std::thread::Builder::new().name("paceline-member".into()).spawn(move || member.run())?;
        Ok(Self { shared, thread: Some(thread), hub })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.give_up("its communication thread panicked");
        }
        self.shared.send(Message::Bye);
        if let Some(thread) = self.thread.take() {
            // The thread ends once it has sent `Bye`. If it has panicked, there is nothing left to do here.
            let _outcome = thread.join();
        }
        if let Some(hub) = self.hub.take() {
            hub.await_goodbye();
        }
    }
}

struct Member {
    stream: TcpStream,
    buffer: Vec<u8>,
    shared: Arc<Shared>,
    hub_left: bool,
}

impl Member {
    fn run(&mut self) {
        let mut connected = self.handle_buffered();
        loop {
            let shared = self.shared.clone();
            let mut fds = vec![PollFd::from_borrowed_fd(shared.outgoing.fd(), PollFlags::IN)];
            if connected {
                fds.push(PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN));
            }
            if poll_until(&mut fds, None).is_err() {
                return;
            }
            let readable = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
            drop(fds);
            if readable {
                connected = self.read();
            }
            for message in shared.take_outgoing() {
                let leaves = message == Message::Bye;
                self.write(&message);
                if leaves {
                    return;
                }
            }
        }
    }

    /// Reads available bytes and handles their messages. Returns false if the connection has ended.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let reason = match self.stream.read(&mut bytes) {
            Ok(0) => "its process ended unexpectedly".to_owned(),
            Ok(read) => {
                self.buffer.extend_from_slice(&bytes[..read]);
                return self.handle_buffered();
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return true;
            }
            Err(error) => format!("its control connection broke: {error}"),
        };
        if !self.hub_left {
            self.shared.verdict_or(|| CommError::RankLost { rank: Rank(0), reason });
        }
        false
    }

    fn handle_buffered(&mut self) -> bool {
        loop {
            match Message::take(&mut self.buffer) {
                Ok(None) => return true,
                Ok(Some(Message::Verdict(verdict))) => drop(self.shared.verdict_or(|| verdict)),
                Ok(Some(Message::Where)) => {
                    self.write(&Message::At { begun: self.shared.begun.load(Ordering::Relaxed) });
                }
                Ok(Some(Message::Bye)) => self.hub_left = true,
                Ok(Some(_)) => {}
                Err(reason) => {
                    self.shared.verdict_or(|| CommError::RankLost { rank: Rank(0), reason });
                    return false;
                }
            }
        }
    }

    fn write(&mut self, message: &Message) {
        // The reading side notices a broken connection. A few messages of a hundred bytes never fill the socket's
        // buffer.
        let _broken = self.stream.write_all(&message.encode());
    }
}
