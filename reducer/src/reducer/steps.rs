//! The course of a step. Every function here may fail; its caller makes the failure final.

use std::iter;

use agent::StepContext;
use wire::ids::{Bucket, Rank, Step};

use super::{OpenStep, Options, ParamState, Progress, Reducer, UnusedParameters};
use crate::bucketing::{ELEMENT_BYTES, assign};
use crate::error::{CommError, ReduceError};
use crate::memory::Launch;
use crate::memory::Memory;
use crate::model::{ParamId, Parameter};
use crate::share::Share;
use crate::slots::Slots;
use crate::worker::Returned;

impl<M: Memory> Reducer<M> {
    pub(super) fn check_idle(&self, call: &'static str) -> Result<(), ReduceError> {
        match self.phase {
            Progress::Idle(_) => Ok(()),
            Progress::Open(OpenStep { context, .. }) => Err(ReduceError::Order {
                call,
                step: context.step,
                reason: "this step is not finished".into(),
            }),
        }
    }

    fn open(&self, call: &'static str) -> Result<OpenStep, ReduceError> {
        match self.phase {
            Progress::Open(open) => Ok(open),
            Progress::Idle(last) => {
                let reason = "no step has begun".to_owned();
                Err(ReduceError::Order { call, step: last.unwrap_or_default(), reason })
            }
        }
    }

    pub(super) fn fail(&mut self, error: ReduceError) -> ReduceError {
        self.worker.abort(&error.to_string());
        self.failure.get_or_insert(error).clone()
    }

    pub(super) fn try_begin(
        &mut self,
        context: StepContext,
        share: Share,
        micro_batches: u32,
    ) -> Result<(), ReduceError> {
        self.check_idle("begin_step")?;
        let Some(left) = micro_batches.checked_sub(1) else {
            let reason = "a step needs at least one micro-batch".into();
            return Err(ReduceError::Order { call: "begin_step", step: context.step, reason });
        };
        if matches!(self.phase, Progress::Idle(Some(_))) && !self.rebuilt {
            self.rebuild(context.step)?;
        }
        self.slots.reset();
        self.marks.fill(ParamState::Awaited);
        self.written.fill(false);
        (self.next_launch, self.returned) = (0, 0);
        self.phase = Progress::Open(OpenStep { context, share, shares: share.factor(), left });
        Ok(())
    }

    /// Rebuilds the buckets in the order in which rank 0's gradients became ready, in which they will complete from now
    /// on: from `step`.
    fn rebuild(&mut self, step: Step) -> Result<(), ReduceError> {
        if !self.options.rebuild || self.options.unused == UnusedParameters::Find {
            return Ok(());
        }
        let mine: Vec<u8> = self.order.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        let agreed = self.worker.broadcast(Rank(0), mine)?;
        self.rebuilt = true;
        // Rank 0 had no samples in the first step. The declared order is as good as any.
        if agreed.is_empty() {
            return Ok(());
        }
        let order: Vec<ParamId> =
            agreed.as_chunks::<4>().0.iter().map(|id| ParamId(u32::from_le_bytes(*id))).collect();
        check_order(&order, self.parameters.len())?;
        self.slots = lay_out(&order, &self.parameters, self.options, &mut self.memory)?;
        self.notes.layout(self.slots.describe(1, Some(step), &self.parameters));
        Ok(())
    }

    pub(super) fn try_next(&mut self, share: Share) -> Result<(), ReduceError> {
        let open = self.open("next_micro_batch")?;
        let Some(left) = open.left.checked_sub(1) else {
            let reason = "the current micro-batch is the last; call finish_step to end it".into();
            return Err(ReduceError::Order { call: "next_micro_batch", step: open.context.step, reason });
        };
        self.check_marks(open)?;
        self.marks.fill(ParamState::Awaited);
        self.phase = Progress::Open(OpenStep { share, shares: open.shares + share.factor(), left, ..open });
        Ok(())
    }

    /// Fails if parameters got no gradient in this micro-batch and neither the options nor an empty share allow it.
    fn check_marks(&self, open: OpenStep) -> Result<(), ReduceError> {
        let meant = self.options.unused == UnusedParameters::Find || open.share.is_nothing();
        if meant || !self.marks.contains(&ParamState::Awaited) {
            return Ok(());
        }
        let named = self.parameters.iter().zip(&self.marks).filter(|(_, mark)| **mark == ParamState::Awaited);
        let names = named.map(|(parameter, _)| parameter.name.clone()).collect();
        let (step, rank, all) = (open.context.step, self.rank, self.parameters.len());
        Err(ReduceError::NoGradient { step, rank, names, all })
    }

    pub(super) fn try_mark(&mut self, id: ParamId, gradient: &M::Gradient<'_>) -> Result<(), ReduceError> {
        let open = self.open("mark_ready")?;
        self.check_awaited(id, open)?;
        let expected = self.slots.elements(id);
        if M::len(gradient) != expected {
            let Parameter { name, shape } = self.parameters[id.0 as usize].clone();
            return Err(ReduceError::WrongLength { name, got: M::len(gradient), expected, shape });
        }
        let add = std::mem::replace(&mut self.written[id.0 as usize], true);
        let (bucket, range) = self.slots.place_of(id);
        self.memory.write(bucket, range, gradient, open.share.factor(), add)?;
        self.settle(id, ParamState::Ready, open)
    }

    pub(super) fn try_mark_unused(&mut self, id: ParamId) -> Result<(), ReduceError> {
        let open = self.open("mark_unused")?;
        self.check_awaited(id, open)?;
        if self.options.unused == UnusedParameters::Refuse {
            return Err(ReduceError::UnusedRefused { name: self.parameters[id.0 as usize].name.clone() });
        }
        self.settle(id, ParamState::Unused, open)
    }

    fn check_awaited(&self, id: ParamId, open: OpenStep) -> Result<(), ReduceError> {
        if self.marks[id.0 as usize] == ParamState::Awaited {
            return Ok(());
        }
        let name = self.parameters[id.0 as usize].name.clone();
        Err(ReduceError::MarkedTwice { name, step: open.context.step })
    }

    /// Finishes a parameter in this micro-batch. In the last micro-batch this may complete its bucket.
    fn settle(&mut self, id: ParamId, mark: ParamState, open: OpenStep) -> Result<(), ReduceError> {
        self.marks[id.0 as usize] = mark;
        if open.left > 0 {
            return Ok(());
        }
        if mark == ParamState::Unused && !self.written[id.0 as usize] {
            let (bucket, range) = self.slots.place_of(id);
            self.memory.clear(bucket, range)?;
        }
        if mark == ParamState::Ready && !self.rebuilt && self.order.len() < self.parameters.len() {
            self.order.push(id);
        }
        let slot = self.slots.slot_of(id);
        slot.pending -= 1;
        if slot.pending > 0 {
            return Ok(());
        }
        slot.ready = Some(self.memory.ready(open.context, slot.tail)?);
        self.launch_complete(open)
    }

    /// Hands over complete buckets, strictly in order, because every rank must start the same one. The last bucket also
    /// carries the sum of this rank's shares and, with [`UnusedParameters::Find`], which parameters the rank used.
    fn launch_complete(&mut self, open: OpenStep) -> Result<(), ReduceError> {
        while self.next_launch < self.slots.buckets.len() && self.slots.buckets[self.next_launch].pending == 0
        {
            let is_last = self.next_launch + 1 == self.slots.buckets.len();
            let slot = &mut self.slots.buckets[self.next_launch];
            let mut floats = slot.floats.take().expect("a bucket is handed over once per step");
            let mut ready = slot.ready.take().expect("a complete bucket is ready");
            if is_last {
                let used = self.written.iter().map(|written| f32::from(*written));
                self.tail.clear();
                self.tail.extend(iter::once(open.shares).chain(used).take(slot.tail));
                self.memory.write_tail(&mut floats, &mut ready, slot.payload, &self.tail)?;
            }
            self.worker.launch(Launch {
                context: open.context,
                bucket: Bucket(self.next_launch as u32),
                bytes: slot.bytes(),
                ready,
                launch: self.memory.now(),
                floats,
            })?;
            self.next_launch += 1;
        }
        while let Some(reduced) = self.worker.try_reduced()? {
            self.put_back(reduced);
        }
        Ok(())
    }

    fn put_back(&mut self, (bucket, floats, ready): Returned<M>) {
        self.slots.buckets[bucket.0 as usize].floats = Some(floats);
        self.memory.returned(ready);
        self.returned += 1;
    }

    pub(super) fn try_finish(&mut self) -> Result<(), ReduceError> {
        let open = self.open("finish_step")?;
        if open.left > 0 {
            let reason = format!("{} announced micro-batches are missing", open.left);
            return Err(ReduceError::Order { call: "finish_step", step: open.context.step, reason });
        }
        self.check_marks(open)?;
        for id in (0..self.marks.len() as u32).map(ParamId) {
            if self.marks[id.0 as usize] == ParamState::Awaited {
                self.settle(id, ParamState::Unused, open)?;
            }
        }
        self.await_buckets(open.context)?;
        self.read_tails(open.context.step)?;
        self.phase = Progress::Idle(Some(open.context.step));
        Ok(())
    }

    fn await_buckets(&mut self, context: StepContext) -> Result<(), ReduceError> {
        self.memory.begin_wait(context, &mut self.recorder)?;
        while self.returned < self.slots.buckets.len() {
            let reduced = self.worker.reduced()?;
            self.put_back(reduced);
        }
        Ok(self.memory.end_wait(context, &mut self.recorder)?)
    }

    /// Checks the shares of finished steps and reads which parameters they used. On a device, a step's tail arrives
    /// some steps later unless the reducer waits for it.
    fn read_tails(&mut self, step: Step) -> Result<(), ReduceError> {
        let Self { memory, slots, used, world_size, options, .. } = self;
        let find = options.unused == UnusedParameters::Find;
        // Each rank's share is rounded once, and so is each addition.
        let tolerance = (4.0 * f32::EPSILON * *world_size as f32).max(1e-5);
        used.fill(true);
        let last = slots.last();
        let at = last.payload;
        memory.read_tails(step, last.floats(), at, find, &mut |step, tail| {
            let error = (tail[0] - 1.0).abs();
            if error.is_nan() || error > tolerance {
                return Err(ReduceError::Shares { step, sum: tail[0].to_string() });
            }
            used.iter_mut().zip(&tail[1..]).for_each(|(used, count)| *used = *count > 0.0);
            Ok(())
        })
    }
}

pub(super) fn lay_out<M: Memory>(
    order: &[ParamId],
    parameters: &[Parameter],
    options: Options,
    memory: &mut M,
) -> Result<Slots<M>, CommError> {
    let bytes = |id: &ParamId| (*id, parameters[id.0 as usize].elements() as u64 * ELEMENT_BYTES);
    let flags = if options.unused == UnusedParameters::Find { parameters.len() } else { 0 };
    Slots::new(assign(order.iter().map(bytes), options.caps), parameters, 1 + flags, memory)
}

fn check_order(order: &[ParamId], parameters: usize) -> Result<(), ReduceError> {
    let mut seen = vec![false; parameters];
    for id in order {
        match seen.get_mut(id.0 as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => {
                let reason = format!("parameter {} appears twice or does not exist", id.0);
                return Err(ReduceError::BadOrder { parameters, reason });
            }
        }
    }
    if order.len() == parameters {
        return Ok(());
    }
    Err(ReduceError::BadOrder { parameters, reason: format!("it has {} entries", order.len()) })
}
