//! The facts about a run that a report needs.

use std::sync::Arc;

use timing::clocks::ClockFit;
use wire::attributes::{HYPERVISOR, NO_HYPERVISOR};
use wire::batch::Instrumentation;
use wire::burst::Activity;
use wire::event::Function;
use wire::ids::{Rank, RunId};
use wire::layout::Layout;
use wire::stacks::{LongStep, SpanLine, Stacks};
use wire::traces::TraceSummary;
use wire::views::captures::TraceComparison;
use wire::views::goodput::Goodput;
use wire::views::{
    AttributeKind, AttributeRanks, ComputedOn, Failure, Hang, HostRanks, Missing, RankDrops, RankEvent,
    RunState,
};

use crate::devices::DeviceState;
use crate::hosts::RankHost;
use crate::memory::Levels;
use crate::mfu::RankWork;
use crate::step::{CollectiveAnalysis, StepAnalysis};

/// The facts about a run that a report needs in addition to the steps.
#[derive(Clone, Debug)]
pub struct RunFacts {
    pub run: RunId,
    pub name: String,
    pub state: RunState,
    pub ranks: u32,
    pub sample_unit: String,
    /// What records the run.
    pub instrumentation: Instrumentation,
    /// The clock of each rank.
    pub fits: Vec<Option<ClockFit>>,
    /// The ranks that lost records.
    pub drops: Vec<RankDrops>,
    pub hang: Option<Hang>,
    pub failure: Option<Failure>,
    /// What happened to ranks, oldest first.
    pub events: Vec<RankEvent>,
    pub placement: Vec<HostRanks>,
    pub attributes: Vec<AttributeRanks>,
    pub device_states: Vec<Vec<DeviceState>>,
    pub hosts: Vec<Option<RankHost>>,
    /// The memory of each rank's device over time.
    pub device_memory: Vec<Option<Arc<Levels>>>,
    /// The newest burst of each rank's devices.
    pub bursts: Vec<Option<Activity>>,
    /// The newest stacks of each rank's threads.
    pub stacks: Vec<Option<Arc<Stacks>>>,
    /// The stacks of each rank's newest and longest long steps, oldest first.
    pub long_steps: Vec<Vec<Arc<LongStep>>>,
    /// The lines of code in which each rank does what its spans record, as far as they are known: of checkpoints, for instance.
    pub span_lines: Vec<Vec<SpanLine>>,
    pub work: Vec<Option<RankWork>>,
    /// The layouts of rank 0's buckets, by module, the oldest first.
    pub layouts: Vec<Arc<Layout>>,
    /// The ranks that have other parameters in a bucket than rank 0.
    pub other_layouts: Vec<Rank>,
    /// What differs between the newest traces of two ranks.
    pub compared_traces: Option<Arc<TraceComparison>>,
    /// What ran on each rank, by name.
    pub summaries: Vec<Option<Arc<TraceSummary>>>,
    /// The share of the time, 0 to 1, below which an effect is a note instead of a verdict.
    pub notable_share: f64,
    /// The steps whose records cannot be shown, in ascending order. None of them becomes the example of a verdict.
    pub hidden_steps: Vec<u64>,
    /// How long each rank waited in collectives before its first step, in nanoseconds.
    pub start_waits: Vec<u64>,
    /// What the run used its wall time for.
    pub goodput: Result<Goodput, Missing>,
    /// Steps spread evenly over the whole run, if the report is made over its newest steps; else empty.
    pub course: Vec<Arc<StepAnalysis>>,
    /// Whether the report is made over all steps of the run.
    pub has_all_steps: bool,
}

impl RunFacts {
    pub(super) fn is_imported(&self) -> bool {
        self.instrumentation == Instrumentation::Trace
    }

    /// Jobs with the built-in reducer number all collectives by one count and run only all-reduces.
    pub(super) fn function(&self, collective: &CollectiveAnalysis) -> Function {
        if self.instrumentation.numbers_by_function() {
            Function::from_seq(collective.seq)
        } else {
            Function::AllReduce
        }
    }

    /// GPUs if any rank has device samples, and in traces, which are of devices.
    pub(super) fn computed_on(&self) -> ComputedOn {
        let has_device = self.device_states.iter().any(|device_states| !device_states.is_empty());
        if has_device || self.is_imported() { ComputedOn::Gpu } else { ComputedOn::Cpu }
    }

    /// Returns true if the processors of all ranks say that there is no hypervisor.
    pub(super) fn is_on_bare_metal(&self) -> bool {
        let says_so = |attribute: &&AttributeRanks| {
            attribute.kind == AttributeKind::Software
                && attribute.name == HYPERVISOR
                && attribute.value == NO_HYPERVISOR
        };
        let ranks =
            self.attributes.iter().filter(says_so).map(|attribute| attribute.ranks.1 - attribute.ranks.0 + 1);
        ranks.sum::<u32>() == self.ranks
    }

    /// Returns true if all ranks have named their host, and it is the same one.
    pub(super) fn is_one_host(&self) -> bool {
        let placement = &self.placement;
        placement.first().is_some_and(|first| placement.iter().all(|named| named.host == first.host))
    }
}
