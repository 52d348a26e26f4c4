//! The buckets' memory: gradients are scaled into it, reduced in it, and read from it.

use std::ops::Range;

use wire::batch::{Layout, LayoutBucket};
use wire::ids::{Bucket, Comm};

use crate::bucketing::{ELEMENT_BYTES, Place, places};
use crate::error::CommError;
use crate::memory::Memory;
use crate::model::{ParamId, Parameter};

/// The data-parallel world: the one communicator that a reducer uses.
pub(crate) const COMM: Comm = Comm(0);

/// One layout of parameters in buckets, with its memory.
pub(crate) struct Slots<M: Memory> {
    pub(crate) buckets: Vec<Slot<M>>,
    places: Vec<Place>,
    lens: Vec<usize>,
}

/// One bucket.
pub(crate) struct Slot<M: Memory> {
    /// Gradients, one behind the other; in the last bucket followed by the tail. `None` while the
    /// communication thread has it.
    pub(crate) floats: Option<M::Bucket>,
    parameters: Vec<ParamId>,
    /// Parameters whose gradient has not come yet.
    pub(crate) pending: usize,
    /// Tells when the last one came, from then until the bucket is handed over.
    pub(crate) ready: Option<M::Ready>,
    /// Floats that are gradients.
    pub(crate) payload: usize,
    /// Floats behind them.
    pub(crate) tail: usize,
}

impl<M: Memory> Slot<M> {
    /// Bytes of its gradients.
    pub(crate) fn bytes(&self) -> u64 {
        self.payload as u64 * ELEMENT_BYTES
    }

    /// Its floats, which it has between steps and until it is handed over.
    pub(crate) fn floats(&mut self) -> &mut M::Bucket {
        self.floats.as_mut().expect("a bucket is written before it is handed over")
    }
}

impl<M: Memory> Slots<M> {
    /// Lays out `buckets`; the last gets `tail` floats more.
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

    /// Where one gradient is written to.
    pub(crate) fn place_of(&mut self, id: ParamId) -> (&mut M::Bucket, Range<usize>) {
        let Place { bucket, offset, len } = self.places[id.0 as usize];
        (self.buckets[bucket.0 as usize].floats(), offset..offset + len)
    }

    /// One gradient.
    pub(crate) fn gradient(&self, id: ParamId) -> M::Gradient<'_> {
        let Place { bucket, offset, len } = self.places[id.0 as usize];
        let floats = self.buckets[bucket.0 as usize].floats.as_ref();
        M::view(floats.expect("all buckets are back at the end of a step"), offset..offset + len)
    }

    pub(crate) fn last(&mut self) -> &mut Slot<M> {
        self.buckets.last_mut().expect("a model has a parameter, so there is a bucket")
    }

    /// Every gradient is awaited again.
    pub(crate) fn reset(&mut self) {
        for slot in &mut self.buckets {
            slot.pending = slot.parameters.len();
        }
    }

    pub(crate) fn describe(&self, generation: u32, parameters: &[Parameter]) -> Layout {
        let name = |id: &ParamId| parameters[id.0 as usize].name.clone();
        let bucket = |(index, slot): (u32, &Slot<M>)| LayoutBucket {
            bucket: Bucket(index),
            bytes: slot.bytes(),
            parameters: slot.parameters.iter().map(name).collect(),
        };
        Layout { comm: COMM, generation, buckets: (0..).zip(&self.buckets).map(bucket).collect() }
    }
}
