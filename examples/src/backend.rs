//! The backends of a job: where its tensors are, and how gradients are reduced and weights updated.

mod cpu;
#[cfg(feature = "cuda")]
mod gpu;

use agent::{Agent, StepMarks, Times};
use candle_core::{Device, Result, Tensor, Var};
use reducer::ring::Ring;
use reducer::{Instruments, Memory, Options, Parameter, ReduceError, Reduced, Reducer};

use crate::adamw::{AdamW, Moments};
use crate::trouble::SlowAdapter;

pub use cpu::Cpu;
#[cfg(feature = "cuda")]
pub use gpu::Gpu;

/// A gradient in the form in which a backend's reducer accepts and returns it.
pub type Gradient<'a, B> = <<B as Backend>::Memory as Memory>::Gradient<'a>;

/// A device to train on, with its reducer, clock and optimizer.
pub trait Backend: Sized + 'static {
    /// The memory in which gradients are reduced.
    type Memory: Memory + Send;
    /// The clock of steps and phases.
    type Times: Times;
    /// The optimizer state of one parameter.
    type Moments: Moments;

    /// Returns the device that holds the tensors.
    fn device(&self) -> Device;

    /// Creates the reducer for the gradients of `parameters`. Ranks find each other over `comm`.
    ///
    /// # Errors
    /// Returns the errors of [`Reducer::new`].
    fn reducer(
        &self,
        parameters: Vec<Parameter>,
        comm: SlowAdapter<Ring>,
        options: Options,
        instruments: Instruments,
    ) -> std::result::Result<Reducer<Self::Memory>, ReduceError>;

    /// Returns the step marks of the training thread.
    fn marks(agent: &Agent, reducer: &Reducer<Self::Memory>) -> StepMarks<Self::Times>;

    /// Passes the values of a tensor to `take`, without a copy if the tensor is contiguous.
    ///
    /// # Errors
    /// Returns an error if the tensor belongs to another backend or does not hold 32-bit floats.
    fn lend<T>(tensor: &Tensor, take: impl FnOnce(Gradient<'_, Self>) -> T) -> Result<T>;

    /// Returns true if all reduced gradients are finite.
    ///
    /// # Errors
    /// Returns an error if the device fails.
    fn are_finite(&self, reduced: &Reduced<'_, Self::Memory>) -> Result<bool>;

    /// Updates the variable with this index with its gradient times `unscale`.
    ///
    /// # Errors
    /// Returns an error if the sizes do not match or the device fails.
    fn update(
        &self,
        optimizer: &AdamW<Self::Moments>,
        index: usize,
        var: &Var,
        gradient: Gradient<'_, Self>,
        unscale: f32,
    ) -> Result<()>;
}
