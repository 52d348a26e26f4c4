//! The training thread's side: accepts gradients, hands over buckets, returns averages.

mod steps;

use std::collections::HashMap;

use agent::{Agent, Notes, Recorder, StepContext};
use background::Background;
use stacks::TrainingThread;
use wire::ids::{Rank, Step};

use crate::bucketing::{CapError, Caps};
use crate::communicator::Communicator;
use crate::error::ReduceError;
use crate::host::{Host, HostBackend};
use crate::memory::{Backend as _, Memory};
use crate::model::{ParamId, Parameter, check_agreement, check_names};
use crate::share::Share;
use crate::slots::Slots;
use crate::worker::Worker;
use steps::lay_out;

/// The treatment of a parameter that gets no gradient in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnusedParameters {
    /// Fail and name the parameter. Usually it is a mistake that the loss does not depend on it.
    #[default]
    Refuse,
    /// Count the gradient as zero on this rank. A parameter that no rank uses has no gradient at all. The last bucket
    /// carries which parameters the ranks use, as one float per parameter. Buckets are not rebuilt.
    Find,
}

/// Settings of a reducer. They must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The size limits of buckets.
    pub caps: Caps,
    /// The treatment of parameters without a gradient.
    pub unused: UnusedParameters,
    /// Rebuild the buckets once, after the first step, in the order in which rank 0's gradients became ready.
    pub rebuild: bool,
}

impl Options {
    /// Returns the default options with the bucket cap that `PACELINE_BUCKET_CAP_MIB` sets. `paceline sweep` sets it.
    ///
    /// # Errors
    /// Returns an error if the variable is not a number of MiB above 0 and below a million.
    pub fn from_env() -> Result<Self, CapError> {
        Ok(Self { caps: Caps::from_env()?, ..Self::default() })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { caps: Caps::default(), unused: UnusedParameters::Refuse, rebuild: true }
    }
}

/// The destinations of a reducer's records.
pub struct Instruments {
    /// Receives the training thread's blocked time.
    pub training: Recorder,
    /// Receives the communication thread's collectives.
    pub communication: Recorder,
    /// Receives the layout of parameters in buckets.
    pub notes: Notes,
}

impl Instruments {
    /// Returns instruments that record through `agent`.
    #[must_use]
    pub fn new(agent: &Agent) -> Self {
        Self { training: agent.recorder(), communication: agent.recorder(), notes: agent.notes() }
    }

    /// Returns instruments that record nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::new(&Agent::disabled())
    }
}

/// Averages gradients over ranks while the backward pass continues.
///
/// Gradients live on the host, or on a device (feature `cuda`, `Reducer::on_device`). The [crate] has an example.
///
/// A step consists of [`begin_step`](Self::begin_step), one [`mark_ready`](Self::mark_ready) per parameter in any
/// order, and [`finish_step`](Self::finish_step). A step begun with
/// [`begin_accumulated_step`](Self::begin_accumulated_step) has several rounds of marks, separated by
/// [`next_micro_batch`](Self::next_micro_batch); only the last round communicates. Any error is final: every later call
/// returns the same error, and the reducer reports it to the other ranks.
pub struct Reducer<M: Memory = Host> {
    /// The communication thread. The first field, so that the thread ends before the memory that it uses is dropped.
    worker: Worker<M>,
    /// Sample the stacks of this process, on request and in long steps; `None` if nothing is recorded.
    _samplers: Option<[Background; 2]>,
    /// The thread that begins steps.
    training: TrainingThread,
    parameters: Vec<Parameter>,
    ids: HashMap<String, ParamId>,
    options: Options,
    rank: Rank,
    world_size: u32,
    memory: M,
    slots: Slots<M>,
    /// This rank's part of the tail that the last bucket carries.
    tail: Vec<f32>,
    phase: Progress,
    /// The marks of the current micro-batch, by parameter.
    marks: Vec<ParamState>,
    /// Whether the bucket holds a gradient of the current step, by parameter.
    written: Vec<bool>,
    /// Whether any rank had a gradient in the last finished step, by parameter.
    used: Vec<bool>,
    /// The parameters in the order in which they became ready in the last micro-batch of the first step.
    order: Vec<ParamId>,
    rebuilt: bool,
    next_launch: usize,
    returned: usize,
    recorder: Recorder,
    notes: Notes,
    failure: Option<ReduceError>,
}

#[derive(Clone, Copy)]
enum Progress {
    /// Between steps, with the last finished step, if any.
    Idle(Option<Step>),
    /// Within a step.
    Open(OpenStep),
}

#[derive(Clone, Copy)]
struct OpenStep {
    context: StepContext,
    /// The share of the current micro-batch.
    share: Share,
    /// The sum of the shares of all micro-batches so far.
    shares: f32,
    /// The number of micro-batches after the current one.
    left: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ParamState {
    Awaited,
    Ready,
    Unused,
}

impl Reducer {
    /// Creates a reducer for `parameters`, given in the order in which the forward pass uses them, and checks that all
    /// ranks have the same parameters and options.
    ///
    /// # Errors
    /// Returns an error if `parameters` is empty, if two parameters have the same name, or if a rank has other
    /// parameters or options than rank 0.
    pub fn new(
        parameters: Vec<Parameter>,
        comm: Box<dyn Communicator>,
        options: Options,
        instruments: Instruments,
    ) -> Result<Self, ReduceError> {
        Self::with_backend(parameters, Host::default(), HostBackend::new(comm), options, instruments)
    }
}

impl<M: Memory> Reducer<M> {
    pub(crate) fn with_backend(
        parameters: Vec<Parameter>,
        mut memory: M,
        mut backend: M::Backend,
        options: Options,
        instruments: Instruments,
    ) -> Result<Self, ReduceError> {
        let ids = check_names(&parameters)?;
        let comm = backend.control();
        check_agreement(&parameters, &format!("{options:?}"), comm)?;
        let (rank, world_size, count) = (comm.rank(), comm.world_size(), parameters.len());
        // The backward pass visits parameters in reverse order.
        let declared: Vec<ParamId> = (0..count as u32).map(ParamId).rev().collect();
        let slots = lay_out(&declared, &parameters, options, &mut memory)?;
        instruments.notes.layout(slots.describe(0, None, &parameters));
        let training = TrainingThread::default();
        Ok(Self {
            worker: Worker::start(backend, instruments.communication, count)?,
            _samplers: instruments.notes.is_enabled().then(|| samplers(&instruments.notes, &training)),
            training,
            ids,
            options,
            rank,
            world_size,
            memory,
            slots,
            tail: Vec::with_capacity(1 + count),
            phase: Progress::Idle(None),
            marks: vec![ParamState::Awaited; count],
            written: vec![false; count],
            used: vec![false; count],
            order: Vec::with_capacity(count),
            rebuilt: false,
            next_launch: 0,
            returned: 0,
            recorder: instruments.training,
            notes: instruments.notes,
            failure: None,
            parameters,
        })
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns this rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Returns the parameters, by id.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns the id of the parameter called `name`.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<ParamId> {
        self.ids.get(name).copied()
    }

    /// Returns the error with which the reducer failed, if it has. A framework's backward pass may have wrapped the
    /// error that [`Self::mark_ready`] returned in its own.
    #[must_use]
    pub fn failure(&self) -> Option<&ReduceError> {
        self.failure.as_ref()
    }

    /// Returns the current number of buckets.
    #[must_use]
    pub fn bucket_count(&self) -> usize {
        self.slots.buckets.len()
    }

    /// Returns the current layout of parameters in buckets.
    #[must_use]
    pub fn layout(&self) -> wire::layout::Layout {
        self.slots.describe(u32::from(self.rebuilt), None, &self.parameters)
    }

    /// Begins a step of one micro-batch.
    ///
    /// # Errors
    /// Returns an error if the previous step is not finished or the reducer has failed.
    pub fn begin_step(&mut self, context: StepContext, share: Share) -> Result<(), ReduceError> {
        self.begin_accumulated_step(context, share, 1)
    }

    /// Begins a step of `micro_batches` micro-batches. Their gradients are accumulated locally and reduced once, with
    /// the last micro-batch. The result is the sum over ranks and micro-batches of share x gradient.
    ///
    /// # Errors
    /// Returns the errors of [`Self::begin_step`], and an error if `micro_batches` is 0.
    pub fn begin_accumulated_step(
        &mut self,
        context: StepContext,
        share: Share,
        micro_batches: u32,
    ) -> Result<(), ReduceError> {
        self.check_alive()?;
        self.training.is_here();
        let begun = self.try_begin(context, share, micro_batches);
        begun.map_err(|error| self.fail(error))
    }

    /// Ends the current micro-batch, which must not be the last, and begins the next one with `share`.
    ///
    /// # Errors
    /// Returns an error if the current micro-batch is the last, or if a parameter got no gradient in it and the options
    /// say [`UnusedParameters::Refuse`].
    pub fn next_micro_batch(&mut self, share: Share) -> Result<(), ReduceError> {
        self.check_alive()?;
        let next = self.try_next(share);
        next.map_err(|error| self.fail(error))
    }

    /// Copies the gradient of a parameter into its bucket, multiplied by the rank's share. The last gradient of a
    /// bucket completes it, so that it can be reduced.
    ///
    /// # Errors
    /// Returns an error if the gradient has the wrong length, if the parameter is already marked in this micro-batch,
    /// or if the communication has failed.
    pub fn mark_ready(&mut self, id: ParamId, gradient: M::Gradient<'_>) -> Result<(), ReduceError> {
        self.check_alive()?;
        let marked = self.try_mark(id, &gradient);
        marked.map_err(|error| self.fail(error))
    }

    /// Marks a parameter that gets no gradient on this rank in this micro-batch. Its bucket then need not wait for the
    /// end of the step.
    ///
    /// # Errors
    /// Returns the errors of [`Self::mark_ready`], and an error if the reducer was created with
    /// [`UnusedParameters::Refuse`].
    pub fn mark_unused(&mut self, id: ParamId) -> Result<(), ReduceError> {
        self.check_alive()?;
        let marked = self.try_mark_unused(id);
        marked.map_err(|error| self.fail(error))
    }

    /// Waits until every bucket is reduced and returns the averages.
    ///
    /// # Errors
    /// Returns an error if a parameter got no gradient and the options say [`UnusedParameters::Refuse`], if
    /// micro-batches are missing, if the shares of all ranks do not sum to 1, or if the communication has failed.
    pub fn finish_step(&mut self) -> Result<Reduced<'_, M>, ReduceError> {
        self.check_alive()?;
        match self.try_finish() {
            Ok(()) => Ok(Reduced { reducer: self }),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Returns the `bytes` of all ranks, by rank. Meant for rare exchanges between steps, such as recent losses.
    ///
    /// # Errors
    /// Returns an error within a step, or if the communication has failed.
    pub fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ReduceError> {
        self.check_alive()?;
        let gathered = self.check_idle("all_gather").and_then(|()| self.worker.all_gather(bytes.to_vec()));
        gathered.map_err(|error| self.fail(error))
    }

    /// Returns the `bytes` of rank `root`. Meant for rare exchanges between steps, such as the initial parameters.
    ///
    /// # Errors
    /// Returns the errors of [`Self::all_gather`].
    pub fn broadcast(&mut self, root: Rank, bytes: Vec<u8>) -> Result<Vec<u8>, ReduceError> {
        self.check_alive()?;
        let received = self.check_idle("broadcast").and_then(|()| self.worker.broadcast(root, bytes));
        received.map_err(|error| self.fail(error))
    }

    /// Fails the reducer and reports `reason` to the other ranks. Meant for errors of the job itself, which the other
    /// ranks would otherwise see only as a rank that left.
    pub fn abort(&mut self, reason: &str) {
        if self.failure.is_none() {
            self.fail(ReduceError::Aborted(reason.into()));
        }
    }

    fn check_alive(&mut self) -> Result<(), ReduceError> {
        if self.failure.is_none()
            && let Some(failure) = self.memory.failure()
        {
            self.fail(failure.into());
        }
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl<M: Memory> Drop for Reducer<M> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.worker.abort("its training thread panicked");
        } else if let (Progress::Open(open), None) = (self.phase, &self.failure) {
            self.worker.abort(&format!("its reducer was dropped within step {}", open.context.step));
        }
    }
}

/// The averages of one step, borrowed from the reducer's buckets. On a device, work that is enqueued on the compute
/// stream from now on sees them.
pub struct Reduced<'a, M: Memory = Host> {
    reducer: &'a Reducer<M>,
}

impl<'a, M: Memory> Reduced<'a, M> {
    /// Returns the gradient of a parameter, averaged over all ranks. Returns `None` if no rank used the parameter; an
    /// optimizer should then skip it.
    #[must_use]
    pub fn gradient(&self, id: ParamId) -> Option<M::Gradient<'a>> {
        self.reducer.used[id.0 as usize].then(|| self.reducer.slots.gradient(id))
    }

    /// Returns all gradients, by parameter.
    pub fn gradients(&self) -> impl Iterator<Item = (ParamId, Option<M::Gradient<'a>>)> + '_ {
        (0..self.reducer.parameters.len() as u32).map(|id| (ParamId(id), self.gradient(ParamId(id))))
    }
}

/// Starts the threads that sample the stacks of this process: on request, and while a step lasts far longer than usual.
fn samplers(notes: &Notes, training: &TrainingThread) -> [Background; 2] {
    let sampler = || stacks::native::sampler(training.clone());
    let step_sampler = sampler();
    [
        stacks::answer_requests(notes.clone(), sampler()),
        stacks::sample_long_steps(notes.clone(), notes.progress(), || Ok(step_sampler)),
    ]
}
