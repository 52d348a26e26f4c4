//! The messages between ranks and the hub on control connections, and the hello message on a data connection.
//!
//! ```text
//! frame = length:u32 tag:u8 fields      little endian; length counts the bytes after it
//! text  = length:u32 bytes
//! ```

use std::time::Duration;

use wire::ids::{Rank, Seq};

use crate::error::{Absent, CommError};

/// The longest frame, in bytes: ample for the welcome message of 1,024 ranks with addresses of 100 bytes each.
pub(super) const MAX_FRAME_BYTES: usize = 1 << 20;
/// The first field of every hello message, by which other protocols are recognized and refused.
const MAGIC: u32 = u32::from_le_bytes(*b"PCLR");
/// The version of this protocol. All ranks of a job are meant to run the same build.
const VERSION: u32 = 1;

/// The introduction of the process that opens a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) run: String,
    pub(super) rank: Rank,
    pub(super) world_size: u32,
    /// The address at which this rank accepts its data connection. On a data connection: the key of the session.
    pub(super) address: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Sent by a rank to the hub and to the next rank: introduces the rank.
    Hello(Hello),
    /// Sent by the hub to all ranks once all have joined: the key of the session and the data address of every rank.
    Welcome { key: String, addresses: Vec<String> },
    /// Sent by the hub to a process that it refuses: the reason.
    Refused(String),
    /// Sent by a rank to the hub: the error with which the rank failed. Sent by the hub to all ranks: the error that
    /// all of them report.
    Verdict(CommError),
    /// Sent by a rank to the hub: collective `seq` does not end.
    Stuck { seq: Seq, waited: Duration },
    /// Sent by the hub to all ranks: asks how many collectives each has begun.
    Where,
    /// Sent by a rank to the hub, in answer to [`Self::Where`]: the number of collectives begun.
    At { begun: u64 },
    /// Sent by a rank to the hub, and by the hub when rank 0 leaves: the sender leaves in good order.
    Bye,
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(vec![0; 4]);
        self.write(&mut out);
        let len = (out.0.len() - 4) as u32;
        out.0[..4].copy_from_slice(&len.to_le_bytes());
        out.0
    }

    fn write(&self, out: &mut Writer) {
        match self {
            Self::Hello(hello) => {
                out.tag(0);
                out.u32(MAGIC);
                out.u32(VERSION);
                out.text(&hello.run);
                out.u32(hello.rank.0);
                out.u32(hello.world_size);
                out.text(&hello.address);
            }
            Self::Welcome { key, addresses } => {
                out.tag(1);
                out.text(key);
                out.u32(addresses.len() as u32);
                addresses.iter().for_each(|address| out.text(address));
            }
            Self::Refused(reason) => {
                out.tag(2);
                out.text(reason);
            }
            Self::Verdict(error) => {
                out.tag(3);
                write_error(error, out);
            }
            Self::Stuck { seq, waited } => {
                out.tag(4);
                out.u64(seq.0);
                out.u64(waited.as_millis() as u64);
            }
            Self::Where => out.tag(5),
            Self::At { begun } => {
                out.tag(6);
                out.u64(*begun);
            }
            Self::Bye => out.tag(7),
        }
    }

    /// Removes the first whole message from `buffer`. Returns `None` if there is no whole message yet.
    ///
    /// # Errors
    /// Returns a description of what is wrong with the bytes.
    pub(super) fn take(buffer: &mut Vec<u8>) -> Result<Option<Self>, String> {
        let Some((head, rest)) = buffer.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len > MAX_FRAME_BYTES {
            return Err("it does not speak this protocol".into());
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let mut reader = Reader(body);
        let message = reader.message()?;
        if !reader.0.is_empty() {
            return Err("it sent a message with excess bytes".into());
        }
        buffer.drain(..4 + len);
        Ok(Some(message))
    }
}

fn write_error(error: &CommError, out: &mut Writer) {
    match error {
        CommError::RankFailed { rank, reason } => {
            out.tag(1);
            out.u32(rank.0);
            out.text(reason);
        }
        CommError::TimedOut { seq, waited, absent } => {
            out.tag(2);
            out.u64(seq.0);
            out.u64(waited.as_millis() as u64);
            out.u32(absent.len() as u32);
            for absent in absent {
                out.u32(absent.rank.0);
                out.u64(absent.begun.map_or(0, |begun| begun + 1));
            }
        }
        CommError::Mismatch { rank, ours, peer, theirs } => {
            out.tag(3);
            for (rank, (seq, kind)) in [(rank, ours), (peer, theirs)] {
                out.u32(rank.0);
                out.u64(seq.0);
                out.text(kind);
            }
        }
        CommError::Rendezvous { master, waited, reason } => {
            out.tag(4);
            out.text(master);
            out.u64(waited.as_millis() as u64);
            out.text(reason);
        }
        CommError::RankLost { rank, reason } => {
            out.tag(0);
            out.u32(rank.0);
            out.text(reason);
        }
        // These errors concern one process only and are not sent. If one is sent anyway, the receivers get its text.
        CommError::Refused { .. } | CommError::Setting { .. } | CommError::System { .. } => {
            out.tag(1);
            out.u32(0);
            out.text(&error.to_string());
        }
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.0.extend_from_slice(text.as_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn message(&mut self) -> Result<Message, String> {
        Ok(match self.tag()? {
            0 => Message::Hello(self.hello()?),
            1 => {
                let key = self.text()?;
                let addresses = (0..self.u32()?).map(|_| self.text()).collect::<Result<_, _>>()?;
                Message::Welcome { key, addresses }
            }
            2 => Message::Refused(self.text()?),
            3 => Message::Verdict(self.error()?),
            4 => Message::Stuck { seq: Seq(self.u64()?), waited: Duration::from_millis(self.u64()?) },
            5 => Message::Where,
            6 => Message::At { begun: self.u64()? },
            7 => Message::Bye,
            other => return Err(format!("it sent a message of unknown kind {other}")),
        })
    }

    fn hello(&mut self) -> Result<Hello, String> {
        if self.u32()? != MAGIC {
            return Err("it does not speak this protocol".into());
        }
        let version = self.u32()?;
        if version != VERSION {
            return Err(format!("it uses version {version} of this protocol, this rank version {VERSION}"));
        }
        Ok(Hello {
            run: self.text()?,
            rank: Rank(self.u32()?),
            world_size: self.u32()?,
            address: self.text()?,
        })
    }

    fn error(&mut self) -> Result<CommError, String> {
        Ok(match self.tag()? {
            0 => CommError::RankLost { rank: Rank(self.u32()?), reason: self.text()? },
            1 => CommError::RankFailed { rank: Rank(self.u32()?), reason: self.text()? },
            2 => {
                let (seq, waited) = (Seq(self.u64()?), Duration::from_millis(self.u64()?));
                let absent = (0..self.u32()?).map(|_| self.absent()).collect::<Result<_, _>>()?;
                CommError::TimedOut { seq, waited, absent }
            }
            3 => {
                let (rank, ours) = (Rank(self.u32()?), (Seq(self.u64()?), self.text()?));
                let (peer, theirs) = (Rank(self.u32()?), (Seq(self.u64()?), self.text()?));
                CommError::Mismatch { rank, ours, peer, theirs }
            }
            4 => {
                let (master, waited) = (self.text()?, Duration::from_millis(self.u64()?));
                CommError::Rendezvous { master, waited, reason: self.text()? }
            }
            other => return Err(format!("it sent an error of unknown kind {other}")),
        })
    }

    fn absent(&mut self) -> Result<Absent, String> {
        Ok(Absent { rank: Rank(self.u32()?), begun: self.u64()?.checked_sub(1) })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or("it sent a message that is too short")?;
        self.0 = rest;
        Ok(*head)
    }

    fn tag(&mut self) -> Result<u8, String> {
        self.array::<1>().map(|[tag]| tag)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String, String> {
        let len = self.u32()? as usize;
        let (text, rest) = self.0.split_at_checked(len).ok_or("it sent a text that is too short")?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| "it sent a text that is not UTF-8".to_owned())
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: Message) {
        let bytes = message.encode();
        for end in 0..bytes.len() {
            assert_eq!(Message::take(&mut bytes[..end].to_vec()), Ok(None));
        }
        let mut twice = [bytes.clone(), bytes].concat();
        assert_eq!(Message::take(&mut twice), Ok(Some(message.clone())));
        assert_eq!(Message::take(&mut twice), Ok(Some(message)));
        assert!(twice.is_empty());
    }

    #[test]
    fn messages_round_trip() {
        let hello = Hello { run: "r".into(), rank: Rank(3), world_size: 4, address: "127.0.0.1:1".into() };
        check(Message::Hello(hello));
        check(Message::Welcome { key: "k".into(), addresses: vec!["a".into(), String::new()] });
        check(Message::Refused("no".into()));
        check(Message::Stuck { seq: Seq(9), waited: Duration::from_millis(1500) });
        check(Message::Where);
        check(Message::At { begun: 7 });
        check(Message::Bye);
        let absent = vec![Absent { rank: Rank(1), begun: None }, Absent { rank: Rank(2), begun: Some(0) }];
        let waited = Duration::from_secs(1);
        check(Message::Verdict(CommError::TimedOut { seq: Seq(1), waited, absent }));
        check(Message::Verdict(CommError::RankLost { rank: Rank(1), reason: "gone".into() }));
        check(Message::Verdict(CommError::RankFailed { rank: Rank(1), reason: "tired".into() }));
        check(Message::Verdict(CommError::Rendezvous { master: "m".into(), waited, reason: "x".into() }));
        let (ours, theirs) = ((Seq(1), "a".into()), (Seq(2), "b".into()));
        check(Message::Verdict(CommError::Mismatch { rank: Rank(0), ours, peer: Rank(1), theirs }));
    }

    #[test]
    fn bytes_of_another_protocol_are_refused() {
        let mut http = b"GET / HTTP/1.1\r\n\r\n".to_vec();
        assert!(Message::take(&mut http).is_err());
        let mut wrong = Message::Where.encode();
        wrong[4] = 99;
        assert!(Message::take(&mut wrong).is_err());
    }
}
