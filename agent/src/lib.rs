//! The in-process recorder. Events go into per-thread rings, and one thread drains the rings and sends the events to
//! the server.
//!
//! The agent never disturbs its host. [`Recorder::record`] takes no lock, allocates nothing and returns nothing. No
//! call blocks on the network except [`Agent::finish`], for at most five seconds. Nothing panics. The rings and the
//! spool bound the memory. Records that do not fit are counted by kind and reason, and the counts are sent.
//!
//! ```no_run
//! use paceline_agent::{Agent, Job, SpanKind, Step};
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
#![warn(missing_docs)]

mod addresses;
mod asked;
mod budget;
pub mod clock;
mod config;
mod drain;
pub mod drain_thread;
mod host;
pub mod launcher;
pub mod leftovers;
mod marks;
mod newest;
mod progress;
mod recorder;
mod sampling;
pub mod server_address;
mod software;
mod spool;
mod transport;
mod uploads;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use asked::Asked;
use newest::Newest;
use sampling::Sampling;
use wire::attributes::{self, Attributes, LabelError};
use wire::batch::{Bye, Note, Waiting};
use wire::burst::Burst;
use wire::device::DeviceSample;
use wire::ids::Rank;
use wire::layout::Layout;
use wire::request::{RecordingRequest, TraceRequest};
use wire::stacks::{LongStep, SpanLine, Stacks};

pub use budget::Budget;
pub use config::{Config, ConfigError, Job};
pub use marks::{HostTimes, StepContext, StepMarks, Times};
pub use progress::Progress;
pub use recorder::Recorder;
pub use uploads::{Traced, Uploads};
// The types of `StepMarks`, so that a job needs no other crate.
pub use wire::event::SpanKind;
pub use wire::ids::Step;
// The types of `Notes::workload`.
pub use wire::workload::{Precision, Transformer, Workload};

/// The longest time that [`Agent::finish`] waits for the server to acknowledge the remaining batches.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// The capacity of the queue of notes for the drain thread. A job sends a hello message, attributes, two layouts and an
/// end-of-run message in its life, and a device sample every second.
const NOTE_QUEUE: usize = 64;

/// The recorder of a process. Dropping it flushes within five seconds.
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
    progress: Progress,
    rank: Rank,
    world_size: u32,
    uploads: Uploads,
}

impl Agent {
    /// Starts recording the job that the environment describes (see [`Config::from_env`]).
    ///
    /// Without `PACELINE_SERVER` the agent is disabled, and every call on it costs one branch. If the environment is
    /// invalid, the agent prints one warning and is disabled, because an observer never fails its host.
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

    /// Creates an agent that records nothing.
    #[must_use]
    pub fn disabled() -> Self {
        Self { active: None }
    }

    /// Starts recording. If the drain thread cannot be started, the agent prints a warning and is disabled.
    #[must_use]
    pub fn start(config: Config) -> Self {
        let sampling = Sampling::new(config.shadow_every);
        let (rank, world_size) = (config.rank, config.world_size);
        let progress = Progress::default();
        let rings = drain::RingRegistry::default();
        let stop = std::sync::Arc::new(drain::Stop::default());
        let (notes, note_queue) = mpsc::sync_channel(NOTE_QUEUE);
        let (asked, newest) = (Asked::default(), Newest::default());
        let uploads = Uploads::new(&config);
        let drain = drain::Drain::new(
            config,
            rings.clone(),
            note_queue,
            stop.clone(),
            asked.clone(),
            newest.clone(),
            sampling.clone(),
        );
        match std::thread::Builder::new().name(drain_thread::name(rank)).spawn(move || drain.run()) {
            Ok(handle) => {
                let drain = Some(handle);
                Self {
                    active: Some(Active {
                        rings,
                        notes,
                        asked,
                        newest,
                        drain,
                        stop,
                        sampling,
                        progress,
                        rank,
                        world_size,
                        uploads,
                    }),
                }
            }
            Err(error) => {
                warn(&format!("not recording: the drain thread did not start: {error}"));
                Self::disabled()
            }
        }
    }

    /// Returns true if the agent records.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.active.is_some()
    }

    /// Creates a recorder for one thread, with its own ring.
    #[must_use]
    pub fn recorder(&self) -> Recorder {
        self.active.as_ref().map_or_else(Recorder::disabled, |active| active.rings.recorder())
    }

    /// Creates the marks of the training thread, with their own ring.
    #[must_use]
    pub fn step_marks(&self) -> StepMarks {
        let recorder = self.active.as_ref().map(|active| active.rings.first_recorder());
        let recorder = recorder.unwrap_or_else(Recorder::disabled);
        StepMarks::new(HostTimes(recorder), self.begin_sampling(), self.progress())
    }

    /// Creates marks whose times `times` measures and records, for work that a device does later.
    #[must_use]
    pub fn step_marks_by<T: Times>(&self, times: T) -> StepMarks<T> {
        StepMarks::new(times, self.begin_sampling(), self.progress())
    }

    fn progress(&self) -> Progress {
        self.active.as_ref().map(|active| active.progress.clone()).unwrap_or_default()
    }

    /// Returns the selection of steps that the training thread records in full; all steps if the agent is disabled.
    fn begin_sampling(&self) -> Sampling {
        let sampling = self.active.as_ref().map(|active| active.sampling.clone()).unwrap_or_default();
        sampling.begin();
        sampling
    }

    /// Returns a handle for sending notes.
    #[must_use]
    pub fn notes(&self) -> Notes {
        let active = self.active.as_ref();
        Notes {
            queue: active.map(|active| active.notes.clone()),
            asked: active.map(|active| active.asked.clone()).unwrap_or_default(),
            newest: active.map(|active| active.newest.clone()).unwrap_or_default(),
            progress: self.progress(),
            rank: active.map(|active| active.rank).unwrap_or_default(),
            world_size: active.map_or(1, |active| active.world_size),
        }
    }

    /// Returns the connection for answers that do not fit into a batch; `None` if the agent is disabled.
    #[must_use]
    pub fn uploads(&self) -> Option<Uploads> {
        self.active.as_ref().map(|active| active.uploads.clone())
    }

    /// Sends the end-of-run message and flushes. Waits at most five seconds for the server.
    pub fn finish(mut self, outcome: Result<(), String>) {
        let bye = match outcome {
            Ok(()) => Bye { completed: true, reason: String::new() },
            Err(reason) => Bye { completed: false, reason },
        };
        self.close(bye);
    }

    fn close(&mut self, bye: Bye) {
        let Some(mut active) = self.active.take() else { return };
        // A full queue means that the server has been unreachable since the start, so the message would not arrive.
        let _unread_when_full = active.notes.try_send(Note::Bye(bye));
        active.stop.request();
        if let Some(handle) = active.drain.take() {
            handle.thread().unpark();
            // The drain thread ends within the flush limit. Its panic, if there ever is one, must not reach the host.
            let _outcome = handle.join();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.close(Bye {
            completed: false,
            reason: "the process ended before the job reported its outcome".into(),
        });
    }
}

/// A handle for sending notes and for reading the server's requests. It is cheap to clone and may be used from
/// any thread.
#[derive(Clone)]
pub struct Notes {
    queue: Option<mpsc::SyncSender<Note>>,
    asked: Asked,
    newest: Newest,
    progress: Progress,
    rank: Rank,
    world_size: u32,
}

impl Notes {
    /// Returns true if the agent records.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.queue.is_some()
    }

    /// Sends the layout of parameters in buckets. Ranks other than 0 send its digest alone, because it should be the same
    /// on all. A layout that is too large ([`Layout::bounded`]) is not sent.
    pub fn layout(&self, layout: Layout) {
        let (Some(queue), Some(layout)) = (&self.queue, layout.bounded()) else { return };
        let layout = if self.rank == Rank(0) { layout } else { layout.digest_alone() };
        // The queue is full only while the server is unreachable, from the start of the process on.
        let _lost_when_full = queue.try_send(Note::Layout(layout));
    }

    /// Sends the versions of software components of this rank by name: `nccl` is `2.28.9`. The agent itself sends the
    /// versions of the kernel and the operating system.
    pub fn software(&self, software: BTreeMap<String, String>) {
        if let Some(queue) = &self.queue {
            // The queue is full only while the server is unreachable, from the start of the process on.
            let _lost_when_full = queue.try_send(Attributes { software, ..Attributes::default() }.into());
        }
    }

    /// Sends one more label of this rank, which replaces an earlier one with the same key. The label `accuracy`, with a number,
    /// is a column of `paceline sweep`.
    ///
    /// # Errors
    /// Returns an error, and sends nothing, if the key or the value is not that of a label.
    pub fn label(&self, key: &str, value: &str) -> Result<(), LabelError> {
        self.labels(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    /// Sends more labels of this rank at once. See [`Self::label`].
    ///
    /// # Errors
    /// Returns an error, and sends nothing, if one of them is not a label.
    pub fn labels(&self, labels: &BTreeMap<String, String>) -> Result<(), LabelError> {
        let checked = labels.iter().map(|(key, value)| attributes::label(key, value));
        let labels = checked.collect::<Result<_, _>>()?;
        if let Some(queue) = &self.queue {
            // See `software`.
            let _lost_when_full = queue.try_send(Attributes { labels, ..Attributes::default() }.into());
        }
        Ok(())
    }

    /// Sends the release of the device's driver.
    pub fn driver(&self, release: &str) {
        self.software(BTreeMap::from([("driver".to_owned(), release.to_owned())]));
    }

    /// Sends a sample of the device. Returns false if the agent is disabled or has ended.
    pub fn device(&self, sample: DeviceSample) -> bool {
        let Some(queue) = &self.queue else { return false };
        // The queue is full while the server is unreachable. A sample that is a minute old is not worth storing.
        !matches!(queue.try_send(Note::Device(sample)), Err(mpsc::TrySendError::Disconnected(_)))
    }

    /// Returns the newest burst request for this rank, if its number is larger than `done`.
    #[must_use]
    pub fn burst_asked(&self, done: u64) -> Option<RecordingRequest> {
        self.asked.burst.newer_than(done)
    }

    /// Returns the newest request for this rank's stacks, if its number is larger than `done`.
    #[must_use]
    pub fn stacks_asked(&self, done: u64) -> Option<RecordingRequest> {
        self.asked.stacks.newer_than(done)
    }

    /// Returns the newest request for a trace of this rank's steps, if its number is larger than `done`.
    #[must_use]
    pub fn trace_asked(&self, done: u64) -> Option<TraceRequest> {
        self.asked.trace_after(done)
    }

    /// Returns the newest step that ended and its length; `None` before the first. The value is up to a tenth of a
    /// second old.
    #[must_use]
    pub fn newest_step(&self) -> Option<(Step, Duration)> {
        self.newest.step()
    }

    /// Returns the progress of the thread that marks its steps.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Returns the number of ranks; 1 if the agent is disabled.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Sends the outcome of a burst.
    pub fn burst(&self, burst: Burst) {
        if let Some(queue) = &self.queue {
            // The queue is full while the server is unreachable. The server can request the burst again.
            let _lost_when_full = queue.try_send(Note::Burst(burst));
        }
    }

    /// Sends the workload of this rank, from which the server works out the model FLOPs utilization (MFU).
    pub fn workload(&self, workload: Workload) {
        if let Some(queue) = &self.queue {
            // The queue is full only while the server is unreachable, from the start of the process on.
            let _lost_when_full = queue.try_send(Note::Workload(workload));
        }
    }

    /// Sends the number of this process's first step, which the job resumes from a checkpoint. For agents that count from 0.
    pub fn resumed(&self, step: Step) {
        if let Some(queue) = &self.queue {
            // See `workload`.
            let _lost_when_full = queue.try_send(Note::Resumed { step });
        }
    }

    /// Sends the stacks of this rank's threads.
    pub fn stacks(&self, stacks: Stacks) {
        if let Some(queue) = &self.queue {
            // See `burst`.
            let _lost_when_full = queue.try_send(Note::Stacks(stacks));
        }
    }

    /// Sends the stacks of this rank's threads in a step that lasts far longer than usual.
    pub fn long_step(&self, long: LongStep) {
        if let Some(queue) = &self.queue {
            // The queue is full while the server is unreachable. Stacks of later steps will do.
            let _lost_when_full = queue.try_send(Note::LongStep(long));
        }
    }

    /// Sends the collective that this rank waits in while its steps are not known, or that it no longer waits.
    pub fn waits(&self, waiting: Option<Waiting>) {
        if let Some(queue) = &self.queue {
            // See `workload`.
            let _lost_when_full = queue.try_send(Note::Waits { waiting });
        }
    }

    /// Sends a line of the job's own code, and what the rank does there.
    pub fn line(&self, line: SpanLine) {
        if let Some(queue) = &self.queue {
            // See `workload`.
            let _lost_when_full = queue.try_send(Note::Line(line));
        }
    }
}

/// Prints a warning to standard error. The job's own output is there too, so the agent prints nothing about normal
/// operation.
pub fn warn(text: &str) {
    // Standard error may be closed. Unlike `eprintln!`, this does not panic then.
    let _unread = writeln!(io::stderr(), "paceline: {text}");
}
