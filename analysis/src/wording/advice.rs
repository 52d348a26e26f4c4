//! What to do about a cause, in one sentence.

use wire::views::{Cause, Culprit, Verdict};

/// What to do about a rank that failed.
pub const AFTER_FAILURE: &str = "Read the log of this rank from its last step on. If it says nothing, the kernel's log (dmesg) says \
    whether the process was killed for lack of memory.";
/// What to do about a run that hangs.
pub const DURING_HANG: &str = "Look at where the ranks stand: the Code view shows the stacks of Python and Rust ranks, a debugger \
    those of others. If a host is gone, restart the job from its last checkpoint.";
/// What to do about a rank that sends nothing while the run goes on.
pub const ON_SILENCE: &str = "Check that its host can reach this server. Its agent keeps its records until then, up to its \
    limit.";

/// Returns the first thing to try.
#[must_use]
pub fn advice(verdict: &Verdict) -> &'static str {
    match &verdict.culprit {
        Some(Culprit::Rank(_)) => on_one(verdict.cause),
        Some(Culprit::Ranks(_) | Culprit::All) | None => on_several(verdict.cause),
    }
}

fn on_one(cause: Cause) -> &'static str {
    match cause {
        Cause::Input => {
            "Only this rank's input is slow: compare its disk, its loader processes and its share of the data with those of \
             another rank. More loader workers or prefetching hide a slow disk."
        }
        Cause::H2d => "Copy its input earlier: pin host memory and copy without blocking.",
        Cause::Compute => {
            "Check its device: other jobs on it, its clocks, its memory errors. Record a burst to see its kernels."
        }
        Cause::MoreWork => "Give ranks equal work: batch by length, or pack sequences.",
        Cause::ClockThrottle => {
            "Find out why its GPU lowers its clock: temperature, power limit, or an administrator's setting."
        }
        Cause::Host => {
            "See what held its host up: other processes on its cores, a CPU limit, or a wait in the program itself. Cores of \
             its own rule out the first."
        }
        Cause::Processor => {
            "Pin the rank to cores of its own, or accept it: shared processors vary this much."
        }
        Cause::Network => "Check its link: cable, network card, and the switch port.",
        Cause::CollectiveConfiguration => {
            "Try another bucket size. The Scaling view predicts what each size would give."
        }
        Cause::Unknown => "Look at the rank's own log around the onset, and record a burst on it.",
    }
}

fn on_several(cause: Cause) -> &'static str {
    match cause {
        Cause::Input => "Load input faster: more loader workers, prefetching, or files on local disks.",
        Cause::H2d => "Copy input earlier: pin host memory and copy without blocking.",
        Cause::Compute => {
            "Check the devices: other jobs on them, their clocks, their memory errors. Record a burst to see their kernels."
        }
        Cause::ClockThrottle => {
            "Find out why the GPUs lower their clocks: temperature, power limit, or an administrator's setting."
        }
        Cause::Host => {
            "Free the cores of these ranks: move other processes away, raise CPU limits, or pin each rank to cores of its own."
        }
        Cause::Processor => {
            "Pin each rank to cores of its own, or accept it: shared processors vary this much."
        }
        Cause::Network => {
            "Check the network between the hosts: cards, cables, switches. On one host, ranks share its memory and cores."
        }
        Cause::Unknown => "Look at the ranks' own logs around the onset, and record a burst on them.",
        Cause::MoreWork | Cause::CollectiveConfiguration => on_one(cause),
    }
}
