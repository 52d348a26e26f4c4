//! The hub: a thread of rank 0 that has a control connection to every rank.
//!
//! The hub introduces the ranks to each other and watches their connections. When a collective does not end, it asks
//! every rank how far it is. It decides on the one verdict that all ranks report.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use wire::ids::{Rank, Seq};

use super::config::Config;
use super::message::{Hello, Message};
use super::poll::poll_until;
use crate::error::{Absent, CommError, join};

/// The time that ranks have to answer an inquiry. A live rank answers within a scheduling delay.
pub(super) const INQUIRY: Duration = Duration::from_secs(2);
/// The longest time that a connection may stay open without a hello message.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// The longest time for which rank 0, at its end, waits until the hub has notified the other ranks.
const GOODBYE_WAIT: Duration = Duration::from_secs(2);
/// The largest number of refused processes that the error of a failed rendezvous lists.
const REFUSALS_TOLD: usize = 4;

/// Rank 0's handle to its hub.
pub(super) struct HubHandle {
    said_goodbye: Arc<(Mutex<bool>, Condvar)>,
}

impl HubHandle {
    /// Waits until the hub has reported to the other ranks that rank 0 left. The process may then end.
    pub(super) fn await_goodbye(&self) {
        let (said, changed) = &*self.said_goodbye;
        let said = said.lock().unwrap_or_else(PoisonError::into_inner);
        // If the hub is stuck, the process ends anyway, and the other ranks notice that.
        let _timed_out = changed.wait_timeout_while(said, GOODBYE_WAIT, |said| !*said);
    }
}

/// Starts the hub on a listener at the master address.
pub(super) fn start(listener: TcpListener, config: &Config) -> io::Result<HubHandle> {
    listener.set_nonblocking(true)?;
    let said_goodbye = Arc::new((Mutex::new(false), Condvar::new()));
    let mut hub = Hub {
        listener,
        run: config.run.to_string(),
        master: config.master.clone(),
        patience: config.rendezvous,
        began: Instant::now(),
        peers: Vec::new(),
        slots: vec![None; config.world_size as usize],
        refused: Vec::new(),
        welcomed: false,
        verdict: None,
        inquiry: None,
        said_goodbye: said_goodbye.clone(),
    };
    std::thread::Builder::new().name("paceline-hub".into()).spawn(move || hub.run())?;
    Ok(HubHandle { said_goodbye })
}

struct Hub {
    listener: TcpListener,
    run: String,
    master: String,
    patience: Duration,
    began: Instant,
    peers: Vec<Peer>,
    /// The data address of each rank that has joined, by rank.
    slots: Vec<Option<String>>,
    refused: Vec<String>,
    welcomed: bool,
    verdict: Option<CommError>,
    inquiry: Option<Inquiry>,
    said_goodbye: Arc<(Mutex<bool>, Condvar)>,
}

struct Peer {
    stream: TcpStream,
    from: SocketAddr,
    buffer: Vec<u8>,
    accepted_at: Instant,
    rank: Option<Rank>,
    left: bool,
    open: bool,
}

struct Inquiry {
    seq: Seq,
    waited: Duration,
    deadline: Instant,
    answers: Vec<Option<u64>>,
}

impl Peer {
    fn send(&mut self, message: &Message) {
        if self.open && self.stream.write_all(&message.encode()).is_err() {
            self.open = false;
        }
    }

    /// Reads available bytes into the buffer. Sets `open` to false if the connection has ended.
    fn read(&mut self) {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.open = false,
            Ok(read) => self.buffer.extend_from_slice(&bytes[..read]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.open = false,
        }
    }
}

impl Hub {
    fn run(&mut self) {
        while !self.is_over() {
            self.wait();
            self.accept();
            for index in 0..self.peers.len() {
                self.serve(index);
            }
            self.drop_silent_strangers();
            self.check_deadlines();
            self.bury();
        }
        self.goodbye_is_said();
    }

    fn is_over(&self) -> bool {
        (self.welcomed || self.verdict.is_some()) && self.peers.is_empty()
    }

    fn wait(&mut self) {
        let strangers =
            self.peers.iter().filter(|p| p.rank.is_none()).map(|p| p.accepted_at + HELLO_WAIT).min();
        let meeting = (!self.welcomed && self.verdict.is_none()).then(|| self.began + self.patience);
        let inquiry = self.inquiry.as_ref().map(|inquiry| inquiry.deadline);
        let deadline = [strangers, meeting, inquiry].into_iter().flatten().min();
        let mut fds = vec![PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN)];
        fds.extend(self.peers.iter().map(|p| PollFd::from_borrowed_fd(p.stream.as_fd(), PollFlags::IN)));
        // The result does not matter, even if it is an error: the loop checks every connection and deadline anyway.
        let _ready = poll_until(&mut fds, deadline);
    }

    fn accept(&mut self) {
        while let Ok((stream, from)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() && stream.set_nodelay(true).is_ok() {
                let (buffer, accepted_at) = (Vec::new(), Instant::now());
                self.peers.push(Peer {
                    stream,
                    from,
                    buffer,
                    accepted_at,
                    rank: None,
                    left: false,
                    open: true,
                });
            }
        }
    }

    fn serve(&mut self, index: usize) {
        self.peers[index].read();
        loop {
            match Message::take(&mut self.peers[index].buffer) {
                Ok(None) => return,
                Ok(Some(message)) => self.handle(index, message),
                Err(reason) => return self.refuse(index, reason),
            }
        }
    }

    fn handle(&mut self, index: usize, message: Message) {
        match (self.peers[index].rank, message) {
            (None, Message::Hello(hello)) => match self.slot(&hello) {
                Ok(()) => {
                    self.peers[index].rank = Some(hello.rank);
                    self.welcome_when_all_are_here();
                }
                Err(reason) => self.refuse(index, reason),
            },
            (None, _) => self.refuse(index, "it did not introduce itself".into()),
            (Some(_), Message::Verdict(verdict)) => self.decide(verdict),
            (Some(_), Message::Stuck { seq, waited }) => self.inquire(seq, waited),
            (Some(rank), Message::At { begun }) => self.note_answer(rank, begun),
            (Some(rank), Message::Bye) => self.leave(index, rank),
            (Some(_), _) => {}
        }
    }

    fn slot(&mut self, hello: &Hello) -> Result<(), String> {
        let (rank, world) = (hello.rank, self.slots.len());
        if hello.run != self.run {
            return Err(format!("it belongs to run {:?}, but rank 0 to run {:?}", hello.run, self.run));
        }
        if hello.world_size as usize != world {
            let theirs = hello.world_size;
            return Err(format!("its WORLD_SIZE is {theirs}, but rank 0 has WORLD_SIZE {world}"));
        }
        let slot = self.slots.get_mut(rank.0 as usize);
        let slot = slot.ok_or_else(|| format!("rank {rank} is not in a world of {world} ranks"))?;
        if slot.is_some() {
            return Err(format!("rank {rank} has already joined: two processes have the same RANK"));
        }
        *slot = Some(hello.address.clone());
        Ok(())
    }

    fn refuse(&mut self, index: usize, reason: String) {
        let peer = &mut self.peers[index];
        peer.send(&Message::Refused(reason.clone()));
        peer.open = false;
        if peer.rank.is_none() && self.refused.len() < REFUSALS_TOLD {
            self.refused.push(format!("{}: {reason}", peer.from));
        }
    }

    fn welcome_when_all_are_here(&mut self) {
        let Some(addresses) = self.slots.iter().cloned().collect::<Option<Vec<_>>>() else { return };
        let key = format!("{:016x}", RandomState::new().build_hasher().finish());
        self.welcomed = true;
        self.broadcast(&Message::Welcome { key, addresses });
    }

    fn broadcast(&mut self, message: &Message) {
        for peer in self.peers.iter_mut().filter(|peer| peer.rank.is_some()) {
            peer.send(message);
        }
    }

    /// Sends the first verdict to all ranks. Ignores later ones.
    fn decide(&mut self, verdict: CommError) {
        if self.verdict.is_none() {
            self.broadcast(&Message::Verdict(verdict.clone()));
            self.verdict = Some(verdict);
        }
    }

    fn inquire(&mut self, seq: Seq, waited: Duration) {
        if self.verdict.is_none() && self.inquiry.is_none() {
            let answers = vec![None; self.slots.len()];
            self.inquiry = Some(Inquiry { seq, waited, deadline: Instant::now() + INQUIRY, answers });
            self.broadcast(&Message::Where);
        }
    }

    fn note_answer(&mut self, rank: Rank, begun: u64) {
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.answers[rank.0 as usize] = Some(begun);
            if inquiry.answers.iter().all(Option::is_some) {
                inquiry.deadline = Instant::now();
            }
        }
    }

    fn leave(&mut self, index: usize, rank: Rank) {
        self.peers[index].left = true;
        if rank == Rank(0) {
            self.broadcast(&Message::Bye);
            self.goodbye_is_said();
        }
    }

    fn goodbye_is_said(&self) {
        *self.said_goodbye.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.said_goodbye.1.notify_all();
    }

    fn drop_silent_strangers(&mut self) {
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if peer.open && peer.rank.is_none() && peer.accepted_at.elapsed() >= HELLO_WAIT {
                self.refuse(index, "it did not introduce itself".into());
            }
        }
    }

    fn check_deadlines(&mut self) {
        if !self.welcomed && self.verdict.is_none() && self.began.elapsed() >= self.patience {
            let (master, waited) = (self.master.clone(), self.patience);
            self.decide(CommError::Rendezvous { master, waited, reason: self.who_is_missing() });
        }
        if let Some(inquiry) = self.inquiry.take_if(|inquiry| inquiry.deadline <= Instant::now()) {
            let answers = (0..).map(Rank).zip(&inquiry.answers);
            let absent = answers.filter(|(_, begun)| begun.is_none_or(|begun| begun <= inquiry.seq.0));
            let absent = absent.map(|(rank, begun)| Absent { rank, begun: *begun }).collect();
            self.decide(CommError::TimedOut { seq: inquiry.seq, waited: inquiry.waited, absent });
        }
    }

    fn who_is_missing(&self) -> String {
        let missing = (0..).zip(&self.slots).filter(|(_, slot)| slot.is_none());
        let missing: Vec<String> = missing.map(|(rank, _): (u32, _)| rank.to_string()).collect();
        let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
        let missing = missing.join(", ");
        let refused = join(self.refused.iter().cloned(), "; ");
        let refused = if refused.is_empty() { refused } else { format!(" (refused: {refused})") };
        format!("{ranks} {missing} of {} did not arrive{refused}", self.slots.len())
    }

    /// Removes closed connections. A rank that did not leave in good order is lost.
    fn bury(&mut self) {
        let (kept, closed): (Vec<_>, Vec<_>) = self.peers.drain(..).partition(|peer| peer.open);
        self.peers = kept;
        for Peer { rank, left, .. } in closed {
            match rank {
                Some(rank) if !self.welcomed => self.slots[rank.0 as usize] = None,
                Some(rank) if !left => {
                    let reason = "its process ended unexpectedly".into();
                    self.decide(CommError::RankLost { rank, reason });
                }
                _ => {}
            }
        }
    }
}
