//! Named trainable tensors, and the hook that receives each gradient as soon as it is complete.
//!
//! In candle, the gradient of a tensor is complete once the backward pass has visited every operation that used the
//! tensor. Each step therefore wraps each parameter once in an operation that does nothing in the forward pass. Its
//! backward pass hands the gradient to the reducer and stops there.
//!
//! A model must observe two rules. A parameter must be the *right* operand of a product, because the hook of a left
//! operand runs only at the very end. And a parameter must be wrapped once even if it is used twice, or its gradient
//! arrives in two parts.

use std::hash::Hasher as _;
use std::sync::Arc;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Device, Layout, Result, Shape, Tensor, Var};
use fnv::FnvHasher;
use reducer::{ParamId, Parameter};

use crate::random::Random;

/// A function that is called with each complete gradient.
pub type GradientReady = Arc<dyn Fn(ParamId, &Tensor) -> Result<()> + Send + Sync>;

/// The parameters of one model, in the order in which the forward pass uses them.
pub struct ParameterSet {
    device: Device,
    vars: Vec<Var>,
    list: Vec<Parameter>,
}

/// The tensors of a [`ParameterSet`], by the index that [`ParameterSet::add`] returned.
pub type Weights = Vec<Tensor>;

impl ParameterSet {
    /// Creates an empty set whose parameters will be on `device`.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), vars: Vec::new(), list: Vec::new() }
    }

    /// Returns the device that holds the parameters.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Adds a parameter with its initial values.
    ///
    /// # Errors
    /// Returns an error if the number of values does not match the shape.
    pub fn add(&mut self, name: impl Into<String>, shape: &[usize], values: Vec<f32>) -> Result<usize> {
        self.vars.push(Var::from_vec(values, shape, &self.device)?);
        self.list.push(Parameter::new(name, shape));
        Ok(self.vars.len() - 1)
    }

    /// Adds a parameter with normally distributed initial values.
    ///
    /// # Errors
    /// Returns the errors of [`Self::add`].
    pub fn add_normal(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        deviation: f64,
        random: &mut Random,
    ) -> Result<usize> {
        self.add(name, shape, random.normal(shape.iter().product(), deviation))
    }

    /// Adds a parameter whose initial values all equal `value`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::add`].
    pub fn add_constant(&mut self, name: impl Into<String>, shape: &[usize], value: f32) -> Result<usize> {
        self.add(name, shape, vec![value; shape.iter().product()])
    }

    /// Returns the names and shapes of the parameters.
    #[must_use]
    pub fn list(&self) -> &[Parameter] {
        &self.list
    }

    /// Returns the variables in the order of their ids.
    #[must_use]
    pub fn vars(&self) -> &[Var] {
        &self.vars
    }

    /// Returns the number of values of all parameters together.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.list.iter().map(Parameter::elements).sum()
    }

    /// Returns the tensors for one training step. They are copies, so every step needs new ones.
    ///
    /// # Errors
    /// Returns an error if memory is exhausted.
    pub fn hooked(&self, ready: &GradientReady) -> Result<Weights> {
        let wrap = |(id, var): (u32, &Var)| var.apply_op1(Hook { id: ParamId(id), ready: ready.clone() });
        (0..).zip(&self.vars).map(wrap).collect()
    }

    /// Returns the tensors for evaluation, which have no gradients.
    #[must_use]
    pub fn plain(&self) -> Weights {
        self.vars.iter().map(|var| var.as_detached_tensor()).collect()
    }

    /// Returns all values, one parameter after the other.
    ///
    /// # Errors
    /// Returns an error if a variable does not hold 32-bit floats.
    pub fn values(&self) -> Result<Vec<f32>> {
        let mut all = Vec::with_capacity(self.elements());
        for var in &self.vars {
            all.extend(var.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(all)
    }

    /// Replaces all values.
    ///
    /// # Errors
    /// Returns an error if there are too few values.
    pub fn set_values(&self, mut all: &[f32]) -> Result<()> {
        for var in &self.vars {
            let Some((values, rest)) = all.split_at_checked(var.elem_count()) else {
                candle_core::bail!(
                    "{} values are missing for {:?}",
                    var.elem_count() - all.len(),
                    var.shape()
                );
            };
            var.set(&Tensor::from_slice(values, var.shape(), &self.device)?)?;
            all = rest;
        }
        Ok(())
    }

    /// Returns a hash of the bits of all values. Ranks with equal models have equal hashes.
    ///
    /// # Errors
    /// Returns the errors of [`Self::values`].
    pub fn hash(&self) -> Result<u64> {
        let mut hasher = FnvHasher::default();
        self.values()?.into_iter().for_each(|value| hasher.write(&value.to_le_bytes()));
        Ok(hasher.finish())
    }
}

/// An operation that does nothing forward. Its backward pass reports that the gradient is complete.
struct Hook {
    id: ParamId,
    ready: GradientReady,
}

impl CustomOp1 for Hook {
    fn name(&self) -> &'static str {
        "gradient-ready"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((storage.try_clone(layout)?, layout.shape().clone()))
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        Ok((storage.try_clone(layout)?, layout.shape().clone()))
    }

    fn bwd(&self, _argument: &Tensor, _result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        (self.ready)(self.id, gradient)?;
        // The reducer has the gradient, so nothing is added up beyond this node.
        Ok(None)
    }
}
