//! Named trainable tensors, and the hook that sees each gradient the moment it is complete.
//!
//! In candle the gradient of a tensor is complete when everything that used it has been walked backwards. So
//! every step wraps each parameter once in an operation that does nothing forward, and backward hands the
//! gradient to the reducer and stops. Two traps for models: a parameter must be the *right* operand of a
//! product (as a left one its hook runs only at the very end), and must be wrapped once even if it is used
//! twice (else its gradient comes in two parts).

use std::sync::Arc;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Device, Layout, Result, Shape, Tensor, Var};
use reducer::{ParamId, Parameter};

use crate::random::Random;

/// Called with each gradient when it is complete.
pub type GradientReady = Arc<dyn Fn(ParamId, &Tensor) -> Result<()> + Send + Sync>;

/// The parameters of one model, in the order the forward pass uses them.
pub struct ParameterSet {
    device: Device,
    vars: Vec<Var>,
    list: Vec<Parameter>,
}

/// The tensors of a [`ParameterSet`], by the index that adding gave.
pub type Weights = Vec<Tensor>;

impl ParameterSet {
    /// None yet; they will lie on `device`.
    #[must_use]
    pub fn on(device: &Device) -> Self {
        Self { device: device.clone(), vars: Vec::new(), list: Vec::new() }
    }

    /// Where they lie.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Adds a parameter with its first values.
    ///
    /// # Errors
    /// When the number of values is not what the shape says.
    pub fn add(&mut self, name: impl Into<String>, shape: &[usize], values: Vec<f32>) -> Result<usize> {
        self.vars.push(Var::from_vec(values, shape, &self.device)?);
        self.list.push(Parameter::new(name, shape));
        Ok(self.vars.len() - 1)
    }

    /// Adds a parameter of normal values.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_normal(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        deviation: f64,
        random: &mut Random,
    ) -> Result<usize> {
        self.add(name, shape, random.normal(shape.iter().product(), deviation))
    }

    /// Adds a parameter of one value.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_constant(&mut self, name: impl Into<String>, shape: &[usize], value: f32) -> Result<usize> {
        self.add(name, shape, vec![value; shape.iter().product()])
    }

    /// Names and shapes.
    #[must_use]
    pub fn list(&self) -> &[Parameter] {
        &self.list
    }

    /// The variables, by id.
    #[must_use]
    pub fn vars(&self) -> &[Var] {
        &self.vars
    }

    /// How many numbers the model has.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.list.iter().map(Parameter::elements).sum()
    }

    /// The tensors for one training step. Must be made anew for every step: they are copies.
    ///
    /// # Errors
    /// When candle is out of memory.
    pub fn hooked(&self, ready: &GradientReady) -> Result<Weights> {
        let wrap = |(id, var): (u32, &Var)| var.apply_op1(Hook { id: ParamId(id), ready: ready.clone() });
        (0..).zip(&self.vars).map(wrap).collect()
    }

    /// The tensors for evaluation: no gradient flows.
    #[must_use]
    pub fn plain(&self) -> Weights {
        self.vars.iter().map(|var| var.as_detached_tensor()).collect()
    }

    /// All values, one parameter behind the other.
    ///
    /// # Errors
    /// When a variable is not of 32-bit floats.
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
    /// When there are too few.
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

    /// A hash of the bits of all values (FNV-1a): equal on two ranks when their models are.
    ///
    /// # Errors
    /// As [`Self::values`].
    pub fn hash(&self) -> Result<u64> {
        let bytes = self.values()?.into_iter().flat_map(f32::to_le_bytes);
        Ok(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }
}

/// Does nothing forward; backward, says that the gradient is complete.
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
        // The reducer has it: nothing is to be added up behind this node.
        Ok(None)
    }
}
