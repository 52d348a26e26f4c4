//! The settings of a ring, read from the environment.

use std::time::Duration;

use agent::launcher::{self, Launcher, Membership};
use wire::ids::{Rank, RunId};

use crate::error::CommError;

/// The settings with which a process joins a ring.
#[derive(Clone, Debug)]
pub struct Config {
    /// The id of the run. Rank 0 refuses processes of other runs.
    pub run: RunId,
    /// The rank of this process.
    pub rank: Rank,
    /// The number of ranks.
    pub world_size: u32,
    /// The address at which rank 0 listens, as `host:port`.
    pub master: String,
    /// The longest time a collective may take before it fails and names the ranks that did not arrive.
    pub timeout: Duration,
    /// The longest time for which ranks wait for each other at the start.
    pub rendezvous: Duration,
    /// Whether ranks of one host use TCP too.
    pub tcp_only: bool,
}

impl Config {
    /// Reads the settings from environment variables.
    ///
    /// The launcher's variables give the rank and the world size ([`agent::launcher`]); `MASTER_ADDR` and `MASTER_PORT`
    /// say where the ranks meet. Without a launcher, the world has one rank. A collective may take five minutes, the
    /// start one minute.
    ///
    /// # Errors
    /// Returns an error if a variable is missing or invalid or contradicts another.
    pub fn from_env() -> Result<Self, CommError> {
        let membership = launcher::membership()
            .map_err(|error| CommError::Setting { setting: error.variable(), reason: error.to_string() })?;
        Self::new(membership, launcher::run_id(), |name| std::env::var(name).ok())
    }

    fn new(
        membership: Option<Membership>,
        run: Option<String>,
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, CommError> {
        let run = RunId::new(run.unwrap_or_else(|| "job".into()))
            .map_err(|error| CommError::Setting { setting: "PACELINE_RUN_ID", reason: error.to_string() })?;
        let (rank, world_size) = membership.map_or((0, 1), |found| (found.rank, found.world_size));
        let mut master = "127.0.0.1:0".to_owned();
        if world_size > 1 {
            let needed = |name, what| {
                variable(name).ok_or_else(|| CommError::Setting {
                    setting: name,
                    reason: format!(
                        "must be set to {what}, where all {world_size} ranks meet; {}",
                        how_to(membership)
                    ),
                })
            };
            let port: u16 = number("MASTER_PORT", &needed("MASTER_PORT", "a free port of rank 0's host")?)?;
            let address = needed("MASTER_ADDR", "rank 0's host")?;
            let is_bare_ipv6 = address.parse::<std::net::Ipv6Addr>().is_ok();
            master = if is_bare_ipv6 { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
        }
        let (timeout, rendezvous) = (Duration::from_secs(300), Duration::from_secs(60));
        let config = Self { run, rank: Rank(rank), world_size, master, timeout, rendezvous, tcp_only: false };
        config.check()?;
        Ok(config)
    }

    pub(super) fn check(&self) -> Result<(), CommError> {
        let reason = if self.world_size == 0 {
            ("WORLD_SIZE", "must be at least 1".to_owned())
        } else if self.rank.0 >= self.world_size {
            let (rank, world) = (self.rank, self.world_size);
            ("RANK", format!("is {rank}, but ranks go from 0 to {} (WORLD_SIZE is {world})", world - 1))
        } else {
            return Ok(());
        };
        Err(CommError::Setting { setting: reason.0, reason: reason.1 })
    }
}

/// Returns advice on how a user of the launcher sets the address of rank 0.
fn how_to(membership: Option<Membership>) -> &'static str {
    match membership.map(|found| found.launcher) {
        Some(Launcher::Slurm) => {
            "in the batch script: export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1) \
             MASTER_PORT=29500"
        }
        Some(Launcher::OpenMpi) => "mpirun passes them on with -x MASTER_ADDR=HOST -x MASTER_PORT=29500",
        Some(Launcher::Pmi) => "mpirun passes them on with -genv MASTER_ADDR HOST -genv MASTER_PORT 29500",
        Some(Launcher::Kubernetes) => "MASTER_ADDR is the DNS name of pod 0, through a headless service",
        _ => "torchrun and `paceline run` set both",
    }
}

fn number<T: std::str::FromStr>(setting: &'static str, text: &str) -> Result<T, CommError> {
    let wrong = || CommError::Setting { setting, reason: format!("{text:?} is not a valid port number") };
    text.trim().parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        place: Option<(u32, u32)>,
        variables: &[(&str, &str)],
        expected: Result<(u32, u32, &str), &str>,
    ) {
        let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let membership = place.map(|(rank, world_size)| Membership {
            rank,
            world_size,
            local_rank: None,
            local_world_size: None,
            launcher: Launcher::Slurm,
        });
        let found = Config::new(membership, None, get);
        match (found.map(|c| (c.rank.0, c.world_size, c.master)), expected) {
            (Ok(found), Ok((rank, world, master))) => assert_eq!(found, (rank, world, master.to_owned())),
            (Err(found), Err(expected)) => assert!(found.to_string().contains(expected), "{found}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn a_world_of_several_ranks_needs_a_master_address() {
        check(None, &[], Ok((0, 1, "127.0.0.1:0")));
        check(Some((0, 1)), &[], Ok((0, 1, "127.0.0.1:0")));
        let address = [("MASTER_ADDR", "h"), ("MASTER_PORT", "29500")];
        check(Some((3, 4)), &address, Ok((3, 4, "h:29500")));
        check(Some((1, 2)), &[("MASTER_ADDR", "::1"), ("MASTER_PORT", "80")], Ok((1, 2, "[::1]:80")));
        check(Some((0, 16)), &[], Err("MASTER_PORT: must be set to a free port of rank 0's host"));
        check(Some((0, 16)), &address[1..], Err("scontrol show hostnames"));
        check(Some((0, 16)), &[("MASTER_ADDR", "h"), ("MASTER_PORT", "x")], Err("MASTER_PORT: \"x\""));
    }
}
