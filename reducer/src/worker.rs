//! The communication thread: runs one collective after another while the training thread computes.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use agent::clock;
use agent::{Recorder, StepContext};
use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Event, Source, Started};
use wire::ids::{Bucket, Rank};

use crate::communicator::{AbortHandle, Communicator};
use crate::error::{CommError, ReduceError};
use crate::slots::COMM;

/// What the training thread asks for.
enum Job {
    Reduce(Launch),
    AllGather(Vec<u8>),
    Broadcast(Rank, Vec<u8>),
}

/// A bucket that is handed over.
pub(crate) struct Launch {
    pub(crate) context: StepContext,
    pub(crate) bucket: Bucket,
    pub(crate) bytes: u64,
    pub(crate) ready: MonoNanos,
    pub(crate) floats: Vec<f32>,
}

/// What comes back.
enum Answer {
    Reduced(Bucket, Vec<f32>),
    AllGathered(Vec<Vec<u8>>),
    Broadcast(Vec<u8>),
    Failed(CommError),
}

/// The training thread's hold on the communication thread. Dropping it ends the thread.
pub(crate) struct Worker {
    /// None only while it is dropped.
    jobs: Option<SyncSender<(Job, MonoNanos)>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
    abort: AbortHandle,
}

impl Worker {
    /// Starts the thread. `buckets` bounds both queues: a step hands over each bucket once and collects all
    /// before the next begins.
    pub(crate) fn start(
        comm: Box<dyn Communicator>,
        recorder: Recorder,
        buckets: usize,
    ) -> Result<Self, ReduceError> {
        let (job_sender, jobs) = sync_channel(buckets + 1);
        let (answer_sender, answers) = sync_channel(buckets + 1);
        let abort = comm.abort_handle();
        let thread = std::thread::Builder::new().name("paceline-comm".into());
        let mut duty = Duty { comm, recorder };
        let thread = thread.spawn(move || duty.run(&jobs, &answer_sender)).map_err(|error| {
            CommError::System { doing: "starting the communication thread".into(), reason: error.to_string() }
        })?;
        Ok(Self { jobs: Some(job_sender), answers, thread: Some(thread), abort })
    }

    pub(crate) fn launch(&mut self, launch: Launch) -> Result<(), ReduceError> {
        self.send(Job::Reduce(launch))
    }

    /// The next reduced bucket that is there already.
    pub(crate) fn try_reduced(&mut self) -> Result<Option<(Bucket, Vec<f32>)>, ReduceError> {
        match self.answers.try_recv() {
            Ok(answer) => reduced(answer).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(self.thread_lost()),
        }
    }

    /// Waits for the next reduced bucket. The communicator's timeout bounds the wait.
    pub(crate) fn reduced(&mut self) -> Result<(Bucket, Vec<f32>), ReduceError> {
        self.receive().and_then(reduced)
    }

    pub(crate) fn all_gather(&mut self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, ReduceError> {
        self.send(Job::AllGather(bytes))?;
        match self.receive()? {
            Answer::AllGathered(all) => Ok(all),
            Answer::Failed(error) => Err(error.into()),
            Answer::Reduced(..) | Answer::Broadcast(_) => unreachable!("answers come in the order of jobs"),
        }
    }

    pub(crate) fn broadcast(&mut self, root: Rank, bytes: Vec<u8>) -> Result<Vec<u8>, ReduceError> {
        self.send(Job::Broadcast(root, bytes))?;
        match self.receive()? {
            Answer::Broadcast(bytes) => Ok(bytes),
            Answer::Failed(error) => Err(error.into()),
            Answer::Reduced(..) | Answer::AllGathered(_) => unreachable!("answers come in the order of jobs"),
        }
    }

    pub(crate) fn abort(&self, reason: &str) {
        self.abort.abort(reason);
    }

    fn send(&mut self, job: Job) -> Result<(), ReduceError> {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send((job, clock::now())));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(self.thread_lost()) }
    }

    fn receive(&mut self) -> Result<Answer, ReduceError> {
        match self.answers.recv() {
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.thread_lost()),
        }
    }

    fn thread_lost(&mut self) -> ReduceError {
        let payload = self.thread.take().and_then(|thread| thread.join().err());
        let text = payload.as_ref().and_then(|payload| {
            payload
                .downcast_ref::<String>()
                .cloned()
                .or(payload.downcast_ref::<&str>().map(ToString::to_string))
        });
        ReduceError::ThreadLost(text.unwrap_or_default())
    }
}

fn reduced(answer: Answer) -> Result<(Bucket, Vec<f32>), ReduceError> {
    match answer {
        Answer::Reduced(bucket, floats) => Ok((bucket, floats)),
        Answer::Failed(error) => Err(error.into()),
        Answer::AllGathered(_) | Answer::Broadcast(_) => unreachable!("answers come in the order of jobs"),
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported already, or nobody asks any more.
            let _outcome = thread.join();
        }
    }
}

/// What the communication thread owns.
struct Duty {
    comm: Box<dyn Communicator>,
    recorder: Recorder,
}

impl Duty {
    fn run(&mut self, jobs: &Receiver<(Job, MonoNanos)>, answers: &SyncSender<Answer>) {
        while let Ok((job, launch)) = jobs.recv() {
            let answer = match job {
                Job::Reduce(bucket) => self.reduce(bucket, launch),
                Job::AllGather(bytes) => self.comm.all_gather(&bytes).map(Answer::AllGathered),
                Job::Broadcast(root, mut bytes) => {
                    self.comm.broadcast(root, &mut bytes).map(|()| Answer::Broadcast(bytes))
                }
            };
            if answers.send(answer.unwrap_or_else(Answer::Failed)).is_err() {
                return;
            }
        }
    }

    fn reduce(&mut self, job: Launch, launch: MonoNanos) -> Result<Answer, CommError> {
        let Launch { context: StepContext { step, shadow }, bucket, bytes, ready, mut floats } = job;
        let observed = !shadow && self.recorder.is_enabled();
        if !observed {
            self.comm.all_reduce(&mut floats)?;
            return Ok(Answer::Reduced(bucket, floats));
        }
        let seq = self.comm.next_seq();
        let start = clock::now();
        self.recorder.record(Event::Started(Started { step, comm: COMM, seq, bucket, bytes, launch }));
        self.comm.all_reduce(&mut floats)?;
        let (end, source) = (clock::now(), Source::HostClock);
        let record = BucketRecord { step, comm: COMM, seq, bucket, bytes, ready, launch, start, end, source };
        self.recorder.record(Event::Bucket(record));
        Ok(Answer::Reduced(bucket, floats))
    }
}
