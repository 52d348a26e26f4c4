//! Stacks of a simulated job.

use wire::batch::Note;
use wire::stacks::{Frame, Profile, Stack, Stacks, StacksOutcome, ThreadRole, ThreadStacks};

use crate::simulator::Simulation;

/// The name of a slow function. It comes from the user's job, and may contain markup.
pub const SLOW_FUNCTION: &str = "decode<img src=x onerror='window.harmed = true'>";

/// Adds the stacks of the rank `slow`, which reads its input in [`SLOW_FUNCTION`], and of a rank that waits for it.
#[must_use]
pub fn sampled(mut simulation: Simulation, slow: usize) -> Simulation {
    let other = usize::from(slow == 0);
    for rank in [slow, other] {
        let share = if rank == slow { 60 } else { 3 };
        let mut received =
            simulation.batches.iter_mut().filter(|received| received.batch.rank.0 as usize == rank);
        if let Some(received) = received.next_back() {
            let end = received.batch.anchor.mono;
            let outcome = StacksOutcome::Sampled(profile(share));
            received.batch.notes.push(Note::Stacks(Stacks { request: 1, from: end, until: end, outcome }));
        }
    }
    simulation
}

/// Returns a profile of 75 samples, `slow` of them in [`SLOW_FUNCTION`].
fn profile(slow: u64) -> Profile {
    let frame =
        |function: &str, file: &str, line| Frame { function: function.into(), file: file.into(), line };
    let library = |file: &str| format!("/opt/env/lib/python3.11/site-packages/torch/{file}");
    let frames = vec![
        frame("<module>", "/job/train.py", 90),
        frame("_MapDatasetFetcher.fetch", &library("utils/data/_utils/fetch.py"), 54),
        frame("Samples.__getitem__", "/job/samples.py", 33),
        frame(SLOW_FUNCTION, "/job/samples.py", 12),
        frame("_engine_run_backward", &library("autograd/graph.py"), 1_113),
    ];
    let stacks =
        vec![Stack { count: slow, frames: vec![0, 1, 2, 3] }, Stack { count: 75 - slow, frames: vec![0, 4] }];
    let main =
        ThreadStacks { role: ThreadRole::Main, name: String::new(), processes: 1, samples: 75, stacks };
    Profile { frames, threads: vec![main], torn: 0 }
}
