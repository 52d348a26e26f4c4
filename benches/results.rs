//! Raw results of a measurement: one JSON object a line, the first about the machine.
//!
//! Not a crate: the benches of several crates include this file, so that the agent needs no dependency for it.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

use serde_json::{Value, json};

/// Lines that become one file once the measurement is done. Until then they lie in a `.partial` one, which is what a
/// run that failed leaves.
pub struct Results {
    name: &'static str,
    date: String,
    partial: io::Result<File>,
}

impl Results {
    /// Begins a file; notes the machine and its load as they are before anything is measured.
    #[must_use]
    pub fn begin(name: &'static str) -> Self {
        let date = today();
        let words: Vec<String> = env::args().skip(1).collect();
        let machine = json!({
            "what": "machine",
            "date": date,
            "cpu": cpu_model(),
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "kernel": first_line("/proc/sys/kernel/osrelease"),
            "load_before": first_line("/proc/loadavg"),
            "command": format!("{name} {}", words.join(" ")).trim(),
        });
        let partial = path(name, &date, "jsonl.partial");
        let partial = fs::create_dir_all(folder()).and_then(|()| File::create(partial));
        let mut results = Self { name, date, partial };
        results.add(machine);
        results
    }

    /// Adds one result. Where that fails, [`Self::finish`] says so.
    pub fn add(&mut self, line: Value) {
        if let Ok(file) = &mut self.partial
            && let Err(error) = writeln!(file, "{line}")
        {
            self.partial = Err(error);
        }
    }

    /// Finishes the file and gives its path. A second run on one day replaces the first.
    ///
    /// # Errors
    /// When it cannot be written.
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

/// Where results lie: `benches/results`, or where `PACELINE_BENCH_OUT` says, for runs that only try something.
#[must_use]
pub fn folder() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("benches").join("results");
    env::var_os("PACELINE_BENCH_OUT").map_or_else(default, PathBuf::from)
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.to_owned())
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The date in UTC, as `2026-11-20`.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // Days to a date after Howard Hinnant's `civil_from_days`, for days since 1970: years begin in March.
    let day = seconds / 86_400 + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
