//! The frames of the heatmap and of the waterfall at full size: 1,024 ranks x 2,000 steps, and 50,000 slices.

use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use testkit::browser::Browser;
use testkit::feed::Feed;
use testkit::programs::{Server, wait_until};
use testkit::simulator::{Fault, FaultKind, Plan, Simulation};

use crate::{joined, spread};

const RANKS: usize = 1_024;
/// The number of steps that arrive one by one while frames are counted.
const LIVE: u64 = 60;
/// The interval between two live steps.
const EVERY: Duration = Duration::from_millis(350);
/// The number of frames counted in each case.
const FRAMES: usize = 300;

fn plan(steps: u64, buckets: usize, seed: u64) -> Plan {
    let fault = Fault { rank: 613, kind: FaultKind::Input, nanos: 9_000_000, from: steps / 4, to: steps / 2 };
    Plan {
        ranks: RANKS,
        ranks_per_host: 8,
        steps,
        buckets,
        tick: 2_000_000_000,
        singly_from: steps - LIVE,
        faults: vec![fault],
        ..Plan::small(seed)
    }
}

/// Measures the heatmap. Returns one line per case.
pub fn heatmap(browser: &Browser) -> anyhow::Result<Vec<Value>> {
    let (_data, server, mut feed) = fed(&plan(2_000, 2, 1))?;
    let shape = |shown: &str, case: &str| json!({ "what": "frames", "view": "heatmap", "ranks": RANKS, "steps": 2_000, "shown": shown, "case": case });
    let mut lines = Vec::new();
    for (shown, steps) in [("600 steps", "700..1299"), ("1,500 steps", "250..1749")] {
        open(browser, &server, &feed.run, &format!("ranks?steps={steps}&order=all"), "scale")?;
        lines.push(joined(shape(shown, "dragging"), drag(browser, "heatmap", FRAMES)?));
        lines.push(joined(shape(shown, "zooming"), zoom(browser, "heatmap", FRAMES)?));
    }
    open(browser, &server, &feed.run, "ranks?order=all", "scale")?;
    lines.push(joined(shape("the newest 300 steps", "live"), live(browser, &server, &mut feed)?));
    browser.open("about:blank")?;
    Ok(lines)
}

/// Measures the waterfall. Returns one line per case.
pub fn waterfall(browser: &Browser) -> anyhow::Result<Vec<Value>> {
    let (_data, server, mut feed) = fed(&plan(160, 16, 2))?;
    let slices = slices(&server, &feed.run)?;
    let shape = |case: &str| json!({ "what": "frames", "view": "waterfall", "ranks": RANKS, "slices": slices, "case": case });
    open(browser, &server, &feed.run, "buckets?time=5000000..25000000", "waterfall-facts")?;
    let dragged = joined(shape("dragging"), drag(browser, "waterfall", FRAMES)?);
    open(browser, &server, &feed.run, "buckets", "waterfall-facts")?;
    let live = joined(shape("live"), live(browser, &server, &mut feed)?);
    browser.open("about:blank")?;
    Ok(vec![dragged, live])
}

type Fed = (tempfile::TempDir, Server, Feed);

/// Starts a server that has all steps except the live ones.
fn fed(plan: &Plan) -> anyhow::Result<Fed> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let mut feed = Feed::new(Simulation::run(plan));
    feed.send_all_but(LIVE as usize, &server.address)?;
    Ok((data, server, feed))
}

fn slices(server: &Server, run: &str) -> anyhow::Result<usize> {
    let url = format!("{}/api/v1/runs/{run}/steps/latest/waterfall", server.address);
    // There is none until the server has analyzed a step.
    let mut answer = wait_until("the newest step", || ureq::get(&url).call().ok())?;
    let bytes = answer.body_mut().with_config().limit(64 << 20).read_to_vec()?;
    Ok(wire::live::Waterfall::decode(&bytes)?.slice_row.len())
}

fn open(browser: &Browser, server: &Server, run: &str, view: &str, testid: &str) -> anyhow::Result<()> {
    browser.open(&format!("{}/runs/{run}/{view}", server.address))?;
    let chart = if view.starts_with("ranks") { "heatmap" } else { "waterfall" };
    browser.wait(
        "the chart",
        &format!(
            "const canvas = document.querySelector('[data-testid={chart}]')?.parentElement.querySelector('canvas.raster');
             if (!canvas?.width || !document.querySelector('[data-testid={testid}]')?.innerText) return false;
             // A single row of pixels may lie between two ranks of a waterfall.
             const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
             let painted = 0;
             for (let at = 3; at < data.length; at += 4) painted += data[at] > 0;
             return painted > canvas.width * canvas.height / 4"
        ),
    )?;
    Ok(())
}

/// Counts frames, and runs `frame` in each. Returns the intervals between frames, and how long the main thread was busy
/// in each: from the begin of the frame to the first task after it.
fn count(browser: &Browser, frames: usize, setup: &str, frame: &str) -> anyhow::Result<Value> {
    let script = format!(
        "const done = arguments[arguments.length - 1];
         {setup};
         const begins = [], busy = [], after = new MessageChannel();
         let began = 0;
         after.port1.onmessage = () => {{
             busy.push(performance.now() - began);
             if (busy.length >= {frames}) done([begins, busy]);
         }};
         const tick = time => {{
             if (begins.length >= {frames}) return;
             begins.push(time);
             began = performance.now();
             {frame};
             after.port2.postMessage(0);
             requestAnimationFrame(tick);
         }};
         requestAnimationFrame(tick)"
    );
    let counted = browser.run_async(&script)?;
    let numbers = |value: &Value| -> Vec<f64> {
        value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    };
    let begins = numbers(&counted[0]);
    let intervals: Vec<f64> = begins.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // At 60 Hz, a frame takes 16.7 ms. A frame that is half of that late was missed.
    let kept =
        intervals.iter().filter(|interval| **interval < 25.0).count() as f64 / intervals.len().max(1) as f64;
    let seconds =
        begins.last().zip(begins.first()).map(|(last, first)| (last - first) / 1e3).context("no frames")?;
    let head = json!({ "frames_a_second": intervals.len() as f64 / seconds, "kept_60_hz": kept });
    Ok(joined(
        joined(head, spread("busy_millis", numbers(&counted[1]))),
        spread("interval_millis", intervals),
    ))
}

/// Drags the chart back and forth by 8 pixels per frame.
fn drag(browser: &Browser, chart: &str, frames: usize) -> anyhow::Result<Value> {
    let setup = format!(
        "const canvas = document.querySelector('[data-testid={chart}]');
         const box = canvas.getBoundingClientRect();
         let x = box.left + box.width / 2, by = 8;
         const y = box.top + box.height / 2;
         const send = type => canvas.dispatchEvent(new PointerEvent(type,
             {{ clientX: x, clientY: y, bubbles: true, pointerId: 1, button: 0 }}));
         send('pointerdown')"
    );
    let frame = "x += by; if (x > box.right - 40 || x < box.left + 100) by = -by; send('pointermove')";
    let counted = count(browser, frames, &setup, frame)?;
    browser.run(&format!(
        "document.querySelector('[data-testid={chart}]').dispatchEvent(new PointerEvent('pointerleave', {{ pointerId: 1 }}))"
    ))?;
    Ok(counted)
}

/// Zooms the chart in and out around its middle.
fn zoom(browser: &Browser, chart: &str, frames: usize) -> anyhow::Result<Value> {
    let setup = format!(
        "const canvas = document.querySelector('[data-testid={chart}]');
         const box = canvas.getBoundingClientRect();
         let at = 0"
    );
    let frame = "at += 1;
         canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: at % 80 < 40 ? -20 : 20, ctrlKey: true, bubbles: true,
             cancelable: true, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }))";
    count(browser, frames, &setup, frame)
}

/// Counts frames while steps arrive.
fn live(browser: &Browser, server: &Server, feed: &mut Feed) -> anyhow::Result<Value> {
    let address = server.address.clone();
    thread::scope(|scope| {
        let feeding = scope.spawn(|| feed.send_paced(LIVE as usize / 2, EVERY, &address));
        let counted = count(browser, FRAMES * 2, "", "");
        feeding.join().map_err(|_| anyhow::anyhow!("the feed panicked"))??;
        counted
    })
}
