//! The stacks of a training process, sampled when the server asks for them and while a step lasts far longer than usual.
//!
//! [`answer_requests`] waits for requests and answers each with what a sampler finds. [`sample_long_steps`] watches the steps of the
//! training thread. This crate has the sampler of native threads, [`native`]; the agent for unmodified jobs has one of Python threads. [`profile`] combines their
//! samples, and [`pace`] says when to take them.
//!
//! A reducer samples its own process. A job that uses the agent alone can do the same:
//!
//! ```
//! use paceline_stacks::{TrainingThread, native, answer_requests, sample_long_steps};
//!
//! let agent = agent::Agent::disabled();
//! let training = TrainingThread::default();
//! training.is_here(); // on the thread that trains
//! let notes = agent.notes();
//! let _of_steps = sample_long_steps(notes.clone(), notes.progress(), {
//!     let training = training.clone();
//!     || Ok(native::sampler(training))
//! });
//! let _on_demand = answer_requests(notes, native::sampler(training));
//! ```
#![warn(missing_docs)]

mod long_steps;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod native;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "no_native.rs"]
pub mod native;
pub mod pace;
pub mod profile;
mod window;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agent::Notes;
use background::{Background, Stop};
use wire::request::RecordingRequest;
use wire::stacks::{Profile, Stacks, StacksOutcome};

pub use long_steps::sample_long_steps;
pub use window::Window;

/// The time between two checks for a request.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The thread that trains. It counts as its process's main thread. A clone names the same thread.
#[derive(Clone, Default)]
pub struct TrainingThread(Arc<AtomicU32>);

impl TrainingThread {
    /// Says that the calling thread is the one that trains.
    pub fn is_here(&self) {
        self.0.store(rustix::thread::gettid().as_raw_pid().unsigned_abs(), Ordering::Relaxed);
    }

    /// Returns the system's number of the thread; that of the main thread until [`Self::is_here`] names another one.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self.0.load(Ordering::Relaxed) {
            0 => std::process::id(),
            training => training,
        }
    }
}

/// Starts the thread that answers requests. `sample` samples until a window is over. Its error is the reason why there are no
/// stacks, which the server shows.
pub fn answer_requests(
    notes: Notes,
    sample: impl Fn(&Window) -> Result<Profile, String> + Send + 'static,
) -> Background {
    Background::start("paceline-stacks", move |stop| {
        let mut done = 0;
        while !stop.is_asked() {
            if let Some(request) = notes.stacks_asked(done) {
                done = request.number;
                notes.stacks(answer(request, stop, &sample));
            }
            stop.wait(LOOK_EVERY);
        }
    })
}

fn answer(
    request: RecordingRequest,
    stop: &Stop,
    sample: &impl Fn(&Window) -> Result<Profile, String>,
) -> Stacks {
    let from = agent::clock::now();
    let window = Window::new(Duration::from_millis(request.millis.into()), stop);
    let outcome = match guarded(|| sample(&window)) {
        Ok(profile) => StacksOutcome::Sampled(profile),
        Err(reason) => StacksOutcome::Refused { reason },
    };
    Stacks { request: request.number, from, until: agent::clock::now(), outcome }
}

/// Returns what a sampler finds. If it panics, its thread goes on.
fn guarded(sample: impl FnOnce() -> Result<Profile, String>) -> Result<Profile, String> {
    catch_unwind(AssertUnwindSafe(sample)).unwrap_or_else(|_| Err("the sampler failed".into()))
}
