//! Measures the dashboard in a real Chromium: how soon it is usable, how soon it shows a step, and how smoothly it moves
//! at full size.
//!
//! *Gradient to pixel*: both times are from this host's clock. The first is from a record of a real job: when a
//! bucket's last gradient was written, when the step's last all-reduce ended, or when the step ended. The second is
//! measured in the first task after the animation frame in which the page drew that step, so it is never early.
//! *Frames*: intervals between animation frames while a user drags, and while steps arrive.
#![allow(clippy::print_stdout, reason = "the output of the program")]

#[path = "page/fed_latency.rs"]
mod fed_latency;
#[path = "page/first_view.rs"]
mod first_view;
#[path = "page/frames.rs"]
mod frames;
#[path = "page/latency.rs"]
mod latency;

use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use testkit::browser::Browser;
use testkit::results::Results;

/// Measures how soon the dashboard is usable, how soon it shows a gradient, and how smoothly it moves at 1,024 ranks, in headless Chromium
#[derive(Parser)]
struct Options {
    /// Measure only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// How soon the page is usable
    FirstView,
    /// How soon the page shows a gradient
    GradientToPixel,
    /// How smoothly the heatmap moves
    Heatmap,
    /// How smoothly the waterfall moves
    Waterfall,
}

impl Part {
    /// Returns the name of the results, so that a part does not replace those of the whole.
    const fn results(self) -> &'static str {
        match self {
            Self::FirstView => "page-first-view",
            Self::GradientToPixel => "page-gradient-to-pixel",
            Self::Heatmap => "page-heatmap",
            Self::Waterfall => "page-waterfall",
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let wanted = |part| options.only.is_none_or(|only| only == part);
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let mut results = Results::begin(options.only.map_or("page", Part::results));
    let mut take = |lines: Vec<Value>| {
        for line in lines {
            println!("{}", shown(&line));
            results.add(line);
        }
    };
    if wanted(Part::FirstView) {
        take(first_view::measure(&browser)?);
    }
    if wanted(Part::GradientToPixel) {
        take(latency::measure(&browser)?);
        for ranks in [8, 1_024] {
            take(vec![fed_latency::measure(&browser, ranks)?]);
        }
        browser.open("about:blank")?;
    }
    if wanted(Part::Heatmap) {
        take(frames::heatmap(&browser)?);
    }
    if wanted(Part::Waterfall) {
        take(frames::waterfall(&browser)?);
    }
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Returns the line without the raw values.
fn shown(line: &Value) -> Value {
    let mut line = line.clone();
    if let Some(object) = line.as_object_mut() {
        object.retain(|key, _| !key.ends_with("_raw"));
    }
    line
}

/// Returns the median and the tails of `values`, with the values themselves under `NAME_raw`.
fn spread(name: &str, mut values: Vec<f64>) -> Value {
    values.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| values.get(((values.len() - 1) as f64 * share).round() as usize).copied();
    let rounded: Vec<f64> = values.iter().map(|value| (value * 100.0).round() / 100.0).collect();
    let quantile = |share: f64| if values.is_empty() { None } else { at(share) };
    json!({
        "count": values.len(),
        format!("{name}_p50"): quantile(0.5), format!("{name}_p90"): quantile(0.9), format!("{name}_p95"): quantile(0.95),
        format!("{name}_p99"): quantile(0.99),
        format!("{name}_max"): quantile(1.0), format!("{name}_raw"): rounded,
    })
}

/// Merges `a` and `b` into one object.
fn joined(mut a: Value, b: Value) -> Value {
    if let (Some(a), Value::Object(b)) = (a.as_object_mut(), b) {
        a.extend(b);
    }
    a
}
