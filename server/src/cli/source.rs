//! Where a command finds the report it is asked about.

use std::path::Path;

use anyhow::Context as _;
use wire::views::Report;

use super::runs;
use crate::clock::ServerClock;
use crate::store::directory::Layout;

/// The report of a run in the data directory (an id, or `latest`), or one that `paceline report --format json`
/// wrote to a file whose name ends in `.json`.
pub(super) fn report(layout: &Layout, name: &str) -> anyhow::Result<Report> {
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "json") {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the report {name}"))?;
        return serde_json::from_str(&text).with_context(|| {
            format!("{name} is no report of this version: write it with `paceline report RUN --format json -o {name}`")
        });
    }
    Ok(runs::find(layout, name)?.report(usize::MAX, ServerClock::start().now()))
}
