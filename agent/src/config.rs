//! The agent's configuration, read from the environment.

use std::collections::BTreeMap;

use wire::attributes::{LabelError, parse_labels};
use wire::batch::Instrumentation;
use wire::ids::{Rank, RunId, RunIdError};

use crate::budget;
use crate::launcher::{self, LauncherError, Membership, environment_variable};
use crate::leftovers::{self, Leftovers};
use crate::server_address::{self, AddressError};

/// The facts that only the job can provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The name of the model or script. Runs of one name are compared with each other. `PACELINE_RUN_NAME` overrides
    /// it.
    pub name: String,
    /// The unit of a sample: `tokens`, `images`.
    pub sample_unit: String,
    /// The number of parameters of the model; 0 if unknown.
    pub parameters: u64,
}

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's address, for instance `http://127.0.0.1:8080`.
    pub server: String,
    /// The bearer token, if the server requires one.
    pub token: Option<String>,
    /// The run.
    pub run: RunId,
    /// The rank of this process.
    pub rank: Rank,
    /// The local rank of this process.
    pub local_rank: u32,
    /// The number of ranks in the run.
    pub world_size: u32,
    /// The job.
    pub job: Job,
    /// The user's labels of this rank.
    pub labels: BTreeMap<String, String>,
    /// The kind of instrumentation: the reducer, unless hooks record the job.
    pub instrumentation: Instrumentation,
    /// The limit of the spool, in bytes.
    pub spool_bytes: usize,
    /// Where batches are kept that cannot be sent before the process ends; `None` if they are dropped.
    pub leftovers: Option<Leftovers>,
    /// The interval of shadow steps: one step in this many is a shadow step; 0 for none.
    pub shadow_every: u64,
    /// The share of one processor that recording may take. Above it, the agent records one step in k in full.
    pub overhead_budget: f64,
}

/// The reason why the environment does not describe a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A required variable is not set.
    #[error("{variable} is not set: start the job with `paceline run` or torchrun, or set it by hand")]
    Missing {
        /// The name of the variable.
        variable: &'static str,
    },
    /// A variable is not a number in its range.
    #[error("{variable}={value:?} is not a whole number from 0 to {most}")]
    Number {
        /// The name of the variable.
        variable: &'static str,
        /// The value of the variable.
        value: String,
        /// The largest valid value.
        most: u64,
    },
    /// The budget is not a percentage.
    #[error("{}={value:?} is not a percentage from 0 to 100", budget::VARIABLE)]
    Budget {
        /// The value of the variable.
        value: String,
    },
    /// The launcher's variables do not give the rank of this process.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// The server's address is invalid.
    #[error("PACELINE_SERVER={value:?}, so this job is not observed: {error}")]
    Server {
        /// The value of the variable, without a user name and password.
        value: String,
        /// What is wrong with it.
        error: AddressError,
    },
    /// A label is invalid.
    #[error("PACELINE_LABELS: {0}")]
    Label(#[from] LabelError),
    /// The run id is invalid.
    #[error("PACELINE_RUN_ID: {0}")]
    Run(#[from] RunIdError),
}

/// The default limit of the spool, per rank. A job loses no records until this much is unsent.
const DEFAULT_SPOOL_BYTES: usize = 256 << 20;
/// The default interval of shadow steps. 2 % of the steps measure what recording costs the other 98 %.
const DEFAULT_SHADOW_EVERY: u64 = 50;

/// The variable that switches the observation off, and its values that do.
const SWITCH: &str = "PACELINE";
const OFF: [&str; 4] = ["off", "0", "false", "no"];

impl Config {
    /// Reads `PACELINE_SERVER`, `PACELINE_TOKEN`, `PACELINE_RUN_ID` (or torchrun's `TORCHELASTIC_RUN_ID`),
    /// `PACELINE_RUN_NAME`, `PACELINE_LABELS`, `PACELINE_SPOOL_BYTES`, `PACELINE_SPOOL_DIR`, `PACELINE_SHADOW_EVERY` and
    /// `PACELINE_OVERHEAD_BUDGET`. Reads rank and world size from the launcher's variables ([`launcher`]). Returns `None`
    /// if `PACELINE_SERVER` is not set, or if `PACELINE=off` switches the observation off.
    ///
    /// # Errors
    /// Returns an error if a variable is missing or invalid.
    pub fn from_env(job: Job) -> Result<Option<Self>, ConfigError> {
        Self::from_variables(job, None, variable)
    }

    /// Does the same as [`Self::from_env`] for one of several ranks in this process, whose ranks the environment does
    /// not give.
    ///
    /// # Errors
    /// Returns an error in the cases of [`Self::from_env`].
    pub fn from_env_as(job: Job, rank: Rank, world_size: u32) -> Result<Option<Self>, ConfigError> {
        Self::from_variables(job, Some((rank, world_size)), variable)
    }

    /// Builds a configuration from the variables that `get` returns. `known` is the rank and the world size, if they
    /// need not be read.
    fn from_variables(
        job: Job,
        known: Option<(Rank, u32)>,
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ConfigError> {
        let is_off = get(SWITCH).is_some_and(|value| OFF.contains(&value.trim().to_lowercase().as_str()));
        let Some(server) = get("PACELINE_SERVER").filter(|_| !is_off) else { return Ok(None) };
        let server = server_address::parse(&server)
            .map_err(|error| ConfigError::Server { value: strip_password(server), error })?;
        let number = |variable: &'static str, default: Option<u64>, most: u64| match get(variable) {
            None => default.ok_or(ConfigError::Missing { variable }),
            Some(value) => value
                .parse::<u64>()
                .ok()
                .filter(|&number| number <= most)
                .ok_or(ConfigError::Number { variable, value, most }),
        };
        let (rank, world_size, local_rank) = match known {
            Some((rank, world_size)) => (rank.0, world_size, rank.0),
            None => {
                let found = launcher::membership_from(&get)?;
                let Membership { rank, world_size, local_rank, .. } =
                    found.ok_or(ConfigError::Missing { variable: "RANK" })?;
                (rank, world_size, local_rank.unwrap_or(rank))
            }
        };
        let run = launcher::run_id_from(&get).ok_or(ConfigError::Missing { variable: "PACELINE_RUN_ID" })?;
        let overhead_budget = match get(budget::VARIABLE) {
            None => budget::DEFAULT,
            Some(value) => budget::parse(&value).ok_or(ConfigError::Budget { value })?,
        };
        let name = get("PACELINE_RUN_NAME").unwrap_or_else(|| job.name.clone());
        Ok(Some(Self {
            server,
            // A secret of Kubernetes often ends with a line break, which no header may have.
            token: get("PACELINE_TOKEN").map(|token| token.trim().to_owned()),
            run: RunId::new(run)?,
            rank: Rank(rank),
            local_rank,
            world_size,
            job: Job { name, ..job },
            labels: parse_labels(&get("PACELINE_LABELS").unwrap_or_default())?,
            instrumentation: Instrumentation::Reducer,
            spool_bytes: number("PACELINE_SPOOL_BYTES", Some(DEFAULT_SPOOL_BYTES as u64), 1 << 40)? as usize,
            leftovers: Leftovers::from_variables(&get),
            shadow_every: number("PACELINE_SHADOW_EVERY", Some(DEFAULT_SHADOW_EVERY), u64::MAX)?,
            overhead_budget,
        }))
    }
}

/// Returns an address without its user name and password, for a message.
fn strip_password(address: String) -> String {
    match address.rsplit_once('@') {
        Some((_, place)) => format!("...@{place}"),
        None => address,
    }
}

/// Returns an environment variable. An empty one counts as not set, except for the folder of leftovers: then nothing is kept.
fn variable(name: &str) -> Option<String> {
    if name == leftovers::VARIABLE { std::env::var(name).ok() } else { environment_variable(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Config>, ConfigError> {
        let job = Job { name: "j".into(), sample_unit: "tokens".into(), parameters: 0 };
        Config::from_variables(job, None, |name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn no_server_means_disabled_and_an_error_names_the_variable() {
        const SERVER: (&str, &str) = ("PACELINE_SERVER", "http://h:1/");
        assert!(read(&[("RANK", "0")]).unwrap().is_none());
        assert!(read(&[SERVER, ("RANK", "0"), ("PACELINE", "Off")]).unwrap().is_none());
        assert_eq!(read(&[SERVER]).unwrap_err(), ConfigError::Missing { variable: "RANK" });
        let tls = read(&[("PACELINE_SERVER", "https://h"), ("RANK", "0")]).unwrap_err().to_string();
        assert!(
            tls.starts_with("PACELINE_SERVER=\"https://h\", so this job is not observed: agents and this program have no TLS"),
            "{tls}"
        );
        let user = read(&[("PACELINE_SERVER", "http://me:secret@h"), ("RANK", "0")]).unwrap_err().to_string();
        assert!(
            user.starts_with("PACELINE_SERVER=\"...@h\", so this job is not observed: it has a user name"),
            "{user}"
        );
        let no_scheme = read(&[("PACELINE_SERVER", "h:1"), ("RANK", "0")]).unwrap_err();
        assert!(no_scheme.to_string().contains("it does not start with http://"), "{no_scheme}");
        let rank = ("RANK", "3");
        let too_high = read(&[SERVER, rank, ("WORLD_SIZE", "2")]).unwrap_err();
        assert_eq!(too_high.to_string(), "RANK=3 is not below WORLD_SIZE=2: ranks count from 0");
        let no_number = read(&[SERVER, rank, ("WORLD_SIZE", "four")]).unwrap_err();
        assert!(no_number.to_string().starts_with("WORLD_SIZE=\"four\""), "{no_number}");
        let good = read(&[SERVER, rank, ("WORLD_SIZE", "4"), ("TORCHELASTIC_RUN_ID", "r")]);
        let good = good.unwrap().unwrap();
        assert_eq!((good.server.as_str(), good.run.as_str(), good.local_rank), ("http://h:1", "r", 3));
        let lines = [("PACELINE_TOKEN", "ab+/=\n"), ("WORLD_SIZE", "4"), ("PACELINE_RUN_ID", "r")];
        let token = read(&[&[SERVER, rank], lines.as_slice()].concat()).unwrap().unwrap().token;
        assert_eq!(token.as_deref(), Some("ab+/="), "without the line break of its file");
        let labels = ("PACELINE_LABELS", "team=nlp,oops");
        let no_label = read(&[SERVER, rank, ("WORLD_SIZE", "4"), ("PACELINE_RUN_ID", "r"), labels]);
        let no_label = no_label.unwrap_err().to_string();
        assert_eq!(no_label, "PACELINE_LABELS: \"oops\" is not a label: write KEY=VALUE, such as team=nlp");
        let slurm =
            [("SLURM_PROCID", "9"), ("SLURM_NTASKS", "16"), ("SLURM_LOCALID", "1"), ("PACELINE_RUN_ID", "r")];
        let slurm = read(&[&[SERVER], slurm.as_slice()].concat()).unwrap().unwrap();
        assert_eq!((slurm.rank, slurm.world_size, slurm.local_rank), (Rank(9), 16, 1));
    }
}
