//! Moves bytes around the ring. Only [`poll_until`] blocks here, and every `poll` ends at a deadline or with the
//! verdict.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use wire::ids::{Rank, Seq};

use super::member::Shared;
use super::poll::poll_until;
use super::segments::{Cursor, Segments, bytes_of, sendable, skip_whole};
use crate::communicator::Operation;
use crate::error::CommError;

/// The largest size of a read or write, in bytes. Large enough that the cost of system calls is negligible, and small
/// enough that a piece is still in the cache when it is added and forwarded: 256 KiB is a quarter of a common
/// second-level cache.
const PIECE_BYTES: usize = 256 << 10;
/// The size of the send buffer that a socket asks for, in bytes. The system may grant less.
const SOCKET_BYTES: usize = 1 << 20;

/// The reason why moving bytes stopped.
pub(super) enum Fault {
    /// The hub has sent a verdict.
    Verdict,
    /// The deadline has passed.
    Deadline,
    /// The connection to a neighbor broke.
    Broken { peer: Rank, reason: String },
    /// The previous rank is in another collective.
    Mismatch(CommError),
}

/// Waits for sockets, for the verdict and for the deadline.
pub(super) struct Waiter<'a> {
    pub(super) shared: &'a Shared,
    pub(super) deadline: Instant,
}

impl Waiter<'_> {
    fn wait(&self, reading: Option<BorrowedFd<'_>>, writing: Option<BorrowedFd<'_>>) -> Result<(), Fault> {
        let mut fds = Vec::with_capacity(3);
        fds.push(PollFd::from_borrowed_fd(self.shared.ended.fd(), PollFlags::IN));
        fds.extend(reading.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(writing.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        match poll_until(&mut fds, Some(self.deadline)) {
            Ok(false) => Err(Fault::Deadline),
            // Data has priority: a collective that all ranks have joined completes even if one of them has already
            // failed in a later one.
            Ok(true) if fds[1..].iter().all(|fd| fd.revents().is_empty()) => Err(Fault::Verdict),
            // If `poll` itself fails, the next read or write reports the error.
            Ok(true) | Err(_) => Ok(()),
        }
    }
}

/// The two data connections of a rank.
pub(super) struct DataRing {
    rank: Rank,
    world_size: usize,
    to_next: OwnedFd,
    from_previous: OwnedFd,
    /// Received bytes that are not added yet. A vector of floats, for their alignment.
    scratch: Vec<f32>,
    head: Heads,
}

/// The heads of the current collective: this rank's, and as much of the previous rank's as has arrived.
struct Heads {
    seq: Seq,
    collective: Operation,
    theirs: [u8; HEAD_BYTES],
    came: usize,
}

impl DataRing {
    pub(super) fn new(
        rank: Rank,
        world_size: u32,
        to_next: OwnedFd,
        from_previous: OwnedFd,
    ) -> Result<Self, CommError> {
        for socket in [&to_next, &from_previous] {
            rustix::io::ioctl_fionbio(socket, true).map_err(|error| CommError::System {
                doing: "preparing a data connection".into(),
                reason: error.to_string(),
            })?;
        }
        // A smaller buffer is only slower.
        let _less = rustix::net::sockopt::set_socket_send_buffer_size(&to_next, SOCKET_BYTES);
        let scratch = vec![0.0; PIECE_BYTES / size_of::<f32>()];
        let head = Heads { seq: Seq(0), collective: Operation::AllGather, theirs: [0; HEAD_BYTES], came: 0 };
        Ok(Self { rank, world_size: world_size as usize, to_next, from_previous, scratch, head })
    }

    fn next(&self) -> Rank {
        Rank(((self.rank.0 as usize + 1) % self.world_size) as u32)
    }

    fn previous(&self) -> Rank {
        Rank(((self.rank.0 as usize + self.world_size - 1) % self.world_size) as u32)
    }

    /// Sends the head of a collective to the next rank.
    pub(super) fn begin(
        &mut self,
        seq: Seq,
        collective: Operation,
        waiter: &Waiter<'_>,
    ) -> Result<(), Fault> {
        self.head = Heads { seq, collective, theirs: [0; HEAD_BYTES], came: 0 };
        // Gradients follow at once and share the packet, unless this rank's first segment is empty.
        let data_follows =
            matches!(collective, Operation::AllReduce(floats) if floats > u64::from(self.rank.0));
        let flags = if data_follows { SendFlags::MORE } else { SendFlags::empty() };
        self.exchange(&encode(seq, collective), &mut [], flags, waiter)
    }

    /// Waits for the whole head of the previous rank.
    fn meet(&mut self, waiter: &Waiter<'_>) -> Result<(), Fault> {
        while self.head.came < HEAD_BYTES {
            if !self.receive_head()? {
                waiter.wait(Some(self.from_previous.as_fd()), None)?;
            }
        }
        Ok(())
    }

    /// Reads a part of the previous rank's head and compares the head once it is complete. Returns true if bytes
    /// arrived.
    fn receive_head(&mut self) -> Result<bool, Fault> {
        let mut rest = [0; HEAD_BYTES];
        let Some(read) = self.receive(&mut rest[self.head.came..])? else { return Ok(false) };
        let came = self.head.came;
        self.head.theirs[came..][..read].copy_from_slice(&rest[came..][..read]);
        self.head.came += read;
        let Heads { seq, collective, theirs, came } = &self.head;
        if *came < HEAD_BYTES || *theirs == encode(*seq, *collective) {
            return Ok(true);
        }
        Err(Fault::Mismatch(CommError::Mismatch {
            rank: self.rank,
            ours: (*seq, collective.to_string()),
            peer: self.previous(),
            theirs: decode(theirs),
        }))
    }

    pub(super) fn all_reduce(&mut self, data: &mut [f32], waiter: &Waiter<'_>) -> Result<(), Fault> {
        let segments = Segments { floats: data.len(), ranks: self.world_size, rank: self.rank.0 as usize };
        let (mut sent, mut received) = (Cursor::default(), Cursor::default());
        // The number of bytes at the start of `scratch` that are not a whole float yet.
        let mut partial = 0;
        loop {
            let met = self.head.came == HEAD_BYTES;
            let got = if met {
                self.receive_piece(data, segments, &mut received, &mut partial)?
            } else {
                self.receive_head()?
            };
            let put = self.send_piece(data, segments, &mut sent, received)?;
            if met && sent.step == segments.steps() && received.step == segments.steps() {
                return Ok(());
            }
            if !got && !put {
                let reading = (!met || received.step < segments.steps()).then(|| self.from_previous.as_fd());
                let blocked = sendable(segments, sent, received) > 0;
                waiter.wait(reading, blocked.then(|| self.to_next.as_fd()))?;
            }
        }
    }

    /// Receives one piece and adds or copies it. Returns true if bytes arrived.
    fn receive_piece(
        &mut self,
        data: &mut [f32],
        segments: Segments,
        at: &mut Cursor,
        partial: &mut usize,
    ) -> Result<bool, Fault> {
        skip_whole(at, |step| bytes_of(&segments.received_in(step)), segments.steps());
        if at.step == segments.steps() {
            return Ok(false);
        }
        let segment = &mut data[segments.received_in(at.step)];
        if at.step >= segments.ranks - 1 {
            let bytes = &mut bytemuck::cast_slice_mut(segment)[at.bytes..];
            let len = bytes.len().min(PIECE_BYTES);
            let Some(read) = self.receive(&mut bytes[..len])? else { return Ok(false) };
            at.bytes += read;
        } else {
            let left = bytes_of(&(0..segment.len())) - at.bytes;
            let mut scratch = std::mem::take(&mut self.scratch);
            let read =
                self.receive(&mut bytemuck::cast_slice_mut(&mut scratch)[*partial..left.min(PIECE_BYTES)]);
            self.scratch = scratch;
            let Some(read) = read? else { return Ok(false) };
            let floats = (*partial + read) / size_of::<f32>();
            let whole = floats * size_of::<f32>();
            let sums = &mut segment[at.bytes / size_of::<f32>()..][..floats];
            sums.iter_mut().zip(&self.scratch).for_each(|(sum, value)| *sum += value);
            bytemuck::cast_slice_mut::<f32, u8>(&mut self.scratch).copy_within(whole..*partial + read, 0);
            *partial = *partial + read - whole;
            at.bytes += whole;
        }
        skip_whole(at, |step| bytes_of(&segments.received_in(step)), segments.steps());
        Ok(true)
    }

    /// Sends one piece of the sendable bytes. Returns true if bytes were sent.
    fn send_piece(
        &self,
        data: &[f32],
        segments: Segments,
        at: &mut Cursor,
        received: Cursor,
    ) -> Result<bool, Fault> {
        skip_whole(at, |step| bytes_of(&segments.sent_in(step)), segments.steps());
        let len = sendable(segments, *at, received).min(PIECE_BYTES);
        if len == 0 {
            return Ok(false);
        }
        let segment: &[u8] = bytemuck::cast_slice(&data[segments.sent_in(at.step)]);
        let Some(written) = self.send(&segment[at.bytes..][..len], SendFlags::empty())? else {
            return Ok(false);
        };
        at.bytes += written;
        skip_whole(at, |step| bytes_of(&segments.sent_in(step)), segments.steps());
        Ok(true)
    }

    /// Passes every rank's block around the ring. `blocks` holds this rank's block at its index.
    pub(super) fn all_gather(&mut self, blocks: &mut [Vec<u8>], waiter: &Waiter<'_>) -> Result<(), Fault> {
        self.meet(waiter)?;
        let (ranks, rank) = (self.world_size, self.rank.0 as usize);
        for step in 0..ranks - 1 {
            let (out, into) = ((rank + ranks - step) % ranks, (rank + 2 * ranks - 1 - step) % ranks);
            let mut len = [0; 8];
            let send = std::mem::take(&mut blocks[out]);
            self.exchange(&(send.len() as u64).to_le_bytes(), &mut len, SendFlags::empty(), waiter)?;
            let mut block = vec![0; u64::from_le_bytes(len) as usize];
            self.exchange(&send, &mut block, SendFlags::empty(), waiter)?;
            blocks[out] = send;
            blocks[into] = block;
        }
        Ok(())
    }

    /// Passes the root's bytes along the ring, piece by piece.
    pub(super) fn broadcast(
        &mut self,
        root: Rank,
        bytes: &mut Vec<u8>,
        waiter: &Waiter<'_>,
    ) -> Result<(), Fault> {
        self.meet(waiter)?;
        let (receives, sends) = (self.rank != root, self.next() != root);
        let mut len = (bytes.len() as u64).to_le_bytes();
        if receives {
            self.exchange(&[], &mut len, SendFlags::empty(), waiter)?;
            *bytes = vec![0; u64::from_le_bytes(len) as usize];
        }
        if sends {
            self.exchange(&len, &mut [], SendFlags::empty(), waiter)?;
        }
        for piece in bytes.chunks_mut(PIECE_BYTES) {
            if receives {
                self.exchange(&[], piece, SendFlags::empty(), waiter)?;
            }
            if sends {
                self.exchange(piece, &mut [], SendFlags::empty(), waiter)?;
            }
        }
        Ok(())
    }

    /// Sends all of `out` to the next rank and, at the same time, fills `received` from the previous one.
    fn exchange(
        &self,
        mut out: &[u8],
        mut received: &mut [u8],
        flags: SendFlags,
        waiter: &Waiter<'_>,
    ) -> Result<(), Fault> {
        loop {
            let written = if out.is_empty() { None } else { self.send(out, flags)? };
            out = &out[written.unwrap_or(0)..];
            let read = if received.is_empty() { None } else { self.receive(received)? };
            received = &mut received[read.unwrap_or(0)..];
            if out.is_empty() && received.is_empty() {
                return Ok(());
            }
            if written.is_none() && read.is_none() {
                let reading = (!received.is_empty()).then(|| self.from_previous.as_fd());
                waiter.wait(reading, (!out.is_empty()).then(|| self.to_next.as_fd()))?;
            }
        }
    }

    /// Writes as much as the socket accepts. Returns `None` if the socket is full.
    fn send(&self, bytes: &[u8], flags: SendFlags) -> Result<Option<usize>, Fault> {
        match rustix::net::send(&self.to_next, bytes, flags | SendFlags::NOSIGNAL) {
            Ok(written) => Ok(Some(written)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(broken(self.next(), error)),
        }
    }

    /// Reads as much as the socket has. Returns `None` if the socket is empty.
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Fault> {
        match rustix::io::read(&self.from_previous, buffer) {
            Ok(0) => Err(Fault::Broken { peer: self.previous(), reason: "its connection ended".into() }),
            Ok(read) => Ok(Some(read)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(broken(self.previous(), error)),
        }
    }
}

fn broken(peer: Rank, error: Errno) -> Fault {
    Fault::Broken { peer, reason: format!("its connection broke ({error})") }
}

/// The size of a head, in bytes: the sequence number of a collective, its kind, and the argument of the kind.
const HEAD_BYTES: usize = 24;

fn encode(seq: Seq, collective: Operation) -> [u8; HEAD_BYTES] {
    let (kind, detail) = match collective {
        Operation::AllReduce(floats) => (0_u64, floats),
        Operation::Broadcast(root) => (1, u64::from(root.0)),
        Operation::AllGather => (2, 0),
    };
    let mut head = [0; HEAD_BYTES];
    for (field, value) in head.chunks_exact_mut(8).zip([seq.0, kind, detail]) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    head
}

fn decode(head: &[u8; HEAD_BYTES]) -> (Seq, String) {
    let (fields, _) = head.as_chunks::<8>();
    let [seq, kind, detail] = [0, 1, 2].map(|field| u64::from_le_bytes(fields[field]));
    let kind = match kind {
        0 => Operation::AllReduce(detail).to_string(),
        1 => Operation::Broadcast(Rank(detail as u32)).to_string(),
        2 => Operation::AllGather.to_string(),
        _ => format!("unknown collective {kind}"),
    };
    (Seq(seq), kind)
}
