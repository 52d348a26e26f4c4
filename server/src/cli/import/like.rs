//! The figures of traces as another tool defines them, to compare the two.

use std::fs::File;
use std::path::PathBuf;

use clap::ValueEnum;
use import::Unreadable;
use import::kineto::figures::{Figures, Window, figures};
use import::kineto::{self, Trace};
use units::{nanos, percent};

use super::files::file_name;
use crate::cli::print;

/// A tool whose definitions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Tool {
    /// HolisticTraceAnalysis: each device for itself, over what was launched before the last marked step began
    Hta,
}

impl Tool {
    fn window(self) -> Window {
        match self {
            Self::Hta => Window::WithoutLastStep,
        }
    }
}

/// Prints the figures of each file.
pub(super) fn show(tool: Tool, paths: &[PathBuf]) -> anyhow::Result<()> {
    let mut out = format!(
        "{:>5} {:>9} {:>10} {:>10} {:>10} {:>13} {:>10}  FILE\n",
        "RANK", "OVERLAP", "SPAN", "IDLE", "COMPUTE", "COMMUNICATION", "COPIES"
    );
    for path in paths {
        let file = file_name(path);
        match File::open(path).map_err(Unreadable::from).and_then(kineto::read) {
            Ok(trace) => out += &row(&file, &trace, &figures(&trace, tool.window())),
            Err(why) => out += &format!("{file} is left out: {why}\n"),
        }
    }
    print(&out)
}

fn row(file: &str, trace: &Trace, figures: &Figures) -> String {
    let Figures { span_nanos, compute_nanos, communication_nanos, memory_nanos, idle_nanos, .. } = *figures;
    let unknown = || "-".to_owned();
    let rank = trace.rank.map_or_else(unknown, |rank| rank.to_string());
    let overlap = figures.overlap().map_or_else(unknown, percent);
    let [span, idle, compute, communication, copies] =
        [span_nanos, idle_nanos, compute_nanos, communication_nanos, memory_nanos]
            .map(|time| nanos(time as f64));
    format!(
        "{rank:>5} {overlap:>9} {span:>10} {idle:>10} {compute:>10} {communication:>13} {copies:>10}  {file}\n"
    )
}
