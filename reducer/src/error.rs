//! The errors of the reducer, distinguished by what a caller can do about them. Every message names the rank or the
//! parameter.

use std::fmt;
use std::time::Duration;

use wire::ids::{Rank, Seq, Step};

/// The failure of a collective, or of its preparation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// The process or host of a rank is gone.
    #[error("rank {rank} is lost: {reason}")]
    RankLost {
        /// The rank that was lost first.
        rank: Rank,
        /// The observation from which the loss was inferred.
        reason: String,
    },
    /// A rank reported that it cannot continue.
    #[error("rank {rank} gave up: {reason}")]
    RankFailed {
        /// The rank that gave up first.
        rank: Rank,
        /// The reason that the rank gave.
        reason: String,
    },
    /// A collective did not complete in time.
    #[error("collective {seq} did not complete within {}: {}", secs(*.waited), absent_text(.absent))]
    TimedOut {
        /// The collective.
        seq: Seq,
        /// The time that the first rank waited.
        waited: Duration,
        /// The ranks that did not arrive. Empty if all arrived.
        absent: Vec<Absent>,
    },
    /// Two ranks are in different collectives.
    #[error(
        "ranks are not in the same collective: rank {rank} is in collective {}, rank {peer} in collective {}; \
         every rank must make the same calls in the same order", place(.ours), place(.theirs)
    )]
    Mismatch {
        /// The rank that noticed the mismatch.
        rank: Rank,
        /// The collective of `rank`: its sequence number and kind.
        ours: (Seq, String),
        /// The rank with which `rank` disagrees.
        peer: Rank,
        /// The collective of `peer`.
        theirs: (Seq, String),
    },
    /// Rank 0 refused this process.
    #[error("rank 0 at {master} refused this process: {reason}")]
    Refused {
        /// The address at which rank 0 listens.
        master: String,
        /// The reason that rank 0 gave.
        reason: String,
    },
    /// The ranks did not find each other.
    #[error("the ranks did not meet at {master} within {}: {reason}", secs(*.waited))]
    Rendezvous {
        /// The address at which rank 0 listens or should listen.
        master: String,
        /// The time that this rank waited.
        waited: Duration,
        /// The missing rank or the failed operation.
        reason: String,
    },
    /// A setting is invalid or contradicts another.
    #[error("{setting}: {reason}")]
    Setting {
        /// The setting as the user wrote it: an environment variable or a field.
        setting: &'static str,
        /// The mistake, and how to correct it.
        reason: String,
    },
    /// The operating system or a library on this host failed.
    #[error("{doing}: {reason}")]
    System {
        /// The operation that failed.
        doing: String,
        /// The error that the system or library returned.
        reason: String,
    },
}

/// A rank that kept a collective from completing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The rank.
    pub rank: Rank,
    /// The number of collectives that the rank has begun, or `None` if the rank does not answer (stopped, or cut off
    /// from the network).
    pub begun: Option<u64>,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.begun {
            None => write!(f, "rank {} does not answer (stopped, or cut off from the network)", self.rank),
            Some(0) => write!(f, "rank {} did not arrive (it has not begun any collective)", self.rank),
            Some(begun) => {
                write!(f, "rank {} did not arrive (it last began collective {})", self.rank, begun - 1)
            }
        }
    }
}

fn absent_text(absent: &[Absent]) -> String {
    if absent.is_empty() {
        return "every rank arrived, but the data did not get through".into();
    }
    join(absent.iter().map(ToString::to_string), "; ")
}

fn place((seq, kind): &(Seq, String)) -> String {
    format!("{seq} ({kind})")
}

pub(crate) fn secs(time: Duration) -> String {
    format!("{} s", (time.as_secs_f64() * 1000.0).round() / 1000.0)
}

pub(crate) fn join(parts: impl IntoIterator<Item = String>, separator: &str) -> String {
    parts.into_iter().collect::<Vec<_>>().join(separator)
}

/// The failure of a reducer, which returns the same error from every later call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReduceError {
    /// The model has no parameters.
    #[error("there is nothing to reduce: the list of parameters is empty")]
    NoParameters,
    /// Two parameters have the same name.
    #[error("parameters {first} and {second} are both named {name:?}: names must be unique")]
    DuplicateName {
        /// The name.
        name: String,
        /// The index of the first parameter.
        first: usize,
        /// The index of the second parameter.
        second: usize,
    },
    /// The ranks do not train the same model.
    #[error("the ranks do not have the same model; compared with rank 0: {}", differences(.0))]
    ModelMismatch(
        /// Each rank that differs from rank 0, with its first difference.
        Vec<(Rank, String)>,
    ),
    /// A parameter was marked twice in one micro-batch.
    #[error(
        "parameter {name:?} was marked ready twice in step {step}: its gradient was already complete. A parameter \
         that the forward pass uses twice must go through one hook, which receives the summed gradient once"
    )]
    MarkedTwice {
        /// The parameter.
        name: String,
        /// The step.
        step: Step,
    },
    /// A gradient has the wrong size.
    #[error(
        "the gradient of {name:?} has {got} elements, but the parameter has {expected} (shape {shape:?})"
    )]
    WrongLength {
        /// The parameter.
        name: String,
        /// The number of elements in the gradient.
        got: usize,
        /// The number of elements in the parameter.
        expected: usize,
        /// The shape of the parameter.
        shape: Vec<usize>,
    },
    /// Parameters got no gradient.
    #[error(
        "step {step} ended on rank {rank}, but {} of {all} parameters got no gradient: {}. Either the loss does not \
         depend on them, or an operation without a backward pass lies in between. If that is intended, set \
         UnusedParameters::Find", .names.len(), some_of(.names)
    )]
    NoGradient {
        /// The step.
        step: Step,
        /// This rank.
        rank: Rank,
        /// The names of these parameters, in declared order.
        names: Vec<String>,
        /// The number of all parameters.
        all: usize,
    },
    /// A parameter was marked unused, which the options do not allow.
    #[error("parameter {name:?} was marked unused, but the reducer was made with UnusedParameters::Refuse")]
    UnusedRefused {
        /// The parameter.
        name: String,
    },
    /// The shares of the ranks do not sum to one.
    #[error(
        "the shares of all ranks in step {step} sum to {sum}, not to 1: the ranks do not agree on how many samples \
         the step has, and the average would be wrong"
    )]
    Shares {
        /// The step.
        step: Step,
        /// The sum as text, so that errors can be compared.
        sum: String,
    },
    /// A call is not allowed at this point.
    #[error("{call} in step {step}: {reason}")]
    Order {
        /// The call.
        call: &'static str,
        /// The step within or after which the call was made.
        step: Step,
        /// Why the call is not allowed.
        reason: String,
    },
    /// Rank 0 sent a bucket order that is not a permutation of the parameters.
    #[error("rank 0 sent a bucket order that is not an order of the {parameters} parameters: {reason}")]
    BadOrder {
        /// The number of parameters.
        parameters: usize,
        /// The defect of the order.
        reason: String,
    },
    /// The transport failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The job gave up with [`crate::Reducer::abort`].
    #[error("this rank gave up: {0}")]
    Aborted(
        /// The reason that the job gave.
        String,
    ),
    /// The communication thread is gone, which is a bug in the communicator.
    #[error("the communication thread ended unexpectedly{}", if .0.is_empty() { String::new() } else { format!(": {}", .0) })]
    ThreadLost(
        /// The panic message, if any.
        String,
    ),
}

fn differences(all: &[(Rank, String)]) -> String {
    join(all.iter().map(|(rank, text)| format!("rank {rank}: {text}")), "; ")
}

/// Lists the names. Of more than ten, lists the first ten and counts the rest.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = join(names.iter().take(SHOWN).map(|name| format!("{name:?}")), ", ");
    match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}
