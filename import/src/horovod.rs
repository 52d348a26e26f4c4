//! Timelines of Horovod (`HOROVOD_TIMELINE`), which rank 0 writes for all ranks of a job.
//!
//! Ranks tell rank 0 which tensors they are ready to reduce. When all are ready for one, rank 0 tells them to run the operation.
//! A timeline has an entry for each rank that became ready, by the clock of rank 0, and the operations as rank 0 ran them. So it
//! says of each rank how late it was. Rank 0 takes note once in each of its cycles: ranks that it noticed in one cycle
//! count as ready together ([`passes`]).
//!
//! A collective begins on a rank when the rank is ready for it, as kernels of NCCL do, and ends for all of them when the
//! operation ends on rank 0. Tensors that Horovod fused are one collective.
//!
//! With its cache of responses, Horovod writes no such entries after the first step. Then a timeline says what rank 0
//! did and no more, and it is read as that.

mod entries;
mod events;
mod passes;
mod steps;
mod tensor;

use std::io::Read;
use std::sync::Arc;

use timing::intervals::Interval;
use wire::event::Source;

use crate::format::Format;
use crate::listed::{counted, ranks};
use crate::remarks::Remarks;
use crate::timeline::{Timed, TimedStep, Timeline, unclear};
use crate::unreadable::Unreadable;

use events::{Operation, Recorded};
use steps::{Step, Steps};

/// The largest number of steps over all ranks. They take at most 200 bytes each.
const MAX_STEPS: usize = 2_000_000;

/// What a timeline says of all ranks.
#[derive(Debug)]
pub struct Shared {
    /// The operations that are collectives, in the order of their ends.
    operations: Vec<Operation>,
    /// Whether they say when each rank was ready.
    is_of_all: bool,
    steps: Vec<Step>,
    cycle_nanos: u64,
}

/// A timeline that is read.
pub(crate) struct Parsed {
    pub(crate) shared: Arc<Shared>,
    /// The number of ranks that it says something about, from 0 on.
    pub(crate) ranks: u32,
    /// The number of ranks of the job, if it says that.
    pub(crate) world_size: Option<u32>,
    pub(crate) remarks: Remarks,
}

/// Reads a timeline from its plain bytes.
///
/// # Errors
/// Returns an error if it is not a list of events, or if no operation is recorded in it.
pub(crate) fn read(plain: impl Read) -> Result<Parsed, Unreadable> {
    let mut recorded = events::read(plain)?;
    if recorded.operations.is_empty() {
        return Err(Unreadable::NoCollective(Format::Horovod));
    }
    let world_size = recorded.world_size();
    let mut remarks = std::mem::take(&mut recorded.remarks);
    remarks.add("what ranks do while no collective runs is not recorded: it is other time, whatever it was");
    waiting(&recorded, &mut remarks);
    let steps = Steps::new(&recorded, &mut remarks);
    let is_of_all = keep_collectives(&mut recorded, &mut remarks);
    let ranks = if is_of_all { world_size.unwrap_or(1) } else { 1 };
    let steps = steps.limited(MAX_STEPS / ranks.max(1) as usize, &mut remarks);
    let Recorded { operations, cycle_nanos, .. } = recorded;
    let steps = steps.split(&operations, &mut remarks);
    let shared = Arc::new(Shared { operations, is_of_all, steps, cycle_nanos });
    Ok(Parsed { shared, ranks, world_size, remarks })
}

/// Says which tensors were not reduced when the timeline ends: in a job that hung, these say which ranks are behind.
fn waiting(recorded: &Recorded, remarks: &mut Remarks) {
    let Some(world_size) = recorded.world_size() else { return };
    let Some(first) = recorded.open.first() else { return };
    let absent: Vec<u32> = (0..world_size).filter(|rank| !first.ready.contains(rank)).collect();
    if absent.is_empty() || first.ready.is_empty() {
        return;
    }
    remarks.add(format!(
        "when the timeline ends, {} waited for ranks: for {}, the first of them, {} {} ready, and {} not",
        counted(recorded.open.len(), "tensor"),
        first.name,
        ranks(&first.ready),
        if first.ready.len() == 1 { "was" } else { "were" },
        ranks(&absent),
    ));
}

/// Keeps the operations that become collectives. Returns whether they say of all ranks when each was ready. That is decided for
/// all of the timeline alike: times of different kinds are never mixed.
fn keep_collectives(recorded: &mut Recorded, remarks: &mut Remarks) -> bool {
    let left_out = recorded.leave_out_process_sets();
    if left_out > 0 {
        remarks.add(format!(
            "{} of process sets left out: a set numbers its ranks by itself, and the timeline does not say which ranks of the job \
             they are",
            counted(left_out, "collective")
        ));
    }
    let operations = &mut recorded.operations;
    let count = operations.len();
    let unknown: Vec<&Operation> = operations.iter().filter(|operation| operation.ready.is_empty()).collect();
    let known = count - unknown.len();
    if known == 0 || 2 * known < count {
        remarks.add(rank_0_remark(&unknown, count));
        return false;
    }
    if !unknown.is_empty() {
        remarks.add(format!(
            "{} of {count} collectives are left out: the timeline does not say when each rank was ready for them ({CACHE})",
            unknown.len()
        ));
    }
    operations.retain(|operation| !operation.ready.is_empty());
    let cycle = recorded.cycle_nanos as f64 / 1e6;
    remarks.add(format!(
        "rank 0 notices once in each of its cycles, of about {cycle:.1} ms, which ranks are ready: ranks that it noticed in one cycle \
         count as ready together, and a collective that runs makes a cycle longer (HOROVOD_CYCLE_TIME)"
    ));
    true
}

impl Shared {
    #[must_use]
    pub fn timeline(&self, rank: u32) -> Timeline {
        let timed = |step: &Step| {
            let collectives: Vec<Timed> =
                step.operations.clone().filter_map(|at| self.timed(rank, at)).collect();
            let spans = unclear(&collectives);
            TimedStep { number: step.number, window: step.window, spans, collectives }
        };
        let steps = self.steps.iter().map(timed).collect();
        Timeline { steps, error_nanos: self.error_nanos(), ..Timeline::default() }
    }

    /// Returns by how much a time of a rank may be off against another rank's, in nanoseconds.
    pub(crate) fn error_nanos(&self) -> u64 {
        if self.is_of_all { self.cycle_nanos.div_ceil(2) } else { 0 }
    }

    pub(crate) fn collectives(&self) -> usize {
        self.operations.len()
    }

    pub(crate) fn first_step(&self) -> Option<(u64, Interval)> {
        self.steps.first().map(|step| (step.number, step.window))
    }

    /// Returns an operation as a collective of a rank; `None` if the rank took no part that is recorded.
    fn timed(&self, rank: u32, at: usize) -> Option<Timed> {
        let operation = &self.operations[at];
        let began = if self.is_of_all { operation.ready_on(rank)? } else { operation.begin };
        Some(Timed {
            function: operation.function,
            group: None,
            count: at as u64,
            bytes: operation.bytes.unwrap_or(0),
            ready: began,
            launch: began,
            start: began,
            end: operation.end.max(began),
            source: Source::HostClock,
        })
    }
}

/// Why ranks are not in a timeline, and how they get there.
const CACHE: &str = "Horovod's cache of responses hides that: set HOROVOD_CACHE_CAPACITY=0 when you record";

/// Says that the timeline is one of rank 0 alone, and what it says of the others all the same.
fn rank_0_remark(unknown: &[&Operation], count: usize) -> String {
    let mut waited: Vec<i64> = unknown
        .iter()
        .filter_map(|operation| operation.negotiated)
        .map(|(from, to)| to.saturating_sub(from))
        .collect();
    waited.sort_unstable();
    let millis = |nanos: &i64| *nanos as f64 / 1e6;
    let waits = match (waited.get(waited.len() / 2), waited.last()) {
        (Some(median), Some(longest)) => format!(
            ". From the first rank to the last one it took {:.1} ms in the median and {:.1} ms at most",
            millis(median),
            millis(longest)
        ),
        _ => String::new(),
    };
    format!(
        "for {} of {count} collectives, the timeline does not say when each rank was ready, so only what rank 0 ran is imported, without \
         waits, lateness and verdicts ({CACHE}){waits}",
        unknown.len()
    )
}
