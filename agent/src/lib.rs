//! The in-process recorder: events go into per-thread rings, one named thread drains them to the server.
//!
//! What it promises its host: [`Recorder::record`] takes no lock, allocates nothing and returns nothing; no
//! call blocks on the network; nothing panics; memory is bounded by the rings and the spool. What does not
//! fit is counted by kind and reason, and the counts are sent. A training step never waits for its observer.
//!
//! ```no_run
//! use agent::{Agent, Job};
//! use wire::{event::SpanKind, ids::Step};
//!
//! let agent = Agent::from_env(Job { name: "mnist".into(), sample_unit: "images".into(), parameters: 0 });
//! let mut marks = agent.step_marks();
//! for step in 0..100 {
//!     marks.begin_step(Step(step));
//!     marks.enter(SpanKind::Input);
//!     marks.enter(SpanKind::Forward);
//!     marks.enter(SpanKind::Backward);
//!     marks.enter(SpanKind::Optimizer);
//!     marks.leave();
//!     marks.end_step(64);
//! }
//! agent.finish(Ok(()));
//! ```

mod asked;
mod budget;
pub mod clock;
mod config;
mod drain;
mod host;
pub mod launcher;
mod marks;
mod newest;
mod recorder;
mod sampling;
mod spool;
mod transport;

use std::io::{self, Write as _};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use asked::Asked;
use newest::Newest;
use sampling::Sampling;
use wire::batch::{Bye, Layout, Note};
use wire::burst::{Burst, BurstRequest};
use wire::device::DeviceSample;
use wire::ids::Step;

pub use budget::Budget;
pub use config::{Config, ConfigError, Job};
pub use marks::{HostTimes, StepContext, StepMarks, Times};
pub use recorder::Recorder;

/// How long [`Agent::finish`] waits for the server to acknowledge what is left.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// Notes that wait for the drain thread: a hello, two layouts and a goodbye in the life of a job, and a look at the
/// device each second.
const NOTE_QUEUE: usize = 64;

/// A process's recorder: a guard whose end flushes within five seconds.
pub struct Agent {
    active: Option<Active>,
}

struct Active {
    rings: drain::RingRegistry,
    notes: mpsc::SyncSender<Note>,
    asked: Asked,
    newest: Newest,
    drain: Option<JoinHandle<()>>,
    stop: std::sync::Arc<drain::Stop>,
    sampling: Sampling,
}

impl Agent {
    /// Starts recording for the job that the environment describes (see [`Config::from_env`]).
    ///
    /// Without `PACELINE_SERVER` the agent is disabled, and every call on it costs one branch. With an
    /// environment that makes no sense it says so once on standard error and is disabled: an observer never
    /// fails its host.
    #[must_use]
    pub fn from_env(job: Job) -> Self {
        match Config::from_env(job) {
            Ok(Some(config)) => Self::start(config),
            Ok(None) => Self::disabled(),
            Err(error) => {
                warn(&format!("not recording: {error}"));
                Self::disabled()
            }
        }
    }

    /// An agent that records nothing.
    #[must_use]
    pub fn disabled() -> Self {
        Self { active: None }
    }

    /// Starts recording. When the drain thread cannot be started it says so and is disabled.
    #[must_use]
    pub fn start(config: Config) -> Self {
        let sampling = Sampling::new(config.shadow_every);
        let rings = drain::RingRegistry::default();
        let stop = std::sync::Arc::new(drain::Stop::default());
        let (notes, note_queue) = mpsc::sync_channel(NOTE_QUEUE);
        let (asked, newest) = (Asked::default(), Newest::default());
        let drain = drain::Drain::new(
            config,
            rings.clone(),
            note_queue,
            stop.clone(),
            asked.clone(),
            newest.clone(),
            sampling.clone(),
        );
        match std::thread::Builder::new().name("paceline-drain".into()).spawn(move || drain.run()) {
            Ok(handle) => {
                let active = Active { rings, notes, asked, newest, drain: Some(handle), stop, sampling };
                Self { active: Some(active) }
            }
            Err(error) => {
                warn(&format!("not recording: the drain thread did not start: {error}"));
                Self::disabled()
            }
        }
    }

    /// True when records go anywhere.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.active.is_some()
    }

    /// A recorder for one thread, with a ring of its own.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        self.active.as_ref().map_or_else(Recorder::disabled, |active| active.rings.recorder())
    }

    /// The marks of the training thread, with a ring of their own.
    #[must_use]
    pub fn step_marks(&self) -> StepMarks {
        let recorder = self.active.as_ref().map(|active| active.rings.first_recorder());
        let recorder = recorder.unwrap_or_else(Recorder::disabled);
        StepMarks::new(HostTimes(recorder), self.sampling())
    }

    /// Marks whose times are told, and written down, by `times`: for work that a device does later.
    #[must_use]
    pub fn step_marks_by<T: Times>(&self, times: T) -> StepMarks<T> {
        StepMarks::new(times, self.sampling())
    }

    /// Returns which steps the training thread records in full; all of them where the agent is disabled.
    fn sampling(&self) -> Sampling {
        let sampling = self.active.as_ref().map(|active| active.sampling.clone()).unwrap_or_default();
        sampling.begin();
        sampling
    }

    /// A handle for rare notes.
    #[must_use]
    pub fn notes(&self) -> Notes {
        let active = self.active.as_ref();
        Notes {
            queue: active.map(|active| active.notes.clone()),
            asked: active.map(|active| active.asked.clone()).unwrap_or_default(),
            newest: active.map(|active| active.newest.clone()).unwrap_or_default(),
        }
    }

    /// Says goodbye and flushes: waits at most five seconds for the server.
    pub fn finish(mut self, outcome: Result<(), String>) {
        let bye = match outcome {
            Ok(()) => Bye { completed: true, reason: String::new() },
            Err(reason) => Bye { completed: false, reason },
        };
        self.close(bye);
    }

    fn close(&mut self, bye: Bye) {
        let Some(mut active) = self.active.take() else { return };
        // A full queue means that the server has been away since the start; then nobody reads the goodbye.
        let _unread_when_full = active.notes.try_send(Note::Bye(bye));
        active.stop.request();
        if let Some(handle) = active.drain.take() {
            handle.thread().unpark();
            // The drain thread ends by itself within the flush limit; it does not panic, and if it ever did,
            // its host must not.
            let _outcome = handle.join();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.close(Bye {
            completed: false,
            reason: "the process ended before it said that it was done".into(),
        });
    }
}

/// Sends rare notes, and hears what the server asks for; cheap to clone, may be used from any thread.
#[derive(Clone)]
pub struct Notes {
    queue: Option<mpsc::SyncSender<Note>>,
    asked: Asked,
    newest: Newest,
}

impl Notes {
    /// Tells the server how parameters lie in buckets.
    pub fn layout(&self, layout: Layout) {
        if let Some(queue) = &self.queue {
            // Full only when 64 layouts came within one tick: the next one says the same.
            let _lost_when_full = queue.try_send(Note::Layout(layout));
        }
    }

    /// Tells the server what the device does; false when there is nobody to tell.
    pub fn device(&self, sample: DeviceSample) -> bool {
        let Some(queue) = &self.queue else { return false };
        // Full while the server is away: what a device did a minute ago is not worth keeping for it.
        !matches!(queue.try_send(Note::Device(sample)), Err(mpsc::TrySendError::Disconnected(_)))
    }

    /// The newest burst that the server asks this rank for, if its number is larger than `done`.
    #[must_use]
    pub fn burst_asked(&self, done: u64) -> Option<BurstRequest> {
        self.asked.after(done)
    }

    /// The newest step that ended, and how long it took; a tenth of a second late. `None` before the first.
    #[must_use]
    pub fn newest_step(&self) -> Option<(Step, Duration)> {
        self.newest.step()
    }

    /// Tells the server what came of a burst.
    pub fn burst(&self, burst: Burst) {
        if let Some(queue) = &self.queue {
            // Full while the server is away, which asks again if it wants to know.
            let _lost_when_full = queue.try_send(Note::Burst(burst));
        }
    }
}

/// Says something once to the person at the terminal. A job's own output is beside it: nothing is said of what goes
/// well.
pub fn warn(text: &str) {
    // Nobody may be reading: that is no reason to panic, as printing by macro does.
    let _unread = writeln!(io::stderr(), "paceline: {text}");
}
