//! A collective that has run.

use wire::clock::MonoNanos;
use wire::event::{Function, Source};

use crate::marks::Begin;

/// A finished collective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Collective {
    /// Identifies the communicator; the same on all ranks.
    pub communicator: u64,
    /// The operation.
    pub function: Function,
    /// The index among the collectives of this function on this communicator.
    pub seq: u64,
    /// The payload of this rank, in bytes.
    pub bytes: u64,
    /// When the collective was enqueued.
    pub launch: MonoNanos,
    /// When the kernel ran.
    pub ran: Ran,
    /// Whether this is a message that this rank sends, whose result it does not need.
    pub is_sent: bool,
    /// What is known of the update, if updates are reported and this is the communicator's first collective after one.
    pub begins: Option<Begin>,
}

/// A collective and the time its kernel ran, on the host's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    pub collective: Collective,
    /// When the kernel started.
    pub start: MonoNanos,
    /// When the kernel ended.
    pub end: MonoNanos,
    /// How the times were measured.
    pub source: Source,
}

/// The time a collective ran: from the first start to the last end of its channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ran {
    /// Times of the GPU's clock, in nanoseconds.
    Gpu {
        /// The first start.
        begin: u64,
        /// The last end.
        end: u64,
    },
    /// Times of CUDA events on the stream, on the host's clock.
    Events {
        /// The event before the collective.
        begin: MonoNanos,
        /// The event after the collective.
        end: MonoNanos,
    },
    /// Unknown: only the time of enqueueing is reported, from the launch to this time (see
    /// [`crate::call_log::Entry::Issued`]).
    Unknown {
        /// When the call returned.
        issued: MonoNanos,
    },
    /// Times at which NCCL's proxy thread saw the kernel, on the host's clock. They are late by up to one poll.
    Host {
        /// The first start.
        begin: MonoNanos,
        /// The last end.
        end: MonoNanos,
    },
}

impl Ran {
    /// Joins two intervals, from the first start to the last end. If their clocks differ, returns the first interval.
    pub(crate) fn joined(self, other: Self) -> Self {
        match (self, other) {
            (Self::Gpu { begin, end }, Self::Gpu { begin: from, end: to }) => {
                Self::Gpu { begin: begin.min(from), end: end.max(to) }
            }
            (Self::Events { begin, end }, Self::Events { begin: from, end: to }) => {
                Self::Events { begin: begin.min(from), end: end.max(to) }
            }
            (Self::Host { begin, end }, Self::Host { begin: from, end: to }) => {
                Self::Host { begin: begin.min(from), end: end.max(to) }
            }
            (Self::Unknown { issued }, Self::Unknown { issued: other }) => {
                Self::Unknown { issued: issued.max(other) }
            }
            _ => self,
        }
    }
}
