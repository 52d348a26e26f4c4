//! What can go wrong, by what a caller can do about it. Every text names the rank or the parameter.

use std::fmt;
use std::time::Duration;

use wire::ids::{Rank, Seq, Step};

/// Why a collective, or the way to it, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// A rank's process or host is gone.
    #[error("rank {rank} is lost: {reason}")]
    RankLost {
        /// The rank that went first.
        rank: Rank,
        /// How that was seen.
        reason: String,
    },
    /// A rank said that it cannot go on.
    #[error("rank {rank} gave up: {reason}")]
    RankFailed {
        /// The rank that gave up first.
        rank: Rank,
        /// What it said.
        reason: String,
    },
    /// A collective was not complete in time.
    #[error("collective {seq} did not complete within {}: {}", secs(*.waited), absent_text(.absent))]
    TimedOut {
        /// The collective.
        seq: Seq,
        /// How long the first rank waited.
        waited: Duration,
        /// Who kept it: empty when everybody had arrived.
        absent: Vec<Absent>,
    },
    /// Ranks met in different collectives.
    #[error(
        "ranks are not in the same collective: rank {rank} is in number {}, rank {peer} in number {}; \
         every rank must make the same calls in the same order", place(.ours), place(.theirs)
    )]
    Mismatch {
        /// The rank that saw it.
        rank: Rank,
        /// Its collective: number and kind.
        ours: (Seq, String),
        /// The rank it met.
        peer: Rank,
        /// That one's collective.
        theirs: (Seq, String),
    },
    /// Rank 0 does not let this process in.
    #[error("rank 0 at {master} refused this process: {reason}")]
    Refused {
        /// Where rank 0 listens.
        master: String,
        /// What it said.
        reason: String,
    },
    /// The ranks did not find each other.
    #[error("the ranks did not meet at {master} within {}: {reason}", secs(*.waited))]
    Rendezvous {
        /// Where rank 0 listens or should listen.
        master: String,
        /// How long this rank waited.
        waited: Duration,
        /// Who or what is missing.
        reason: String,
    },
    /// The settings make no sense.
    #[error("{setting}: {reason}")]
    Setting {
        /// Which one, as the user wrote it: an environment variable or a field.
        setting: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The operating system refused something on this host.
    #[error("{doing}: {reason}")]
    System {
        /// What was attempted.
        doing: String,
        /// What the system said.
        reason: String,
    },
}

/// A rank that kept a collective from completing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Which.
    pub rank: Rank,
    /// The collectives it has begun, or `None` when it does not even answer (stopped, or cut off).
    pub begun: Option<u64>,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.begun {
            None => write!(f, "rank {} does not answer (stopped, or cut off from the network)", self.rank),
            Some(0) => write!(f, "rank {} did not arrive (it has not begun any collective)", self.rank),
            Some(begun) => {
                write!(f, "rank {} did not arrive (the last it began is collective {})", self.rank, begun - 1)
            }
        }
    }
}

fn absent_text(absent: &[Absent]) -> String {
    if absent.is_empty() {
        return "every rank has arrived, but the data did not get through".into();
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

/// Why a reducer cannot go on. It stays failed with the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReduceError {
    /// A model without parameters.
    #[error("there is nothing to reduce: the list of parameters is empty")]
    NoParameters,
    /// Two parameters of one name.
    #[error("parameters {first} and {second} are both named {name:?}: names must be unique")]
    DuplicateName {
        /// The name.
        name: String,
        /// Index of the first.
        first: usize,
        /// Index of the second.
        second: usize,
    },
    /// The ranks do not train the same model.
    #[error("the ranks do not have the same model; compared with rank 0: {}", differences(.0))]
    ModelMismatch(
        /// Each rank that differs, and its first difference.
        Vec<(Rank, String)>,
    ),
    /// A gradient came twice in one micro-batch.
    #[error(
        "parameter {name:?} was marked ready twice in step {step}: its gradient was complete already. A parameter \
         that the forward pass uses twice must go through one hook, so that its gradient comes once, summed"
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
        /// Elements of the gradient.
        got: usize,
        /// Elements of the parameter.
        expected: usize,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Parameters got no gradient.
    #[error(
        "step {step} ended on rank {rank}, but {} of {of} parameters got no gradient: {}. Either the loss does not \
         depend on them, or an operation without a backward pass lies between. If that is meant, allow it with \
         UnusedParameters::Find", .names.len(), some_of(.names)
    )]
    NoGradient {
        /// The step.
        step: Step,
        /// This rank.
        rank: Rank,
        /// The parameters, in the order they were declared.
        names: Vec<String>,
        /// How many there are in all.
        of: usize,
    },
    /// A parameter was marked unused, but that was not allowed beforehand.
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
        /// The sum as text, so that errors compare.
        sum: String,
    },
    /// Calls came in an order that makes no sense.
    #[error("{call} in step {step}: {reason}")]
    Order {
        /// What was called.
        call: &'static str,
        /// In which step, or after which.
        step: Step,
        /// Why that makes no sense.
        reason: String,
    },
    /// The ranks rebuilt their buckets from something that is no order of the parameters.
    #[error("rank 0 sent a bucket order that is not an order of the {parameters} parameters: {reason}")]
    BadOrder {
        /// How many parameters there are.
        parameters: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The transport failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The job itself gave up, by [`crate::Reducer::abort`].
    #[error("this rank gave up: {0}")]
    Aborted(
        /// What the job said.
        String,
    ),
    /// The communication thread is gone, which is a bug in the communicator.
    #[error("the communication thread ended unexpectedly{}", if .0.is_empty() { String::new() } else { format!(": {}", .0) })]
    ThreadLost(
        /// What it said when it panicked, if anything.
        String,
    ),
}

fn differences(all: &[(Rank, String)]) -> String {
    join(all.iter().map(|(rank, text)| format!("rank {rank}: {text}")), "; ")
}

/// All names, or the first ten and how many more.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = join(names.iter().take(SHOWN).map(|name| format!("{name:?}")), ", ");
    match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}
