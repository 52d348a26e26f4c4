//! What a job trains on: where its tensors lie, what reduces their gradients, and what moves its weights.

mod cpu;
#[cfg(feature = "cuda")]
mod gpu;

use agent::{Agent, StepMarks, Times};
use candle_core::{Device, Result, Tensor, Var};
use clap::ValueEnum;
use reducer::ring::Ring;
use reducer::{Instruments, Memory, Options, Parameter, ReduceError, Reduced, Reducer};

use crate::adamw::{AdamW, Moments};
use crate::trouble::SlowAdapter;

pub use cpu::Cpu;
#[cfg(feature = "cuda")]
pub use gpu::Gpu;

/// Where to train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DeviceKind {
    /// This rank's core
    #[default]
    Cpu,
    /// The GPU with the number LOCAL_RANK; ranks share GPUs where there are fewer
    Cuda,
}

/// What carries gradients between GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GradientTransport {
    /// NCCL: each rank has a GPU of its own
    Nccl,
    /// Pinned host memory, and from there as between CPUs: ranks may share a GPU
    Staged,
}

/// A gradient as the reducer of a backend takes it and hands it back.
pub type Gradient<'a, B> = <<B as Backend>::Memory as Memory>::Gradient<'a>;

/// What trains.
pub trait Backend: Sized + 'static {
    /// Where gradients are reduced.
    type Memory: Memory + Send;
    /// The clock of steps and phases.
    type Times: Times;
    /// The optimizer's memory of one parameter.
    type Moments: Moments;

    /// Where tensors lie.
    fn device(&self) -> Device;

    /// What reduces gradients of these parameters; the ranks meet over `comm`.
    ///
    /// # Errors
    /// As [`Reducer::new`].
    fn reducer(
        &self,
        parameters: Vec<Parameter>,
        comm: SlowAdapter<Ring>,
        options: Options,
        instruments: Instruments,
    ) -> std::result::Result<Reducer<Self::Memory>, ReduceError>;

    /// The marks of the training thread.
    fn marks(agent: &Agent, reducer: &Reducer<Self::Memory>) -> StepMarks<Self::Times>;

    /// Lends the values of a tensor, without a copy where they lie in order.
    ///
    /// # Errors
    /// When it is not a tensor of this backend, or not one of 32-bit floats.
    fn lend<T>(tensor: &Tensor, take: impl FnOnce(Gradient<'_, Self>) -> T) -> Result<T>;

    /// Whether all reduced gradients are finite.
    ///
    /// # Errors
    /// When the device fails.
    fn are_finite(&self, reduced: &Reduced<'_, Self::Memory>) -> Result<bool>;

    /// Moves the variable with this index against its gradient, which is multiplied by `unscale`.
    ///
    /// # Errors
    /// When sizes do not match, or the device fails.
    fn update(
        &self,
        optimizer: &AdamW<Self::Moments>,
        index: usize,
        var: &Var,
        gradient: Gradient<'_, Self>,
        unscale: f32,
    ) -> Result<()>;
}
