//! A processor that is slower for a while, which no record tells from a rank that computes longer.
//!
//! Cores of a CPU differ from second to second: by clock frequency, by what runs on the other hardware thread, by
//! time that the hypervisor gives to others, by cache. Seen from inside they compute longer, with all of it
//! processor time. An effect of that size that comes and goes is therefore the processor's until records say that it
//! is the rank's. A fault that stays, or is larger, is the rank's.

use wire::views::{Cause, ComputedOn, Persistence};

use super::Setting;
use super::excess::Excess;
use crate::cost::Cost;

/// What processors vary by, as a share of the step. In healthy jobs on virtual machines with two cores a rank was seen
/// to cost up to 21 % of it for some seconds (`benches/README.md`).
const VARIES_BY: f64 = 0.25;

/// What the processors of all ranks vary by together, as a share of their compute: 14 % were seen.
pub(super) const ALL_VARY_BY: f64 = 0.15;

/// True when a fault is no more than processors do.
pub(super) fn explains(excess: &Excess, persistence: Persistence, cost: Cost, setting: &Setting<'_>) -> bool {
    setting.computed_on == ComputedOn::Cpu
        && excess.cause() == Cause::Compute
        && persistence != Persistence::Persistent
        && cost.share < VARIES_BY
}
