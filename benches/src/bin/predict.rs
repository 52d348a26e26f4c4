//! Checks predictions for other world sizes: jobs are simulated on a few ranks, the model is fitted to what the server
//! recorded of them, and the same jobs are simulated on other numbers of ranks. These figures are not measurements.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use analysis::scaling::Model;
use analysis::step::StepAnalysis;
use clap::Parser;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use serde_json::json;
use testkit::results::Results;
use testkit::simulator::{Plan, Simulation, StepTruth};

/// The numbers of ranks that are predicted.
const WORLDS: [usize; 7] = [1, 4, 8, 16, 64, 256, 1_024];
/// The steps of the run that the model is fitted to, and of each run that it predicts.
const STEPS: (u64, u64) = (300, 150);

/// Simulates jobs, predicts them on other numbers of ranks, and counts how often the truth is in the predicted band
#[derive(Parser)]
struct Options {
    /// Number of jobs without stalls, and of jobs with them
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Seed of the first job
    #[arg(long, default_value_t = 1)]
    first: u64,
}

/// How the latency of a collective grows with the number of ranks.
#[derive(Clone, Copy, Debug)]
enum Latency {
    Ring,
    Tree,
}

impl Latency {
    fn hops(self, ranks: usize) -> f64 {
        match self {
            Self::Ring => ranks as f64 - 1.0,
            Self::Tree => (ranks as f64).log2(),
        }
    }
}

/// A drawn job.
struct Job {
    /// The job on the ranks that the model is fitted to.
    plan: Plan,
    latency: Latency,
}

impl Job {
    fn draw(seed: u64, has_stalls: bool) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0x7261_6e6b);
        let mut between =
            |least: f64, most: f64| (least.ln() + random.random::<f64>() * (most / least).ln()).exp();
        let compute = between(10e6, 200e6);
        let bucket_bytes = between(256e3, 25e6) as u64;
        let buckets = between(2.0, 12.9) as usize;
        // Together, all transfers take this share of backward, which is two thirds of compute.
        let transfers = between(0.05, 1.2) * compute * 2.0 / 3.0 / buckets as f64;
        let of_latency = between(0.01, 0.3);
        let jitter = between(0.002, 0.04);
        let sequence_spread = between(0.002, 0.08);
        let stall = between(0.2, 2.0) * compute;
        let stall_one_in = if has_stalls { between(100.0, 2_000.0) as u64 } else { 0 };
        let ranks = [2, 4, 8][random.random_range(0..3)];
        let latency = if random.random() { Latency::Ring } else { Latency::Tree };
        let plan = Plan {
            ranks,
            steps: STEPS.0,
            buckets,
            bucket_bytes,
            first_bucket_bytes: bucket_bytes / 4,
            compute: compute as i64,
            jitter,
            sequence_spread: if random.random() { sequence_spread } else { 0.0 },
            alpha: (transfers * of_latency / latency.hops(2).max(1.0)) as i64,
            beta: transfers * (1.0 - of_latency) / bucket_bytes as f64,
            stall_one_in,
            stall: stall as i64,
            ..Plan::small(seed)
        };
        Self { plan, latency }
    }

    /// Returns the job on another number of ranks, with the batch per rank unchanged.
    fn on(&self, ranks: usize) -> Plan {
        let share = |ranks: usize| 1.0 - 1.0 / ranks as f64;
        let hops = self.latency.hops(ranks) / self.latency.hops(self.plan.ranks);
        let volume = share(ranks) / share(self.plan.ranks);
        Plan {
            ranks,
            steps: STEPS.1,
            alpha: (self.plan.alpha as f64 * hops) as i64,
            beta: self.plan.beta * volume,
            seed: self.plan.seed ^ ((ranks as u64) << 32),
            ..self.plan.clone()
        }
    }

    /// Returns the mean step time on so many ranks, in nanoseconds.
    fn truth(&self, ranks: usize) -> f64 {
        let steps = Simulation::truth(&self.on(ranks));
        let ends =
            steps.first().zip(steps.last()).map(|(first, last)| StepTruth::end(last) - StepTruth::end(first));
        ends.unwrap_or(0) as f64 / (steps.len() - 1) as f64
    }
}

/// What is found out about the predictions for one number of ranks.
#[derive(Default)]
struct Found {
    jobs: u32,
    inside: u32,
    errors: Vec<f64>,
    widths: Vec<f64>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let mut results = Results::begin("predict");
    for has_stalls in [false, true] {
        let name = if has_stalls { "with stalls" } else { "without stalls" };
        let mut found: Vec<Found> = WORLDS.iter().map(|_| Found::default()).collect();
        let mut unmodelled = 0;
        for seed in options.first..options.first + options.jobs {
            if let Err(missing) = judge(seed, has_stalls, &mut found, &mut results) {
                unmodelled += 1;
                results.add(
                    json!({"what": "unmodelled", "seed": seed, "has_stalls": has_stalls, "reason": missing}),
                );
            }
        }
        println!("{} jobs {name}, {unmodelled} of them without a prediction", options.jobs);
        println!("  ranks  in the band  median error  95 %    median width of the band (points)");
        for (ranks, found) in WORLDS.iter().zip(&mut found) {
            println!("{}", line(*ranks, found));
        }
    }
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Predicts one job and adds what is found to `found`, which has one entry for each of [`WORLDS`].
fn judge(seed: u64, has_stalls: bool, found: &mut [Found], results: &mut Results) -> Result<(), String> {
    let job = Job::draw(seed, has_stalls);
    let simulation = Simulation::run(&job.plan);
    let run = simulation.received();
    let report = run.report(usize::MAX, simulation.end());
    let steps = run.newest_steps(usize::MAX);
    let steps: Vec<&StepAnalysis> = steps.iter().map(AsRef::as_ref).collect();
    let model = Model::from_report(&report, &steps).map_err(|missing| missing.to_string())?;
    let alone = job.truth(1);
    for (ranks, found) in WORLDS.into_iter().zip(found) {
        if ranks == job.plan.ranks {
            continue;
        }
        let truth = alone / job.truth(ranks);
        let predicted = model.predict(ranks as u32);
        let is_inside = (predicted.efficiency_low..=predicted.efficiency_high).contains(&truth);
        found.jobs += 1;
        found.inside += u32::from(is_inside);
        found.errors.push(predicted.efficiency - truth);
        found.widths.push(predicted.efficiency_high - predicted.efficiency_low);
        results.add(json!({
            "what": "prediction",
            "seed": seed,
            "has_stalls": has_stalls,
            "fitted_on": job.plan.ranks,
            "latency": format!("{:?}", job.latency),
            "ranks": ranks,
            "truth": truth,
            "efficiency": predicted.efficiency,
            "low": predicted.efficiency_low,
            "high": predicted.efficiency_high,
            "is_inside": is_inside,
        }));
    }
    Ok(())
}

fn line(ranks: usize, found: &mut Found) -> String {
    let quantile = |values: &mut Vec<f64>, share: f64| {
        values.sort_by(f64::total_cmp);
        values.get(((values.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(f64::NAN) * 100.0
    };
    let median = quantile(&mut found.errors, 0.5);
    found.errors.iter_mut().for_each(|error| *error = error.abs());
    let most = quantile(&mut found.errors, 0.95);
    let width = quantile(&mut found.widths, 0.5);
    format!("{ranks:7}  {:4} of {:4}  {median:12.1}  {most:4.1}    {width:6.1}", found.inside, found.jobs)
}
