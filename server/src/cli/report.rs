//! `paceline report`

use super::{ReportArguments, print, runs};
use crate::clock::ServerClock;
use crate::export::text;
use crate::store::directory::Layout;

pub(super) fn report(arguments: &ReportArguments) -> anyhow::Result<()> {
    let layout = Layout::new(arguments.data.path());
    let report = runs::find(&layout, &arguments.run)?.report(usize::MAX, ServerClock::start().now());
    if arguments.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&report)?));
    }
    print(&text::report(&report))
}
