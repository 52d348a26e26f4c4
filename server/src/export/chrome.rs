//! Traces in the format of PyTorch's profiler (Kineto), which HolisticTraceAnalysis opens without conversion.
//!
//! A rank's training thread is shown as stream 7 of a device. Forward, backward and optimizer are kernels on it,
//! without the time for which the thread was blocked. The communication thread is shown as stream 20. Collectives are
//! kernels on it with NCCL's names, which tools recognize. Each kernel has the launch that Kineto would have recorded, in a
//! range that tells tools the phase.
//!
//! Times are whole microseconds, rounded in the same way at both ends of every event. Tools round fractional times
//! inwards at each event, which adds up over short collectives. The other formats have nanoseconds.

mod directory;

use std::collections::BTreeMap;
use std::io::{self, Write};

use wire::event::Function;
use wire::live::{SliceKind, Waterfall};
use wire::views::RunSummary;

use super::model::{self, BucketRow, RankStep, Stretch};
use crate::printable::one_line;
pub use directory::Directory;

/// The usual number of the first compute stream in Kineto's traces.
const COMPUTE_STREAM: u32 = 7;
/// The usual number of the first communication stream in Kineto's traces.
const COMMUNICATION_STREAM: u32 = 20;
/// The process id of rank 0. Devices use the ids from 0 on, and no run has so many ranks that the two ranges meet.
const FIRST_PID: u32 = 1_000_000;
/// The largest number of ranks of a group that are listed. Kineto cuts longer lists.
const MOST_LISTED: usize = 64;

/// A writer of one file: with all ranks, for chrome://tracing and Perfetto, or with one rank, as Kineto writes it.
pub struct Writer<W> {
    out: W,
    rank: Option<u32>,
    world_size: u32,
    launches: BTreeMap<u32, u64>,
    chunk: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn begin(mut out: W, run: &RunSummary, rank: Option<u32>) -> io::Result<Self> {
        let ranks: Vec<u32> =
            (0..run.most_ranks).filter(|&number| rank.is_none_or(|only| only == number)).collect();
        out.write_all(head(run, &ranks).as_bytes())?;
        Ok(Self { out, rank, world_size: run.ranks_expected, launches: BTreeMap::new(), chunk: Vec::new() })
    }

    /// Adds a step.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn step(&mut self, step: &Waterfall) -> io::Result<()> {
        for rank in model::ranks(step, self.rank) {
            self.chunk.clear();
            let (launches, world_size) = (self.launches.entry(rank.rank).or_default(), self.world_size);
            Events { out: &mut self.chunk, launches, world_size }.rank(&rank)?;
            self.out.write_all(&self.chunk)?;
        }
        Ok(())
    }

    /// Ends the file and returns the underlying writer.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(TAIL.as_bytes())?;
        Ok(self.out)
    }
}

/// The end of a file, after the last event.
const TAIL: &str = "\n]}\n";

/// Returns the begin of a file, up to the first event. Only a file of one rank says which rank it is.
fn head(run: &RunSummary, ranks: &[u32]) -> String {
    let devices: Vec<serde_json::Value> = ranks
        .iter()
        .map(|rank| serde_json::json!({ "id": rank, "name": "CPU threads of a rank", "totalGlobalMem": 0 }))
        .collect();
    // HolisticTraceAnalysis searches the text for the rank, with a space after the colon as Kineto writes it.
    let rank = if let [rank] = ranks { format!(", \"rank\": {rank}") } else { String::new() };
    let world_size = run.ranks_expected;
    let metadata: Vec<String> = ranks.iter().flat_map(|&rank| names(run, rank)).collect();
    format!(
        "{{\"schemaVersion\":1,\"deviceProperties\":{},\"distributedInfo\":{{\"backend\": \"paceline\"{rank}, \"world_size\": {world_size}}},\"traceName\":{},\
         \"traceEvents\":[\n{}",
        serde_json::Value::from(devices),
        serde_json::json!(run.run),
        metadata.join(",\n"),
    )
}

/// Returns the metadata events that name the processes and threads of a rank.
fn names(run: &RunSummary, rank: u32) -> Vec<String> {
    let (pid, device) = (FIRST_PID + rank, rank);
    let named = format!("rank {rank} ({})", one_line(&run.name));
    let event = |what: &str, pid: u32, tid: u32, key: &str, value: String| {
        serde_json::json!({ "ph": "M", "name": what, "ts": 0, "pid": pid, "tid": tid, "args": { key: value } })
            .to_string()
    };
    vec![
        event("process_name", pid, 0, "name", named.clone()),
        event("process_labels", pid, 0, "labels", "CPU".into()),
        event("thread_name", pid, 1, "name", "training".into()),
        event("thread_name", pid, 2, "name", "communication".into()),
        event("process_name", device, 0, "name", named),
        event("process_labels", device, 0, "labels", format!("GPU {rank}")),
        event("thread_name", device, COMPUTE_STREAM, "name", format!("stream {COMPUTE_STREAM} compute")),
        event(
            "thread_name",
            device,
            COMMUNICATION_STREAM,
            "name",
            format!("stream {COMMUNICATION_STREAM} communication"),
        ),
    ]
}

/// A writer of the events of one rank. Each event begins with the comma that ends the previous event.
struct Events<'a> {
    out: &'a mut Vec<u8>,
    /// The number of launches so far. A kernel and its launch share this number.
    launches: &'a mut u64,
    world_size: u32,
}

/// Returns the range in which a kernel of a phase is launched, as PyTorch records it: its category and its name.
fn launching_range(phase: SliceKind) -> (&'static str, &'static str) {
    match phase {
        SliceKind::Backward => ("cpu_op", "autograd::engine::evaluate_function: backward"),
        SliceKind::Optimizer => ("user_annotation", "Optimizer.step#update"),
        other => ("cpu_op", other.name()),
    }
}

/// Returns the name of a collective's kernel in NCCL. All-to-alls are made of messages.
fn kernel_name(function: Function) -> &'static str {
    match function {
        Function::Broadcast => "Broadcast_RING_LL",
        Function::Reduce => "Reduce_Sum_f32_RING_LL",
        Function::AllGather => "AllGather_RING_LL",
        Function::ReduceScatter => "ReduceScatter_Sum_f32_RING_LL",
        Function::AllReduce => "AllReduce_Sum_f32_RING_LL",
        Function::SendReceive | Function::AllToAll => "SendRecv",
        Function::Other => "Generic",
    }
}

/// Returns the name of a collective in PyTorch; `None` if it is not known.
fn called(function: Function) -> Option<&'static str> {
    Some(match function {
        Function::Broadcast => "broadcast",
        Function::Reduce => "reduce",
        Function::AllGather => "_allgather_base",
        Function::ReduceScatter => "_reduce_scatter_base",
        Function::AllReduce => "allreduce",
        Function::SendReceive => "send",
        Function::AllToAll => "all_to_allv",
        Function::Other => return None,
    })
}

/// Returns the begin and the duration in whole microseconds.
fn micros(begin: i64, end: i64) -> (i64, i64) {
    let (begin, end) = (begin.div_euclid(1_000), end.div_euclid(1_000));
    (begin, end - begin)
}

impl Events<'_> {
    fn rank(&mut self, rank: &RankStep) -> io::Result<()> {
        let pid = FIRST_PID + rank.rank;
        let (ts, dur) = micros(rank.begin, rank.end);
        write!(
            self.out,
            ",\n{{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#{}\",\"pid\":{pid},\"tid\":1,\
             \"ts\":{ts},\"dur\":{dur},\"args\":{{\"External id\":{}}}}}",
            rank.step, rank.step
        )?;
        rank.training.iter().try_for_each(|stretch| self.training(rank, stretch))?;
        rank.buckets.iter().try_for_each(|bucket| self.bucket(rank, bucket))
    }

    fn training(&mut self, rank: &RankStep, stretch: &Stretch) -> io::Result<()> {
        let span = (stretch.begin, stretch.end);
        match stretch.kind {
            SliceKind::Forward | SliceKind::Backward | SliceKind::Optimizer => {
                let at = stretch.begin;
                // As long as the launch.
                let (category, name) = launching_range(stretch.kind);
                self.range(rank, category, name, (at, at + 1_000))?;
                self.launch(rank, "cudaLaunchKernel", 1, at)?;
                self.kernel(rank, "kernel", stretch.kind.name(), COMPUTE_STREAM, span)?;
                self.end()
            }
            SliceKind::H2d => {
                self.launch(rank, "cudaMemcpyAsync", 1, stretch.begin)?;
                self.kernel(rank, "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", COMPUTE_STREAM, span)?;
                self.end()
            }
            // The name that PyTorch gives to the wait for a data loader, up to the class of the loader.
            SliceKind::Input => self.range(rank, "user_annotation", "enumerate(DataLoader)#input", span),
            // The other parts run on the processor only.
            kind => self.range(rank, "cpu_op", kind.name(), span),
        }
    }

    /// Writes a range of the training thread.
    fn range(&mut self, rank: &RankStep, category: &str, name: &str, span: (i64, i64)) -> io::Result<()> {
        let (pid, (ts, dur)) = (FIRST_PID + rank.rank, micros(span.0, span.1));
        write!(
            self.out,
            ",\n{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":1,\"ts\":{ts},\
             \"dur\":{dur},\"args\":{{}}}}"
        )
    }

    fn bucket(&mut self, rank: &RankStep, bucket: &BucketRow) -> io::Result<()> {
        // A pipelined job runs collectives of a step beside the end of the step before. Tools find the step of a kernel by its launch.
        self.launch(rank, "cudaLaunchKernelExC", 2, bucket.launch.max(rank.begin))?;
        // The first arguments are those of Kineto's kernels. Paceline's own follow them, in nanoseconds.
        let name =
            format!("ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)", kernel_name(bucket.function));
        self.kernel(rank, "kernel", &name, COMMUNICATION_STREAM, (bucket.start, bucket.end))?;
        if let Some(called) = called(bucket.function) {
            write!(self.out, ",\"Collective name\":\"{called}\"")?;
        }
        self.group(bucket)?;
        write!(
            self.out,
            ",\"In msg nelems\":{0},\"Out msg nelems\":{0},\"dtype\":\"Float\",\
             \"bucket\":{1},\"sequence\":{2},\"bytes\":{3},\"transfer_ns\":{4},\"hidden_ns\":{5},\"exposed_ns\":{6}",
            bucket.bytes / 4,
            bucket.bucket,
            bucket.sequence,
            bucket.bytes,
            bucket.transfer,
            bucket.hidden,
            bucket.exposed
        )?;
        if let Some(wait) = bucket.wait {
            write!(self.out, ",\"wait_ns\":{wait}")?;
        }
        self.end()
    }

    /// Writes the group of a collective. Ranks without records are members of the group of all ranks only.
    fn group(&mut self, bucket: &BucketRow) -> io::Result<()> {
        let BucketRow { comm, members, .. } = bucket;
        let size = if *comm == 0 { self.world_size } else { members.len() as u32 };
        write!(self.out, ",\"Process Group Name\":\"{comm}\",\"Group size\":{size}")?;
        if members.len() > MOST_LISTED || members.len() != size as usize {
            return Ok(());
        }
        write!(self.out, ",\"Process Group Ranks\":\"{members:?}\"")
    }

    /// Writes the call that launches the next kernel, as Kineto records it before each kernel.
    fn launch(&mut self, rank: &RankStep, call: &str, tid: u32, at: i64) -> io::Result<()> {
        *self.launches += 1;
        let (pid, ts) = (FIRST_PID + rank.rank, at.div_euclid(1_000));
        write!(
            self.out,
            ",\n{{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"{call}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\
             \"dur\":1,\"args\":{{\"correlation\":{}}}}}",
            self.launches
        )
    }

    /// Begins the kernel of the newest launch. The caller may add arguments, and ends the kernel with [`Self::end`].
    fn kernel(
        &mut self,
        rank: &RankStep,
        category: &str,
        name: &str,
        stream: u32,
        span: (i64, i64),
    ) -> io::Result<()> {
        let (device, (ts, dur)) = (rank.rank, micros(span.0, span.1));
        write!(
            self.out,
            ",\n{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{name}\",\"pid\":{device},\"tid\":{stream},\
             \"ts\":{ts},\"dur\":{dur},\"args\":{{\"device\":{device},\"context\":1,\"stream\":{stream},\
             \"correlation\":{}",
            self.launches
        )
    }

    fn end(&mut self) -> io::Result<()> {
        self.out.write_all(b"}}")
    }
}

#[cfg(test)]
mod tests;
