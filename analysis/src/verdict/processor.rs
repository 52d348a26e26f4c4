//! Processors that are slower for a while, which no record distinguishes from a rank that computes longer.
//!
//! The cores of a CPU differ from second to second: by clock frequency, by the load on the other hardware thread, by
//! time that the hypervisor gives to other guests, by cache. From inside the process they compute longer, and all of it
//! is processor time. An effect of that size that comes and goes is therefore attributed to the processor until records
//! show that the rank is the cause. A fault that stays, or is larger, is attributed to the rank.

use wire::views::{Cause, ComputedOn, Persistence};

use super::Setting;
use super::excess::Excess;
use crate::cost::Cost;

/// The share of the step up to which processors vary. In healthy jobs on virtual machines with two cores, one rank was
/// observed to cost up to 21 % of the step for some seconds (`benches/README.md`).
const VARIES_BY: f64 = 0.25;

/// The share of compute up to which the processors of all ranks vary together; 14 % was observed.
pub(super) const ALL_VARY_BY: f64 = 0.15;

/// Returns true if a fault that processors explain is their ordinary unsteadiness, and no fault of the rank: it comes and goes, and a
/// hypervisor may have caused it. A hypervisor gives processors to other machines, and no record of this one shows that.
pub(super) fn is_scatter(persistence: Persistence, setting: &Setting<'_>) -> bool {
    persistence != Persistence::Onset && !setting.is_on_bare_metal
}

/// Returns true if a fault lies within the usual variation of processors.
pub(super) fn explains(excess: &Excess, persistence: Persistence, cost: Cost, setting: &Setting<'_>) -> bool {
    setting.computed_on == ComputedOn::Cpu
        && excess.cause() == Cause::Compute
        && persistence != Persistence::Persistent
        && cost.share < VARIES_BY
}
