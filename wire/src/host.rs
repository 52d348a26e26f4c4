//! How a host treats a rank's process: who else uses its cores, and what keeps it from running.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::MonoNanos;

/// A figure of a [`HostSample`], in nanoseconds. A kernel or a container may hide some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum HostFigure {
    /// Length of the interval that the sample covers.
    Interval = 0,
    /// Time in which the process's cores could run something: the interval times the number of cores.
    Capacity = 1,
    /// Processor time of the process and its children, on any core.
    Ran = 2,
    /// Time in which the process's threads were ready to run and no core ran them (`run_delay` of Linux's `schedstat`),
    /// summed over threads.
    Waited = 3,
    /// Time in which the process's cores ran anything, this process included.
    Busy = 4,
    /// Time in which the hypervisor ran something else on the process's cores (*steal*).
    Stolen = 5,
    /// Time in which the CPU limit of the process's cgroup kept its threads from running.
    Throttled = 6,
}

impl HostFigure {
    /// All figures, in the order of their numbers.
    pub const ALL: [Self; 7] =
        [Self::Interval, Self::Capacity, Self::Ran, Self::Waited, Self::Busy, Self::Stolen, Self::Throttled];
}

/// What happened to one rank's process over an interval of about a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSample {
    /// The end of the interval, on the rank's clock.
    pub at: MonoNanos,
    /// The cores that the process may run on, as Linux lists them: `0-3,8`.
    pub cores: String,
    /// What is known.
    pub figures: BTreeMap<HostFigure, u64>,
}

impl HostSample {
    /// One figure in nanoseconds, where it is known.
    #[must_use]
    pub fn get(&self, figure: HostFigure) -> Option<u64> {
        self.figures.get(&figure).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Note;

    /// As notes lie in a sealed segment.
    #[test]
    fn a_sample_survives_json() {
        let figures = HostFigure::ALL.into_iter().map(|figure| (figure, u64::MAX - figure as u64)).collect();
        let note = Note::Host(HostSample { at: MonoNanos(-7), cores: "0-1".into(), figures });
        let json = serde_json::to_string(&note).unwrap();
        assert!(json.contains("\"throttled\":18446744073709551609"), "{json}");
        assert_eq!(serde_json::from_str::<Note>(&json).unwrap(), note);
    }
}
