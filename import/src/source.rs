//! A file and what it holds of each rank.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use fnv::FnvHasher;

use crate::calls::Calls;
use crate::flight_recorder::Dump;
use crate::format::Format;
use crate::horovod::{self, Shared};
use crate::kineto::Trace;
use crate::remarks::Remarks;
use crate::timeline::Timeline;

/// What a file holds of a rank, in the form that its format allows.
#[derive(Clone, Debug)]
pub enum Content {
    /// What a device and its host did.
    Trace(Box<Trace>),
    /// Collectives as PyTorch recorded them, to see which ranks of a hang are behind.
    Dump(Box<Dump>),
    /// Collectives whose place in time is known in part.
    Calls(Calls),
    /// What the rank did, with times.
    Timeline(Timeline),
    /// What all ranks did, with times, which is in memory once for all of them.
    Shared(Arc<Shared>),
}

/// What a file holds of one rank.
#[derive(Clone, Debug)]
pub struct RankRecording {
    /// The rank, if the file says it.
    pub rank: Option<u32>,
    /// The number of ranks of the job, if the file says it.
    pub world_size: Option<u32>,
    pub content: Content,
    /// The name of the device, if the file says it.
    pub device: Option<String>,
    /// The release of NCCL, if the file says it.
    pub nccl: Option<String>,
    /// What is damaged, missing, or left out.
    pub remarks: Remarks,
}

impl RankRecording {
    /// Holds content of a rank of a job with `world_size` ranks, as far as the file says them.
    #[must_use]
    pub fn new(rank: Option<u32>, world_size: Option<u32>, content: Content) -> Self {
        Self { rank, world_size, content, device: None, nccl: None, remarks: Remarks::default() }
    }

    /// Returns the number of kernels and copies; 0 for formats that hold none.
    pub(crate) fn kernels(&self) -> u64 {
        match &self.content {
            Content::Trace(trace) => trace.work.len() as u64,
            Content::Dump(_) | Content::Calls(_) | Content::Timeline(_) | Content::Shared(_) => 0,
        }
    }

    /// Returns the number of kernels, copies, launches and collectives that are held in memory.
    #[must_use]
    pub fn held(&self) -> usize {
        match &self.content {
            Content::Trace(trace) => trace.work.len() + trace.launches.len(),
            Content::Dump(dump) => dump.entries.len(),
            Content::Calls(calls) => calls.calls.len(),
            Content::Timeline(timeline) => timeline.held(),
            Content::Shared(shared) => shared.collectives(),
        }
    }

    /// Returns by how much times of this rank may be off against those of another rank of its file, in nanoseconds.
    pub(crate) fn error_nanos(&self) -> u64 {
        match &self.content {
            Content::Timeline(timeline) => timeline.error_nanos,
            Content::Shared(shared) => shared.error_nanos(),
            Content::Trace(_) | Content::Dump(_) | Content::Calls(_) => 0,
        }
    }

    /// Returns a number that is the same whenever the same file is imported.
    pub(crate) fn identity(&self, file: &str) -> u64 {
        let mut hasher = FnvHasher::default();
        file.hash(&mut hasher);
        match &self.content {
            Content::Trace(trace) => {
                (trace.base_nanos, trace.events, trace.work.len()).hash(&mut hasher);
                trace.work.first().map(|work| (work.begin, work.correlation)).hash(&mut hasher);
            }
            Content::Dump(dump) => {
                let first = dump.entries.first().map(|entry| entry.created);
                (self.rank, dump.entries.len(), first).hash(&mut hasher);
            }
            Content::Calls(calls) => {
                let first = calls.calls.first().map(|call| (call.issued, call.seen));
                (self.rank, calls.calls.len(), first).hash(&mut hasher);
            }
            Content::Timeline(timeline) => {
                let first = timeline.steps.first().map(|step| (step.number, step.window));
                (self.rank, timeline.steps.len(), first).hash(&mut hasher);
            }
            Content::Shared(shared) => {
                (self.rank, shared.collectives(), shared.first_step()).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

impl From<horovod::Parsed> for Vec<RankRecording> {
    fn from(parsed: horovod::Parsed) -> Self {
        let recording = |rank| {
            let recording = RankRecording::new(
                Some(rank),
                parsed.world_size,
                Content::Shared(Arc::clone(&parsed.shared)),
            );
            RankRecording { remarks: parsed.remarks.clone(), ..recording }
        };
        (0..parsed.ranks).map(recording).collect()
    }
}

impl From<Trace> for RankRecording {
    fn from(trace: Trace) -> Self {
        Self {
            rank: trace.rank,
            world_size: trace.world_size,
            device: trace.device.clone(),
            nccl: trace.nccl.clone(),
            remarks: trace.remarks.clone(),
            content: Content::Trace(Box::new(trace)),
        }
    }
}

impl From<Dump> for RankRecording {
    fn from(dump: Dump) -> Self {
        Self {
            rank: None,
            world_size: dump.world_size,
            device: None,
            nccl: dump.nccl.clone(),
            remarks: dump.remarks.clone(),
            content: Content::Dump(Box::new(dump)),
        }
    }
}

/// A file and what it holds.
#[derive(Clone, Debug)]
pub struct Source {
    pub file: String,
    pub format: Format,
    /// What it holds of each rank. Some formats have one file per rank, and others one file for the job.
    pub ranks: Vec<RankRecording>,
}
