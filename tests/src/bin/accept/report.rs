//! One line a check, and its raw figures in a file.

use gpu::cupti::burst::NoBurst;
use paceline_tests::results::Results;
use serde_json::{Value, json};

/// What a check found.
pub struct Outcome {
    /// Whether that is as it should be.
    pub pass: bool,
    /// In a sentence.
    pub line: String,
    /// To the last figure.
    pub raw: Value,
}

/// All checks of one run.
pub struct Checks {
    results: Results,
    failed: usize,
}

impl Checks {
    /// Begins the file of raw results.
    pub fn begin(about: &Value) -> Self {
        let mut results = Results::begin("accept");
        results.add(json!({ "what": "device", "found": about }));
        Self { results, failed: 0 }
    }

    /// Runs one check. One that cannot be run has failed.
    #[allow(clippy::print_stdout, reason = "what the program is for")]
    pub fn run(&mut self, name: &str, check: impl FnOnce() -> anyhow::Result<Outcome>) {
        let (word, line, raw) = match check() {
            Ok(Outcome { pass, line, raw }) => (if pass { "PASS" } else { "FAIL" }, line, raw),
            // CUPTI is no part of the driver: a machine may do without.
            Err(error) if error.is::<NoBurst>() => ("SKIP", format!("{error:#}"), Value::Null),
            Err(error) => ("FAIL", format!("{error:#}"), Value::Null),
        };
        self.failed += usize::from(word == "FAIL");
        println!("{word} {name}: {line}");
        self.results.add(json!({ "what": name, "outcome": word, "line": line, "raw": raw }));
    }

    /// Writes the file; true when all is well.
    #[allow(clippy::print_stdout, reason = "what the program is for")]
    pub fn finish(self) -> anyhow::Result<bool> {
        let path = self.results.finish()?;
        println!("{} failed; raw results: {}", self.failed, path.display());
        Ok(self.failed == 0)
    }
}
