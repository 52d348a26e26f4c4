//! The trace of one rank.

use std::io::Read;

use timing::intervals::Interval;

use super::doubtful;
use super::marked::Marked;
use super::part::{MAX_HOST, Part};
use super::self_times::{HostSum, self_times};
use super::work::{Carried, Launch, Work};
use crate::chunks::parse_all;
use crate::group::Group;
use crate::pieces::{End, Pieces, plain};
use crate::remarks::Remarks;
use crate::unpacked::Swollen;
use crate::unreadable::Unreadable;

/// What a trace holds of a rank.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The rank, if the trace says it.
    pub rank: Option<u32>,
    /// The number of ranks of the job, if the trace says it.
    pub world_size: Option<u32>,
    /// The name of the first device that the trace lists.
    pub device: Option<String>,
    /// The release of NCCL.
    pub nccl: Option<String>,
    /// The Unix time at which the clock of the events is zero, in nanoseconds.
    pub base_nanos: i64,
    /// The work of the device, in order of its begin.
    pub work: Vec<Work>,
    /// The launches, in the order of the file.
    pub launches: Vec<Launch>,
    /// When the host waited for the next batch of a data loader, in nanoseconds on the trace's clock.
    pub input: Vec<Interval>,
    /// The marked steps, in order of time.
    pub steps: Vec<Marked>,
    /// What the host ran, in sums by step and name.
    pub host: Vec<HostSum>,
    /// The names of what the host and the device ran.
    pub names: Vec<Box<str>>,
    /// What collectives carry.
    pub carried: Vec<Carried>,
    /// The groups of collectives.
    pub groups: Vec<Group>,
    /// The number of all-to-alls that the host issued, as its ranges name them.
    pub all_to_alls: u64,
    /// The number of messages that it issued, or of groups of calls that may have some.
    pub messages: u64,
    /// The number of events in the file.
    pub events: u64,
    /// Whether the file ends early, or cannot be read to its end.
    pub is_cut: bool,
    /// What is damaged, missing, or left out.
    pub remarks: Remarks,
}

/// Reads a trace, which may be compressed, on all cores.
///
/// # Errors
/// Returns an error if nothing of the file can be read. A file that is damaged gives what it holds, with remarks.
pub fn read(file: impl Read) -> Result<Trace, Unreadable> {
    let mut pieces = Pieces::new(plain(file, &Swollen::default())?);
    let mut whole = Part::default();
    let damage = parse_all(&mut pieces, Part::read, |part| whole.append(part))?;
    if whole.events == 0 {
        return Err(damage.map_or(Unreadable::NoEvents, Unreadable::from));
    }
    let damage = match (damage, pieces.end()) {
        (Some(damage), _) => Some(format!("the file is damaged, and the rest of it left out: {damage}")),
        (None, End::Early { at, error }) => {
            let why = error.map(|error| format!(" ({error})")).unwrap_or_default();
            Some(format!("the file ends early, at byte {at} of its text{why}: what follows is missing"))
        }
        (None, End::Whole | End::Followed { .. }) => None,
    };
    if let End::Followed { at } = pieces.end() {
        whole.remarks.add(format!(
            "what follows the trace at byte {at} of the text is left out, which may be another trace: write each into a file of its own"
        ));
    }
    let mut trace = trace(whole);
    trace.is_cut = damage.is_some();
    damage.into_iter().for_each(|damage| trace.remarks.add(damage));
    Ok(trace)
}

/// Returns the trace whose text was read as `whole`.
fn trace(whole: Part) -> Trace {
    let Part { fields, mut work, mut launches, mut ranges, mut steps, host, names, mut remarks, .. } = whole;
    let input = std::mem::take(&mut ranges.input);
    let phases = ranges.phases();
    for (launch, thread) in launches.iter_mut().zip(whole.launched_by) {
        launch.phase = phases.launch_phase(thread, launch.at);
    }
    work.sort_by_key(|work| (work.begin, work.end));
    let names = names.into_texts();
    doubtful::leave_out(&mut work, &names, &mut remarks);
    doubtful::name_unknown_collectives(&work, &names, &mut remarks);
    steps.sort_by_key(|step| (step.begin, step.end));
    steps.dedup_by_key(|step| step.number);
    // Sums of a part of them would be too small.
    let is_whole = host.len() < MAX_HOST;
    if !is_whole {
        remarks.add(format!(
            "{MAX_HOST} operators and calls or more are recorded: only kernels are summed by name"
        ));
    }
    let host = if is_whole { self_times(host, &steps) } else { Vec::new() };
    Trace {
        rank: fields.rank,
        world_size: fields.world_size,
        device: fields.device,
        nccl: fields.nccl,
        base_nanos: fields.base_nanos.unwrap_or(0),
        work,
        launches,
        input,
        steps,
        host,
        names,
        carried: whole.carried,
        groups: whole.groups.into_sorted(),
        all_to_alls: whole.all_to_alls,
        messages: whole.messages,
        events: whole.events,
        is_cut: false,
        remarks,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chunks::Chunk;
    use crate::pieces::Piece;

    /// Returns an event of a trace. `which` decides its kind, its name, its thread and its group.
    fn event(which: usize, at: u64) -> String {
        let categories = ["kernel", "cuda_runtime", "cpu_op", "user_annotation", "ac2g", "kernel"];
        let names =
            ["gemm", "ncclDevKernel_AllReduce", "ProfilerStep#7", "nccl:send", "Optimizer.step#x", "a"];
        let (category, name) = (categories[which % 6], names[which / 6 % 6]);
        let (thread, group, stream) = (which / 36 % 3, which / 108 % 3, which % 2);
        format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "tid": {thread}, "ts": {at}.5, "dur": {which}, "args":
            {{"stream": {stream}, "correlation": {at}, "Process Group Name": "{group}", "Collective name": "allreduce"}}}}"#
        )
    }

    fn read(pieces: &[Piece<'_>]) -> Part {
        Part::read(&Chunk::new(pieces))
    }

    proptest! {
        /// Parts of a text, put together, are what the whole of it holds.
        #[test]
        fn parts_become_the_whole(which in prop::collection::vec(0..324_usize, 1..40), cuts in prop::collection::vec(0..40_usize, 0..4)) {
            let events: Vec<String> = which.iter().zip(0..).map(|(&which, at)| event(which, at)).collect();
            let mut pieces: Vec<Piece<'_>> = events.iter().map(|event| Piece::Event(event.as_bytes())).collect();
            pieces.insert(which[0] % events.len(), Piece::Field(b"baseTimeNanoseconds", b"17"));
            pieces.push(Piece::Event(b"{"));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(pieces.len())).collect();
            cuts.extend([0, pieces.len()]);
            cuts.sort_unstable();
            let mut joined = Part::default();
            for cut in cuts.windows(2) {
                joined.append(read(&pieces[cut[0]..cut[1]])).unwrap();
            }
            let shown = |part: Part| format!("{:?}", trace(part));
            prop_assert_eq!(shown(joined), shown(read(&pieces)));
        }
    }
}
