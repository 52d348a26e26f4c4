//! Fuzzing inside ordinary tests: inputs that are almost right, made from a [`Corpus`] of right ones.
//!
//! A target is a closure that says what must hold of any bytes. [`Corpus::check`] first gives it every entry of the
//! corpus as it is (a regression is a file there), then as many spoilt entries as the target asks for. Each is an entry
//! with one to eight [`mutation`]s, which proptest shrinks when the target fails. The failure says the seed, the bytes,
//! and where they were written, so that they can be copied into the corpus.
//!
//! The inputs are the same each time, so that a change is judged by what it changes. `PACELINE_FUZZ=N` tries N times as
//! many, others each time; `PACELINE_FUZZ_SEED=N` repeats those of a seed.
//!
//! This crate knows nothing of Paceline: every crate may use it in its tests.

mod corpus;
pub mod mutation;

use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

pub use corpus::Corpus;

/// What a target says of one input: an error tells what does not hold.
pub type Verdict = Result<(), String>;

/// An input that takes longer hangs: all bounds of what is fuzzed come to milliseconds, and a machine may be busy.
const MOST_TIME: Duration = Duration::from_secs(20);
/// The usual inputs are those of this seed.
const SEED: u64 = 20_261_123;
/// Shrinking ends after so many tries, or so many milliseconds: a failure that is reported late is as good as a hang.
const MOST_SHRINKING: u32 = 1_024;
const MOST_SHRINKING_MILLIS: u32 = 30_000;

/// Bytes that show as a byte string.
#[derive(Clone)]
struct Shown(Vec<u8>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes: b\"{}\"", self.0.len(), self.0.escape_ascii())
    }
}

impl Corpus {
    /// Checks a target: each entry of the corpus as it is, then `cases` spoilt ones.
    ///
    /// Beside the bytes, `target` is given a number to make choices by (which form, what to repair after the
    /// mutation). Entries as they are come with each number below 8.
    ///
    /// # Panics
    /// When the target does not hold: the message has all that is needed to see it again.
    pub fn check(&self, name: &str, cases: u32, target: impl Fn(&[u8], u64) -> Verdict) {
        for (entry, bytes) in self.entries() {
            for choice in 0..8 {
                let verdict = guarded(&target, bytes, choice);
                verdict
                    .unwrap_or_else(|reason| panic!("{name}: {entry} as it is, choice {choice}: {reason}"));
            }
        }
        let seed = seed();
        let cases = cases.saturating_mul(times());
        // Past the capture of a test's output: a seed must be known even when the process dies of an input.
        let _closed = writeln!(std::io::stderr(), "fuzz {name}: {cases} inputs, PACELINE_FUZZ_SEED={seed}");
        let config = Config {
            cases,
            failure_persistence: None,
            max_shrink_iters: MOST_SHRINKING,
            max_shrink_time: MOST_SHRINKING_MILLIS,
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

/// What a target says; a panic and a hang are failures too.
fn guarded(target: &impl Fn(&[u8], u64) -> Verdict, bytes: &[u8], choice: u64) -> Verdict {
    let began = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| target(bytes, choice))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("it panicked: {}", text.unwrap_or("without a text")))
    });
    let took = began.elapsed();
    if took > MOST_TIME { Err(format!("it took {took:?}")) } else { verdict }
}

/// Writes the newest failing input of a target to a file. The last one is the smallest.
fn kept(name: &str, bytes: &[u8]) -> String {
    let file = std::env::temp_dir().join(format!("paceline-fuzz-{name}.bin"));
    match std::fs::write(&file, bytes) {
        Ok(()) => format!("\n(the smallest such input is in {}: add it to the corpus)", file.display()),
        Err(error) => format!("\n(the input cannot be written to {}: {error})", file.display()),
    }
}

/// How many times as many inputs as usual.
#[must_use]
pub fn times() -> u32 {
    number("PACELINE_FUZZ").map_or(1, |times| u32::try_from(times).unwrap_or(u32::MAX).max(1))
}

/// The seed that was asked for; else, where more inputs were asked for, one of the time.
fn seed() -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros() as u64);
    let usual = || if number("PACELINE_FUZZ").is_some() { now() } else { SEED };
    number("PACELINE_FUZZ_SEED").unwrap_or_else(usual)
}

/// A number in the environment.
///
/// # Panics
/// When something else is there: a seed that is mistyped must not look like one that holds.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a whole number")))
}

#[cfg(test)]
mod tests;
