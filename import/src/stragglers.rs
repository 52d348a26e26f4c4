//! Tables of StragglerAnalysis, in which ByteDance published operations of production jobs: Parquet files, one row per
//! operation of a worker, all workers of a job in one file.
//!
//! A worker is a data-parallel rank of a pipeline stage; of the ranks that a layer is split over, one is recorded. Times are
//! seconds from the begin of the step. Steps are sampled, so the time between them is not known: here they follow each
//! other.
//!
//! Messages between stages become collectives of two ranks, and the all-reduce of the embedding becomes one of the first and the last
//! stage. They show for whom a rank of another stage waits. All that a rank computes is recorded, so it waits in all other time: for
//! what is recorded, or for what is not.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use timing::intervals::{Interval, Intervals};
use wire::event::{Function, Source, SpanKind};

use crate::format::Format;
use crate::group::Group;
use crate::listed;
use crate::remarks::Remarks;
use crate::source::{Content, RankRecording};
use crate::timeline::{Timed, TimedStep, Timeline};
use crate::unreadable::Unreadable;
use crate::whole;

use table::Operation;

/// The largest number of stages whose ranks a remark lists.
const STAGES_LISTED: usize = 16;

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Span(SpanKind),
    /// A collective of the data-parallel ranks of a stage.
    Collective(Function),
    /// A message from or to another stage.
    Message(Message),
    /// The all-reduce of the first and the last stage, which share the gradients of the embedding.
    Embedding,
    /// It is not known.
    Other,
}

/// A message between neighboring stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    ForwardSend,
    ForwardReceive,
    BackwardSend,
    BackwardReceive,
}

impl Message {
    /// Returns the lower one of its two stages, for a rank of `stage`.
    fn lower(self, stage: u32) -> u32 {
        match self {
            Self::ForwardSend | Self::BackwardReceive => stage,
            Self::ForwardReceive | Self::BackwardSend => stage.saturating_sub(1),
        }
    }

    /// Returns its number in a step, from how many of its kind came before: forward and backward have numbers in turn.
    fn number(self, earlier: u64) -> u64 {
        2 * earlier + u64::from(matches!(self, Self::BackwardSend | Self::BackwardReceive))
    }
}

fn kind(operation: &str) -> Kind {
    match operation {
        "forward-send" => Kind::Message(Message::ForwardSend),
        "forward-recv" => Kind::Message(Message::ForwardReceive),
        "backward-send" => Kind::Message(Message::BackwardSend),
        "backward-recv" => Kind::Message(Message::BackwardReceive),
        "embedding-grads-all-reduce" => Kind::Embedding,
        "forward-compute" => Kind::Span(SpanKind::Forward),
        "backward-compute" | "backward-wgrad-compute" => Kind::Span(SpanKind::Backward),
        "optimizer" | "optimizer-inner-step" => Kind::Span(SpanKind::Optimizer),
        "data-load" => Kind::Span(SpanKind::Input),
        "gc" => Kind::Span(SpanKind::GarbageCollection),
        "grads-reduce-scatter" | "grads-reduce-scatter-nonoverlapping" => {
            Kind::Collective(Function::ReduceScatter)
        }
        "separate-grads-all-reduce" => Kind::Collective(Function::AllReduce),
        "params-all-gather" | "params-all-gather-nonoverlapping" => Kind::Collective(Function::AllGather),
        _ => Kind::Other,
    }
}

/// Reads a table from the bytes of its file.
///
/// # Errors
/// Returns an error if it is not a Parquet file with the columns of such a table, or if it has no collective.
pub(crate) fn read(plain: impl Read) -> Result<Vec<RankRecording>, Unreadable> {
    let bytes = whole::read(plain, Format::Stragglers)?;
    let table =
        table::read(bytes).map_err(|why| Unreadable::Malformed { format: Format::Stragglers, why })?;
    let ranks = timelines(&table);
    let collectives = |timeline: &Timeline| timeline.steps.iter().any(|step| !step.collectives.is_empty());
    if !ranks.iter().any(|(_, timeline)| collectives(timeline)) {
        return Err(Unreadable::NoCollective(Format::Stragglers));
    }
    let remarks = remarks(&ranks, &stages(&table, &ranks), table.has_one_chunk);
    let world_size = ranks.len() as u32;
    let recording = |(at, (_, timeline)): (usize, (u32, Timeline))| {
        let recording = RankRecording::new(Some(at as u32), Some(world_size), Content::Timeline(timeline));
        RankRecording { remarks: remarks.clone(), ..recording }
    };
    Ok(ranks.into_iter().enumerate().map(recording).collect())
}

/// Returns the ranks of each stage, as they are numbered here.
fn stages(table: &table::Table, ranks: &[(u32, Timeline)]) -> BTreeMap<u32, Vec<u32>> {
    let stage_of: BTreeMap<u32, u32> =
        table.operations.iter().map(|operation| (operation.rank, operation.stage)).collect();
    let mut stages: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (at, (rank, _)) in (0..).zip(ranks) {
        if let Some(&stage) = stage_of.get(rank) {
            stages.entry(stage).or_default().push(at);
        }
    }
    stages
}

/// Returns what is to be said of a table. `stages` has the ranks of each stage, as they are numbered here.
fn remarks(ranks: &[(u32, Timeline)], stages: &BTreeMap<u32, Vec<u32>>, has_messages: bool) -> Remarks {
    let mut remarks = Remarks::default();
    remarks.add(
        "steps are sampled, and the time between them is not recorded: they are shown one after the other",
    );
    remarks.add(
        "a rank is taken to wait while no operation of it is recorded: in the ledger, that is other time",
    );
    if stages.len() > 1 {
        let listed = stages.values().take(STAGES_LISTED).map(|ranks| listed::ranks(ranks));
        let more = if stages.len() > STAGES_LISTED { " and so on" } else { "" };
        remarks.add(format!(
            "the job has {} pipeline stages ({}{more}), which wait for each other by design: if all ranks of a stage are named, it may have \
             more work than the others, such as more layers or the loss",
            stages.len(),
            listed.collect::<Vec<_>>().join("; ")
        ));
    }
    if !has_messages {
        remarks.add("a stage has several parts of the model: it is not known for which messages of other stages a rank waits");
    }
    if ranks.iter().enumerate().any(|(at, (rank, _))| at as u32 != *rank) {
        let list: Vec<String> = ranks.iter().take(8).map(|(rank, _)| rank.to_string()).collect();
        let more = if ranks.len() > list.len() { " and so on" } else { "" };
        remarks.add(format!(
            "only some ranks of the job are recorded ({}{more}): they are numbered from 0 in this order",
            list.join(", ")
        ));
    }
    remarks
}

/// Returns the timeline of each rank, in ascending order.
fn timelines(table: &table::Table) -> Vec<(u32, Timeline)> {
    let ranks: BTreeSet<u32> = table.operations.iter().map(|operation| operation.rank).collect();
    let mut by_step: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
    table.operations.iter().for_each(|operation| by_step.entry(operation.step).or_default().push(operation));
    let mut timelines: BTreeMap<u32, Timeline> =
        ranks.into_iter().map(|rank| (rank, Timeline::default())).collect();
    let mut begin = 0_i64;
    for (number, operations) in by_step {
        let first = operations.iter().map(|operation| operation.start).min().unwrap_or(0);
        let last = operations.iter().map(|operation| operation.end).max().unwrap_or(first);
        let offset = begin.saturating_sub(first);
        let end = last.saturating_add(offset);
        let mut by_rank: BTreeMap<u32, Vec<&Operation>> = BTreeMap::new();
        operations
            .into_iter()
            .for_each(|operation| by_rank.entry(operation.rank).or_default().push(operation));
        for (rank, operations) in by_rank {
            let Some(timeline) = timelines.get_mut(&rank) else { continue };
            let step = step(number, (begin, end), offset, operations, table, &mut timeline.groups);
            timeline.steps.push(step);
        }
        begin = end;
    }
    timelines.into_iter().collect()
}

/// Returns a step of a rank, whose times are raised by `offset`.
fn step(
    number: u64,
    window: (i64, i64),
    offset: i64,
    mut operations: Vec<&Operation>,
    table: &table::Table,
    groups: &mut Vec<Group>,
) -> TimedStep {
    operations.sort_by_key(|operation| (operation.start, operation.end));
    let mut step = TimedStep { number, window, ..TimedStep::default() };
    let mut counts: BTreeMap<(Function, Option<Message>), u64> = BTreeMap::new();
    let mut computed = window.0;
    for operation in operations {
        let (start, end) = (operation.start.saturating_add(offset), operation.end.saturating_add(offset));
        let kind = kind(&table.names[operation.name as usize]);
        let (function, message) = match kind {
            Kind::Span(kind) => {
                step.spans.push((kind, (start, end)));
                computed = computed.max(end);
                continue;
            }
            Kind::Collective(function) => (function, None),
            Kind::Message(message) if table.has_one_chunk => (Function::SendReceive, Some(message)),
            Kind::Embedding if table.has_one_chunk => (Function::AllReduce, None),
            Kind::Message(_) | Kind::Embedding | Kind::Other => continue,
        };
        let earlier = counts.entry((function, message)).or_default();
        let name = match message {
            Some(message) => {
                let lower = message.lower(operation.stage);
                format!(
                    "data-parallel rank {}, stages {lower} and {}",
                    operation.dp_rank,
                    lower.saturating_add(1)
                )
            }
            None if kind == Kind::Embedding => {
                format!("data-parallel rank {}, first and last stage", operation.dp_rank)
            }
            None => format!("data-parallel ranks of stage {}", operation.stage),
        };
        let ready = computed.min(start);
        step.collectives.push(Timed {
            function,
            group: Some(group_of(groups, name)),
            // Steps have numbers of their own, whatever other ranks did before.
            count: number
                .saturating_mul(1 << 20)
                .saturating_add(message.map_or(*earlier, |message| message.number(*earlier))),
            bytes: 0,
            ready,
            launch: ready,
            start,
            end,
            source: Source::ActivityRecord,
        });
        *earlier += 1;
    }
    let blocked = blocked(&step);
    step.spans.extend(blocked);
    step
}

/// Returns when a rank waits: whenever it does nothing that is recorded but take part in collectives and messages.
fn blocked(step: &TimedStep) -> Vec<(SpanKind, Interval)> {
    let worked = Intervals::union(step.spans.iter().map(|&(_, worked)| worked));
    let waited = Intervals::union([step.window]).subtract(&worked);
    waited.as_slice().iter().map(|&blocked| (SpanKind::Blocked, blocked)).collect()
}

/// Returns the group of this name.
fn group_of(groups: &mut Vec<Group>, name: String) -> u32 {
    let at = groups.iter().position(|group| group.name == name).unwrap_or_else(|| {
        groups.push(Group { name, ranks: None, size: None });
        groups.len() - 1
    });
    at as u32
}
