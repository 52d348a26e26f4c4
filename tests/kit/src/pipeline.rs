//! Tables as StragglerAnalysis writes them, of a simulated job with pipeline stages: each stage computes all forward passes of a step,
//! then all backward passes.

use std::sync::Arc;

use anyhow::Context as _;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

const SCHEMA: &str = "message table {
    REQUIRED INT64 dp_rank; REQUIRED INT64 stage; REQUIRED INT64 rank; REQUIRED INT64 step;
    REQUIRED BYTE_ARRAY optype (UTF8); REQUIRED DOUBLE start_ts; REQUIRED DOUBLE duration;
}";
/// The micro-batches of a step.
const MICRO_BATCHES: usize = 8;
/// Times of the simulated job, in seconds.
const FORWARD: f64 = 0.1;
const BACKWARD: f64 = 0.2;
const TRANSFER: f64 = 0.001;
const OPTIMIZER: f64 = 0.05;
/// By how much computing times vary, as a share.
const JITTER: f64 = 0.02;

/// A simulated job.
#[derive(Clone, Copy, Debug)]
pub struct Pipelined<'a> {
    /// The number of stages, at least 2.
    pub stages: usize,
    /// The number of data-parallel ranks of a stage.
    pub data_parallel: usize,
    /// The number of steps.
    pub steps: usize,
    /// Workers that compute longer: the stage, the data-parallel rank, and how many times as long.
    pub slow: &'a [(usize, usize, f64)],
}

/// An operation of a worker. Times are in seconds from the begin of the step.
struct Operation {
    worker: (usize, usize),
    step: usize,
    name: &'static str,
    begin: f64,
    end: f64,
}

/// A simulated step.
struct Step<'a> {
    job: Pipelined<'a>,
    number: usize,
    random: ChaCha8Rng,
    /// Until when each worker is busy, by stage and data-parallel rank.
    busy: Vec<Vec<f64>>,
    operations: Vec<Operation>,
}

impl<'a> Pipelined<'a> {
    /// Returns the table as a Parquet file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be encoded.
    pub fn table(self) -> anyhow::Result<Vec<u8>> {
        let operations: Vec<Operation> =
            (0..self.steps).flat_map(|number| self.step(number).operations).collect();
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED).build();
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        let whole = |number: &dyn Fn(&Operation) -> usize| {
            operations.iter().map(|operation| number(operation) as i64).collect::<Vec<_>>()
        };
        let rank = |(stage, data_parallel): (usize, usize)| stage * self.data_parallel + data_parallel;
        for numbers in [
            whole(&|operation| operation.worker.1),
            whole(&|operation| operation.worker.0),
            whole(&|operation| rank(operation.worker)),
            whole(&|operation| operation.step),
        ] {
            let mut column = group.next_column()?.context("a column")?;
            column.typed::<Int64Type>().write_batch(&numbers, None, None)?;
            column.close()?;
        }
        let names: Vec<ByteArray> = operations.iter().map(|operation| operation.name.into()).collect();
        let mut column = group.next_column()?.context("a column")?;
        column.typed::<ByteArrayType>().write_batch(&names, None, None)?;
        column.close()?;
        let seconds = |time: fn(&Operation) -> f64| operations.iter().map(time).collect::<Vec<_>>();
        for times in
            [seconds(|operation| operation.begin), seconds(|operation| operation.end - operation.begin)]
        {
            let mut column = group.next_column()?.context("a column")?;
            column.typed::<DoubleType>().write_batch(&times, None, None)?;
            column.close()?;
        }
        group.close()?;
        Ok(writer.into_inner()?)
    }

    /// Returns the mean time of a step, in seconds.
    #[must_use]
    pub fn seconds_per_step(self) -> f64 {
        let long =
            |number| self.step(number).operations.iter().map(|operation| operation.end).fold(0.0, f64::max);
        (0..self.steps).map(long).sum::<f64>() / self.steps as f64
    }

    fn step(self, number: usize) -> Step<'a> {
        let mut step = Step {
            job: self,
            number,
            random: ChaCha8Rng::seed_from_u64(number as u64),
            busy: vec![vec![0.0; self.data_parallel]; self.stages],
            operations: Vec::new(),
        };
        for data_parallel in 0..self.data_parallel {
            step.pass(
                data_parallel,
                &(0..self.stages).collect::<Vec<_>>(),
                FORWARD,
                ["forward-compute", "forward-send", "forward-recv"],
            );
            step.pass(
                data_parallel,
                &(0..self.stages).rev().collect::<Vec<_>>(),
                BACKWARD,
                ["backward-compute", "backward-send", "backward-recv"],
            );
        }
        let workers = |stage: usize| (0..self.data_parallel).map(move |data_parallel| (stage, data_parallel));
        (0..self.stages)
            .for_each(|stage| step.together("grads-reduce-scatter", &workers(stage).collect::<Vec<_>>()));
        for data_parallel in 0..self.data_parallel {
            step.together(
                "embedding-grads-all-reduce",
                &[(0, data_parallel), (self.stages - 1, data_parallel)],
            );
        }
        for worker in (0..self.stages).flat_map(workers) {
            step.compute(worker, "optimizer", OPTIMIZER);
        }
        step
    }
}

impl Step<'_> {
    fn add(&mut self, worker: (usize, usize), name: &'static str, begin: f64, end: f64) {
        self.operations.push(Operation { worker, step: self.number, name, begin, end });
    }

    /// Computes something on a worker, and returns when it ends.
    fn compute(&mut self, worker: (usize, usize), name: &'static str, usual: f64) -> f64 {
        let slow = self.job.slow.iter().find(|(stage, data_parallel, _)| (*stage, *data_parallel) == worker);
        let long = usual
            * slow.map_or(1.0, |(.., times)| *times)
            * self.random.random_range(1.0 - JITTER..1.0 + JITTER);
        let begin = self.busy[worker.0][worker.1];
        self.busy[worker.0][worker.1] = begin + long;
        self.add(worker, name, begin, begin + long);
        begin + long
    }

    /// Passes all micro-batches through the stages, in this order.
    fn pass(
        &mut self,
        data_parallel: usize,
        stages: &[usize],
        usual: f64,
        [compute, send, receive]: [&'static str; 3],
    ) {
        let mut arrive: Vec<Option<f64>> = vec![None; MICRO_BATCHES];
        for (at, &stage) in stages.iter().enumerate() {
            let worker = (stage, data_parallel);
            for arrives in &mut arrive {
                if let Some(sent) = *arrives {
                    let begin = self.busy[stage][data_parallel];
                    let end = begin.max(sent) + TRANSFER;
                    self.add(worker, receive, begin, end);
                    self.busy[stage][data_parallel] = end;
                }
                let computed = self.compute(worker, compute, usual);
                if at + 1 < stages.len() {
                    self.add(worker, send, computed, computed + TRANSFER);
                }
                *arrives = Some(computed);
            }
        }
    }

    /// Runs a collective, which ends for all workers at the same time.
    fn together(&mut self, name: &'static str, workers: &[(usize, usize)]) {
        let begins: Vec<f64> = workers.iter().map(|worker| self.busy[worker.0][worker.1]).collect();
        let end = begins.iter().copied().fold(0.0, f64::max) + TRANSFER;
        for (&worker, begin) in workers.iter().zip(begins) {
            self.add(worker, name, begin, end);
            self.busy[worker.0][worker.1] = end;
        }
    }
}
