//! The interface to the memory in which gradients live: the host's, or that of a device for which the host only
//! enqueues work.
//!
//! A [`Memory`] is the training thread's side. It writes gradients into buckets and waits for the reduced buckets. Its
//! backend ([`Backend`]) is the communication thread's side. It reduces buckets and measures when that happened. A
//! bucket's floats pass between the two, together with the time at which they were ready.

use std::ops::Range;
use std::time::Duration;

use agent::{Recorder, StepContext};
use wire::clock::MonoNanos;
use wire::ids::{Bucket, Step};

use crate::communicator::Communicator;
use crate::error::{CommError, ReduceError};

/// A function that reads the reduced tail of a step.
#[doc(hidden)]
pub type ReadTail<'a> = dyn FnMut(Step, &[f32]) -> Result<(), ReduceError> + 'a;

/// The memory in which a reducer's gradients live: [`Host`](crate::Host), or with the feature `cuda` a device. Other
/// crates cannot implement it.
pub trait Memory: Sized + 'static {
    /// The floats of one gradient, as a backward pass hands them over and as the reducer returns them.
    type Gradient<'a>;
    /// The floats of one bucket.
    type Bucket: Send + 'static;
    /// The time at which a bucket's last gradient was written.
    type Ready: Send + 'static;
    /// The backend, on the communication thread.
    type Backend: Backend<Bucket = Self::Bucket, Ready = Self::Ready>;

    /// Returns the time on the clock of the records.
    fn now(&self) -> MonoNanos;

    /// Returns the error of a collective that failed on the communication thread after its bucket was returned, if any.
    fn failure(&self) -> Option<CommError>;

    /// Returns the number of floats in a gradient.
    fn len(gradient: &Self::Gradient<'_>) -> usize;

    /// Allocates a bucket of zeros.
    fn allocate(&mut self, floats: usize) -> Result<Self::Bucket, CommError>;

    /// Returns a part of a bucket.
    fn view(bucket: &Self::Bucket, range: Range<usize>) -> Self::Gradient<'_>;

    /// Writes a gradient times `factor` to a part of a bucket, or adds it if `add` is true.
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

    /// Writes the tail of the last bucket, which follows its gradients from float `at` on, before the bucket is
    /// reduced.
    fn write_tail(
        &mut self,
        bucket: &mut Self::Bucket,
        ready: &mut Self::Ready,
        at: usize,
        tail: &[f32],
    ) -> Result<(), CommError>;

    /// Notes that the last gradient of a bucket was just written. A tail of `tail` floats will follow.
    fn ready(&mut self, context: StepContext, tail: usize) -> Result<Self::Ready, CommError>;

    /// Notes that the backend returned a bucket. Buckets return in the order of their launches.
    fn returned(&mut self, ready: Self::Ready);

    /// Notes that from now on the training thread only waits for buckets.
    fn begin_wait(&mut self, context: StepContext, recorder: &mut Recorder) -> Result<(), CommError>;

    /// Notes that all buckets have returned.
    fn end_wait(&mut self, context: StepContext, recorder: &mut Recorder) -> Result<(), CommError>;

    /// Calls `read` with every reduced tail that has arrived and was not read yet. With `all`, waits for those that
    /// have not arrived. `last` is the last bucket, whose tail begins at `at`.
    fn read_tails(
        &mut self,
        step: Step,
        last: &Self::Bucket,
        at: usize,
        all: bool,
        read: &mut ReadTail<'_>,
    ) -> Result<(), ReduceError>;
}

/// A bucket that the training thread hands over, with its floats and the time at which they were ready.
#[doc(hidden)]
pub struct Launch<Floats, Ready> {
    /// The step of the bucket.
    pub context: StepContext,
    /// The index of the bucket.
    pub bucket: Bucket,
    /// The size of the gradients, in bytes.
    pub bytes: u64,
    /// The time at which the last gradient was written.
    pub ready: Ready,
    /// The time at which the bucket was handed over.
    pub launch: MonoNanos,
    /// The floats of the bucket.
    pub floats: Floats,
}

/// A backend: reduces buckets on the communication thread.
#[doc(hidden)]
pub trait Backend: Send + 'static {
    /// See [`Memory::Bucket`].
    type Bucket: Send + 'static;
    /// See [`Memory::Ready`].
    type Ready: Send + 'static;

    /// Reduces a bucket over all ranks, or enqueues its reduction on the device.
    fn reduce(
        &mut self,
        launch: Launch<Self::Bucket, Self::Ready>,
        recorder: &mut Recorder,
    ) -> Result<(Self::Bucket, Self::Ready), CommError>;

    /// Returns the communicator over which the ranks coordinate.
    fn control(&mut self) -> &mut dyn Communicator;

    /// Checks on enqueued work. Returns the time until the next check, or `None` if there is nothing to check.
    fn tend(&mut self, recorder: &mut Recorder) -> Result<Option<Duration>, CommError>;

    /// Ends the backend with its reducer. `healthy` says that nothing has failed.
    fn close(&mut self, healthy: bool, recorder: &mut Recorder);
}
