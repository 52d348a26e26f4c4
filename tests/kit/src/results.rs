//! Raw results of a measurement: one JSON object per line. The first line describes the machine.
//!
//! The benches of `agent` and `attach` include this file as a module, so that these crates need no dependency for it.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::{Value, json};

/// The results of one measurement. They are in a file that ends in `.partial` until the measurement is complete, so a
/// failed run replaces no earlier result.
pub struct Results {
    name: &'static str,
    date: String,
    partial: io::Result<File>,
}

impl Results {
    /// Creates the file, and writes the machine and its load before the measurement.
    #[must_use]
    pub fn begin(name: &'static str) -> Self {
        // The date in UTC, as 2026-11-20.
        let date = jiff::Timestamp::now().strftime("%F").to_string();
        let arguments: Vec<String> = env::args().skip(1).collect();
        let machine = json!({
            "what": "machine",
            "date": date,
            "cpu": cpu_model(),
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "kernel": first_line("/proc/sys/kernel/osrelease"),
            "load_before": first_line("/proc/loadavg"),
            "command": format!("{name} {}", arguments.join(" ")).trim(),
        });
        let partial = path(name, &date, "jsonl.partial");
        let partial = fs::create_dir_all(folder()).and_then(|()| File::create(partial));
        let mut results = Self { name, date, partial };
        results.add(machine);
        results
    }

    /// Adds one result. [`Self::finish`] reports an error.
    pub fn add(&mut self, line: Value) {
        if let Ok(file) = &mut self.partial
            && let Err(error) = writeln!(file, "{line}")
        {
            self.partial = Err(error);
        }
    }

    /// Gives the file its final name and returns its path. The second run of a day replaces the first.
    ///
    /// # Errors
    /// Returns an error if a result could not be written.
    pub fn finish(self) -> io::Result<PathBuf> {
        self.partial?.sync_all()?;
        let finished = path(self.name, &self.date, "jsonl");
        fs::rename(path(self.name, &self.date, "jsonl.partial"), &finished)?;
        Ok(finished)
    }
}

fn path(name: &str, date: &str, extension: &str) -> PathBuf {
    folder().join(format!("{date}-{name}.{extension}"))
}

/// Returns the folder of results: `PACELINE_BENCH_OUT`, or `benches/results` of the repository.
#[must_use]
pub fn folder() -> PathBuf {
    let repository_folder = || {
        let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let mut results = above.map(|folder| folder.join("benches/results"));
        results.find(|folder| folder.is_dir()).unwrap_or_else(|| PathBuf::from("benches/results"))
    };
    env::var_os("PACELINE_BENCH_OUT").map_or_else(repository_folder, PathBuf::from)
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.to_owned())
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
