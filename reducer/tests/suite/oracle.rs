//! Compares a whole training with PyTorch's. The small network, the data and the optimizer are the same; the backward
//! pass is written by hand, and the reducer averages the gradients. The loss of every step must match PyTorch's.

use paceline_reducer::{Instruments, Options, ParamId, Parameter, Reducer, Share};

use crate::steps::context;
use crate::vectors::{floats, json, vectors};
use crate::worlds::{Kind, run};

const STEPS: usize = 20;
const BATCH: usize = 48;
/// Linear(32,64)-Tanh-Linear(64,64)-Tanh-Linear(64,8).
const WIDTHS: [usize; 4] = [32, 64, 64, 8];

/// PyTorch's random number generator for the CPU: the Mersenne twister (Matsumoto and Nishimura 1998) with 32-bit
/// outputs.
struct Torch {
    state: [u32; 624],
    next: usize,
}

impl Torch {
    fn new(seed: u32) -> Self {
        let mut state = [seed; 624];
        for index in 1..624 {
            let previous = state[index - 1];
            state[index] =
                1_812_433_253_u32.wrapping_mul(previous ^ (previous >> 30)).wrapping_add(index as u32);
        }
        Self { state, next: 624 }
    }

    fn bits(&mut self) -> u32 {
        if self.next == 624 {
            for index in 0..624 {
                let mixed = (self.state[index] & 0x8000_0000) | (self.state[(index + 1) % 624] & 0x7fff_ffff);
                let twist = if mixed & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[index] = self.state[(index + 397) % 624] ^ (mixed >> 1) ^ twist;
            }
            self.next = 0;
        }
        let mut bits = self.state[self.next];
        self.next += 1;
        bits ^= bits >> 11;
        bits ^= (bits << 7) & 0x9d2c_5680;
        bits ^= (bits << 15) & 0xefc6_0000;
        bits ^ (bits >> 18)
    }

    /// Returns values as PyTorch's `uniform_` does, each from 24 bits.
    fn uniform(&mut self, len: usize, from: f32, to: f32) -> Vec<f32> {
        let mut number = || (self.bits() & 0xff_ffff) as f32 / (1 << 24) as f32 * (to - from) + from;
        (0..len).map(|_| number()).collect()
    }

    /// Returns values as PyTorch's `randn` does for a multiple of 16 values: the Box-Muller transform over blocks of
    /// 16.
    fn normal(&mut self, len: usize) -> Vec<f32> {
        let mut values = self.uniform(len, 0.0, 1.0);
        for block in values.chunks_exact_mut(16) {
            for index in 0..8 {
                let (radius, angle) =
                    ((-2.0 * (1.0 - block[index]).ln()).sqrt(), std::f32::consts::TAU * block[index + 8]);
                (block[index], block[index + 8]) = (radius * angle.cos(), radius * angle.sin());
            }
        }
        values
    }
}

/// Returns the initial values of `nn.Linear`: weights by rows of outputs, then biases, all within 1 / sqrt(inputs).
fn first_parameters() -> Vec<Vec<f32>> {
    let mut torch = Torch::new(1234);
    let mut parameters = Vec::new();
    for pair in WIDTHS.windows(2) {
        let bound = 1.0 / (pair[0] as f32).sqrt();
        parameters.push(torch.uniform(pair[0] * pair[1], -bound, bound));
        parameters.push(torch.uniform(pair[1], -bound, bound));
    }
    parameters
}

/// Returns `input` times the transpose of `weight`, plus `bias`, row by row.
fn linear(input: &[f32], weight: &[f32], bias: &[f32], input_width: usize) -> Vec<f32> {
    let row = |row: &[f32]| {
        weight
            .chunks_exact(input_width)
            .zip(bias)
            .map(|(weight, bias)| weight.iter().zip(row).map(|(w, x)| w * x).sum::<f32>() + bias)
            .collect::<Vec<f32>>()
    };
    input.chunks_exact(input_width).flat_map(row).collect()
}

/// Returns the loss, summed over `target`. Calls `ready` with each gradient times `scale`, in the order of the backward
/// pass.
fn backward(
    parameters: &[Vec<f32>],
    input: &[f32],
    target: &[f32],
    scale: f32,
    mut ready: impl FnMut(usize, &[f32]),
) -> f64 {
    let mut layers = vec![input.to_vec()];
    for (index, pair) in WIDTHS.windows(2).enumerate() {
        let mut output = linear(&layers[index], &parameters[2 * index], &parameters[2 * index + 1], pair[0]);
        if index < 2 {
            output.iter_mut().for_each(|value| *value = value.tanh());
        }
        layers.push(output);
    }
    let errors: Vec<f32> = layers[3].iter().zip(target).map(|(found, wanted)| found - wanted).collect();
    let mut upstream: Vec<f32> = errors.iter().map(|error| 2.0 * error * scale).collect();
    for index in (0..3).rev() {
        let (from, to) = (WIDTHS[index], WIDTHS[index + 1]);
        let (mut weight, mut bias) = (vec![0.0; from * to], vec![0.0; to]);
        let mut below = vec![0.0; layers[index].len()];
        for ((up, x), below) in
            upstream.chunks_exact(to).zip(layers[index].chunks_exact(from)).zip(below.chunks_exact_mut(from))
        {
            for (output, up) in up.iter().enumerate() {
                bias[output] += up;
                for input in 0..from {
                    weight[output * from + input] += up * x[input];
                    below[input] += up * parameters[2 * index][output * from + input];
                }
            }
        }
        ready(2 * index + 1, &bias);
        ready(2 * index, &weight);
        upstream = below.iter().zip(&layers[index]).map(|(below, x)| below * (1.0 - x * x)).collect();
    }
    errors.iter().map(|error| f64::from(error * error)).sum()
}

/// Trains on `ranks` ranks with `micro_batches` per step. Returns the losses and the final parameters.
fn train(ranks: u32, micro_batches: usize) -> (Vec<f64>, Vec<f32>) {
    let mut torch = Torch::new(7);
    let batches = STEPS * micro_batches;
    let inputs = torch.normal(batches * BATCH * WIDTHS[0]);
    let teacher = torch.normal(WIDTHS[0] * WIDTHS[3]);
    let transposed: Vec<f32> = (0..teacher.len()).map(|index| teacher[index % 32 * 8 + index / 32]).collect();
    let targets: Vec<f32> = linear(&inputs, &transposed, &[0.0; 8], 32).into_iter().map(f32::tanh).collect();
    let results = run(Kind::Ring, ranks, |comm| {
        let rank = comm.rank().0 as usize;
        let mut parameters = first_parameters();
        let mut momentum: Vec<Vec<f32>> = parameters.iter().map(|values| vec![0.0; values.len()]).collect();
        let list =
            parameters.iter().enumerate().map(|(id, values)| Parameter::new(format!("{id}"), [values.len()]));
        let mut reducer =
            Reducer::new(list.collect(), comm, Options::default(), Instruments::none()).unwrap();
        let rows = BATCH / ranks as usize;
        let mut losses = Vec::new();
        for step in 0..STEPS {
            let share = Share::even(ranks * micro_batches as u32);
            reducer.begin_accumulated_step(context(step as u64), share, micro_batches as u32).unwrap();
            let mut loss = 0.0;
            for micro in 0..micro_batches {
                if micro > 0 {
                    reducer.next_micro_batch(share).unwrap();
                }
                let start = (step * micro_batches + micro) * BATCH + rank * rows;
                let (x, y) = (&inputs[start * 32..][..rows * 32], &targets[start * 8..][..rows * 8]);
                let scale = 1.0 / (rows * 8) as f32;
                let sum = backward(&parameters, x, y, scale, |id, gradient| {
                    reducer.mark_ready(ParamId(id as u32), gradient).unwrap();
                });
                loss += sum / (rows * 8) as f64;
            }
            let reduced = reducer.finish_step().unwrap();
            for ((values, momentum), (_, gradient)) in
                parameters.iter_mut().zip(&mut momentum).zip(reduced.gradients())
            {
                for ((value, momentum), gradient) in values.iter_mut().zip(momentum).zip(gradient.unwrap()) {
                    *momentum = 0.9 * *momentum + gradient;
                    *value -= 0.5 * *momentum;
                }
            }
            losses.push(loss / micro_batches as f64);
        }
        (losses, parameters.concat())
    });
    let mean =
        |step| results.iter().map(|(losses, _): &(Vec<f64>, _)| losses[step]).sum::<f64>() / f64::from(ranks);
    assert!(
        results.iter().all(|(_, parameters)| *parameters == results[0].1),
        "the ranks' parameters differ"
    );
    ((0..STEPS).map(mean).collect(), results[0].1.clone())
}

fn check(ranks: u32, micro_batches: usize, tag: &str) {
    let directory = vectors();
    let oracle = json(directory.join(format!("oracle_{tag}.json")));
    let (losses, parameters) = train(ranks, micro_batches);
    for (step, loss) in losses.iter().enumerate() {
        let expected = oracle["rows"][step]["loss"].as_f64().unwrap();
        let error = (loss - expected).abs() / expected;
        assert!(error < 1e-6, "{tag}, step {step}: loss {loss}, PyTorch has {expected} ({error:.1e} off)");
    }
    let expected = floats(directory.join(format!("params_{tag}.bin")));
    let worst = parameters
        .iter()
        .zip(&expected)
        .map(|(found, expected)| (found - expected).abs())
        .fold(0.0, f32::max);
    assert!(parameters.len() == expected.len() && worst < 1e-5, "{tag}: a parameter is {worst:.1e} off");
}

#[test]
fn training_matches_pytorch() {
    for ranks in 1..=4 {
        check(ranks, 1, &format!("w{ranks}_float32_sgd"));
    }
}

#[test]
fn training_with_micro_batches_matches_pytorch() {
    check(1, 3, "w1_float32_sgd_accum3_noddp");
    check(2, 3, "w2_float32_sgd_accum3");
}
