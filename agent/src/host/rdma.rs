//! What the RDMA ports of the host (InfiniBand, RoCE) send and receive, by all processes. This traffic bypasses the counters of the
//! network interfaces.
//!
//! The counters are those of the kernel's `sysfs-class-infiniband`: words of four bytes, which devices count in 64 bits.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel lists the devices.
pub(super) const DEVICES: &str = "/sys/class/infiniband";
/// The size of the words that ports count, in bytes.
const WORD_BYTES: u64 = 4;
/// The largest number of ports that are read.
const MAX_PORTS: usize = 64;

/// The ports of the devices that the host had at the start, and what they have sent and received since.
#[derive(Debug, Default)]
pub(super) struct Rdma {
    ports: Vec<Port>,
    total: Traffic,
}

/// What was sent and received, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub sent: u64,
    pub received: u64,
}

/// One port of a device.
#[derive(Debug)]
struct Port {
    folder: PathBuf,
    /// What it had counted when it was last read; `None` if it was inactive or could not be read.
    previous: Option<Traffic>,
}

impl Rdma {
    /// Finds the ports of the devices in a folder, such as [`DEVICES`].
    pub fn find(devices: &Path) -> Self {
        let folders = entries(devices).flat_map(|device| entries(&device.join("ports")));
        let ports = folders.map(|folder| Port { folder, previous: None });
        Self { ports: ports.take(MAX_PORTS).collect(), total: Traffic::default() }
    }

    /// Returns what the active ports have sent and received since the first call; `None` without an active port that counts.
    ///
    /// Each port counts by its growth between two calls in which it is active. A port that becomes active therefore does not
    /// add what it counted before, and a counter that has decreased adds nothing.
    pub fn read(&mut self) -> Option<Traffic> {
        let mut is_known = false;
        for port in &mut self.ports {
            let now = port.read();
            is_known |= now.is_some();
            if let (Some(previous), Some(now)) = (port.previous, now) {
                self.total.sent += now.sent.saturating_sub(previous.sent);
                self.total.received += now.received.saturating_sub(previous.received);
            }
            port.previous = now;
        }
        is_known.then_some(self.total)
    }
}

impl Port {
    /// Returns what the port has counted; `None` if it is inactive or does not count.
    fn read(&self) -> Option<Traffic> {
        // For instance `4: ACTIVE`.
        if !fs::read_to_string(self.folder.join("state")).ok()?.contains("ACTIVE") {
            return None;
        }
        let bytes = |name: &str| {
            let words = fs::read_to_string(self.folder.join("counters").join(name)).ok()?;
            Some(words.trim().parse::<u64>().ok()?.saturating_mul(WORD_BYTES))
        };
        Some(Traffic { sent: bytes("port_xmit_data")?, received: bytes("port_rcv_data")? })
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Writes the files of a port: its state, and the words that it has sent and received.
    pub fn write_port(devices: &Path, port: &str, state: &str, (sent, received): (u64, u64)) {
        let folder = devices.join(port);
        fs::create_dir_all(folder.join("counters")).unwrap();
        fs::write(folder.join("state"), format!("{state}\n")).unwrap();
        fs::write(folder.join("counters/port_xmit_data"), format!("{sent}\n")).unwrap();
        fs::write(folder.join("counters/port_rcv_data"), format!("{received}\n")).unwrap();
    }

    const FIRST: &str = "mlx5_0/ports/1";
    const SECOND: &str = "mlx5_1/ports/1";
    const ACTIVE: &str = "4: ACTIVE";

    #[test]
    fn active_ports_of_all_devices_count_in_bytes_from_the_first_call_on() {
        let devices = tempfile::tempdir().unwrap();
        let write = |port: &str, state: &str, words| write_port(devices.path(), port, state, words);
        write(FIRST, ACTIVE, (1_000, 2_000));
        write(SECOND, ACTIVE, (u64::MAX / 8, 7));
        write("mlx5_1/ports/2", "1: DOWN", (500, 500));
        let mut rdma = Rdma::find(devices.path());
        assert_eq!(rdma.read(), Some(Traffic::default()));
        write(FIRST, ACTIVE, (1_010, 2_100));
        write(SECOND, ACTIVE, (u64::MAX / 8 + 5, 7));
        write("mlx5_1/ports/2", "1: DOWN", (900, 900));
        assert_eq!(rdma.read(), Some(Traffic { sent: 60, received: 400 }));
        write("mlx5_1/ports/2", ACTIVE, (1_000, 1_000));
        assert_eq!(rdma.read(), Some(Traffic { sent: 60, received: 400 }), "it was inactive before");
        write("mlx5_1/ports/2", ACTIVE, (1_001, 1_002));
        assert_eq!(rdma.read(), Some(Traffic { sent: 64, received: 408 }));
    }

    #[test]
    fn a_counter_that_decreases_adds_nothing() {
        let devices = tempfile::tempdir().unwrap();
        write_port(devices.path(), FIRST, ACTIVE, (1_000, 1_000));
        let mut rdma = Rdma::find(devices.path());
        rdma.read();
        write_port(devices.path(), FIRST, ACTIVE, (10, 1_001));
        assert_eq!(rdma.read(), Some(Traffic { sent: 0, received: 4 }));
        write_port(devices.path(), FIRST, ACTIVE, (11, 1_001));
        assert_eq!(
            rdma.read(),
            Some(Traffic { sent: 4, received: 4 }),
            "it counts on from the smaller value"
        );
    }

    #[test]
    fn a_device_that_vanishes_counts_no_more_and_without_any_the_traffic_is_unknown() {
        let devices = tempfile::tempdir().unwrap();
        write_port(devices.path(), FIRST, ACTIVE, (1, 1));
        write_port(devices.path(), SECOND, ACTIVE, (1, 1));
        let mut rdma = Rdma::find(devices.path());
        rdma.read();
        fs::remove_dir_all(devices.path().join("mlx5_1")).unwrap();
        write_port(devices.path(), FIRST, ACTIVE, (3, 1));
        assert_eq!(rdma.read(), Some(Traffic { sent: 8, received: 0 }));
        fs::remove_file(devices.path().join(FIRST).join("counters/port_rcv_data")).unwrap();
        assert_eq!(rdma.read(), None, "a port that does not count both directions is unknown");
        fs::remove_dir_all(devices.path().join("mlx5_0")).unwrap();
        assert_eq!(rdma.read(), None);
        write_port(devices.path(), FIRST, ACTIVE, (100, 100));
        assert_eq!(
            rdma.read(),
            Some(Traffic { sent: 8, received: 0 }),
            "what it counted meanwhile is unknown"
        );
        assert_eq!(Rdma::find(&devices.path().join("none")).read(), None);
    }
}
