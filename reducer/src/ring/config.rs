//! Where the ranks meet.

use std::time::Duration;

use wire::ids::{Rank, RunId};

use crate::error::CommError;

/// How a process finds its place in the ring.
#[derive(Clone, Debug)]
pub struct Config {
    /// The job; processes of another one are refused.
    pub run: RunId,
    /// This process.
    pub rank: Rank,
    /// How many ranks there are.
    pub world_size: u32,
    /// Where rank 0 listens: `host:port`.
    pub master: String,
    /// How long a collective may take before it fails and names who did not come.
    pub timeout: Duration,
    /// How long ranks wait for each other at the start.
    pub rendezvous: Duration,
    /// Use TCP even between ranks of one host.
    pub tcp_only: bool,
}

impl Config {
    /// As torchrun sets the environment: `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`, and
    /// `PACELINE_RUN_ID` (or torchrun's `TORCHELASTIC_RUN_ID`). Without `WORLD_SIZE` it is a world of one. Collectives may take five minutes,
    /// the start one minute.
    ///
    /// # Errors
    /// When a variable is missing or not what it should be.
    pub fn from_env() -> Result<Self, CommError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&'static str) -> Option<String>) -> Result<Self, CommError> {
        let run = variable("PACELINE_RUN_ID")
            .or_else(|| variable("TORCHELASTIC_RUN_ID"))
            .unwrap_or_else(|| "job".into());
        let run = RunId::new(run)
            .map_err(|error| CommError::Setting { setting: "PACELINE_RUN_ID", reason: error.to_string() })?;
        let (mut rank, mut world_size, mut master) = (0, 1, "127.0.0.1:0".to_owned());
        if variable("WORLD_SIZE").is_some() {
            let needed = |name| {
                variable(name).ok_or_else(|| CommError::Setting {
                    setting: name,
                    reason: "must be set, because WORLD_SIZE is".into(),
                })
            };
            world_size = number("WORLD_SIZE", &needed("WORLD_SIZE")?)?;
            rank = number("RANK", &needed("RANK")?)?;
            if world_size > 1 {
                let port: u16 = number("MASTER_PORT", &needed("MASTER_PORT")?)?;
                let address = needed("MASTER_ADDR")?;
                let is_bare_ipv6 = address.parse::<std::net::Ipv6Addr>().is_ok();
                master =
                    if is_bare_ipv6 { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
            }
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

fn number<T: std::str::FromStr>(setting: &'static str, text: &str) -> Result<T, CommError> {
    let wrong = || CommError::Setting { setting, reason: format!("{text:?} is not a number it can be") };
    text.trim().parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], expected: Result<(u32, u32, &str), &str>) {
        let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let found = Config::from_variables(get);
        let found = found.map(|c| (c.rank.0, c.world_size, c.master)).map_err(|error| error.to_string());
        let expected = expected.map(|(r, w, m)| (r, w, m.to_owned())).map_err(str::to_owned);
        assert_eq!(found, expected, "{variables:?}");
    }

    #[test]
    fn the_environment_is_torchruns() {
        check(&[], Ok((0, 1, "127.0.0.1:0")));
        check(&[("WORLD_SIZE", "1"), ("RANK", "0")], Ok((0, 1, "127.0.0.1:0")));
        let address = [("MASTER_ADDR", "h"), ("MASTER_PORT", "29500")];
        check(&[&[("WORLD_SIZE", "4"), ("RANK", "3")], &address[..]].concat(), Ok((3, 4, "h:29500")));
        let ipv6 = [("MASTER_ADDR", "::1"), ("MASTER_PORT", "80"), ("WORLD_SIZE", "2"), ("RANK", "1")];
        check(&ipv6, Ok((1, 2, "[::1]:80")));
        check(
            &[&[("WORLD_SIZE", "4"), ("RANK", "4")], &address[..]].concat(),
            Err("RANK: is 4, but ranks go from 0 to 3 (WORLD_SIZE is 4)"),
        );
        check(&[("WORLD_SIZE", "two")], Err("WORLD_SIZE: \"two\" is not a number it can be"));
        check(&[("WORLD_SIZE", "0"), ("RANK", "0")], Err("WORLD_SIZE: must be at least 1"));
        check(&[("WORLD_SIZE", "2")], Err("RANK: must be set, because WORLD_SIZE is"));
        check(&[("WORLD_SIZE", "2"), ("RANK", "0")], Err("MASTER_PORT: must be set, because WORLD_SIZE is"));
    }
}
