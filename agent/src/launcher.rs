//! The rank of a process, from the environment variables of its launcher. The agent, the reducer and the examples all
//! use this parser.
//!
//! | launcher | rank | world size | local rank, ranks on this host |
//! |---|---|---|---|
//! | torchrun, `paceline run`, Kubeflow's PyTorchJob | `RANK` | `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` |
//! | Open MPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` | `OMPI_COMM_WORLD_LOCAL_RANK`, `..._LOCAL_SIZE` |
//! | MPICH, Intel MPI (PMI) | `PMI_RANK` | `PMI_SIZE` | `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` |
//! | Slurm (`srun`) | `SLURM_PROCID` | `SLURM_STEP_NUM_TASKS`, else `SLURM_NTASKS` | `SLURM_LOCALID` |
//! | Kubernetes Indexed Job and JobSet | `JOB_COMPLETION_INDEX` | `WORLD_SIZE`, set by hand | |
//!
//! Launchers nest, for instance torchrun in `srun`. The first launcher in the table with variables set decides. An
//! incomplete set of variables is an error. So are `RANK` and `WORLD_SIZE` set by hand that contradict another
//! launcher. Otherwise a process could take itself for a world of one and silently train alone.

use std::fmt;

/// The rank of a process and the size of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The rank, from 0 to `world_size` - 1.
    pub rank: u32,
    /// The number of ranks in the job.
    pub world_size: u32,
    /// The local rank, if the launcher provides it.
    pub local_rank: Option<u32>,
    /// The number of ranks on the host, if the launcher provides it.
    pub local_world_size: Option<u32>,
    /// The launcher that set the variables.
    pub launcher: Launcher,
}

/// A family of launchers with the same variable names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// torchrun, and launchers that set the same variables.
    Torchrun,
    /// A Kubernetes Indexed Job or JobSet.
    Kubernetes,
    /// Open MPI's mpirun.
    OpenMpi,
    /// MPICH's and Intel MPI's mpirun.
    Pmi,
    /// Slurm's srun.
    Slurm,
}

/// The variable names of a launcher.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    /// The candidates for the world size. The first that is set counts.
    world_size: &'static [&'static str],
    local_rank: &'static str,
    local_world_size: &'static str,
}

/// The launchers, inner before outer.
const LAUNCHERS: [Names; 5] = [
    Names {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        world_size: &["WORLD_SIZE"],
        local_rank: "LOCAL_RANK",
        local_world_size: "LOCAL_WORLD_SIZE",
    },
    Names {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        world_size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Names {
        launcher: Launcher::Pmi,
        rank: "PMI_RANK",
        world_size: &["PMI_SIZE"],
        local_rank: "MPI_LOCALRANKID",
        local_world_size: "MPI_LOCALNRANKS",
    },
    Names {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        world_size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: "SLURM_LOCALID",
        local_world_size: "",
    },
    // Kubernetes comes last: if another launcher runs in the pods, its ranks are the ones that count.
    Names {
        launcher: Launcher::Kubernetes,
        rank: "JOB_COMPLETION_INDEX",
        world_size: &["WORLD_SIZE"],
        local_rank: "",
        local_world_size: "",
    },
];

/// The reason why the environment does not give the rank of a process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LauncherError {
    /// Only one of two variables is set.
    #[error(
        "{there} is set but {missing} is not: set {missing} too ({meaning}), or unset {there} to train alone"
    )]
    Incomplete {
        /// The variable that is set.
        there: &'static str,
        /// The variable that is not set.
        missing: &'static str,
        /// The meaning of the missing variable.
        meaning: &'static str,
    },
    /// A variable is not a number in its range.
    #[error("{variable}={value:?} is not a whole number from {least} to {}", u32::MAX)]
    Number {
        /// The name of the variable.
        variable: &'static str,
        /// The value of the variable.
        value: String,
        /// The smallest valid value.
        least: u32,
    },
    /// The rank is not below the world size.
    #[error("{rank_name}={rank} is not below {size_name}={world_size}: ranks count from 0")]
    OutOfRange {
        /// The name of the rank's variable.
        rank_name: &'static str,
        /// The value of the variable.
        rank: u32,
        /// The name of the world size's variable.
        size_name: &'static str,
        /// The value of the variable.
        world_size: u32,
    },
    /// Two launchers contradict each other.
    #[error(
        "RANK={} of WORLD_SIZE={} contradicts {other}, which started this process as rank {} of {}: unset RANK and \
         WORLD_SIZE, or set them to {other}'s", set.0, set.1, launched.0, launched.1
    )]
    Contradiction {
        /// The values of `RANK` and `WORLD_SIZE`.
        set: (u32, u32),
        /// The rank and the world size from the other launcher.
        launched: (u32, u32),
        /// The other launcher.
        other: Launcher,
    },
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Torchrun => "torchrun",
            Self::Kubernetes => "Kubernetes",
            Self::OpenMpi => "Open MPI",
            Self::Pmi => "MPI (PMI)",
            Self::Slurm => "Slurm",
        })
    }
}

impl LauncherError {
    /// Returns the variable to check first.
    #[must_use]
    pub fn variable(&self) -> &'static str {
        match self {
            Self::Incomplete { missing, .. } => missing,
            Self::Number { variable, .. } => variable,
            Self::OutOfRange { rank_name, .. } => rank_name,
            Self::Contradiction { .. } => "RANK",
        }
    }
}

/// Reads the environment of this process. Returns `None` if no launcher started it.
///
/// # Errors
/// Returns an error if the variables are incomplete, not numbers, or contradictory.
pub fn membership() -> Result<Option<Membership>, LauncherError> {
    membership_from(environment_variable)
}

/// Does the same as [`membership`] with the variables that `get` returns.
pub(crate) fn membership_from(
    get: impl Fn(&str) -> Option<String>,
) -> Result<Option<Membership>, LauncherError> {
    let mut found: Option<Membership> = None;
    let mut incomplete = None;
    for names in &LAUNCHERS {
        match (names.read(&get), &found) {
            (Ok(Some(membership)), None) => found = Some(membership),
            (Ok(Some(other)), Some(first)) => contradiction(first, &other, &get)?,
            (Err(error), None) => drop(incomplete.get_or_insert(error)),
            // Incomplete variables of an outer launcher do not matter to the ranks of an inner one.
            _ => {}
        }
    }
    match (found, incomplete) {
        // A job with an index does not need RANK. An invalid RANK is still an error.
        (Some(found), Some(LauncherError::Incomplete { missing: "RANK", .. }))
            if found.launcher == Launcher::Kubernetes =>
        {
            Ok(Some(found))
        }
        (_, Some(error)) => Err(error),
        (found, None) => Ok(found),
    }
}

/// Checks that `RANK` and `WORLD_SIZE` agree with another launcher if they were set by hand. If `LOCAL_WORLD_SIZE` is
/// set too, they are from torchrun or `paceline run`, which may run in another launcher's tasks.
fn contradiction(
    first: &Membership,
    other: &Membership,
    get: &impl Fn(&str) -> Option<String>,
) -> Result<(), LauncherError> {
    let by_hand = first.launcher == Launcher::Torchrun && get("LOCAL_WORLD_SIZE").is_none();
    let agree = (first.rank, first.world_size) == (other.rank, other.world_size);
    if !by_hand || agree || other.launcher == Launcher::Kubernetes {
        return Ok(());
    }
    Err(LauncherError::Contradiction {
        set: (first.rank, first.world_size),
        launched: (other.rank, other.world_size),
        other: other.launcher,
    })
}

impl Names {
    fn read(&self, get: &impl Fn(&str) -> Option<String>) -> Result<Option<Membership>, LauncherError> {
        let size_name = self.world_size.iter().copied().find(|name| get(name).is_some());
        let (rank, size) = match (get(self.rank), size_name) {
            (None, None) => return Ok(None),
            // The world size belongs to another launcher, or to an allocation in which nothing has been launched.
            (None, Some(_)) if matches!(self.launcher, Launcher::Kubernetes | Launcher::Slurm) => {
                return Ok(None);
            }
            (None, Some(there)) => {
                let meaning = "the rank of this process, from 0";
                return Err(LauncherError::Incomplete { there, missing: self.rank, meaning });
            }
            (Some(_), None) => {
                let (missing, meaning) = (self.world_size[0], "the number of processes in the job");
                return Err(LauncherError::Incomplete { there: self.rank, missing, meaning });
            }
            (Some(rank), Some(size_name)) => (number(self.rank, rank, 0)?, size_name),
        };
        let world_size = number(size, get(size).unwrap_or_default(), 1)?;
        if rank >= world_size {
            let (rank_name, size_name) = (self.rank, size);
            return Err(LauncherError::OutOfRange { rank_name, rank, size_name, world_size });
        }
        let local = |name: &'static str, least| get(name).map(|value| number(name, value, least)).transpose();
        Ok(Some(Membership {
            rank,
            world_size,
            local_rank: local(self.local_rank, 0)?,
            local_world_size: local(self.local_world_size, 1)?,
            launcher: self.launcher,
        }))
    }
}

fn number(variable: &'static str, value: String, least: u32) -> Result<u32, LauncherError> {
    let number = value.trim().parse().ok().filter(|number| *number >= least);
    number.ok_or(LauncherError::Number { variable, value, least })
}

/// Returns the id that all ranks of the job share, if the launcher provides one: `PACELINE_RUN_ID`, torchrun's id, or
/// the Slurm job and step.
#[must_use]
pub fn run_id() -> Option<String> {
    run_id_from(environment_variable)
}

pub(crate) fn run_id_from(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    let slurm = || Some(format!("slurm-{}.{}", get("SLURM_JOB_ID")?, get("SLURM_STEP_ID")?));
    // torchrun's default is "none", which all jobs without an id would share.
    let torchrun = || get("TORCHELASTIC_RUN_ID").filter(|id| id != "none");
    get("PACELINE_RUN_ID").or_else(torchrun).or_else(slurm)
}

/// Returns an environment variable, if it is set and not empty.
pub(crate) fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;

    type Variables<'a> = &'a [(&'a str, &'a str)];

    fn read(variables: &[Variables]) -> Result<Option<(Launcher, u32, u32)>, String> {
        let all = variables.concat();
        let get = |name: &str| all.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let found = membership_from(get).map_err(|error| error.to_string())?;
        Ok(found.map(|found| (found.launcher, found.rank, found.world_size)))
    }

    const TORCHRUN: Variables =
        &[("RANK", "5"), ("WORLD_SIZE", "16"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "8")];
    const SRUN: Variables = &[
        ("SLURM_PROCID", "9"),
        ("SLURM_NTASKS", "32"),
        ("SLURM_STEP_NUM_TASKS", "16"),
        ("SLURM_LOCALID", "1"),
    ];
    const MPIRUN: Variables = &[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4")];
    const HYDRA: Variables = &[("PMI_RANK", "2"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", "0")];
    const INDEX: Variables = &[("JOB_COMPLETION_INDEX", "7")];

    #[test]
    fn each_launchers_variables_are_read() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[TORCHRUN]), Ok(Some((Launcher::Torchrun, 5, 16))));
        assert_eq!(read(&[SRUN]), Ok(Some((Launcher::Slurm, 9, 16))), "the step, not the allocation");
        assert_eq!(read(&[&SRUN[..2]]), Ok(Some((Launcher::Slurm, 9, 32))));
        assert_eq!(read(&[MPIRUN]), Ok(Some((Launcher::OpenMpi, 3, 4))));
        assert_eq!(read(&[HYDRA]), Ok(Some((Launcher::Pmi, 2, 4))));
        assert_eq!(read(&[INDEX, &[("WORLD_SIZE", "8")]]), Ok(Some((Launcher::Kubernetes, 7, 8))));
    }

    #[test]
    fn the_inner_of_two_launchers_decides() {
        assert_eq!(read(&[TORCHRUN, SRUN]), Ok(Some((Launcher::Torchrun, 5, 16))));
        assert_eq!(read(&[TORCHRUN, INDEX]), Ok(Some((Launcher::Torchrun, 5, 16))));
        assert_eq!(read(&[MPIRUN, SRUN]), Ok(Some((Launcher::OpenMpi, 3, 4))));
        assert_eq!(read(&[MPIRUN, &[("SLURM_PROCID", "0")]]), Ok(Some((Launcher::OpenMpi, 3, 4))));
    }

    #[test]
    fn an_incomplete_environment_says_what_to_set() {
        let refused = |variables: &[Variables]| read(variables).unwrap_err();
        assert_eq!(
            refused(&[&[("WORLD_SIZE", "4")]]),
            "WORLD_SIZE is set but RANK is not: set RANK too (the rank of this process, from 0), or unset \
             WORLD_SIZE to train alone"
        );
        assert!(refused(&[&[("RANK", "0")]]).starts_with("RANK is set but WORLD_SIZE is not"));
        assert!(refused(&[&[("SLURM_PROCID", "0")]]).contains("set SLURM_STEP_NUM_TASKS too"));
        assert!(
            refused(&[INDEX]).contains("set WORLD_SIZE too"),
            "rank 0 of eight pods must not train alone"
        );
        assert!(refused(&[&[("WORLD_SIZE", "4")], SRUN]).contains("RANK is not"), "an incomplete set");
        assert_eq!(read(&[&[("SLURM_NTASKS", "16")]]), Ok(None), "a shell, not a launched task");
    }

    #[test]
    fn invalid_values_are_refused() {
        let refused = |variables: &[Variables]| read(variables).unwrap_err();
        let size = |size| [("RANK", "3"), ("WORLD_SIZE", size)];
        assert_eq!(refused(&[&size("2")]), "RANK=3 is not below WORLD_SIZE=2: ranks count from 0");
        assert!(refused(&[&size("four")]).starts_with("WORLD_SIZE=\"four\" is not a whole number from 1"));
        assert!(refused(&[&size("0")]).starts_with("WORLD_SIZE=\"0\""));
    }

    #[test]
    fn rank_and_world_size_set_by_hand_must_agree_with_the_launcher() {
        let container = [("RANK", "0"), ("WORLD_SIZE", "1")];
        assert_eq!(
            read(&[&container, SRUN]).unwrap_err(),
            "RANK=0 of WORLD_SIZE=1 contradicts Slurm, which started this process as rank 9 of 16: unset RANK and \
             WORLD_SIZE, or set them to Slurm's"
        );
        let like_slurm = [("RANK", "9"), ("WORLD_SIZE", "16")];
        assert_eq!(read(&[&like_slurm, SRUN]), Ok(Some((Launcher::Torchrun, 9, 16))));
        let alone_by_torchrun = [("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_WORLD_SIZE", "1")];
        assert_eq!(
            read(&[&alone_by_torchrun, SRUN]),
            Ok(Some((Launcher::Torchrun, 0, 1))),
            "a sweep of jobs"
        );
    }

    #[test]
    fn all_ranks_of_a_job_share_one_run_id() {
        let id = |variables: Variables| {
            run_id_from(|name| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let slurm = [("SLURM_JOB_ID", "4711"), ("SLURM_STEP_ID", "0")];
        assert_eq!(id(&slurm).as_deref(), Some("slurm-4711.0"));
        assert_eq!(id(&[&slurm[..], &[("TORCHELASTIC_RUN_ID", "t")]].concat()).as_deref(), Some("t"));
        assert_eq!(id(&[("TORCHELASTIC_RUN_ID", "none")]), None);
        assert_eq!(id(&slurm[..1]), None, "the steps of one allocation are several runs");
    }
}
