//! How soon the dashboard is usable: from the navigation to the verdict of a run of 1,024 ranks, with an empty cache.

use serde_json::{Value, json};
use testkit::browser::Browser;
use testkit::feed::Feed;
use testkit::programs::Server;
use testkit::simulator::{Fault, FaultKind, Plan, Simulation};

use crate::{joined, spread};

/// The number of measurements of each kind.
const ROUNDS: usize = 12;
/// A slow network, in bytes per second.
const SLOW: f64 = 1e6;

/// Measures the first view on loopback and over a slow network. Returns one line for each.
pub fn measure(browser: &Browser) -> anyhow::Result<Vec<Value>> {
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    let fault = Fault { rank: 613, kind: FaultKind::Input, nanos: 12_000_000, from: 20, to: 120 };
    let plan = Plan {
        ranks: 1_024,
        ranks_per_host: 8,
        steps: 120,
        tick: 1_000_000_000,
        faults: vec![fault],
        ..Plan::small(7)
    };
    let mut feed = Feed::new(Simulation::run(&plan));
    feed.send_all_but(0, &server.address)?;
    let url = format!("{}/runs/{}", server.address, feed.run);
    let mut lines = Vec::new();
    for (network, rate) in [("loopback", None), ("1 MB/s", Some(SLOW))] {
        let (mut usable, mut painted) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            browser.open("about:blank")?;
            browser.clear_cache()?;
            browser.throttle(rate)?;
            browser.open(&url)?;
            let shown = browser.wait(
                "the verdict",
                "return /Rank 613/i.test(document.querySelector('[data-testid=verdict]')?.innerText ?? '')
                    && [performance.now(), performance.getEntriesByName('first-contentful-paint')[0]?.startTime]",
            )?;
            usable.extend(shown[0].as_f64());
            painted.extend(shown[1].as_f64());
        }
        browser.throttle(None)?;
        let head = json!({ "what": "first_view", "network": network, "ranks": 1_024 });
        lines.push(joined(joined(head, spread("usable_millis", usable)), spread("painted_millis", painted)));
    }
    Ok(lines)
}
