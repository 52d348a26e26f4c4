//! Checks predictions for other world sizes: jobs are simulated on a few ranks, the model is fitted to what the server
//! recorded of them, and the same jobs are simulated on other numbers of ranks. These figures are not measurements.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use clap::Parser;
use serde_json::json;
use testkit::predictions::{Job, WORLDS};
use testkit::results::Results;

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
        let mut unmodeled = 0;
        for seed in options.first..options.first + options.jobs {
            if let Err(missing) = judge(seed, has_stalls, &mut found, &mut results) {
                unmodeled += 1;
                results.add(
                    json!({"what": "unmodeled", "seed": seed, "has_stalls": has_stalls, "reason": missing}),
                );
            }
        }
        println!("{} jobs {name}, {unmodeled} of them without a prediction", options.jobs);
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
    for checked in job.check().map_err(|missing| missing.to_string())? {
        let (truth, predicted, is_inside) = (checked.truth, &checked.predicted, checked.is_inside());
        let at = WORLDS.iter().position(|ranks| *ranks == predicted.ranks as usize);
        let found = &mut found[at.expect("it is one of them")];
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
            "ranks": predicted.ranks,
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
