//! `paceline report`, which prints or writes a report.

use anyhow::Context as _;

use super::leftovers::{self, Known};
use super::{ReportArguments, ReportFormat, print, source};
use crate::export::report::{document, html, markdown, terminal};
use crate::printable::printable;
use crate::store::directory::Layout;

pub(super) fn report(arguments: &ReportArguments, notable_share: f64) -> anyhow::Result<()> {
    let layout = Layout::new(arguments.data.path());
    leftovers::send(Known::from_environment(&layout).as_ref());
    let report = source::report(&layout, &arguments.run, notable_share)?;
    let format = if arguments.json { ReportFormat::Json } else { arguments.format };
    let text = match format {
        ReportFormat::Text => printable(&terminal(&document(&report))).into_owned(),
        ReportFormat::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
        ReportFormat::Markdown => markdown(&document(&report)),
        ReportFormat::Html => html(&document(&report)),
    };
    match &arguments.output {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display())),
        None => print(&text),
    }
}
