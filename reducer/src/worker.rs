//! The communication thread: runs one collective after another while the training thread computes.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use agent::Recorder;
use wire::ids::{Bucket, Rank};

use crate::communicator::AbortHandle;
use crate::error::{CommError, ReduceError};
use crate::memory::{Backend, Launch, Memory};

/// A request of the training thread.
enum Job<M: Memory> {
    Reduce(Launch<M::Bucket, M::Ready>),
    AllGather(Vec<u8>),
    Broadcast(Rank, Vec<u8>),
}

/// A bucket that the communication thread returns: its index, its floats and the time at which they were ready.
pub(crate) type Returned<M> = (Bucket, <M as Memory>::Bucket, <M as Memory>::Ready);

/// The answer to a [`Job`].
enum Answer<M: Memory> {
    Reduced(Returned<M>),
    AllGathered(Vec<Vec<u8>>),
    Broadcast(Vec<u8>),
    Failed(CommError),
}

/// The training thread's handle to the communication thread. Dropping the handle ends the thread.
pub(crate) struct Worker<M: Memory> {
    /// The queue of requests. `None` only during the drop.
    jobs: Option<SyncSender<Job<M>>>,
    answers: Receiver<Answer<M>>,
    thread: Option<JoinHandle<()>>,
    abort: AbortHandle,
}

impl<M: Memory> Worker<M> {
    /// Starts the thread. `buckets` bounds both queues, because a step hands over each bucket once and collects all of
    /// them before the next step begins.
    pub(crate) fn start(
        mut backend: M::Backend,
        recorder: Recorder,
        buckets: usize,
    ) -> Result<Self, ReduceError> {
        let (job_sender, jobs) = sync_channel(buckets + 1);
        let (answer_sender, answers) = sync_channel(buckets + 1);
        let abort = backend.control().abort_handle();
        let thread = std::thread::Builder::new().name("paceline-comm".into());
        let mut duty = Duty { backend, recorder, failure: None };
        let thread = thread.spawn(move || duty.run(&jobs, &answer_sender)).map_err(|error| {
            CommError::System { doing: "starting the communication thread".into(), reason: error.to_string() }
        })?;
        Ok(Self { jobs: Some(job_sender), answers, thread: Some(thread), abort })
    }

    pub(crate) fn launch(&mut self, launch: Launch<M::Bucket, M::Ready>) -> Result<(), ReduceError> {
        self.send(Job::Reduce(launch))
    }

    /// Returns the next reduced bucket if it has already arrived.
    pub(crate) fn try_reduced(&mut self) -> Result<Option<Returned<M>>, ReduceError> {
        match self.answers.try_recv() {
            Ok(answer) => reduced(answer).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(self.thread_lost()),
        }
    }

    /// Waits for the next reduced bucket. The communicator's timeout bounds the wait.
    pub(crate) fn reduced(&mut self) -> Result<Returned<M>, ReduceError> {
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

    fn send(&mut self, job: Job<M>) -> Result<(), ReduceError> {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(self.thread_lost()) }
    }

    fn receive(&mut self) -> Result<Answer<M>, ReduceError> {
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

fn reduced<M: Memory>(answer: Answer<M>) -> Result<Returned<M>, ReduceError> {
    match answer {
        Answer::Reduced(returned) => Ok(returned),
        Answer::Failed(error) => Err(error.into()),
        Answer::AllGathered(_) | Answer::Broadcast(_) => unreachable!("answers come in the order of jobs"),
    }
}

impl<M: Memory> Drop for Worker<M> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is either reported already or no longer of interest.
            let _outcome = thread.join();
        }
    }
}

/// The state of the communication thread.
struct Duty<M: Memory> {
    backend: M::Backend,
    recorder: Recorder,
    /// The first error, with which every later request is answered.
    failure: Option<CommError>,
}

impl<M: Memory> Duty<M> {
    fn run(&mut self, jobs: &Receiver<Job<M>>, answers: &SyncSender<Answer<M>>) {
        while let Some(job) = self.next(jobs) {
            let answer = match &self.failure {
                Some(failure) => Err(failure.clone()),
                None => self.answer(job),
            };
            let answer = answer.unwrap_or_else(|error| {
                self.failure.get_or_insert(error.clone());
                Answer::Failed(error)
            });
            if answers.send(answer).is_err() {
                break;
            }
        }
        self.backend.close(self.failure.is_none(), &mut self.recorder);
    }

    /// Waits for the next request and meanwhile lets the backend check on enqueued work. Returns `None` if there will
    /// be no more requests.
    fn next(&mut self, jobs: &Receiver<Job<M>>) -> Option<Job<M>> {
        loop {
            let again = match self.failure {
                Some(_) => None,
                None => self.backend.tend(&mut self.recorder).unwrap_or_else(|error| {
                    self.failure = Some(error);
                    None
                }),
            };
            let Some(again) = again else { return jobs.recv().ok() };
            match jobs.recv_timeout(again) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn answer(&mut self, job: Job<M>) -> Result<Answer<M>, CommError> {
        match job {
            Job::Reduce(launch) => {
                let bucket = launch.bucket;
                let (floats, ready) = self.backend.reduce(launch, &mut self.recorder)?;
                Ok(Answer::Reduced((bucket, floats, ready)))
            }
            Job::AllGather(bytes) => self.backend.control().all_gather(&bytes).map(Answer::AllGathered),
            Job::Broadcast(root, mut bytes) => {
                self.backend.control().broadcast(root, &mut bytes).map(|()| Answer::Broadcast(bytes))
            }
        }
    }
}
