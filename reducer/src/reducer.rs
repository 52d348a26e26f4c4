//! The training thread's side: gradients come, buckets go, averages come back.

mod steps;

use std::collections::HashMap;

use agent::{Agent, Notes, Recorder, StepContext};
use wire::ids::{Rank, Step};

use crate::bucketing::Caps;
use crate::communicator::Communicator;
use crate::error::ReduceError;
use crate::host::{Host, HostCarrier};
use crate::memory::{Carrier as _, Memory};
use crate::model::{ParamId, Parameter, check_agreement, check_names};
use crate::share::Share;
use crate::slots::Slots;
use crate::worker::Worker;
use steps::lay_out;

/// What to do about a parameter that got no gradient in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnusedParameters {
    /// Fail and name it: usually the loss does not depend on it by mistake.
    #[default]
    Refuse,
    /// It counts as zero on this rank; unused on every rank it has no gradient at all. Which ranks use which
    /// is carried in the last bucket (one float a parameter), and buckets are not rebuilt.
    Find,
}

/// How a reducer works. All ranks must choose alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How large buckets get.
    pub caps: Caps,
    /// What to do about parameters without a gradient.
    pub unused: UnusedParameters,
    /// Rebuild the buckets once, after the first step, in the order in which rank 0's gradients came.
    pub rebuild: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { caps: Caps::default(), unused: UnusedParameters::Refuse, rebuild: true }
    }
}

/// Where a reducer's records go.
pub struct Instruments {
    /// The training thread's blocked time.
    pub training: Recorder,
    /// The communication thread's collectives.
    pub communication: Recorder,
    /// How parameters lie in buckets.
    pub notes: Notes,
}

impl Instruments {
    /// Of an agent.
    #[must_use]
    pub fn of(agent: &Agent) -> Self {
        Self { training: agent.recorder(), communication: agent.recorder(), notes: agent.notes() }
    }

    /// Nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self::of(&Agent::disabled())
    }
}

/// Averages gradients over ranks while the backward pass goes on. See the [crate] for an example. Gradients live on the
/// host, or on a device (feature `cuda`, `Reducer::on_device`).
///
/// A step is [`begin_step`](Self::begin_step), one [`mark_ready`](Self::mark_ready) per parameter in any order,
/// [`finish_step`](Self::finish_step). With [`begin_accumulated_step`](Self::begin_accumulated_step) it is
/// several rounds of marks with [`next_micro_batch`](Self::next_micro_batch) between them; only the last
/// communicates. Any error is final: every later call gives the same one, and the other ranks are told.
pub struct Reducer<M: Memory = Host> {
    /// First, so that it ends before the memory goes that it works on.
    worker: Worker<M>,
    parameters: Vec<Parameter>,
    ids: HashMap<String, ParamId>,
    options: Options,
    rank: Rank,
    world_size: u32,
    memory: M,
    slots: Slots<M>,
    /// This rank's part of the tail, which the last bucket carries.
    tail: Vec<f32>,
    phase: Phase,
    /// Of the current micro-batch, by parameter.
    marks: Vec<Mark>,
    /// Whether the bucket holds something of the current step, by parameter.
    written: Vec<bool>,
    /// Whether any rank gave a gradient in the last finished step, by parameter.
    used: Vec<bool>,
    /// Parameters in the order they became ready in the last micro-batch of the first step.
    order: Vec<ParamId>,
    rebuilt: bool,
    next_launch: usize,
    returned: usize,
    recorder: Recorder,
    notes: Notes,
    failure: Option<ReduceError>,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Between steps; the last one, if any.
    Idle(Option<Step>),
    /// In a step.
    Open(Open),
}

#[derive(Clone, Copy)]
struct Open {
    context: StepContext,
    /// Of the current micro-batch.
    share: Share,
    /// Sum of the micro-batches' shares up to now.
    shares: f32,
    /// Micro-batches that follow the current one.
    left: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Awaited,
    Ready,
    Unused,
}

impl Reducer {
    /// Makes a reducer for `parameters` (in the order the forward pass uses them) and checks that all ranks
    /// do the same.
    ///
    /// # Errors
    /// When there are no parameters, two have one name, or a rank has others than rank 0.
    pub fn new(
        parameters: Vec<Parameter>,
        comm: Box<dyn Communicator>,
        options: Options,
        instruments: Instruments,
    ) -> Result<Self, ReduceError> {
        Self::with(parameters, Host::default(), HostCarrier::new(comm), options, instruments)
    }
}

impl<M: Memory> Reducer<M> {
    pub(crate) fn with(
        parameters: Vec<Parameter>,
        mut memory: M,
        mut carrier: M::Carrier,
        options: Options,
        instruments: Instruments,
    ) -> Result<Self, ReduceError> {
        let ids = check_names(&parameters)?;
        let comm = carrier.control();
        check_agreement(&parameters, &format!("{options:?}"), comm)?;
        let (rank, world_size, count) = (comm.rank(), comm.world_size(), parameters.len());
        // The backward pass begins where the forward pass ended.
        let declared: Vec<ParamId> = (0..count as u32).map(ParamId).rev().collect();
        let slots = lay_out(&declared, &parameters, options, &mut memory)?;
        instruments.notes.layout(slots.describe(0, &parameters));
        Ok(Self {
            worker: Worker::start(carrier, instruments.communication, count)?,
            ids,
            options,
            rank,
            world_size,
            memory,
            slots,
            tail: Vec::with_capacity(1 + count),
            phase: Phase::Idle(None),
            marks: vec![Mark::Awaited; count],
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

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// The parameters, by id.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The id of a parameter.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<ParamId> {
        self.ids.get(name).copied()
    }

    /// Why the reducer cannot go on, if it cannot. A framework's backward pass may have wrapped the error that
    /// [`Self::mark_ready`] gave in its own.
    #[must_use]
    pub fn failure(&self) -> Option<&ReduceError> {
        self.failure.as_ref()
    }

    /// How many buckets there are now.
    #[must_use]
    pub fn bucket_count(&self) -> usize {
        self.slots.buckets.len()
    }

    /// How parameters lie in buckets now.
    #[must_use]
    pub fn layout(&self) -> wire::batch::Layout {
        self.slots.describe(u32::from(self.rebuilt), &self.parameters)
    }

    /// Begins a step of one micro-batch.
    ///
    /// # Errors
    /// When the step before was not finished, or the reducer has failed.
    pub fn begin_step(&mut self, context: StepContext, share: Share) -> Result<(), ReduceError> {
        self.begin_accumulated_step(context, share, 1)
    }

    /// Begins a step of `micro_batches`, whose gradients are accumulated locally and reduced once, with the
    /// last. The result is the sum over ranks and micro-batches of share x gradient.
    ///
    /// # Errors
    /// As [`Self::begin_step`]; and when `micro_batches` is 0.
    pub fn begin_accumulated_step(
        &mut self,
        context: StepContext,
        share: Share,
        micro_batches: u32,
    ) -> Result<(), ReduceError> {
        self.check_alive()?;
        let begun = self.try_begin(context, share, micro_batches);
        begun.map_err(|error| self.fail(error))
    }

    /// Ends a micro-batch that is not the last.
    ///
    /// # Errors
    /// When parameters got no gradient in it and that is refused, or when it was the last.
    pub fn next_micro_batch(&mut self, share: Share) -> Result<(), ReduceError> {
        self.check_alive()?;
        let next = self.try_next(share);
        next.map_err(|error| self.fail(error))
    }

    /// Takes the gradient of a parameter: copies it into its bucket, multiplied by the rank's share. The last
    /// gradient of a bucket sends it on its way.
    ///
    /// # Errors
    /// When the gradient has the wrong length or came already, or when the communication has failed meanwhile.
    pub fn mark_ready(&mut self, id: ParamId, gradient: M::Gradient<'_>) -> Result<(), ReduceError> {
        self.check_alive()?;
        let marked = self.try_mark(id, &gradient);
        marked.map_err(|error| self.fail(error))
    }

    /// Says that a parameter gets no gradient on this rank in this micro-batch, so that its bucket need not
    /// wait for the end of the step.
    ///
    /// # Errors
    /// When the reducer was made with [`UnusedParameters::Refuse`], and as [`Self::mark_ready`].
    pub fn mark_unused(&mut self, id: ParamId) -> Result<(), ReduceError> {
        self.check_alive()?;
        let marked = self.try_mark_unused(id);
        marked.map_err(|error| self.fail(error))
    }

    /// Waits until every bucket is reduced and gives the averages.
    ///
    /// # Errors
    /// When parameters got no gradient and that is refused, when micro-batches are missing, when the shares of
    /// all ranks do not sum to 1, or when the communication has failed.
    pub fn finish_step(&mut self) -> Result<Reduced<'_, M>, ReduceError> {
        self.check_alive()?;
        match self.try_finish() {
            Ok(()) => Ok(Reduced { reducer: self }),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// The bytes of all ranks, by rank: for rare things between steps, as the loss of the last steps.
    ///
    /// # Errors
    /// Within a step, or when the communication has failed.
    pub fn all_gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ReduceError> {
        self.check_alive()?;
        let gathered = self.check_idle("all_gather").and_then(|()| self.worker.all_gather(bytes.to_vec()));
        gathered.map_err(|error| self.fail(error))
    }

    /// The bytes of one rank: for rare things between steps, as the parameters at the start.
    ///
    /// # Errors
    /// As [`Self::all_gather`].
    pub fn broadcast(&mut self, root: Rank, bytes: Vec<u8>) -> Result<Vec<u8>, ReduceError> {
        self.check_alive()?;
        let received = self.check_idle("broadcast").and_then(|()| self.worker.broadcast(root, bytes));
        received.map_err(|error| self.fail(error))
    }

    /// Gives up and tells the other ranks why: for errors of the job itself, which they would otherwise only
    /// see as a rank that left.
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
        } else if let (Phase::Open(open), None) = (self.phase, &self.failure) {
            self.worker.abort(&format!("it left in the middle of step {}", open.context.step));
        }
    }
}

/// The averages of one step, borrowed from the reducer's buckets. On a device they are there in the order of the stream
/// that computes.
pub struct Reduced<'a, M: Memory = Host> {
    reducer: &'a Reducer<M>,
}

impl<'a, M: Memory> Reduced<'a, M> {
    /// The gradient of a parameter, averaged over all ranks; `None` when no rank used it, so that an optimizer
    /// leaves it alone.
    #[must_use]
    pub fn gradient(&self, id: ParamId) -> Option<M::Gradient<'a>> {
        self.reducer.used[id.0 as usize].then(|| self.reducer.slots.gradient(id))
    }

    /// All gradients, by parameter.
    pub fn gradients(&self) -> impl Iterator<Item = (ParamId, Option<M::Gradient<'a>>)> + '_ {
        (0..self.reducer.parameters.len() as u32).map(|id| (ParamId(id), self.gradient(ParamId(id))))
    }
}
