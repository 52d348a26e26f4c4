//! The training thread's side: gradients come, buckets go, averages come back.

use std::collections::HashMap;

use agent::{Agent, Notes, Recorder, StepContext, clock};
use wire::event::{Event, Span, SpanKind};
use wire::ids::{Bucket, Rank, Step};

use crate::bucketing::{Caps, ELEMENT_BYTES, assign};
use crate::communicator::Communicator;
use crate::error::ReduceError;
use crate::model::{ParamId, Parameter, check_agreement, check_names};
use crate::share::Share;
use crate::slots::Slots;
use crate::worker::{Launch, Worker};

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

/// Averages gradients over ranks while the backward pass goes on. See the [crate] for an example.
///
/// A step is [`begin_step`](Self::begin_step), one [`mark_ready`](Self::mark_ready) per parameter in any order,
/// [`finish_step`](Self::finish_step). With [`begin_accumulated_step`](Self::begin_accumulated_step) it is
/// several rounds of marks with [`next_micro_batch`](Self::next_micro_batch) between them; only the last
/// communicates. Any error is final: every later call gives the same one, and the other ranks are told.
pub struct Reducer {
    parameters: Vec<Parameter>,
    ids: HashMap<String, ParamId>,
    options: Options,
    rank: Rank,
    world_size: u32,
    slots: Slots,
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
    worker: Worker,
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
        mut comm: Box<dyn Communicator>,
        options: Options,
        instruments: Instruments,
    ) -> Result<Self, ReduceError> {
        let ids = check_names(&parameters)?;
        check_agreement(&parameters, &format!("{options:?}"), &mut *comm)?;
        let (rank, world_size, count) = (comm.rank(), comm.world_size(), parameters.len());
        // The backward pass begins where the forward pass ended.
        let declared: Vec<ParamId> = (0..count as u32).map(ParamId).rev().collect();
        let slots = lay_out(&declared, &parameters, options);
        instruments.notes.layout(slots.describe(0, &parameters));
        Ok(Self {
            worker: Worker::start(comm, instruments.communication, count)?,
            ids,
            options,
            rank,
            world_size,
            slots,
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
    pub fn layout_len(&self) -> usize {
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
    pub fn mark_ready(&mut self, id: ParamId, gradient: &[f32]) -> Result<(), ReduceError> {
        self.check_alive()?;
        let marked = self.try_mark(id, gradient);
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
    pub fn finish_step(&mut self) -> Result<Reduced<'_>, ReduceError> {
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

    fn check_alive(&self) -> Result<(), ReduceError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn check_idle(&self, call: &'static str) -> Result<(), ReduceError> {
        match self.phase {
            Phase::Idle(_) => Ok(()),
            Phase::Open(Open { context, .. }) => Err(ReduceError::Order {
                call,
                step: context.step,
                reason: "this step is not finished".into(),
            }),
        }
    }

    fn open(&self, call: &'static str) -> Result<Open, ReduceError> {
        match self.phase {
            Phase::Open(open) => Ok(open),
            Phase::Idle(last) => {
                let reason = "no step is begun".to_owned();
                Err(ReduceError::Order { call, step: last.unwrap_or_default(), reason })
            }
        }
    }

    fn fail(&mut self, error: ReduceError) -> ReduceError {
        self.worker.abort(&error.to_string());
        self.failure.get_or_insert(error).clone()
    }

    fn try_begin(
        &mut self,
        context: StepContext,
        share: Share,
        micro_batches: u32,
    ) -> Result<(), ReduceError> {
        self.check_idle("begin_step")?;
        let Some(left) = micro_batches.checked_sub(1) else {
            let reason = "a step has at least one micro-batch".into();
            return Err(ReduceError::Order { call: "begin_step", step: context.step, reason });
        };
        if matches!(self.phase, Phase::Idle(Some(_))) && !self.rebuilt {
            self.rebuild()?;
        }
        self.slots.reset();
        self.marks.fill(Mark::Awaited);
        self.written.fill(false);
        (self.next_launch, self.returned) = (0, 0);
        self.phase = Phase::Open(Open { context, share, shares: share.factor(), left });
        Ok(())
    }

    /// Lays the buckets out anew in rank 0's ready order, which from then on is the order they are complete in.
    fn rebuild(&mut self) -> Result<(), ReduceError> {
        if !self.options.rebuild || self.options.unused == UnusedParameters::Find {
            return Ok(());
        }
        let mine: Vec<u8> = self.order.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        let agreed = self.worker.broadcast(Rank(0), mine)?;
        self.rebuilt = true;
        // Rank 0 had no samples in the first step: what was declared is as good as anything.
        if agreed.is_empty() {
            return Ok(());
        }
        let order: Vec<ParamId> =
            agreed.as_chunks::<4>().0.iter().map(|id| ParamId(u32::from_le_bytes(*id))).collect();
        check_order(&order, self.parameters.len())?;
        self.slots = lay_out(&order, &self.parameters, self.options);
        self.notes.layout(self.slots.describe(1, &self.parameters));
        Ok(())
    }

    fn try_next(&mut self, share: Share) -> Result<(), ReduceError> {
        let open = self.open("next_micro_batch")?;
        let Some(left) = open.left.checked_sub(1) else {
            let reason = "the current micro-batch is the last; finish_step ends it".into();
            return Err(ReduceError::Order { call: "next_micro_batch", step: open.context.step, reason });
        };
        self.check_marks(open)?;
        self.marks.fill(Mark::Awaited);
        self.phase = Phase::Open(Open { share, shares: open.shares + share.factor(), left, ..open });
        Ok(())
    }

    /// Fails when parameters got no gradient in this micro-batch and that is not meant.
    fn check_marks(&self, open: Open) -> Result<(), ReduceError> {
        let meant = self.options.unused == UnusedParameters::Find || open.share.is_nothing();
        if meant || !self.marks.contains(&Mark::Awaited) {
            return Ok(());
        }
        let named = self.parameters.iter().zip(&self.marks).filter(|(_, mark)| **mark == Mark::Awaited);
        let names = named.map(|(parameter, _)| parameter.name.clone()).collect();
        let (step, rank, of) = (open.context.step, self.rank, self.parameters.len());
        Err(ReduceError::NoGradient { step, rank, names, of })
    }

    fn try_mark(&mut self, id: ParamId, gradient: &[f32]) -> Result<(), ReduceError> {
        let open = self.open("mark_ready")?;
        self.check_awaited(id, open)?;
        let expected = self.slots.elements(id);
        if gradient.len() != expected {
            let Parameter { name, shape } = self.parameters[id.0 as usize].clone();
            return Err(ReduceError::WrongLength { name, got: gradient.len(), expected, shape });
        }
        let factor = open.share.factor();
        let written = std::mem::replace(&mut self.written[id.0 as usize], true);
        let pairs = self.slots.gradient_mut(id).iter_mut().zip(gradient);
        if written {
            pairs.for_each(|(sum, value)| *sum += *value * factor);
        } else {
            pairs.for_each(|(sum, value)| *sum = *value * factor);
        }
        self.settle(id, Mark::Ready, open)
    }

    fn try_mark_unused(&mut self, id: ParamId) -> Result<(), ReduceError> {
        let open = self.open("mark_unused")?;
        self.check_awaited(id, open)?;
        if self.options.unused == UnusedParameters::Refuse {
            return Err(ReduceError::UnusedRefused { name: self.parameters[id.0 as usize].name.clone() });
        }
        self.settle(id, Mark::Unused, open)
    }

    fn check_awaited(&self, id: ParamId, open: Open) -> Result<(), ReduceError> {
        if self.marks[id.0 as usize] == Mark::Awaited {
            return Ok(());
        }
        let name = self.parameters[id.0 as usize].name.clone();
        Err(ReduceError::MarkedTwice { name, step: open.context.step })
    }

    /// A parameter is done in this micro-batch; in the last one its bucket may be complete with it.
    fn settle(&mut self, id: ParamId, mark: Mark, open: Open) -> Result<(), ReduceError> {
        self.marks[id.0 as usize] = mark;
        if open.left > 0 {
            return Ok(());
        }
        if mark == Mark::Unused && !self.written[id.0 as usize] {
            self.slots.gradient_mut(id).fill(0.0);
        }
        if mark == Mark::Ready && !self.rebuilt && self.order.len() < self.parameters.len() {
            self.order.push(id);
        }
        let slot = self.slots.slot_of(id);
        slot.pending -= 1;
        if slot.pending > 0 {
            return Ok(());
        }
        slot.ready = clock::now();
        self.launch_complete(open)
    }

    /// Hands over complete buckets, strictly in order: every rank must start the same one.
    fn launch_complete(&mut self, open: Open) -> Result<(), ReduceError> {
        while self.next_launch < self.slots.buckets.len() && self.slots.buckets[self.next_launch].pending == 0
        {
            if self.next_launch + 1 == self.slots.buckets.len() {
                self.fill_tail(open);
            }
            let slot = &mut self.slots.buckets[self.next_launch];
            self.worker.launch(Launch {
                context: open.context,
                bucket: Bucket(self.next_launch as u32),
                bytes: slot.bytes(),
                ready: slot.ready,
                floats: std::mem::take(&mut slot.floats),
            })?;
            self.next_launch += 1;
        }
        while let Some(reduced) = self.worker.try_reduced()? {
            self.put_back(reduced);
        }
        Ok(())
    }

    /// The last bucket also carries this rank's shares and, where that is asked, what it used.
    fn fill_tail(&mut self, open: Open) {
        let Self { slots, written, .. } = self;
        let (shares, used) = slots.last().tail().split_first_mut().expect("the tail holds the shares");
        *shares = open.shares;
        used.iter_mut().zip(written).for_each(|(used, written)| *used = f32::from(*written));
    }

    fn put_back(&mut self, (bucket, floats): (Bucket, Vec<f32>)) {
        self.slots.buckets[bucket.0 as usize].floats = floats;
        self.returned += 1;
    }

    fn try_finish(&mut self) -> Result<(), ReduceError> {
        let open = self.open("finish_step")?;
        if open.left > 0 {
            let reason = format!("{} more micro-batches were announced", open.left);
            return Err(ReduceError::Order { call: "finish_step", step: open.context.step, reason });
        }
        self.check_marks(open)?;
        for id in (0..self.marks.len() as u32).map(ParamId) {
            if self.marks[id.0 as usize] == Mark::Awaited {
                self.settle(id, Mark::Unused, open)?;
            }
        }
        self.await_buckets(open.context)?;
        self.read_tail(open.context.step)?;
        self.phase = Phase::Idle(Some(open.context.step));
        Ok(())
    }

    fn await_buckets(&mut self, context: StepContext) -> Result<(), ReduceError> {
        let observed = !context.shadow && self.recorder.is_enabled();
        let begin = observed.then(|| (clock::now(), clock::thread_cpu_nanos()));
        while self.returned < self.slots.buckets.len() {
            let reduced = self.worker.reduced()?;
            self.put_back(reduced);
        }
        if let Some((begin, begin_cpu)) = begin {
            let (end, cpu_nanos) = (clock::now(), clock::thread_cpu_nanos().saturating_sub(begin_cpu));
            let (step, kind) = (context.step, SpanKind::Blocked);
            self.recorder.record(Event::Span(Span { step, kind, begin, end, cpu_nanos }));
        }
        Ok(())
    }

    fn read_tail(&mut self, step: Step) -> Result<(), ReduceError> {
        let Self { slots, used, world_size, .. } = self;
        let (shares, counts) = slots.last().tail().split_first_mut().expect("the tail holds the shares");
        // Each rank's share is rounded once and each addition once more.
        let tolerance = 4.0 * f32::EPSILON * *world_size as f32;
        if !((*shares - 1.0).abs() <= tolerance.max(1e-5)) {
            return Err(ReduceError::Shares { step, sum: shares.to_string() });
        }
        used.fill(true);
        used.iter_mut().zip(&*counts).for_each(|(used, count)| *used = *count > 0.0);
        Ok(())
    }
}

impl Drop for Reducer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.worker.abort("its training thread panicked");
        } else if let (Phase::Open(open), None) = (self.phase, &self.failure) {
            self.worker.abort(&format!("it left in the middle of step {}", open.context.step));
        }
    }
}

fn lay_out(order: &[ParamId], parameters: &[Parameter], options: Options) -> Slots {
    let bytes = |id: &ParamId| (*id, parameters[id.0 as usize].elements() as u64 * ELEMENT_BYTES);
    let flags = if options.unused == UnusedParameters::Find { parameters.len() } else { 0 };
    Slots::new(assign(order.iter().map(bytes), options.caps), parameters, 1 + flags)
}

fn check_order(order: &[ParamId], parameters: usize) -> Result<(), ReduceError> {
    let mut seen = vec![false; parameters];
    for id in order {
        match seen.get_mut(id.0 as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => {
                let reason = format!("parameter {} is in it twice or does not exist", id.0);
                return Err(ReduceError::BadOrder { parameters, reason });
            }
        }
    }
    if order.len() == parameters {
        return Ok(());
    }
    Err(ReduceError::BadOrder { parameters, reason: format!("it has {} entries", order.len()) })
}

/// The averages of one step, borrowed from the reducer's buckets.
pub struct Reduced<'a> {
    reducer: &'a Reducer,
}

impl<'a> Reduced<'a> {
    /// The gradient of a parameter, averaged over all ranks; `None` when no rank used it, so that an optimizer
    /// leaves it alone.
    #[must_use]
    pub fn gradient(&self, id: ParamId) -> Option<&'a [f32]> {
        self.reducer.used[id.0 as usize].then(|| self.reducer.slots.gradient(id))
    }

    /// All gradients, by parameter.
    pub fn gradients(&self) -> impl Iterator<Item = (ParamId, Option<&'a [f32]>)> + '_ {
        (0..self.reducer.parameters.len() as u32).map(|id| (ParamId(id), self.gradient(ParamId(id))))
    }
}
