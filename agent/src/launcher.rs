//! Which rank a process is, as its launcher's environment variables say: the one parser that agent, reducer and examples
//! use.
//!
//! | launcher | rank | world size | rank and ranks on this host |
//! |---|---|---|---|
//! | torchrun, `paceline run`, Kubeflow's PyTorchJob | `RANK` | `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` |
//! | Kubernetes Indexed Job and JobSet | `JOB_COMPLETION_INDEX` | `WORLD_SIZE`, set by hand | |
//! | Open MPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_SIZE` | `OMPI_COMM_WORLD_LOCAL_RANK`, `..._LOCAL_SIZE` |
//! | MPICH, Intel MPI (PMI) | `PMI_RANK` | `PMI_SIZE` | `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` |
//! | Slurm (`srun`) | `SLURM_PROCID` | `SLURM_STEP_NUM_TASKS`, else `SLURM_NTASKS` | `SLURM_LOCALID` |
//!
//! Launchers nest, for instance torchrun in `srun`: the first in the table that is there decides. An incomplete set of
//! variables is an error, and so are `RANK` and `WORLD_SIZE` that no launcher set and another launcher contradicts: a
//! process that took itself for a world of one would train alone, silently.

use std::fmt;

/// Which rank a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// From 0 to `world_size` - 1.
    pub rank: u32,
    /// How many ranks the job has.
    pub world_size: u32,
    /// The rank among those of its host, where the launcher says it.
    pub local_rank: Option<u32>,
    /// How many ranks its host has, where the launcher says it.
    pub local_world_size: Option<u32>,
    /// Who says so.
    pub launcher: Launcher,
}

/// A family of launchers that name their variables alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// torchrun and all that set what it sets.
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

/// How a launcher names its variables.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    /// The first that is set counts.
    world_size: &'static [&'static str],
    local_rank: &'static str,
    local_world_size: &'static str,
}

/// The inner launcher before the outer one.
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
    // Last: where a launcher runs in the pods, each has ranks of its own.
    Names {
        launcher: Launcher::Kubernetes,
        rank: "JOB_COMPLETION_INDEX",
        world_size: &["WORLD_SIZE"],
        local_rank: "",
        local_world_size: "",
    },
];

/// Why the environment does not say which rank a process is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LauncherError {
    /// One of two variables is there.
    #[error(
        "{there} is set and {missing} is not: set {missing} too ({meaning}), or unset {there} to train alone"
    )]
    Incomplete {
        /// The variable that is there.
        there: &'static str,
        /// The variable that is not.
        missing: &'static str,
        /// What it must hold.
        meaning: &'static str,
    },
    /// A variable holds no number that it can hold.
    #[error("{variable}={value:?} is not a whole number from {least} to {}", u32::MAX)]
    Number {
        /// Its name.
        variable: &'static str,
        /// What it holds.
        value: String,
        /// The smallest that makes sense.
        least: u32,
    },
    /// The rank is not below the world size.
    #[error("{rank_name}={rank} is not below {size_name}={world_size}: ranks count from 0")]
    OutOfRange {
        /// The variable of the rank.
        rank_name: &'static str,
        /// What it holds.
        rank: u32,
        /// The variable of the world size.
        size_name: &'static str,
        /// What it holds.
        world_size: u32,
    },
    /// Two launchers say different things.
    #[error(
        "RANK={} of WORLD_SIZE={} contradicts {other}, which started this process as rank {} of {}: unset RANK and \
         WORLD_SIZE, or set them to {other}'s", set.0, set.1, launched.0, launched.1
    )]
    Contradiction {
        /// `RANK` and `WORLD_SIZE`.
        set: (u32, u32),
        /// Rank and world size of the other launcher.
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
    /// The variable to look at first.
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

/// What the environment of this process says; `None` where no launcher started it.
///
/// # Errors
/// When the variables are incomplete, no numbers, or contradict each other.
pub fn membership() -> Result<Option<Membership>, LauncherError> {
    membership_from(of_environment)
}

/// What `get` says of each variable.
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
            // What an outer launcher left of its variables means nothing to the ranks of an inner one.
            _ => {}
        }
    }
    match (found, incomplete) {
        // An index needs no RANK beside it. One that is there and makes no sense is an error all the same.
        (Some(found), Some(LauncherError::Incomplete { missing: "RANK", .. }))
            if found.launcher == Launcher::Kubernetes =>
        {
            Ok(Some(found))
        }
        (_, Some(error)) => Err(error),
        (found, None) => Ok(found),
    }
}

/// `RANK` and `WORLD_SIZE` come from torchrun or `paceline run` where `LOCAL_WORLD_SIZE` does: these may run in another
/// launcher's tasks. Set by hand, they must agree with the launcher that started the process.
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
            // The world size is another launcher's, or that of an allocation in which nothing was launched yet.
            (None, Some(_)) if matches!(self.launcher, Launcher::Kubernetes | Launcher::Slurm) => {
                return Ok(None);
            }
            (None, Some(there)) => {
                let meaning = "the number of this process, from 0";
                return Err(LauncherError::Incomplete { there, missing: self.rank, meaning });
            }
            (Some(_), None) => {
                let (missing, meaning) = (self.world_size[0], "how many processes the job has");
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

/// The id that all ranks of the job have in common, where the launcher gives one: `PACELINE_RUN_ID`, torchrun's, or the
/// Slurm job and step.
#[must_use]
pub fn run_id() -> Option<String> {
    run_id_from(of_environment)
}

pub(crate) fn run_id_from(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    let slurm = || Some(format!("slurm-{}.{}", get("SLURM_JOB_ID")?, get("SLURM_STEP_ID")?));
    get("PACELINE_RUN_ID").or_else(|| get("TORCHELASTIC_RUN_ID")).or_else(slurm)
}

/// A variable that is set to something.
pub(crate) fn of_environment(name: &str) -> Option<String> {
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
    fn each_launcher_is_understood() {
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
    fn what_is_incomplete_says_what_to_set() {
        let refused = |variables: &[Variables]| read(variables).unwrap_err();
        assert_eq!(
            refused(&[&[("WORLD_SIZE", "4")]]),
            "WORLD_SIZE is set and RANK is not: set RANK too (the number of this process, from 0), or unset \
             WORLD_SIZE to train alone"
        );
        assert!(refused(&[&[("RANK", "0")]]).starts_with("RANK is set and WORLD_SIZE is not"));
        assert!(refused(&[&[("SLURM_PROCID", "0")]]).contains("set SLURM_STEP_NUM_TASKS too"));
        assert!(
            refused(&[INDEX]).contains("set WORLD_SIZE too"),
            "rank 0 of eight pods must not train alone"
        );
        assert!(refused(&[&[("WORLD_SIZE", "4")], SRUN]).contains("RANK is not"), "nor by half of two");
        assert_eq!(read(&[&[("SLURM_NTASKS", "16")]]), Ok(None), "a shell in an allocation launched nothing");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |variables: &[Variables]| read(variables).unwrap_err();
        let size = |size| [("RANK", "3"), ("WORLD_SIZE", size)];
        assert_eq!(refused(&[&size("2")]), "RANK=3 is not below WORLD_SIZE=2: ranks count from 0");
        assert!(refused(&[&size("four")]).starts_with("WORLD_SIZE=\"four\" is not a whole number from 1"));
        assert!(refused(&[&size("0")]).starts_with("WORLD_SIZE=\"0\""));
    }

    #[test]
    fn rank_and_world_size_that_were_set_by_hand_must_agree_with_the_launcher() {
        let of_a_container = [("RANK", "0"), ("WORLD_SIZE", "1")];
        assert_eq!(
            read(&[&of_a_container, SRUN]).unwrap_err(),
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
    fn the_ranks_of_a_job_have_one_run_id() {
        let id = |variables: Variables| {
            run_id_from(|name| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let slurm = [("SLURM_JOB_ID", "4711"), ("SLURM_STEP_ID", "0")];
        assert_eq!(id(&slurm).as_deref(), Some("slurm-4711.0"));
        assert_eq!(id(&[&slurm[..], &[("TORCHELASTIC_RUN_ID", "t")]].concat()).as_deref(), Some("t"));
        assert_eq!(id(&slurm[..1]), None, "the steps of one allocation are several runs");
    }
}
