//! `paceline compare`, which compares two runs.

use analysis::compare::compare;
use clap::Args;

use super::{DataArgument, print, source};
use crate::export::comparison;
use crate::store::directory::Layout;

/// The arguments of `paceline compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Of two runs that are imported from traces of PyTorch's profiler, it also says which operators, ranges and kernels \
    appeared, vanished, grew or shrank.\n\nExample: paceline compare char_lm-20261120-101500-1a2b latest"
)]
pub(super) struct CompareArguments {
    /// Baseline: a run id, `latest`, or the .json file of a report
    a: String,
    /// Run to compare with the baseline
    b: String,
    #[command(flatten)]
    data: DataArgument,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &CompareArguments, notable_share: f64) -> anyhow::Result<()> {
    let layout = Layout::new(arguments.data.path());
    let [a, b] = [&arguments.a, &arguments.b].map(|name| source::report(&layout, name, notable_share));
    let comparison = compare(&a?, &b?);
    if arguments.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&comparison)?));
    }
    print(&comparison::text(&comparison))
}
