//! Stacks: the functions and lines that a rank's threads were in, sampled for a short time.

use serde::{Deserialize, Serialize};

use crate::clock::MonoNanos;
use crate::event::SpanKind;

/// The largest number of different frames in a profile.
pub const MAX_FRAMES: usize = 4_096;
/// The largest number of threads in a profile.
pub const MAX_THREADS: usize = 256;
/// The largest number of different stacks of a thread.
pub const MAX_STACKS: usize = 1_024;
/// The largest number of frames in a stack. Of a deeper stack, the innermost frames are left out.
pub const MAX_DEPTH: usize = 192;

/// The answer of one rank to a request for its stacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stacks {
    /// The number of the request.
    pub request: u64,
    /// When sampling began, on the rank's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub from: MonoNanos,
    /// When sampling ended, on the rank's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub until: MonoNanos,
    /// The outcome.
    pub outcome: StacksOutcome,
}

/// The outcome of a request for stacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum StacksOutcome {
    /// The stacks were sampled.
    Sampled(Profile),
    /// They could not be sampled.
    Refused {
        /// The reason.
        reason: String,
    },
}

/// The stacks of a rank in a step that lasts far longer than its usual steps. The rank samples them by itself, so that what
/// happens once has a line of code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongStep {
    /// When the step began, on the rank's clock. A step of some seconds has several such stacks.
    pub begun: MonoNanos,
    /// The median length of the rank's steps before it, in nanoseconds.
    pub usual_nanos: u64,
    /// When sampling began, on the rank's clock.
    pub from: MonoNanos,
    /// When sampling ended, on the rank's clock: with the step, or before.
    pub until: MonoNanos,
    /// The stacks.
    pub profile: Profile,
}

/// A line of the job's own code in which a rank did what is recorded as spans of a kind: where it writes checkpoints, for
/// instance. The rank sends each line once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SpanLine {
    /// The kind of the spans.
    pub kind: SpanKind,
    /// The line.
    pub frame: Frame,
}

/// The sampled stacks of a rank: of its process, and of the processes that it started, such as the workers of a data
/// loader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Profile {
    /// The frames that occur in stacks.
    pub frames: Vec<Frame>,
    /// The threads that had a stack.
    pub threads: Vec<ThreadStacks>,
    /// The number of samples that were dropped because a stack changed while it was read.
    pub torn: u64,
}

/// A function that was running or calling, and the line it was at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Frame {
    /// The name of the function.
    pub function: String,
    /// The path of its file.
    pub file: String,
    /// The line, from 1; 0 if it is unknown.
    pub line: u32,
}

/// The kind of a sampled thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum ThreadRole {
    /// The main thread of the rank's process.
    Main = 0,
    /// Another thread of the rank's process.
    Thread = 1,
    /// The main threads of the processes that the rank started.
    Worker = 2,
    /// Other threads of those processes.
    WorkerThread = 3,
}

impl ThreadRole {
    /// All roles, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Main, Self::Thread, Self::Worker, Self::WorkerThread];

    /// Returns the role as a phrase.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "main thread",
            Self::Thread => "thread",
            Self::Worker => "worker processes",
            Self::WorkerThread => "thread of worker processes",
        }
    }
}

/// The stacks of one thread, or of the threads of one role and name in all worker processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ThreadStacks {
    /// The kind of thread.
    pub role: ThreadRole,
    /// The name of the thread; empty for main threads.
    pub name: String,
    /// The number of processes that have it.
    pub processes: u32,
    /// The number of samples of these processes. The counts of all stacks sum up to at most this number.
    pub samples: u64,
    /// The stacks, the most frequent first.
    pub stacks: Vec<Stack>,
}

/// A stack, and how often it was sampled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stack {
    /// The number of samples with this stack.
    pub count: u64,
    /// The indices of its frames in [`Profile::frames`], the outermost first.
    pub frames: Vec<u32>,
}

impl Profile {
    /// Returns how much memory the lists and texts take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let frames: usize = self.frames.iter().map(|frame| frame.function.len() + frame.file.len()).sum();
        let stacks = self.threads.iter().flat_map(|thread| &thread.stacks);
        let stacks: usize =
            stacks.map(|stack| size_of::<Stack>() + size_of_val(stack.frames.as_slice())).sum();
        let names: usize = self.threads.iter().map(|thread| thread.name.len()).sum();
        size_of_val(self.frames.as_slice()) + size_of_val(self.threads.as_slice()) + frames + stacks + names
    }
}

impl LongStep {
    /// Returns how much memory the lists and texts take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.profile.bytes()
    }
}

impl SpanLine {
    /// Returns how much memory the texts take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.frame.function.len() + self.frame.file.len()
    }
}

impl Stacks {
    /// Returns the profile if the stacks were sampled.
    #[must_use]
    pub fn profile(&self) -> Option<&Profile> {
        match &self.outcome {
            StacksOutcome::Sampled(profile) => Some(profile),
            StacksOutcome::Refused { .. } => None,
        }
    }

    /// Returns how much memory the lists and texts take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.outcome {
            StacksOutcome::Sampled(profile) => profile.bytes(),
            StacksOutcome::Refused { reason } => reason.len(),
        }
    }
}
