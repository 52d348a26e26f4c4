//! How soon the page shows what happens, and how smoothly it moves at full size, in a real Chromium.
//!
//! *Gradient to pixel*: both stamps are of this host's clock. The first is that of a record of a real job: when a
//! bucket's last gradient was written, when the step's last all-reduce ended, when the step ended. The second is
//! taken in the first task after the animation frame in which the page has drawn that step, so that it is never
//! early. *Frames*: intervals between animation frames while a person drags, and while steps come.
#![allow(clippy::print_stdout, reason = "what the program is for")]

#[path = "page/frames.rs"]
mod frames;
#[path = "page/latency.rs"]
mod latency;

use paceline_tests::browser::Browser;
use paceline_tests::results::Results;
use serde_json::{Value, json};

fn main() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let mut results = Results::begin("page");
    let mut take = |lines: Vec<Value>| {
        for line in lines {
            println!("{}", shown(&line));
            results.add(line);
        }
    };
    take(latency::measure(&browser)?);
    browser.open("about:blank")?;
    take(frames::heatmap(&browser)?);
    take(frames::waterfall(&browser)?);
    println!("raw: {}", results.finish()?.display());
    Ok(())
}

/// Without the raw values.
fn shown(line: &Value) -> Value {
    let mut line = line.clone();
    if let Some(object) = line.as_object_mut() {
        object.retain(|key, _| !key.ends_with("_raw"));
    }
    line
}

/// The middle and the tails of `values`, with the values themselves under `NAME_raw`.
fn spread(name: &str, mut values: Vec<f64>) -> Value {
    values.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| values.get(((values.len() - 1) as f64 * share).round() as usize).copied();
    let rounded: Vec<f64> = values.iter().map(|value| (value * 100.0).round() / 100.0).collect();
    let of = |share: f64| if values.is_empty() { None } else { at(share) };
    json!({
        "count": values.len(),
        format!("{name}_p50"): of(0.5), format!("{name}_p90"): of(0.9), format!("{name}_p99"): of(0.99),
        format!("{name}_max"): of(1.0), format!("{name}_raw"): rounded,
    })
}

/// `a` and `b` as one object.
fn joined(mut a: Value, b: Value) -> Value {
    if let (Some(a), Value::Object(b)) = (a.as_object_mut(), b) {
        a.extend(b);
    }
    a
}
