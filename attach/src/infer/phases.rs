//! The phases of the host and of the device, until the step that they belong to has ended.

use std::collections::VecDeque;

use wire::clock::MonoNanos;
use wire::event::SpanKind;

use crate::call_log::Phase;

/// The largest number of phases that wait for their step: those of the seconds until steps are found, at five per step.
const MAX_PHASES: usize = 8_192;

/// When the host or the device was in a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) phase: Phase,
    /// See [`Entry::Phase`](crate::call_log::Entry::Phase).
    pub(crate) enqueued: Option<MonoNanos>,
    pub(crate) begin: MonoNanos,
    pub(crate) end: MonoNanos,
    /// The processor time of the thread, in nanoseconds; 0 if it was not measured.
    pub(crate) used: u64,
}

impl Timing {
    /// Returns the part between two times. Its processor time is an equal share of the whole.
    fn clipped(self, from: MonoNanos, to: MonoNanos) -> Self {
        let (begin, end) = (self.begin.max(from), self.end.min(to));
        let (part, whole) = ((end - begin).max(0), (self.end - self.begin).max(1));
        let used = (self.used as f64 * part as f64 / whole as f64) as u64;
        Self { begin, end, used, ..self }
    }
}

/// A phase of a step, with its begin and its end.
pub(crate) type Stretch = (SpanKind, MonoNanos, MonoNanos);

/// The phases that belong to no step yet.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    /// In the order in which they begin.
    known: VecDeque<Timing>,
    /// The end of the newest phase that was forgotten for lack of space.
    forgotten_until: Option<MonoNanos>,
}

impl Phases {
    pub(crate) fn ingest(&mut self, added: Timing) {
        if self.known.len() == MAX_PHASES {
            let forgotten = self.known.pop_front().map(|timing| timing.end);
            self.forgotten_until = self.forgotten_until.max(forgotten);
        }
        // A phase may lie within another.
        let at = self.known.iter().rposition(|timing| timing.begin <= added.begin).map_or(0, |last| last + 1);
        self.known.insert(at, added);
    }

    /// Returns whether all phases from a time on are known.
    pub(crate) fn are_known_from(&self, at: MonoNanos) -> bool {
        self.forgotten_until.is_none_or(|forgotten| at >= forgotten)
    }

    /// Returns the phases that the host or the device computes in a step from `from` to `to`, in order of time; `None` if no
    /// backward pass is reported in the step.
    pub(crate) fn computed(&mut self, from: MonoNanos, to: MonoNanos) -> Option<Vec<Timing>> {
        let overlaps = |timing: &&Timing| timing.begin < to && timing.end > from;
        if !self.known.iter().filter(overlaps).any(|timing| timing.phase == Phase::Backward) {
            return None;
        }
        let later = self.known.iter().position(|timing| timing.begin >= to).unwrap_or(self.known.len());
        // A phase that continues in the next step belongs to both.
        let unfinished: Vec<Timing> =
            self.known.range(..later).filter(|timing| timing.end > to).copied().collect();
        let found = self.known.drain(..later).filter(|timing| timing.end > from);
        let found = found.map(|timing| timing.clipped(from, to)).collect();
        for phase in unfinished.into_iter().rev() {
            self.known.push_front(phase);
        }
        Some(clipped_to_idle_device(from, found))
    }

    /// Returns the intervals in which the device waited for the host: phases of the host after the device finished the
    /// previous step, at `from`, and before the host enqueued the step's first collective, at `first_launch`. The device
    /// certainly computed until `computed_until`. A host that runs ahead spends them earlier, at no cost.
    pub(crate) fn waited_for_host(
        &mut self,
        from: MonoNanos,
        first_launch: MonoNanos,
        computed_until: MonoNanos,
    ) -> Vec<Stretch> {
        let later =
            self.known.iter().position(|timing| timing.begin >= first_launch).unwrap_or(self.known.len());
        let limit = first_launch.min(computed_until);
        let timings = self.known.drain(..later).filter(|timing| timing.phase.holds_device_up());
        let timings =
            timings.map(|timing| (timing.phase.span(), timing.begin.max(from), timing.end.min(limit)));
        timings.filter(|(_, begin, end)| begin < end).collect()
    }
}

/// Returns the phases of the device and, of the phases of the host, the parts in which the device waited for the host: from
/// `begin` or the end of a phase until the host enqueued the next one. A host that runs ahead spends its phases earlier, at
/// no cost. If the device reports no phases, the host computes, and all phases are its own. `timings` are in the order in
/// which they begin, and so is the result.
fn clipped_to_idle_device(begin: MonoNanos, timings: Vec<Timing>) -> Vec<Timing> {
    let (mut found, host_timings): (Vec<Timing>, Vec<Timing>) =
        timings.into_iter().partition(|timing| timing.enqueued.is_some());
    if found.is_empty() {
        return host_timings;
    }
    let mut at = begin;
    let mut idle = Vec::with_capacity(found.len());
    for timing in &found {
        idle.push((at, timing.enqueued.map_or(timing.begin, |enqueued| enqueued.min(timing.begin))));
        at = at.max(timing.end);
    }
    for timing in host_timings {
        let parts = idle.iter().map(|&(from, to)| timing.clipped(from, to));
        found.extend(parts.filter(|part| part.begin < part.end));
    }
    found.sort_by_key(|timing| timing.begin);
    found
}
