//! AdamW (Loshchilov and Hutter 2019), in place on candle's own memory.

use std::cell::RefCell;

use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Var};

/// How it learns.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Learning rate.
    pub rate: f64,
    /// Decay of the mean of gradients.
    pub beta_1: f64,
    /// Decay of the mean of their squares.
    pub beta_2: f64,
    /// Keeps the division finite.
    pub epsilon: f64,
    /// Decay of the weights themselves.
    pub weight_decay: f64,
}

impl Settings {
    /// The usual ones, with a learning rate.
    ///
    /// The usual epsilon is 1e-8. Some parameters (the biases of attention keys) have no gradient but rounding
    /// errors, which that would blow up to full steps, different ones on every number of ranks.
    #[must_use]
    pub fn with_rate(rate: f64) -> Self {
        Self { rate, beta_1: 0.9, beta_2: 0.999, epsilon: 1e-6, weight_decay: 0.01 }
    }
}

/// The optimizer's memory: two moments a parameter.
pub struct AdamW {
    settings: Settings,
    moments: Vec<RefCell<Moments>>,
    steps: i32,
    rate_factor: f64,
}

#[derive(Default)]
struct Moments {
    first: Vec<f32>,
    second: Vec<f32>,
}

impl AdamW {
    /// For variables of these sizes.
    #[must_use]
    pub fn new(settings: Settings, vars: &[Var]) -> Self {
        let zeros = |var: &Var| vec![0.0; var.elem_count()];
        let moments = |var| RefCell::new(Moments { first: zeros(var), second: zeros(var) });
        Self { settings, moments: vars.iter().map(moments).collect(), steps: 0, rate_factor: 1.0 }
    }

    /// Begins a step (the bias correction counts them) with this fraction of the learning rate.
    pub fn begin_step(&mut self, rate_factor: f64) {
        self.steps = self.steps.saturating_add(1);
        self.rate_factor = rate_factor;
    }

    /// Moves one variable against its gradient, which is multiplied by `unscale`; `index` is its place in the list the
    /// optimizer was made with.
    ///
    /// # Errors
    /// When sizes do not match.
    pub fn update(&self, index: usize, var: &Var, gradient: &[f32], unscale: f32) -> Result<()> {
        let Settings { rate, beta_1, beta_2, epsilon, weight_decay } = self.settings;
        let rate = rate * self.rate_factor;
        let (unbias_1, unbias_2) = (1.0 - beta_1.powi(self.steps), 1.0 - beta_2.powi(self.steps));
        var.inplace_op1(&Update {
            gradient,
            unscale,
            moments: &self.moments[index],
            beta_1: beta_1 as f32,
            beta_2: beta_2 as f32,
            // Not from the rounded betas: 1 - 0.999 would lose half its digits.
            rest_1: (1.0 - beta_1) as f32,
            rest_2: (1.0 - beta_2) as f32,
            rate: (rate / unbias_1) as f32,
            unbias_2: (1.0 / unbias_2) as f32,
            epsilon: epsilon as f32,
            keep: (1.0 - rate * weight_decay) as f32,
        })
    }
}

struct Update<'a> {
    gradient: &'a [f32],
    unscale: f32,
    moments: &'a RefCell<Moments>,
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
            candle_core::bail!("AdamW is written for 32-bit floats")
        };
        let start = layout.start_offset();
        let weights = &mut weights[start..start + layout.shape().elem_count()];
        if weights.len() != self.gradient.len() {
            candle_core::bail!("a gradient of {} values for {} weights", self.gradient.len(), weights.len());
        }
        let mut moments = self.moments.borrow_mut();
        let Moments { first, second } = &mut *moments;
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
    fn three_steps_are_as_the_paper_says() {
        let var = Var::from_vec(vec![1.0_f32, -2.0], 2, &Device::Cpu).unwrap();
        let settings = Settings::with_rate(0.1);
        let mut optimizer = AdamW::new(settings, std::slice::from_ref(&var));
        let mut expected = [1.0_f64, -2.0];
        let (mut first, mut second) = ([0.0_f64; 2], [0.0_f64; 2]);
        for step in 1..=3 {
            let gradient = [0.5 / f64::from(step), -3.0];
            optimizer.begin_step(1.0);
            optimizer.update(0, &var, &gradient.map(|value| value as f32 * 8.0), 1.0 / 8.0).unwrap();
            for index in 0..2 {
                expected[index] -= 0.1 * 0.01 * expected[index];
                first[index] = 0.9 * first[index] + 0.1 * gradient[index];
                second[index] = 0.999 * second[index] + 0.001 * gradient[index].powi(2);
                let (mean, square) =
                    (first[index] / (1.0 - 0.9_f64.powi(step)), second[index] / (1.0 - 0.999_f64.powi(step)));
                expected[index] -= 0.1 * mean / (square.sqrt() + settings.epsilon);
            }
        }
        let found = var.to_vec1::<f32>().unwrap();
        for (found, expected) in found.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }
}
