//! Samples of a host: how much of its cores other processes use, and what keeps the rank's process from running.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::MonoNanos;

/// A figure of a [`HostSample`], in nanoseconds. A kernel or a container may not provide all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum HostFigure {
    /// The length of the interval that the sample covers.
    Interval = 0,
    /// The time that the process's cores had to offer: the interval times the number of cores.
    Capacity = 1,
    /// The processor time of the process and its children, on any core.
    Ran = 2,
    /// The time in which the process's threads were ready to run and no core ran them (`run_delay` of Linux's
    /// `schedstat`), summed over threads.
    Waited = 3,
    /// The time in which the process's cores ran anything, this process included.
    Busy = 4,
    /// The time in which the hypervisor ran something else on the process's cores (*steal*).
    Stolen = 5,
    /// The time in which the CPU limit of the process's cgroup kept its threads from running.
    Throttled = 6,
}

impl HostFigure {
    /// All figures, in the order of their codes.
    pub const ALL: [Self; 7] =
        [Self::Interval, Self::Capacity, Self::Ran, Self::Waited, Self::Busy, Self::Stolen, Self::Throttled];
}

/// A sample of the host from one rank's process. It covers an interval of about a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSample {
    /// The end of the interval, on the rank's clock.
    pub at: MonoNanos,
    /// The cores that the process may run on, as Linux lists them: `0-3,8`.
    pub cores: String,
    /// The figures that are known.
    pub figures: BTreeMap<HostFigure, u64>,
}

impl HostSample {
    /// Returns one figure in nanoseconds; `None` if it is unknown.
    #[must_use]
    pub fn get(&self, figure: HostFigure) -> Option<u64> {
        self.figures.get(&figure).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Note;

    /// Sealed segments store notes as JSON.
    #[test]
    fn a_sample_round_trips_through_json() {
        let figures = HostFigure::ALL.into_iter().map(|figure| (figure, u64::MAX - figure as u64)).collect();
        let note = Note::Host(HostSample { at: MonoNanos(-7), cores: "0-1".into(), figures });
        let json = serde_json::to_string(&note).unwrap();
        assert!(json.contains("\"throttled\":18446744073709551609"), "{json}");
        assert_eq!(serde_json::from_str::<Note>(&json).unwrap(), note);
    }
}
