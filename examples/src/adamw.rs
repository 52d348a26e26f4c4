//! The AdamW optimizer (Loshchilov and Hutter 2019): in place in candle's memory on the host, and with candle's
//! operations on any device.

use std::cell::RefCell;

use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Tensor, Var};

/// The hyperparameters.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Learning rate.
    pub rate: f64,
    /// Decay of the running mean of gradients.
    pub beta_1: f64,
    /// Decay of the running mean of squared gradients.
    pub beta_2: f64,
    /// A small term in the denominator that keeps the division finite.
    pub epsilon: f64,
    pub weight_decay: f64,
}

impl Settings {
    /// Returns the usual hyperparameters with the learning rate `rate`.
    ///
    /// Epsilon is an exception: it is 1e-6 instead of the usual 1e-8. Some parameters (the biases of attention keys)
    /// have gradients that consist of rounding errors only. With 1e-8, these would become full steps that differ
    /// between numbers of ranks.
    #[must_use]
    pub fn with_rate(rate: f64) -> Self {
        Self { rate, beta_1: 0.9, beta_2: 0.999, epsilon: 1e-6, weight_decay: 0.01 }
    }
}

/// The optimizer. It holds two moments per parameter, in the same memory as the parameter's gradient.
pub struct AdamW<M> {
    settings: Settings,
    moments: Vec<M>,
    steps: i32,
    rate_factor: f64,
}

/// The two moments of one parameter.
pub trait Moments: Sized {
    /// Returns moments of zero.
    ///
    /// # Errors
    /// Returns an error if memory is exhausted.
    fn new(var: &Var) -> Result<Self>;
}

/// Moments in host memory, updated in place.
#[derive(Default)]
pub struct InPlace(RefCell<Slices>);

#[derive(Default)]
struct Slices {
    first: Vec<f32>,
    second: Vec<f32>,
}

/// Moments as tensors on any device, updated by candle's operations.
pub struct OfTensors(RefCell<(Tensor, Tensor)>);

impl Moments for InPlace {
    fn new(var: &Var) -> Result<Self> {
        let zeros = || vec![0.0; var.elem_count()];
        Ok(Self(RefCell::new(Slices { first: zeros(), second: zeros() })))
    }
}

impl Moments for OfTensors {
    fn new(var: &Var) -> Result<Self> {
        Ok(Self(RefCell::new((var.zeros_like()?, var.zeros_like()?))))
    }
}

/// The factors of one step.
#[derive(Clone, Copy)]
struct Factors {
    beta_1: f64,
    beta_2: f64,
    rate: f64,
    unbias_2: f64,
    epsilon: f64,
    keep: f64,
}

impl<M: Moments> AdamW<M> {
    /// Creates the optimizer for `vars`.
    ///
    /// # Errors
    /// Returns an error if memory is exhausted.
    pub fn new(settings: Settings, vars: &[Var]) -> Result<Self> {
        let moments = vars.iter().map(M::new).collect::<Result<_>>()?;
        Ok(Self { settings, moments, steps: 0, rate_factor: 1.0 })
    }

    /// Begins a step with the learning rate times `rate_factor`. The bias correction depends on the number of steps.
    pub fn begin_step(&mut self, rate_factor: f64) {
        self.steps = self.steps.saturating_add(1);
        self.rate_factor = rate_factor;
    }

    fn factors(&self) -> Factors {
        let Settings { rate, beta_1, beta_2, epsilon, weight_decay } = self.settings;
        let rate = rate * self.rate_factor;
        let (unbias_1, unbias_2) = (1.0 - beta_1.powi(self.steps), 1.0 - beta_2.powi(self.steps));
        Factors {
            beta_1,
            beta_2,
            rate: rate / unbias_1,
            unbias_2: 1.0 / unbias_2,
            epsilon,
            keep: 1.0 - rate * weight_decay,
        }
    }
}

impl AdamW<InPlace> {
    /// Updates one variable with its gradient times `unscale`. `index` is the variable's index in the list that was
    /// passed to [`Self::new`].
    ///
    /// # Errors
    /// Returns an error if the sizes do not match.
    pub fn update(&self, index: usize, var: &Var, gradient: &[f32], unscale: f32) -> Result<()> {
        let Factors { beta_1, beta_2, rate, unbias_2, epsilon, keep } = self.factors();
        var.inplace_op1(&Update {
            gradient,
            unscale,
            moments: &self.moments[index].0,
            beta_1: beta_1 as f32,
            beta_2: beta_2 as f32,
            // Computed from the `f64` betas: 1 - 0.999 in `f32` would lose half its digits.
            rest_1: (1.0 - beta_1) as f32,
            rest_2: (1.0 - beta_2) as f32,
            rate: rate as f32,
            unbias_2: unbias_2 as f32,
            epsilon: epsilon as f32,
            keep: keep as f32,
        })
    }
}

impl AdamW<OfTensors> {
    /// Updates one variable as on the host, from a gradient of the same shape.
    ///
    /// # Errors
    /// Returns an error if the shapes do not match or the device fails.
    pub fn update(&self, index: usize, var: &Var, gradient: &Tensor, unscale: f32) -> Result<()> {
        let Factors { beta_1, beta_2, rate, unbias_2, epsilon, keep } = self.factors();
        let gradient = (gradient * f64::from(unscale))?;
        let mut moments = self.moments[index].0.borrow_mut();
        let first = ((&moments.0 * beta_1)? + (&gradient * (1.0 - beta_1))?)?;
        let second = ((&moments.1 * beta_2)? + (gradient.sqr()? * (1.0 - beta_2))?)?;
        let deviation = ((&second * unbias_2)?.sqrt()? + epsilon)?;
        let kept = (var.as_detached_tensor() * keep)?;
        var.set(&(kept - ((&first * rate)? / deviation)?)?)?;
        *moments = (first, second);
        Ok(())
    }
}

struct Update<'a> {
    gradient: &'a [f32],
    unscale: f32,
    moments: &'a RefCell<Slices>,
    beta_1: f32,
    beta_2: f32,
    rest_1: f32,
    rest_2: f32,
    rate: f32,
    unbias_2: f32,
    epsilon: f32,
    keep: f32,
}

impl InplaceOp1 for Update<'_> {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let CpuStorage::F32(weights) = storage else {
            candle_core::bail!("AdamW supports 32-bit floats only")
        };
        let start = layout.start_offset();
        let weights = &mut weights[start..start + layout.shape().elem_count()];
        if weights.len() != self.gradient.len() {
            candle_core::bail!("{} gradient values for {} weights", self.gradient.len(), weights.len());
        }
        let mut moments = self.moments.borrow_mut();
        let Slices { first, second } = &mut *moments;
        for (((weight, gradient), first), second) in
            weights.iter_mut().zip(self.gradient).zip(first).zip(second)
        {
            let gradient = gradient * self.unscale;
            *first = self.beta_1 * *first + self.rest_1 * gradient;
            *second = self.beta_2 * *second + self.rest_2 * gradient * gradient;
            *weight =
                *weight * self.keep - self.rate * *first / ((*second * self.unbias_2).sqrt() + self.epsilon);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn three_steps_match_the_published_formula() {
        let settings = Settings::with_rate(0.1);
        let new = || Var::from_vec(vec![1.0_f32, -2.0], 2, &Device::Cpu).unwrap();
        let (var, other) = (new(), new());
        let mut in_place = AdamW::<InPlace>::new(settings, std::slice::from_ref(&var)).unwrap();
        let mut with_tensors = AdamW::<OfTensors>::new(settings, std::slice::from_ref(&other)).unwrap();
        let mut expected = [1.0_f64, -2.0];
        let (mut first, mut second) = ([0.0_f64; 2], [0.0_f64; 2]);
        for step in 1..=3 {
            let gradient = [0.5 / f64::from(step), -3.0];
            let scaled = gradient.map(|value| value as f32 * 8.0);
            in_place.begin_step(1.0);
            in_place.update(0, &var, &scaled, 1.0 / 8.0).unwrap();
            with_tensors.begin_step(1.0);
            with_tensors.update(0, &other, &Tensor::new(&scaled, &Device::Cpu).unwrap(), 1.0 / 8.0).unwrap();
            for index in 0..2 {
                expected[index] -= 0.1 * 0.01 * expected[index];
                first[index] = 0.9 * first[index] + 0.1 * gradient[index];
                second[index] = 0.999 * second[index] + 0.001 * gradient[index].powi(2);
                let (mean, square) =
                    (first[index] / (1.0 - 0.9_f64.powi(step)), second[index] / (1.0 - 0.999_f64.powi(step)));
                expected[index] -= 0.1 * mean / (square.sqrt() + settings.epsilon);
            }
        }
        for found in [var, other].map(|var| var.to_vec1::<f32>().unwrap()) {
            for (found, expected) in found.iter().zip(expected) {
                assert!((f64::from(*found) - expected).abs() < 1e-6, "found {found}, expected {expected}");
            }
        }
    }
}
