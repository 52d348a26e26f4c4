//! What to do about a cause, in one sentence.

use wire::views::Cause;

/// Returns the first thing to try.
#[must_use]
pub fn advice(cause: Cause) -> &'static str {
    match cause {
        Cause::Input => "Load its input faster: more loader workers, prefetching, or files on a local disk.",
        Cause::H2d => "Copy its input earlier: pin host memory and copy without blocking.",
        Cause::Compute => {
            "Check its device: other jobs on it, its clocks, its memory errors. Record a burst to see its kernels."
        }
        Cause::MoreWork => "Give ranks equal work: batch by length, or pack sequences.",
        Cause::ClockThrottle => {
            "Find out why its GPU lowers its clock: temperature, power limit, or an administrator's setting."
        }
        Cause::Host => {
            "Free its cores: move other processes away, raise its CPU limit, or pin the rank to cores of its own."
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
