//! The memory of buckets, into which gradients are scaled, and in which they are reduced and read.

use std::ops::Range;

use wire::ids::{Bucket, Comm, Step};
use wire::layout::{Layout, LayoutBucket};

use crate::bucketing::{ELEMENT_BYTES, ParamPlace, places};
use crate::error::CommError;
use crate::memory::Memory;
use crate::model::{ParamId, Parameter};

/// The id of the only communicator that a reducer uses, the data-parallel world.
pub(crate) const COMM: Comm = Comm(0);

/// A layout of parameters in buckets, with its memory.
pub(crate) struct Slots<M: Memory> {
    pub(crate) buckets: Vec<Slot<M>>,
    places: Vec<ParamPlace>,
    lens: Vec<usize>,
}

/// A bucket.
pub(crate) struct Slot<M: Memory> {
    /// The gradients, contiguous, followed in the last bucket by the tail. `None` while the communication thread owns
    /// the memory.
    pub(crate) floats: Option<M::Bucket>,
    parameters: Vec<ParamId>,
    /// The number of parameters whose gradient is missing.
    pub(crate) pending: usize,
    /// The time of the last gradient, from then until the bucket is handed over.
    pub(crate) ready: Option<M::Ready>,
    /// The number of floats that are gradients.
    pub(crate) payload: usize,
    /// The number of floats after the gradients.
    pub(crate) tail: usize,
}

impl<M: Memory> Slot<M> {
    /// Returns the size of the gradients, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.payload as u64 * ELEMENT_BYTES
    }

    /// Returns the bucket's floats. They are present from the end of a step until the bucket is handed over in the
    /// next.
    pub(crate) fn floats(&mut self) -> &mut M::Bucket {
        self.floats.as_mut().expect("a bucket is written before it is handed over")
    }
}

impl<M: Memory> Slots<M> {
    /// Allocates `buckets`. The last one gets `tail` additional floats.
    pub(crate) fn new(
        buckets: Vec<Vec<ParamId>>,
        parameters: &[Parameter],
        tail: usize,
        memory: &mut M,
    ) -> Result<Self, CommError> {
        let lens: Vec<usize> = parameters.iter().map(Parameter::elements).collect();
        let places = places(&buckets, &lens);
        let last = buckets.len().saturating_sub(1);
        let slot = |(index, parameters): (usize, Vec<ParamId>)| {
            let payload = parameters.iter().map(|id| lens[id.0 as usize]).sum();
            let tail = if index == last { tail } else { 0 };
            let floats = Some(memory.allocate(payload + tail)?);
            Ok(Slot { floats, pending: parameters.len(), parameters, ready: None, payload, tail })
        };
        let buckets = buckets.into_iter().enumerate().map(slot).collect::<Result<_, CommError>>()?;
        Ok(Self { buckets, places, lens })
    }

    pub(crate) fn elements(&self, id: ParamId) -> usize {
        self.lens[id.0 as usize]
    }

    pub(crate) fn slot_of(&mut self, id: ParamId) -> &mut Slot<M> {
        &mut self.buckets[self.places[id.0 as usize].bucket.0 as usize]
    }

    /// Returns the bucket and range of a parameter's gradient, for writing.
    pub(crate) fn place_of(&mut self, id: ParamId) -> (&mut M::Bucket, Range<usize>) {
        let ParamPlace { bucket, offset, len } = self.places[id.0 as usize];
        (self.buckets[bucket.0 as usize].floats(), offset..offset + len)
    }

    /// Returns a parameter's gradient.
    pub(crate) fn gradient(&self, id: ParamId) -> M::Gradient<'_> {
        let ParamPlace { bucket, offset, len } = self.places[id.0 as usize];
        let floats = self.buckets[bucket.0 as usize].floats.as_ref();
        M::view(floats.expect("all buckets are back at the end of a step"), offset..offset + len)
    }

    pub(crate) fn last(&mut self) -> &mut Slot<M> {
        self.buckets.last_mut().expect("a model has a parameter, so there is a bucket")
    }

    /// Marks every gradient as missing, for a new step.
    pub(crate) fn reset(&mut self) {
        for slot in &mut self.buckets {
            slot.pending = slot.parameters.len();
        }
    }

    /// Describes the layout, which holds from the step `first_step` on.
    pub(crate) fn describe(
        &self,
        generation: u32,
        first_step: Option<Step>,
        parameters: &[Parameter],
    ) -> Layout {
        let name = |id: &ParamId| parameters[id.0 as usize].name.clone();
        let bucket = |(index, slot): (u32, &Slot<M>)| LayoutBucket {
            bucket: Bucket(index),
            bytes: slot.bytes(),
            parameters: slot.parameters.iter().map(name).collect(),
            elements: slot.parameters.iter().map(|id| self.elements(*id) as u64).collect(),
            dtype: "float32".into(),
        };
        let buckets = (0..).zip(&self.buckets).map(bucket).collect();
        Layout { comm: COMM, generation, buckets, since: first_step.map(|step| step.0), ..Layout::default() }
    }
}
