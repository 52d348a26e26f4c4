//! What runs say that were imported from traces and dumps: whom they name must not depend on how ranks are numbered, on how far apart
//! their clocks are, nor on what is missing or wrong in the file of another rank. Jobs are simulated.

use proptest::prelude::*;
use serde_json::{Value, json};
use wire::clock::ServerNanos;
use wire::views::{Cause, Culprit, Report, RunState};

use super::*;
use crate::state::run::Run;

/// Times of a simulated job, in microseconds.
const COMPUTE: f64 = 1_500.0;
const TRANSFER: f64 = 300.0;

/// How ranks reduce.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reduces {
    /// They wait for each all-reduce.
    Blocking,
    /// All-reduces run beside the compute after them, and the step waits for the last one.
    Overlapping,
}

/// A job of four ranks.
#[derive(Clone, Debug)]
struct Traced {
    reduces: Reduces,
    steps: u64,
    all_reduces: u64,
    /// The rank that is late, whether it computes longer or its device does nothing, and by how many microseconds before an all-reduce.
    late: Option<(usize, bool, f64)>,
    /// By how much the clock of each rank is ahead, in microseconds.
    clocks: [f64; 4],
}

impl Default for Traced {
    fn default() -> Self {
        let clocks = [0.0, 3e6, -5e6, 61e6];
        Self { reduces: Reduces::Blocking, steps: 3, all_reduces: 6, late: None, clocks }
    }
}

impl Traced {
    /// Returns the events of each rank.
    fn events(&self) -> [Vec<Value>; 4] {
        let mut events: [Vec<Value>; 4] = Default::default();
        let mut correlation = 0;
        let mut now = 1_700_000_000_000_000.0;
        for step in 0..self.steps {
            let begin = now;
            let mut reached = [now; 4];
            let mut free = now;
            for number in 0..self.all_reduces {
                let mut ready = [0.0_f64; 4];
                for (rank, events) in events.iter_mut().enumerate() {
                    let (computes, idles) = self.work(rank, step, number);
                    correlation += 1;
                    let begin_of_rank = reached[rank];
                    events.extend(self.kernel(
                        rank,
                        "gemm",
                        7,
                        correlation,
                        begin,
                        (begin_of_rank, begin_of_rank + computes),
                    ));
                    ready[rank] = begin_of_rank + computes + idles;
                }
                let last = ready.iter().copied().fold(free, f64::max);
                let end = last + TRANSFER;
                for (rank, events) in events.iter_mut().enumerate() {
                    correlation += 1;
                    // Devices see the end some microseconds apart.
                    let ends = end + ((rank as u64 * 3 + number * 5 + step) % 7) as f64;
                    let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
                    let starts = ready[rank].max(free);
                    events.extend(self.kernel(rank, name, 20, correlation, begin, (starts, ends)));
                    reached[rank] = if self.reduces == Reduces::Blocking { end + 8.0 } else { ready[rank] };
                }
                free = end + 8.0;
            }
            now = free + 40.0;
            for (rank, events) in events.iter_mut().enumerate() {
                let name = format!("ProfilerStep#{}", step + 2);
                events.push(json!({
                    "ph": "X", "cat": "user_annotation", "name": name, "ts": begin + self.clocks[rank], "dur": now - begin - 1.0,
                }));
            }
        }
        events
    }

    /// Returns a kernel and its launch, which the host makes at the begin of the step.
    fn kernel(
        &self,
        rank: usize,
        name: &str,
        stream: u64,
        correlation: u64,
        step: f64,
        (from, to): (f64, f64),
    ) -> [Value; 2] {
        let clock = self.clocks[rank];
        let launch = json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": step + clock + 1.0, "dur": 1,
            "args": {"correlation": correlation}});
        let kernel = json!({"ph": "X", "cat": "kernel", "name": name, "ts": from + clock, "dur": to - from,
            "args": {"stream": stream, "correlation": correlation}});
        [launch, kernel]
    }

    /// Returns how long a rank computes and idles before an all-reduce. Jitter makes no rank last more often than others.
    fn work(&self, rank: usize, step: u64, number: u64) -> (f64, f64) {
        let jitter = ((rank as u64 * 7 + step * 13 + number * 5 + rank as u64 * step * 3) % 11 * 2
            + number * 17 % 90) as f64;
        match self.late {
            Some((late, true, micros)) if late == rank => (COMPUTE + jitter + micros, 0.0),
            Some((late, false, micros)) if late == rank => (COMPUTE + jitter, micros),
            _ => (COMPUTE + jitter, 0.0),
        }
    }

    /// Returns the text of each rank's trace, as the rank with the number in `order`.
    fn texts(&self, order: [usize; 4]) -> [String; 4] {
        let mut events = self.events();
        std::array::from_fn(|rank| text(order[rank], &std::mem::take(&mut events[rank])))
    }
}

fn text(rank: usize, events: &[Value]) -> String {
    json!({"distributedInfo": {"rank": rank, "world_size": 4}, "traceEvents": events}).to_string()
}

/// Imports texts, and returns the report of the run and what the import remarks.
fn imported(texts: &[String]) -> (Run, Report, Vec<String>) {
    let mut files = Files::default();
    for (number, text) in texts.iter().enumerate() {
        let name = format!("trace-{number}.json");
        files.add(&name, import::read(&name, text.as_bytes()));
    }
    run(files)
}

fn run(files: Files) -> (Run, Report, Vec<String>) {
    let id = RunId::new("one").expect("the id is valid");
    let Read { imported, rounds } = files.join(&id, "one").expect("the files are of one job");
    let mut run: Option<Run> = None;
    for frame in rounds.iter().flatten() {
        let batch = wire::codec::decode(frame).expect("an import packs what is read");
        let run = run.get_or_insert_with(|| Run::new(id.clone(), batch.world_size, ServerNanos(0)));
        run.apply(batch, ServerNanos(0)).expect("the run takes the batches of an import");
    }
    let run = run.expect("an import has batches");
    let report = run.report(usize::MAX, ServerNanos(0));
    (run, report, imported.remarks)
}

/// Returns who is named, with the cause and the share of the step in per cent, in verdicts and in notes. `order` has the number of each rank.
fn named(report: &Report, order: [usize; 4]) -> Vec<(usize, Cause, i64)> {
    let naming = |verdict: &wire::views::Verdict| match verdict.culprit {
        Some(Culprit::Rank(rank)) => {
            let rank = order.iter().position(|&number| number == rank as usize).expect("a rank of the job");
            Some((rank, verdict.cause, (verdict.cost_share * 100.0).round() as i64))
        }
        _ => None,
    };
    report.verdicts.iter().chain(&report.notes).filter_map(naming).collect()
}

const IN_ORDER: [usize; 4] = [0, 1, 2, 3];

#[test]
fn a_late_rank_is_named_whatever_its_number_and_however_its_job_reduces() {
    for (reduces, computes, micros, cause) in [
        (Reduces::Blocking, false, 20_000.0, Cause::Host),
        (Reduces::Blocking, true, 1_500.0, Cause::Compute),
        (Reduces::Overlapping, true, 1_500.0, Cause::Compute),
        (Reduces::Overlapping, true, 400.0, Cause::Compute),
    ] {
        for late in 0..4 {
            let job = Traced { reduces, steps: 6, late: Some((late, computes, micros)), ..Traced::default() };
            let (_, report, _) = imported(&job.texts(IN_ORDER));
            let named = named(&report, IN_ORDER);
            assert_eq!(
                named.iter().map(|(rank, cause, _)| (*rank, *cause)).collect::<Vec<_>>(),
                [(late, cause)],
                "{job:?}"
            );
        }
    }
}

#[test]
fn no_rank_is_named_in_a_job_without_a_late_rank() {
    for reduces in [Reduces::Blocking, Reduces::Overlapping] {
        for steps in [1, 6, 22] {
            let (_, report, _) = imported(&Traced { reduces, steps, ..Traced::default() }.texts(IN_ORDER));
            assert_eq!(named(&report, IN_ORDER), [], "{reduces:?} {steps}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Numbers of ranks and clocks are labels.
    #[test]
    fn verdicts_do_not_depend_on_numbers_and_clocks(
        order in Just(IN_ORDER.to_vec()).prop_shuffle(),
        late in prop::option::of((0_usize..4, prop::bool::ANY, 0_u32..4_000)),
        overlaps in prop::bool::ANY,
        steps in prop::sample::select(vec![1_u64, 4, 21]),
        clocks in prop::collection::vec(-1e12..1e12, 4),
    ) {
        let late = late.map(|(rank, computes, micros)| (rank, computes, f64::from(micros)));
        let reduces = if overlaps { Reduces::Overlapping } else { Reduces::Blocking };
        let job = Traced { reduces, steps, late, ..Traced::default() };
        let expected = named(&imported(&job.texts(IN_ORDER)).1, IN_ORDER);
        let order: [usize; 4] = order.try_into().expect("four ranks");
        prop_assert_eq!(named(&imported(&job.texts(order)).1, order), expected.clone(), "{:?}", job);
        let clocks = clocks.into_iter().map(f64::round).collect::<Vec<_>>().try_into().expect("four ranks");
        let elsewhere = Traced { clocks, ..job };
        prop_assert_eq!(named(&imported(&elsewhere.texts(IN_ORDER)).1, IN_ORDER), expected, "{:?}", elsewhere);
    }
}

#[test]
fn a_file_that_was_cut_blames_no_other_rank() {
    let job = Traced { steps: 1, all_reduces: 30, late: Some((2, false, 500.0)), ..Traced::default() };
    let whole = named(&imported(&job.texts(IN_ORDER)).1, IN_ORDER);
    assert_eq!(whole.iter().map(|(rank, ..)| *rank).collect::<Vec<_>>(), [2]);
    for cut in 0..4 {
        let mut events = job.events();
        // The last two all-reduces are missing.
        let at = events[cut].len() - 9;
        events[cut].drain(at..at + 8);
        let texts: Vec<String> = (0..4).map(|rank| text(rank, &events[rank])).collect();
        let (_, report, remarks) = imported(&texts);
        let named = named(&report, IN_ORDER);
        assert_eq!(
            named.iter().map(|(rank, cause, _)| (*rank, *cause)).collect::<Vec<_>>(),
            [(2, Cause::Host)],
            "cut: {cut}"
        );
        assert!((named[0].2 - whole[0].2).abs() <= 3, "cut: {cut}: {named:?} and not {whole:?}");
        assert!(
            remarks.iter().any(|remark| remark.contains("2 of 30 collectives are left out")),
            "{remarks:?}"
        );
    }
}

#[test]
fn a_wrong_number_costs_its_event_and_no_figure() {
    let job = Traced { steps: 4, late: Some((2, true, 600.0)), ..Traced::default() };
    let (_, right, _) = imported(&job.texts(IN_ORDER));
    let kernel = |ts: f64, dur: f64| json!({"ph": "X", "cat": "kernel", "name": "odd", "ts": ts, "dur": dur, "args": {"stream": 7, "correlation": 5}});
    let begin = 1_700_000_000_000_000.0 + job.clocks[1];
    for (wrong, said) in [
        (kernel(0.0, 0.0), "rank 1 (trace-1.json): \"odd\" is left out: its time, 0 us"),
        (kernel(begin + 400.0, 3_400_000.0), "rank 1 (trace-1.json): \"odd\" at "),
    ] {
        let mut events = job.events();
        events[1].push(wrong);
        let texts: Vec<String> = (0..4).map(|rank| text(rank, &events[rank])).collect();
        let (_, report, remarks) = imported(&texts);
        let [(rank, cause, share)] = named(&report, IN_ORDER)[..] else { panic!("{said}: {report:?}") };
        let (expected, expected_cause, expected_share) = named(&right, IN_ORDER)[0];
        assert_eq!((rank, cause), (expected, expected_cause), "{said}");
        assert!((share - expected_share).abs() <= 2, "{said}: {share} % and not {expected_share} %");
        let median = |report: &Report| report.step_time_nanos.value().map_or(0.0, |spread| spread.p99);
        assert!((median(&report) / median(&right) - 1.0).abs() < 0.02, "{said}");
        assert!(remarks.iter().any(|remark| remark.starts_with(said)), "{remarks:?}");
    }
}

#[test]
fn a_recorded_hang_is_the_state_of_the_run_and_the_first_thing_that_is_said() {
    let dump = |issued: u32| {
        let entry = |number: u32| {
            let state = if number <= 40 { "completed" } else { "scheduled" };
            json!({"process_group": ["0", "default_pg"], "collective_seq_id": number, "profiling_name": "nccl:all_reduce",
                "time_created_ns": 1_700_000_000_000_000_000_u64 + u64::from(number), "state": state})
        };
        let entries: Vec<Value> = (40..=issued).map(entry).collect();
        json!({"version": "2.9", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}, "entries": entries})
    };
    for lagging in 0..4 {
        let mut files = Files::default();
        for rank in 0..4 {
            let name = format!("nccl_trace_rank_{rank}");
            files.add(
                &name,
                import::read(&name, dump(if rank == lagging { 40 } else { 41 }).to_string().as_bytes()),
            );
        }
        let (run, report, _) = run(files);
        let hang = report.hang.clone().expect("the report has the hang");
        assert_eq!((report.state, hang.ranks), (RunState::Hung, vec![Rank(lagging)]));
        let summary = run.summary(&report, ServerNanos(0));
        assert_eq!((summary.state, summary.hang), (RunState::Hung, report.hang.clone()));
        let text = crate::export::report::terminal(&crate::export::report::document(&report));
        let said = format!("one rank is behind: rank {lagging} has issued 40 and none after it.");
        assert!(text.contains(&said) && text.contains("4 ranks, hung"), "{text}");
        assert!(report.ledger.is_empty() && !text.contains("Step ledger"), "{text}");
    }
}
