//! What differs with where gradients live: on the host, or on a device whose work the host only arranges.
//!
//! A [`Memory`] is the training thread's side: it writes gradients into buckets and waits for the reduced ones. Its
//! [`Carrier`] is the communication thread's: it reduces buckets and knows when that happened. What passes between
//! them is a bucket's floats and what tells when they were ready.

use std::ops::Range;
use std::time::Duration;

use agent::{Recorder, StepContext};
use wire::clock::MonoNanos;
use wire::ids::Step;

use crate::communicator::Communicator;
use crate::error::{CommError, ReduceError};
use crate::worker::Launch;

/// Looks at the reduced tail of a step.
#[doc(hidden)]
pub type ReadTail<'a> = dyn FnMut(Step, &[f32]) -> Result<(), ReduceError> + 'a;

/// Where a reducer's gradients live: [`Host`](crate::Host), or with the feature `cuda` a device. Nothing else can be one.
pub trait Memory: Sized + 'static {
    /// The floats of one gradient, as a backward pass hands it over and as it comes back.
    type Gradient<'a>;
    /// The floats of one bucket.
    type Bucket: Send + 'static;
    /// Tells when a bucket's last gradient was written.
    type Ready: Send + 'static;
    /// The communication thread's side.
    type Carrier: Carrier<Self>;

    /// The clock of the records.
    fn now(&self) -> MonoNanos;

    /// Why what was begun cannot end, where that is known on the communication thread and nobody was told.
    fn failure(&self) -> Option<CommError>;

    /// How many floats a gradient has.
    fn len(gradient: &Self::Gradient<'_>) -> usize;

    /// A bucket of zeros.
    fn allocate(&mut self, floats: usize) -> Result<Self::Bucket, CommError>;

    /// Part of a bucket.
    fn view(bucket: &Self::Bucket, range: Range<usize>) -> Self::Gradient<'_>;

    /// Writes, or adds, a gradient times `factor` to a part of a bucket.
    fn write(
        &mut self,
        bucket: &mut Self::Bucket,
        range: Range<usize>,
        gradient: &Self::Gradient<'_>,
        factor: f32,
        add: bool,
    ) -> Result<(), CommError>;

    /// Writes zeros to a part of a bucket.
    fn clear(&mut self, bucket: &mut Self::Bucket, range: Range<usize>) -> Result<(), CommError>;

    /// Says what will lie behind the gradients of the last bucket, from float `at` on, when it is reduced.
    fn write_tail(
        &mut self,
        bucket: &mut Self::Bucket,
        ready: &mut Self::Ready,
        at: usize,
        tail: &[f32],
    ) -> Result<(), CommError>;

    /// The last gradient of a bucket was written just now; a tail of `tail` floats will follow.
    fn ready(&mut self, context: StepContext, tail: usize) -> Result<Self::Ready, CommError>;

    /// A bucket came back from its carrier, in the order of launches.
    fn returned(&mut self, ready: Self::Ready);

    /// The training thread has nothing to do but wait for buckets, from now on.
    fn begin_wait(&mut self, context: StepContext, recorder: &mut Recorder) -> Result<(), CommError>;

    /// All buckets came back.
    fn end_wait(&mut self, context: StepContext, recorder: &mut Recorder) -> Result<(), CommError>;

    /// Calls `read` with every reduced tail that is known and was not read yet; with `all`, waits for those that are
    /// not. `last` is the last bucket, whose tail begins at `at`.
    fn read_tails(
        &mut self,
        step: Step,
        last: &Self::Bucket,
        at: usize,
        all: bool,
        read: &mut ReadTail<'_>,
    ) -> Result<(), ReduceError>;
}

/// Reduces buckets on the communication thread.
#[doc(hidden)]
pub trait Carrier<M: Memory>: Send + 'static {
    /// Reduces a bucket over all ranks, or sees to it that it will be in the order of the device's work.
    fn carry(
        &mut self,
        launch: Launch<M>,
        recorder: &mut Recorder,
    ) -> Result<(M::Bucket, M::Ready), CommError>;

    /// What the ranks meet over.
    fn control(&mut self) -> &mut dyn Communicator;

    /// Looks after what was begun; says when to do so again, if there is anything to look after.
    fn tend(&mut self, recorder: &mut Recorder) -> Result<Option<Duration>, CommError>;

    /// The reducer ends; `healthy` when nothing went wrong.
    fn close(&mut self, healthy: bool, recorder: &mut Recorder);
}
