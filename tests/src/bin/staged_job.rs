//! A training job with one rank, whose gradients are on the fake GPU in real time and are reduced in host memory. A
//! step has two buckets, each after 8 ms of backward, and 2 ms of optimizer.
#![allow(clippy::print_stdout, reason = "the output of the program")]

use std::time::Duration;

use agent::{Agent, Job};
use anyhow::{Context as _, bail};
use reducer::bucketing::Caps;
use reducer::cuda::{Cuda, Device, DeviceTimes, Transport};
use reducer::{Instruments, Options, ParamId, Parameter, Reducer, Share, local};
use testkit::fake_gpu;
use wire::event::SpanKind;
use wire::ids::Step;

/// The number of floats of a bucket. Copying them back and forth takes some milliseconds.
const FLOATS: usize = 4 << 20;
const BACKWARD_NANOS: u64 = 8_000_000;
const OPTIMIZER_NANOS: u64 = 2_000_000;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [steps] = &words[..] else { bail!("usage: staged_job STEPS") };
    let steps: u64 = steps.parse()?;
    let device = Device::open(0)?;
    let compute = device.stream()?;
    let gradient = device.zeros(FLOATS, &compute)?;
    let agent = Agent::from_env(Job { name: "staged".into(), sample_unit: "steps".into(), parameters: 0 });
    let parameters = (0..2).map(|id| Parameter::new(format!("p{id}"), [FLOATS])).collect();
    let options = Options { caps: Caps { first_bytes: 1, other_bytes: 1 }, ..Options::default() };
    let alone = local::world(1, Duration::from_secs(60)).into_iter().next().context("one rank")?;
    let cuda = Cuda::new(device, compute.clone(), Transport::Staged);
    let mut reducer =
        Reducer::on_device(parameters, Box::new(alone), cuda, options, Instruments::new(&agent))?;
    let mut marks = agent.step_marks_by(DeviceTimes::new(&reducer, agent.recorder()));
    for step in 0..steps {
        let context = marks.begin_step(Step(step));
        marks.enter(SpanKind::Backward);
        reducer.begin_step(context, Share::even(1))?;
        for id in [1, 0] {
            fake_gpu::spin(BACKWARD_NANOS, &compute);
            reducer.mark_ready(ParamId(id), gradient.as_view())?;
        }
        reducer.finish_step()?;
        marks.enter(SpanKind::Optimizer);
        fake_gpu::spin(OPTIMIZER_NANOS, &compute);
        marks.end_step(1);
    }
    compute.synchronize()?;
    drop(reducer);
    agent.finish(Ok(()));
    println!("{steps} steps");
    Ok(())
}
