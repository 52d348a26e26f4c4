//! The figures of traces as another tool defines them, to compare the two.

use std::fs::File;
use std::path::PathBuf;

use clap::ValueEnum;
use import::Unreadable;
use import::kineto;
use import::kineto::figures::{Figures, Window, figures};
use serde_json::{Value, json};
use units::{nanos, percent};

use crate::cli::print;
use crate::imports::paths::file_name;

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

/// Prints the figures of each file, as a table or in JSON.
pub(super) fn show(tool: Tool, paths: &[PathBuf], json: bool) -> anyhow::Result<()> {
    let read = |path: &PathBuf| File::open(path).map_err(Unreadable::from).and_then(kineto::read);
    let measured = |path: &PathBuf| {
        let read = read(path).map(|trace| (trace.rank, figures(&trace, tool.window())));
        (file_name(path), read)
    };
    let files = paths.iter().map(measured);
    if json {
        let rows: Vec<Value> = files.map(|(file, read)| object(&file, read)).collect();
        return print(&format!("{}\n", serde_json::to_string_pretty(&rows)?));
    }
    let mut out = format!(
        "{:>5} {:>9} {:>10} {:>10} {:>10} {:>13} {:>10}  FILE\n",
        "RANK", "OVERLAP", "SPAN", "IDLE", "COMPUTE", "COMMUNICATION", "COPIES"
    );
    for (file, read) in files {
        match read {
            Ok((rank, figures)) => out += &row(&file, rank, &figures),
            Err(why) => out += &format!("{file} is left out: {why}\n"),
        }
    }
    print(&out)
}

fn object(file: &str, read: Result<(Option<u32>, Figures), Unreadable>) -> Value {
    match read {
        Ok((rank, figures)) => json!({
            "file": file,
            "rank": rank,
            "overlap_ratio": figures.overlap(),
            "span_nanos": figures.span_nanos,
            "idle_nanos": figures.idle_nanos,
            "compute_nanos": figures.compute_nanos,
            "communication_nanos": figures.communication_nanos,
            "hidden_nanos": figures.hidden_nanos,
            "memory_nanos": figures.memory_nanos,
        }),
        Err(why) => json!({"file": file, "missing": why.to_string()}),
    }
}

fn row(file: &str, rank: Option<u32>, figures: &Figures) -> String {
    let Figures { span_nanos, compute_nanos, communication_nanos, memory_nanos, idle_nanos, .. } = *figures;
    let unknown = || "-".to_owned();
    let rank = rank.map_or_else(unknown, |rank| rank.to_string());
    let overlap = figures.overlap().map_or_else(unknown, percent);
    let [span, idle, compute, communication, copies] =
        [span_nanos, idle_nanos, compute_nanos, communication_nanos, memory_nanos]
            .map(|time| nanos(time as f64));
    format!(
        "{rank:>5} {overlap:>9} {span:>10} {idle:>10} {compute:>10} {communication:>13} {copies:>10}  {file}\n"
    )
}
