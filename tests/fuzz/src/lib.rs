//! Fuzzing inside ordinary tests. Inputs are almost valid: they are made from a [`Corpus`] of valid ones.
//!
//! A target is a closure that checks what must hold for any bytes. [`Corpus::check`] first passes it every entry of the
//! corpus unchanged (a regression is a file there), and then as many damaged entries as the target requests. Each of
//! these is an entry with one to eight [`mutation`]s, which proptest shrinks if the target fails. A failure reports the
//! seed, the bytes, and the file to which they were written, which can be copied into the corpus.
//!
//! The inputs are the same in every run, so that a run depends on the tested code only. `PACELINE_FUZZ=N` tries N times
//! as many inputs, different ones in each run. `PACELINE_FUZZ_SEED=N` repeats the inputs of a seed.
//!
//! This crate does not depend on Paceline, so the tests of every crate can use it.

mod corpus;
pub mod mutation;

use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

pub use corpus::Corpus;

/// The result of a target for one input. An error says which property does not hold.
pub type Verdict = Result<(), String>;

/// The longest time for one input. A slower input counts as a hang. All fuzzed code has bounds that amount to
/// milliseconds, but the machine may be busy.
const MAX_TIME: Duration = Duration::from_secs(20);
/// The seed of the usual inputs.
const SEED: u64 = 20_261_123;
/// The largest number of shrinking steps, and the time limit in milliseconds. A failure must not be reported so late
/// that it looks like a hang.
const MAX_SHRINKING: u32 = 1_024;
const MAX_SHRINKING_MILLIS: u32 = 30_000;

/// Bytes that are displayed as a byte string.
#[derive(Clone)]
struct Shown(Vec<u8>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes: b\"{}\"", self.0.len(), self.0.escape_ascii())
    }
}

impl Corpus {
    /// Checks a target: each entry of the corpus unchanged, then `cases` damaged ones.
    ///
    /// In addition to the bytes, `target` gets a number on which it can base choices (which form, what to repair after
    /// the mutation). Unchanged entries are tried with each number below 8.
    ///
    /// # Panics
    /// Panics if the target fails. The message has everything that is needed to reproduce the failure.
    pub fn check(&self, name: &str, cases: u32, target: impl Fn(&[u8], u64) -> Verdict) {
        for (entry, bytes) in self.entries() {
            for choice in 0..8 {
                let verdict = guarded(&target, bytes, choice);
                verdict
                    .unwrap_or_else(|reason| panic!("{name}: {entry} unchanged, choice {choice}: {reason}"));
            }
        }
        let seed = seed();
        let cases = cases.saturating_mul(times());
        // Bypasses the capture of test output: the seed must be known even if an input kills the process.
        let _closed = writeln!(std::io::stderr(), "fuzz {name}: {cases} inputs, PACELINE_FUZZ_SEED={seed}");
        let config = Config {
            cases,
            failure_persistence: None,
            max_shrink_iters: MAX_SHRINKING,
            max_shrink_time: MAX_SHRINKING_MILLIS,
            rng_seed: RngSeed::Fixed(seed),
            ..Config::default()
        };
        let inputs = (mutation::spoilt(self).prop_map(Shown), proptest::num::u64::ANY);
        let run = TestRunner::new(config).run(&inputs, |(bytes, choice)| {
            let failed = |reason: String| TestCaseError::fail(format!("{reason}{}", kept(name, &bytes.0)));
            guarded(&target, &bytes.0, choice).map_err(failed)
        });
        if let Err(failure) = run {
            panic!("{name}, PACELINE_FUZZ_SEED={seed}: {failure}");
        }
    }
}

/// Calls a target. A panic and a hang are failures too.
fn guarded(target: &impl Fn(&[u8], u64) -> Verdict, bytes: &[u8], choice: u64) -> Verdict {
    let began = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| target(bytes, choice))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("the target panicked: {}", text.unwrap_or("without a text")))
    });
    let took = began.elapsed();
    if took > MAX_TIME { Err(format!("the target took {took:?}")) } else { verdict }
}

/// Writes the newest failing input of a target to a file. Because of shrinking, the last one is the smallest.
fn kept(name: &str, bytes: &[u8]) -> String {
    let file = std::env::temp_dir().join(format!("paceline-fuzz-{name}.bin"));
    match std::fs::write(&file, bytes) {
        Ok(()) => format!("\n(the smallest failing input is in {}; add it to the corpus)", file.display()),
        Err(error) => format!("\n(cannot write the failing input to {}: {error})", file.display()),
    }
}

/// Returns the factor on the usual number of inputs.
#[must_use]
pub fn times() -> u32 {
    number("PACELINE_FUZZ").map_or(1, |times| u32::try_from(times).unwrap_or(u32::MAX).max(1))
}

/// Returns the requested seed. Without one, returns a seed from the clock if more inputs were requested, otherwise the
/// usual seed.
fn seed() -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros() as u64);
    let usual = || if number("PACELINE_FUZZ").is_some() { now() } else { SEED };
    number("PACELINE_FUZZ_SEED").unwrap_or_else(usual)
}

/// Returns a number from an environment variable.
///
/// # Panics
/// Panics if the variable is not a number, because a mistyped seed must not look like a passing one.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a whole number")))
}

#[cfg(test)]
mod tests;
