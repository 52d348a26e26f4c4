//! The start of a ring: every rank connects to the hub, receives all addresses from it, and connects to its neighbors.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use wire::ids::Rank;

use super::config::Config;
use super::data::DataRing;
use super::hub;
use super::member::{Membership, Shared};
use super::message::{Hello, Message};
use super::poll::poll_until;
use crate::error::CommError;

/// The pause between two attempts to reach a rank 0 that does not listen yet.
const RETRY: Duration = Duration::from_millis(20);
/// The longest time of one attempt to connect. A host that drops packets is tried again.
const ATTEMPT: Duration = Duration::from_secs(3);
/// The longest time that a data connection may stay open without a hello message.
const HELLO_WAIT: Duration = Duration::from_secs(3);

/// Meets the other ranks.
pub(super) fn meet(config: &Config, shared: &Arc<Shared>) -> Result<(DataRing, Membership), CommError> {
    let mut hub = if config.rank == Rank(0) { Some(open_hub(config)?) } else { None };
    let met = introduce(config, shared, &mut hub);
    if let (Err(_), Some(hub)) = (&met, hub) {
        // The process may end after this call. The hub must have reported the reason to the other ranks before that.
        hub.await_goodbye();
    }
    met
}

fn introduce(
    config: &Config,
    shared: &Arc<Shared>,
    hub: &mut Option<hub::HubHandle>,
) -> Result<(DataRing, Membership), CommError> {
    let deadline = Instant::now() + config.rendezvous;
    let mut control = reach_master(config, deadline)?;
    let address = control.local_addr().map_err(|error| system("reading the local address", &error))?;
    let ports = Ports::open(address, config)?;
    control
        .write_all(&Message::Hello(hello(config, ports.address())).encode())
        .map_err(|error| missed(config, format!("the connection to rank 0 broke: {error}")))?;
    let mut buffer = Vec::new();
    // Rank 0 gives up first and sends the reason. The other ranks wait a little longer to receive it.
    let (key, addresses) = await_welcome(&mut control, &mut buffer, config, deadline + HELLO_WAIT)?;
    let membership = Membership::start(control, buffer, shared.clone(), hub.take())
        .map_err(|error| system("starting the control thread", &error))?;
    let ring = close_ring(config, shared, &ports, &key, &addresses, deadline);
    // From here on, the other ranks would wait for this one, so an error is reported to them.
    let ring = ring.inspect_err(|error| shared.give_up(&error.to_string()))?;
    Ok((ring, membership))
}

/// Connects to the next rank and accepts the connection of the previous one.
fn close_ring(
    config: &Config,
    shared: &Shared,
    ports: &Ports,
    key: &str,
    addresses: &[String],
    deadline: Instant,
) -> Result<DataRing, CommError> {
    let next = (config.rank.0 + 1) % config.world_size;
    let to_next = ports.connect(&addresses[next as usize], Rank(next), deadline)?;
    write_all(&to_next, &Message::Hello(hello(config, key.to_owned())).encode())
        .map_err(|error| missed(config, format!("the connection to rank {next} broke: {error}")))?;
    let from_previous = ports.accept(config, key, shared, deadline)?;
    DataRing::new(config.rank, config.world_size, to_next, from_previous)
}

fn hello(config: &Config, address: String) -> Hello {
    Hello { run: config.run.to_string(), rank: config.rank, world_size: config.world_size, address }
}

fn system(doing: &str, error: &dyn std::fmt::Display) -> CommError {
    CommError::System { doing: doing.into(), reason: error.to_string() }
}

fn missed(config: &Config, reason: String) -> CommError {
    CommError::Rendezvous { master: config.master.clone(), waited: config.rendezvous, reason }
}

fn open_hub(config: &Config) -> Result<hub::HubHandle, CommError> {
    let listener = TcpListener::bind(&config.master).map_err(|error| CommError::System {
        doing: format!("rank 0 cannot listen at {} (MASTER_ADDR:MASTER_PORT)", config.master),
        reason: error.to_string(),
    })?;
    hub::start(listener, config).map_err(|error| system("starting rank 0's hub", &error))
}

fn reach_master(config: &Config, deadline: Instant) -> Result<TcpStream, CommError> {
    loop {
        let error = match attempt(&config.master) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|error| system("setting TCP_NODELAY", &error))?;
                return Ok(stream);
            }
            Err(error) => error,
        };
        if Instant::now() + RETRY >= deadline {
            return Err(missed(config, format!("rank 0 could not be reached: {error}")));
        }
        std::thread::sleep(RETRY);
    }
}

fn attempt(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ATTEMPT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn await_welcome(
    control: &mut TcpStream,
    buffer: &mut Vec<u8>,
    config: &Config,
    deadline: Instant,
) -> Result<(String, Vec<String>), CommError> {
    loop {
        match Message::take(buffer).map_err(|reason| missed(config, format!("rank 0: {reason}")))? {
            Some(Message::Welcome { key, addresses }) if addresses.len() == config.world_size as usize => {
                return Ok((key, addresses));
            }
            Some(Message::Verdict(verdict)) => return Err(verdict),
            Some(Message::Refused(reason)) => {
                return Err(CommError::Refused { master: config.master.clone(), reason });
            }
            Some(_) => return Err(missed(config, "rank 0 does not speak this protocol".into())),
            None => {}
        }
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        control.set_read_timeout(Some(left)).map_err(|error| system("setting a timeout", &error))?;
        let mut bytes = [0; 4096];
        let reason = match control.read(&mut bytes) {
            Ok(0) => "rank 0 ended before all ranks had joined".to_owned(),
            Ok(read) => {
                buffer.extend_from_slice(&bytes[..read]);
                continue;
            }
            Err(_) if Instant::now() >= deadline => "rank 0 does not answer".to_owned(),
            Err(error) => format!("the connection to rank 0 broke: {error}"),
        };
        return Err(missed(config, reason));
    }
}

/// The ports at which a rank accepts its data connection: a TCP port and, on Linux, a Unix socket for ranks of the same
/// host, which moves bytes at half the cost.
struct Ports {
    tcp: TcpListener,
    local: Option<local::Port>,
}

impl Ports {
    fn open(address: SocketAddr, config: &Config) -> Result<Self, CommError> {
        let listen = |error: io::Error| system(&format!("listening at {}", address.ip()), &error);
        let tcp = TcpListener::bind((address.ip(), 0)).map_err(listen)?;
        tcp.set_nonblocking(true).map_err(listen)?;
        Ok(Self { tcp, local: if config.tcp_only { None } else { local::Port::open() } })
    }

    /// Returns `ip:port`, followed by a space and the name of the Unix socket if there is one.
    fn address(&self) -> String {
        let tcp = self.tcp.local_addr().map(|address| address.to_string()).unwrap_or_default();
        match &self.local {
            Some(port) => format!("{tcp} {}", port.name),
            None => tcp,
        }
    }

    fn connect(&self, address: &str, rank: Rank, deadline: Instant) -> Result<OwnedFd, CommError> {
        let (tcp, name) = address.split_once(' ').unwrap_or((address, ""));
        if let Some(port) = &self.local
            && let Some(stream) = port.connect(name)
        {
            return Ok(stream);
        }
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let reach =
            |error: &dyn std::fmt::Display| system(&format!("connecting to rank {rank} at {tcp}"), error);
        let address: SocketAddr = tcp.parse().map_err(|error| reach(&error))?;
        let stream = TcpStream::connect_timeout(&address, left).map_err(|error| reach(&error))?;
        stream.set_nodelay(true).map_err(|error| reach(&error))?;
        Ok(stream.into())
    }

    /// Waits for the connection of the previous rank. Closes all other connections.
    fn accept(
        &self,
        config: &Config,
        key: &str,
        shared: &Shared,
        deadline: Instant,
    ) -> Result<OwnedFd, CommError> {
        let previous = Rank((config.rank.0 + config.world_size - 1) % config.world_size);
        loop {
            while let Some(stream) = self.accept_one() {
                if is_rank(&stream, previous, config, key) {
                    return Ok(stream);
                }
            }
            let mut fds = vec![
                PollFd::from_borrowed_fd(shared.ended.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.tcp.as_fd(), PollFlags::IN),
            ];
            fds.extend(self.local.as_ref().map(|port| PollFd::from_borrowed_fd(port.fd(), PollFlags::IN)));
            let ready =
                poll_until(&mut fds, Some(deadline)).map_err(|error| system("waiting for ranks", &error))?;
            if let Some(verdict) = shared.verdict() {
                return Err(verdict);
            }
            if !ready {
                return Err(missed(
                    config,
                    format!("rank {previous} did not connect to rank {}", config.rank),
                ));
            }
        }
    }

    fn accept_one(&self) -> Option<OwnedFd> {
        let tcp = self
            .tcp
            .accept()
            .ok()
            .and_then(|(stream, _)| stream.set_nodelay(true).ok().map(|()| stream.into()));
        tcp.or_else(|| self.local.as_ref().and_then(local::Port::accept))
    }
}

/// Reads the hello message on a data connection. Returns true if the peer is `rank` of the session with this key.
fn is_rank(stream: &OwnedFd, rank: Rank, config: &Config, key: &str) -> bool {
    let deadline = Instant::now() + HELLO_WAIT;
    let expected = Message::Hello(Hello { rank, ..hello(config, key.to_owned()) }).encode();
    let mut found = vec![0; expected.len()];
    let mut len = 0;
    while len < found.len() {
        let mut fds = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)];
        if !poll_until(&mut fds, Some(deadline)).unwrap_or(false) {
            return false;
        }
        match rustix::io::read(stream, &mut found[len..]) {
            Ok(0) | Err(_) => return false,
            Ok(read) => len += read,
        }
    }
    found == expected
}

fn write_all(stream: &OwnedFd, mut bytes: &[u8]) -> Result<(), rustix::io::Errno> {
    while !bytes.is_empty() {
        let written = rustix::io::write(stream, bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

#[cfg(target_os = "linux")]
mod local {
    //! Unix sockets with abstract names. They need no file to clean up and are unreachable from another host or
    //! container.

    use std::collections::hash_map::RandomState;
    use std::hash::{BuildHasher, Hasher};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    pub(super) struct Port {
        listener: UnixListener,
        /// The name of the socket. Random, so that a rank on another host never finds a socket of that name.
        pub(super) name: String,
    }

    impl Port {
        /// Opens a socket. Returns `None` if the system does not allow it; the ranks then use TCP.
        pub(super) fn open() -> Option<Self> {
            let name = format!("paceline-{:016x}", RandomState::new().build_hasher().finish());
            let address = SocketAddr::from_abstract_name(&name).ok()?;
            let listener = UnixListener::bind_addr(&address).ok()?;
            listener.set_nonblocking(true).ok()?;
            Some(Self { listener, name })
        }

        /// Connects to the socket of that name. Returns `None` if there is none on this host.
        pub(super) fn connect(&self, name: &str) -> Option<OwnedFd> {
            if name.is_empty() {
                return None;
            }
            let address = SocketAddr::from_abstract_name(name).ok()?;
            UnixStream::connect_addr(&address).ok().map(Into::into)
        }

        pub(super) fn accept(&self) -> Option<OwnedFd> {
            self.listener.accept().ok().map(|(stream, _)| stream.into())
        }

        pub(super) fn fd(&self) -> BorrowedFd<'_> {
            self.listener.as_fd()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod local {
    //! Systems other than Linux have no abstract names and use TCP.

    use std::os::fd::{BorrowedFd, OwnedFd};

    pub(super) struct Port {
        pub(super) name: String,
        never: std::convert::Infallible,
    }

    impl Port {
        pub(super) fn open() -> Option<Self> {
            None
        }

        pub(super) fn connect(&self, _name: &str) -> Option<OwnedFd> {
            match self.never {}
        }

        pub(super) fn accept(&self) -> Option<OwnedFd> {
            match self.never {}
        }

        pub(super) fn fd(&self) -> BorrowedFd<'_> {
            match self.never {}
        }
    }
}
