//! Where the threads of one rank stand, when there is no other rank to compare it with: all ranks lose the time alike.

use std::collections::BTreeMap;

use wire::batch::total;
use wire::stacks::{Frame, Profile, Stack, ThreadRole};

use super::{Place, frames_of, is_library};

/// The least share of samples in which a line must be to be named.
const NOTABLE_SHARE: f64 = 0.1;
/// The data loader's own files.
const LOADER: &str = "torch/utils/data/";
/// The file in which a worker gets samples from the data set. One that waits for its next task is in its loop, which calls the queue.
const WORKER_FETCHES: &str = "torch/utils/data/_utils/fetch.py";
/// The part of PyTorch that runs backward passes.
const BACKWARD: &str = "torch/autograd/";
/// The parts of PyTorch that run passes, updates and collectives.
const TRAINING: [&str; 5] =
    ["torch/nn/", "torch/autograd/", "torch/_tensor.py", "torch/optim/", "torch/distributed/"];

/// In which stacks the time is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPlace {
    /// Those of the data loader, in its worker processes if it has any.
    Input,
    /// Those of the optimizer.
    Optimizer,
    /// Those that are in no pass, update, collective or data loader.
    Outside,
}

/// Returns true if a place is in what PyTorch runs in passes, updates and collectives.
#[must_use]
pub fn is_of_training(place: &Place) -> bool {
    let innermost = place.inner.as_ref().unwrap_or(&place.frame);
    TRAINING.iter().any(|part| innermost.file.contains(part))
}

/// Returns the share of the samples of a rank's loader workers in which they load: the others wait for the rank to ask for more. `None`
/// without workers.
#[must_use]
pub fn workers_at_work(profile: &Profile) -> Option<f64> {
    let workers = || profile.threads.iter().filter(|thread| thread.role == ThreadRole::Worker);
    let loads =
        |stack: &&Stack| frames_of(profile, stack).iter().any(|frame| frame.file.contains(WORKER_FETCHES));
    let at_work =
        total(workers().flat_map(|thread| thread.stacks.iter().filter(loads)).map(|stack| stack.count));
    let samples = total(workers().map(|thread| thread.samples));
    (samples > 0).then(|| at_work as f64 / samples as f64)
}

/// Returns the line of the user's code in which a rank is most often while it loses time; `None` if none stands out. Checkpoints and
/// evaluations are pauses of their own, although they read data too: a stack through a function in which one of `pauses` begins does not
/// count. If this function trains as well, only the line of the pause does not count.
#[must_use]
pub fn busiest(profile: &Profile, loss_place: LossPlace, pauses: &[&Frame]) -> Option<Place> {
    let is_in_pause = |stack: &Stack| {
        let mut frames = frames_of(profile, stack).into_iter();
        frames.any(|frame| {
            let is_at = |pause: &&&Frame| (&pause.file, &pause.function) == (&frame.file, &frame.function);
            pauses.iter().filter(is_at).any(|pause| pause.line == frame.line || !trains(profile, pause))
        })
    };
    let place = |role| place_of_role(profile, role, loss_place, &is_in_pause);
    let workers = (loss_place == LossPlace::Input).then(|| place(ThreadRole::Worker)).flatten();
    workers.or_else(|| place(ThreadRole::Main))
}

/// Returns true if the function of a frame has a backward pass.
fn trains(profile: &Profile, function: &Frame) -> bool {
    profile.threads.iter().flat_map(|thread| &thread.stacks).any(|stack| {
        let frames = frames_of(profile, stack);
        let is_in = |frame: &&Frame| (&frame.file, &frame.function) == (&function.file, &function.function);
        frames.iter().any(is_in) && frames.iter().any(|frame| frame.file.contains(BACKWARD))
    })
}

fn place_of_role(
    profile: &Profile,
    role: ThreadRole,
    loss_place: LossPlace,
    is_in_pause: &dyn Fn(&Stack) -> bool,
) -> Option<Place> {
    let mut counts: BTreeMap<(&str, &str, u32), (u64, &Frame)> = BTreeMap::new();
    let mut samples = 0;
    for thread in profile.threads.iter().filter(|thread| thread.role == role) {
        samples += thread.samples;
        for stack in &thread.stacks {
            if let Some(own) = own_frame(profile, stack, role, loss_place).filter(|_| !is_in_pause(stack)) {
                let key = (own.function.as_str(), own.file.as_str(), own.line);
                counts.entry(key).or_insert((0, own)).0 += stack.count;
            }
        }
    }
    let (count, frame) = counts.into_values().max_by_key(|(count, frame)| (*count, frame.line))?;
    let share = count as f64 / samples.max(1) as f64;
    (share >= NOTABLE_SHARE).then(|| Place {
        role,
        frame: frame.clone(),
        inner: None,
        is_whole_function: false,
        share,
        other_share: 0.0,
        samples,
    })
}

/// Returns the innermost frame of the user's code, if the stack is one of those in which the time is lost.
fn own_frame<'a>(
    profile: &'a Profile,
    stack: &Stack,
    role: ThreadRole,
    loss_place: LossPlace,
) -> Option<&'a Frame> {
    let frames = frames_of(profile, stack);
    let is_in = |part: &str| frames.iter().any(|frame| frame.file.contains(part));
    let is_wanted = match (loss_place, role) {
        (LossPlace::Input, ThreadRole::Worker) => is_in(WORKER_FETCHES),
        (LossPlace::Input, _) => is_in(LOADER),
        (LossPlace::Optimizer, _) => is_in("torch/optim/"),
        (LossPlace::Outside, _) => !is_in(LOADER) && !TRAINING.iter().any(|part| is_in(part)),
    };
    let own = frames.iter().rev().find(|frame| !is_library(frame));
    own.copied().filter(|_| is_wanted)
}

#[cfg(test)]
mod tests {
    use super::super::tests::profile;
    use super::*;

    const LOOP: (&str, &str, u32) = ("<module>", "train.py", 12);
    const NEXT: (&str, &str, u32) = ("__next__", "/lib/site-packages/torch/utils/data/dataloader.py", 700);
    const FETCH: (&str, &str, u32) = ("fetch", "/lib/site-packages/torch/utils/data/_utils/fetch.py", 50);
    const GET: (&str, &str, u32) = ("__getitem__", "train.py", 5);
    const BACKWARD_PASS: (&str, &str, u32) =
        ("backward", "/lib/site-packages/torch/autograd/__init__.py", 395);
    const BACKWARD: (&str, &str, u32) = ("backward", "/lib/site-packages/torch/_tensor.py", 500);

    #[test]
    fn the_line_of_the_data_set_is_named_whether_workers_run_it_or_the_rank_itself() {
        let alone = profile(&[(
            ThreadRole::Main,
            &[(&[LOOP, NEXT, FETCH, GET], 60), (&[("<module>", "train.py", 13), BACKWARD], 40)],
        )]);
        assert_eq!(
            busiest(&alone, LossPlace::Input, &[]).map(|place| place.location()),
            Some("train.py:5 (__getitem__)".into())
        );
        let queue = ("get", "/lib/python3.11/queue.py", 171);
        let main = [(&[LOOP, NEXT, queue][..], 90)];
        let busy = [(&[FETCH, GET][..], 80), (&[queue][..], 20)];
        let with_workers = profile(&[(ThreadRole::Main, &main[..]), (ThreadRole::Worker, &busy[..])]);
        let place = busiest(&with_workers, LossPlace::Input, &[]).unwrap();
        assert_eq!((place.role, place.frame.line), (ThreadRole::Worker, 5));
    }

    #[test]
    fn a_loader_that_a_pause_reads_from_is_not_the_input_of_training() {
        let validate = ("main", "train.py", 30);
        let own = profile(&[(
            ThreadRole::Main,
            &[(&[validate, ("validate", "train.py", 60), NEXT, FETCH], 70), (&[LOOP, NEXT], 30)],
        )]);
        let pause = Frame { function: "main".into(), file: "train.py".into(), line: 30 };
        let line = |pauses: &[&Frame]| busiest(&own, LossPlace::Input, pauses).map(|place| place.frame.line);
        assert_eq!((line(&[]), line(&[&pause])), (Some(60), Some(12)));
        // Where `eval()` is called, and not where the loader is read.
        let begins = Frame { function: "validate".into(), file: "train.py".into(), line: 55 };
        assert_eq!(line(&[&begins]), Some(12));
        let in_the_loop = Frame { function: "<module>".into(), file: "train.py".into(), line: 20 };
        let trains = profile(&[(ThreadRole::Main, &[(&[LOOP, NEXT], 60), (&[LOOP, BACKWARD_PASS], 40)])]);
        let line = busiest(&trains, LossPlace::Input, &[&in_the_loop]).map(|place| place.frame.line);
        assert_eq!(line, Some(12), "another line of a function that trains");
    }

    #[test]
    fn workers_are_at_work_while_they_get_samples() {
        let queue = ("get", "/lib/python3.11/queue.py", 171);
        let samples = [(&[FETCH, GET][..], 80), (&[queue][..], 20)];
        assert_eq!(workers_at_work(&profile(&[(ThreadRole::Worker, &samples)])), Some(0.8));
        assert_eq!(workers_at_work(&profile(&[(ThreadRole::Main, &samples)])), None);
    }

    #[test]
    fn time_outside_of_training_is_that_of_no_library_of_training_and_of_no_pause() {
        let (log, save, write) = (("log", "train.py", 40), ("save", "train.py", 50), ("write", "disk.py", 7));
        let own = profile(&[(
            ThreadRole::Main,
            &[(&[LOOP, BACKWARD], 50), (&[LOOP, log], 15), (&[LOOP, save, write], 25), (&[LOOP, NEXT], 10)],
        )]);
        let line =
            |pauses: &[&Frame]| busiest(&own, LossPlace::Outside, pauses).map(|place| place.frame.line);
        assert_eq!(line(&[]), Some(7));
        assert_eq!(line(&[&Frame { function: "save".into(), file: "train.py".into(), line: 50 }]), Some(40));
        assert_eq!(busiest(&own, LossPlace::Optimizer, &[]), None);
    }
}
