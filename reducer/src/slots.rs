//! The buckets' memory: gradients are scaled into it, reduced in it, and read from it.

use wire::batch::{Layout, LayoutBucket};
use wire::clock::MonoNanos;
use wire::ids::{Bucket, Comm};

use crate::bucketing::{ELEMENT_BYTES, Place, places};
use crate::model::{ParamId, Parameter};

/// The data-parallel world: the one communicator that a reducer uses.
pub(crate) const COMM: Comm = Comm(0);

/// One layout of parameters in buckets, with its memory.
pub(crate) struct Slots {
    pub(crate) buckets: Vec<Slot>,
    places: Vec<Place>,
    lens: Vec<usize>,
}

/// One bucket.
pub(crate) struct Slot {
    /// Gradients, one behind the other; in the last bucket followed by the tail. Empty while the
    /// communication thread has it.
    pub(crate) floats: Vec<f32>,
    parameters: Vec<ParamId>,
    /// Parameters whose gradient has not come yet.
    pub(crate) pending: usize,
    /// When the last one came.
    pub(crate) ready: MonoNanos,
    /// Floats that are gradients.
    payload: usize,
}

impl Slot {
    /// Bytes of its gradients.
    pub(crate) fn bytes(&self) -> u64 {
        self.payload as u64 * ELEMENT_BYTES
    }

    /// What lies behind the gradients.
    pub(crate) fn tail(&mut self) -> &mut [f32] {
        &mut self.floats[self.payload..]
    }
}

impl Slots {
    /// Lays out `buckets`; the last gets `tail` floats more.
    pub(crate) fn new(buckets: Vec<Vec<ParamId>>, parameters: &[Parameter], tail: usize) -> Self {
        let lens: Vec<usize> = parameters.iter().map(Parameter::elements).collect();
        let places = places(&buckets, &lens);
        let last = buckets.len().saturating_sub(1);
        let slot = |(index, parameters): (usize, Vec<ParamId>)| {
            let payload = parameters.iter().map(|id| lens[id.0 as usize]).sum();
            let floats = vec![0.0; payload + if index == last { tail } else { 0 }];
            Slot { floats, pending: parameters.len(), parameters, ready: MonoNanos(0), payload }
        };
        let buckets = buckets.into_iter().enumerate().map(slot).collect();
        Self { buckets, places, lens }
    }

    pub(crate) fn elements(&self, id: ParamId) -> usize {
        self.lens[id.0 as usize]
    }

    pub(crate) fn slot_of(&mut self, id: ParamId) -> &mut Slot {
        &mut self.buckets[self.places[id.0 as usize].bucket.0 as usize]
    }

    /// The memory of one gradient.
    pub(crate) fn gradient_mut(&mut self, id: ParamId) -> &mut [f32] {
        let Place { bucket, offset, len } = self.places[id.0 as usize];
        &mut self.buckets[bucket.0 as usize].floats[offset..][..len]
    }

    /// One gradient.
    pub(crate) fn gradient(&self, id: ParamId) -> &[f32] {
        let Place { bucket, offset, len } = self.places[id.0 as usize];
        &self.buckets[bucket.0 as usize].floats[offset..][..len]
    }

    pub(crate) fn last(&mut self) -> &mut Slot {
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
        let bucket = |(index, slot): (u32, &Slot)| LayoutBucket {
            bucket: Bucket(index),
            bytes: slot.bytes(),
            parameters: slot.parameters.iter().map(name).collect(),
        };
        Layout { comm: COMM, generation, buckets: (0..).zip(&self.buckets).map(bucket).collect() }
    }
}
