//! What to do about a cause, in one sentence.

use wire::views::{Cause, Culprit};

use crate::finding::{Evidence, Finding, HostWork, Reason, Statement, Taker};

/// What to do about a rank that failed.
pub const AFTER_FAILURE: &str = "Read the log of this rank from its last step on. If it says nothing, the kernel's log (dmesg) says \
    whether the process was killed for lack of memory.";
/// What to do about a run that hangs.
pub const DURING_HANG: &str = "Look at where the ranks stand: the Code view shows the stacks of Python and Rust ranks, a debugger \
    those of others. If a host is gone, restart the job from its last checkpoint.";
/// What to do about a rank that sends nothing while the run goes on.
pub const ON_SILENCE: &str = "Check that its host can reach this server. Its agent keeps its records until then, up to its \
    limit.";

/// What to do, besides, about code that waits for its own memory.
const WHILE_PAGING: &str = "Meanwhile the rank reads pages of its memory from a disk: give it more memory, or read mapped files in \
    their order.";

/// Returns the first thing to try.
pub(crate) fn advice(finding: &Finding) -> String {
    let (verdict, is_one_host) = (&finding.verdict, finding.is_one_host);
    let text = match (&verdict.culprit, verdict.cause, finding.reason) {
        _ if finding.is_scatter => {
            "Nothing in the job is wrong: give each rank cores of its own, or run fewer other processes beside it."
        }
        _ if matches!(finding.statement, Statement::Restarted { .. }) => restarts(finding.statement),
        _ if matches!(finding.statement, Statement::StartedLate { .. }) => {
            "Compare launch and setup: imports from a shared file system take long (use a local copy or a container image), and so do \
             data sets that are indexed at each start, checkpoints that one rank reads, and kernels that are compiled again (keep \
             TORCHINDUCTOR_CACHE_DIR and the caches of Triton)."
        }
        _ if verdict.growth.is_some() => growth(verdict.cause),
        (_, _, Some(Reason::DevicesWait(work))) => idle(work),
        (_, _, Some(Reason::SlowsAll(taker))) => limited(taker),
        (_, _, Some(Reason::OwnCode)) => {
            "Look at the named line: the rank runs it, or waits in it, longer than the others do."
        }
        (_, _, Some(Reason::WaitsInPasses)) => {
            "See what the ranks wait for between and within the passes: a read from a file or a service, a lock, a sleep. Loader workers, or \
             a thread that reads the next batch ahead, hide the time of a read. `paceline stacks` shows the lines of a live run."
        }
        (_, Cause::Host, reason) if finding.statement == Statement::AllAlike && !is_of_others(reason) => {
            "See what the ranks do between their input, passes and updates: logging, metrics, or Python in the training loop. \
             `paceline stacks` shows the lines of a live run."
        }
        (_, _, Some(Reason::OutsidePhases)) if verdict.recurrence.is_none() => {
            "See what the rank does between its input, passes and updates: logging, metrics, or a wait in the program itself. \
             `paceline stacks` shows the lines."
        }
        (Some(Culprit::All), Cause::Evaluation, _) => {
            "Evaluate less often, on fewer samples, or in another job, and see that each rank evaluates only its share of the data."
        }
        (_, Cause::Input, _) if verdict.recurrence.is_some() && finding.is_in_workers() => {
            "The loader's workers do not keep up: use more of them (num_workers), let them fetch ahead (prefetch_factor), or make the \
             named line faster."
        }
        (_, cause, _) if verdict.recurrence.is_some() => now_and_then(cause),
        (Some(Culprit::Rank(_)), Cause::Network, _) if is_one_host => {
            "The ranks share this host: see whether it has memory bandwidth and cores left for the collectives of this rank."
        }
        (Some(Culprit::Rank(_)), cause, _) => rank_advice(cause),
        (_, Cause::Network | Cause::Communication, _) => network_advice(is_one_host),
        (_, cause, _) => ranks_advice(cause),
    };
    let has_own_code = matches!(finding.reason, Some(Reason::OwnCode | Reason::OutsidePhases));
    let pages =
        has_own_code && finding.evidence.iter().any(|evidence| matches!(evidence, Evidence::Paged { .. }));
    if pages { format!("{text} {WHILE_PAGING}") } else { text.to_owned() }
}

/// Returns true if others than the job take the time.
fn is_of_others(reason: Option<Reason>) -> bool {
    matches!(reason, Some(Reason::Steal | Reason::CoresTaken(Taker::Processes)))
}

/// What to do about what happens now and then.
fn now_and_then(cause: Cause) -> &'static str {
    match cause {
        Cause::Input => {
            "Keep loader workers alive over epochs (persistent_workers=True), and let them fetch ahead (prefetch_factor)."
        }
        Cause::Host => {
            "See what the named ranks do in these steps: logging, metrics, saving, or a wait in the program itself."
        }
        Cause::Compute => {
            "See what differs in these steps: other shapes, a first use of a kernel, or a library that compiles or tunes."
        }
        cause => ranks_advice(cause),
    }
}

/// What to do about restarts: less to do again, or a faster start, whichever costs more.
fn restarts(statement: Statement) -> &'static str {
    match statement {
        Statement::Restarted { recovery_nanos, repeated_nanos } if repeated_nanos > recovery_nanos => {
            "See why the attempts ended, in the log of the rank that failed first. Write checkpoints more often, in the background: \
             the steps since the last one are done again after each restart. `paceline plan` computes how often."
        }
        _ => {
            "See why the attempts ended, in the log of the rank that failed first. Then make the restart itself faster: imports and \
             data from local disks, compiled kernels from a cache, a checkpoint that all ranks read in shards, a shorter time-out \
             of collectives."
        }
    }
}

/// What to do about devices that wait for their hosts.
fn idle(work: Option<HostWork>) -> &'static str {
    match work {
        Some(HostWork::Synchronizes) => {
            "Synchronize less often: .item(), .cpu(), print of a tensor, boolean masks and torch.cuda.synchronize() all wait for the \
             device. Read losses every some steps, and keep metrics on the device. torch.cuda.set_sync_debug_mode(\"warn\") names the \
             lines."
        }
        Some(HostWork::Code) => {
            "See what runs between operators: Python in the training loop, logging, metrics, a data loader without workers. \
             `paceline stacks` shows the lines of a live run."
        }
        Some(HostWork::Launches) => {
            "Launch fewer and larger kernels: torch.compile (mode=\"reduce-overhead\" uses CUDA graphs), CUDA graphs, fused or foreach \
             optimizers, larger batches."
        }
        None => {
            "Record a trace with operators and runtime calls (`paceline trace`): it shows whether hosts launch slowly or synchronize."
        }
    }
}

/// What to do about what takes time from all ranks.
fn limited(taker: Taker) -> &'static str {
    match taker {
        Taker::Limit => {
            "Raise the CPU limit (cpu.max, or the CPU limit of the pod), or use fewer threads: OMP_NUM_THREADS, loader workers."
        }
        Taker::Memory | Taker::Paging => {
            "Use less memory or raise its limit: fewer or smaller loader workers and prefetched batches, data that is mapped instead \
             of copied."
        }
        Taker::Hypervisor | Taker::Processes | Taker::Ranks => ranks_advice(Cause::Host),
    }
}

/// What to do about what grows.
fn growth(cause: Cause) -> &'static str {
    match cause {
        Cause::Input => {
            "Find what of the input grows with the number of steps: a list of what was read that is searched or copied each time, a \
             cache without a limit, files that stay open."
        }
        Cause::Compute => {
            "Find what the passes see more of with each step: a graph that is kept (a loss that is summed without detach() or item(), \
             retain_graph), hooks that are registered again, a state that grows, memory in ever smaller pieces."
        }
        Cause::Optimizer => {
            "Find what the optimizer has more of with each step: parameters or hooks that are added again, a history of gradients."
        }
        _ => {
            "Find what grows with the number of steps: a list or dictionary that is appended to and searched or summed in every step, \
             metrics over all steps so far, a cache without a limit."
        }
    }
}

fn network_advice(is_one_host: bool) -> &'static str {
    if is_one_host {
        "Communicate less often (gradient accumulation with no_sync), or compress gradients: a communication hook in 16 bits halves \
         them. The Scaling view predicts what other bucket sizes would give. All ranks are on one host, so no cable is involved."
    } else {
        "Check the network between the hosts: cards, cables, switches. Gradient accumulation with no_sync and compressed gradients \
         communicate less. The Scaling view predicts what other bucket sizes would give."
    }
}

fn rank_advice(cause: Cause) -> &'static str {
    match cause {
        Cause::Input => {
            "Only this rank's input is slow: compare its disk, its loader processes and its share of the data with those of \
             another rank. More loader workers or prefetching hide a slow disk."
        }
        Cause::H2d => "Copy its input earlier: pin host memory and copy without blocking.",
        Cause::Compute => {
            "Check its device: other jobs on it, its clocks, its memory errors. Record a burst to see its kernels."
        }
        Cause::MoreWork => "Give ranks equal work: batch by length, or pack sequences.",
        Cause::ClockThrottle => {
            "Find out why its GPU lowers its clock: temperature, power limit, or an administrator's setting."
        }
        Cause::Host => {
            "See what held its host up: other processes on its cores, a CPU limit, or a wait in the program itself. Cores of \
             its own rule out the first."
        }
        Cause::Processor => {
            "Pin the rank to cores of its own, or accept it: shared processors vary this much."
        }
        Cause::Network => "Check its link: cable, network card, and the switch port.",
        Cause::Unknown => "Look at the rank's own log around the onset, and record a burst on it.",
        cause => ranks_advice(cause),
    }
}

fn ranks_advice(cause: Cause) -> &'static str {
    match cause {
        Cause::Input => "Load input faster: more loader workers, prefetching, or files on local disks.",
        Cause::H2d => "Copy input earlier: pin host memory and copy without blocking.",
        Cause::Compute => {
            "Check the devices: other jobs on them, their clocks, their memory errors. Record a burst to see their kernels."
        }
        Cause::ClockThrottle => {
            "Find out why the GPUs lower their clocks: temperature, power limit, or an administrator's setting."
        }
        Cause::Host => {
            "Free the cores of these ranks: move other processes away, raise CPU limits, or pin each rank to cores of its own."
        }
        Cause::Processor => {
            "Pin each rank to cores of its own, or accept it: shared processors vary this much."
        }
        Cause::Network | Cause::Communication => network_advice(false),
        Cause::Optimizer => {
            "Use a fused or foreach optimizer (fused=True), or update less often with larger batches. Sharding optimizer states \
             (ZeRO-1) divides the update by the number of ranks."
        }
        Cause::Checkpoint => {
            "Write checkpoints in the background (torch.distributed.checkpoint.async_save, or a thread that writes a copy), on all \
             ranks in shards, or less often."
        }
        Cause::Evaluation => {
            "Evaluate on all ranks, each on its share of the data, or less often, or in another job."
        }
        Cause::GarbageCollection => {
            "Switch the automatic collection off (gc.disable or gc.freeze after set-up), and collect on all ranks in the same step."
        }
        Cause::Compilation => {
            "Keep shapes the same from step to step (padding, dynamic=True), so that nothing is compiled again."
        }
        Cause::Hang => "See what the named line waits for, and give it a time limit.",
        Cause::Unknown => "Look at the ranks' own logs around the onset, and record a burst on them.",
        // These have statements of their own.
        Cause::Restart | Cause::Start => "See what passes before the first step.",
        Cause::MoreWork => rank_advice(cause),
    }
}
