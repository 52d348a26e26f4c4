//! Traces as PyTorch's profiler would write them, of a simulated job: each step, all ranks compute and reduce four times.

use std::fmt::Write as _;

/// The number of all-reduces of a step.
const ALL_REDUCES: u64 = 4;
/// Times of the simulated job, in microseconds.
const COMPUTE: u64 = 5_000;
const TRANSFER: u64 = 20;
const BETWEEN_STEPS: u64 = 300;
/// When the first step begins, in microseconds since 1970.
const BEGIN: u64 = 1_700_000_000_000_000;
/// By how much the clock of each rank is ahead of that of the rank before it, in microseconds.
const CLOCK: u64 = 3_000_000;

/// The range in which the host prepares the work before each all-reduce.
pub const RANGE: &str = "prepare <batch>";

/// A simulated job.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// The number of ranks.
    pub ranks: usize,
    /// The number of steps.
    pub steps: u64,
    /// The number of kernels between two all-reduces.
    pub kernels: u64,
    /// A rank that sleeps before every other all-reduce, and for how long, in microseconds.
    pub sleeps: Option<(usize, u64)>,
}

/// An event with a duration. Times are in microseconds.
struct Event<'a> {
    category: &'a str,
    name: &'a str,
    begin: u64,
    long: u64,
    args: String,
}

impl Traced {
    /// Returns the traces by rank, as JSON.
    #[must_use]
    pub fn traces(self) -> Vec<String> {
        let mut events: Vec<String> = vec![String::new(); self.ranks];
        let mut write = |rank: usize, event: Event<'_>| {
            let Event { category, name, begin, long, args } = event;
            let begin = begin + CLOCK * rank as u64;
            let event = format!(
                r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{begin},"dur":{long},"args":{{{args}}}}},"#
            );
            let _infallible = writeln!(events[rank], "{event}");
        };
        let mut now = BEGIN;
        let mut correlation = 0;
        for step in 0..self.steps {
            let begin = now;
            for number in 0..ALL_REDUCES {
                let ends: Vec<u64> =
                    (0..self.ranks).map(|rank| now + self.work(rank, step, number)).collect();
                let end = ends.iter().max().copied().unwrap_or(now) + TRANSFER;
                for (rank, ready) in ends.into_iter().enumerate() {
                    let jitter = jitter(rank, step, number);
                    // The host prepares the work in a range of its own, and that is where a rank sleeps.
                    let slept = self.slept(rank, number);
                    let prepared = ready - COMPUTE - jitter - 10;
                    let (begin, long) = (prepared - slept, slept + 1);
                    let args = String::new();
                    write(rank, Event { category: "user_annotation", name: RANGE, begin, long, args });
                    let mut ran = |name, begin: u64, long, stream| {
                        correlation += 1;
                        let launch = format!(r#""correlation":{correlation}"#);
                        let kernel = format!(r#"{launch},"stream":{stream}"#);
                        write(
                            rank,
                            Event {
                                category: "cuda_runtime",
                                name: "cudaLaunchKernel",
                                begin: begin - 9,
                                long: 5,
                                args: launch,
                            },
                        );
                        write(rank, Event { category: "kernel", name, begin, long, args: kernel });
                    };
                    let (begin, each) = (ready - COMPUTE - jitter, (COMPUTE + jitter) / self.kernels);
                    for kernel in 0..self.kernels {
                        let rest =
                            if kernel + 1 == self.kernels { (COMPUTE + jitter) % self.kernels } else { 0 };
                        ran("gemm", begin + kernel * each, each + rest, 7);
                    }
                    ran("ncclDevKernel_AllReduce_Sum_f32_RING_LL", ready, end - ready, 20);
                }
                now = end;
            }
            now += BETWEEN_STEPS;
            for rank in 0..self.ranks {
                let name = format!("ProfilerStep#{}", step + 4);
                let begin = begin - 10;
                write(
                    rank,
                    Event {
                        category: "user_annotation",
                        name: &name,
                        begin,
                        long: now - begin - 20,
                        args: String::new(),
                    },
                );
            }
        }
        let traces = events.iter().enumerate().map(|(rank, events)| {
            format!(
                "{{\"schemaVersion\":1,\"distributedInfo\":{{\"backend\":\"nccl\",\"rank\":{rank},\"world_size\":{}}},\n\"traceEvents\":[\n{}\n]}}",
                self.ranks,
                events.trim_end().trim_end_matches(','),
            )
        });
        traces.collect()
    }

    /// Returns how long a rank needs before an all-reduce.
    fn work(self, rank: usize, step: u64, number: u64) -> u64 {
        COMPUTE + jitter(rank, step, number) + self.slept(rank, number)
    }

    /// Returns how long it sleeps of that.
    fn slept(self, rank: usize, number: u64) -> u64 {
        let sleeps = self.sleeps.filter(|&(sleeper, _)| sleeper == rank && number % 2 == 1);
        sleeps.map_or(0, |(_, long)| long)
    }
}

/// Returns the additional compute time of a rank, by which no rank is late more often than the others.
fn jitter(rank: usize, step: u64, number: u64) -> u64 {
    (rank as u64 * 7 + step * 13 + number * 5 + rank as u64 * step * 3) % 11 * 20
}
