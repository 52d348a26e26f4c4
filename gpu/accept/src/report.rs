//! The report of the checks: one line per check, and raw figures in a file.

use gpu::cupti::burst::NoBurst;
use serde_json::{Value, json};
use testkit::results::Results;

/// The result of a check.
pub struct Outcome {
    /// Whether the check passed.
    pub pass: bool,
    /// The result in one sentence.
    pub line: String,
    /// The raw figures.
    pub raw: Value,
}

/// All checks of one run, and their file of raw results.
pub struct Checks {
    results: Results,
    /// The checks to run; all if empty.
    wanted: Vec<String>,
    failed: usize,
}

impl Checks {
    /// Creates the file of raw results.
    pub fn begin(device: &Value, wanted: Vec<String>) -> Self {
        let mut results = Results::begin("accept");
        results.add(json!({ "what": "device", "found": device }));
        Self { results, wanted, failed: 0 }
    }

    /// Runs one check. A check that cannot run has failed.
    #[allow(clippy::print_stdout, reason = "the output of the program")]
    pub fn run(&mut self, name: &str, check: impl FnOnce() -> anyhow::Result<Outcome>) {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|wanted| wanted == name) {
            return;
        }
        let (word, line, raw) = match check() {
            Ok(Outcome { pass, line, raw }) => (if pass { "PASS" } else { "FAIL" }, line, raw),
            // CUPTI is not part of the driver, so a machine may lack it.
            Err(error) if error.is::<NoBurst>() => ("SKIP", format!("{error:#}"), Value::Null),
            Err(error) => ("FAIL", format!("{error:#}"), Value::Null),
        };
        self.failed += usize::from(word == "FAIL");
        println!("{word} {name}: {line}");
        self.results.add(json!({ "what": name, "outcome": word, "line": line, "raw": raw }));
    }

    /// Completes the file. Returns true if no check failed.
    #[allow(clippy::print_stdout, reason = "the output of the program")]
    pub fn finish(self) -> anyhow::Result<bool> {
        let path = self.results.finish()?;
        println!("{} failed; raw results: {}", self.failed, path.display());
        Ok(self.failed == 0)
    }
}
