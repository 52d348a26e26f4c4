//! Tests of two-level reduction over nodes on the fake GPU: averages, settings, and failing ranks. `reducer_on_cuda.rs`
//! tests its times.
#![allow(clippy::disallowed_methods, reason = "threads and queues of a test end with it")]

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent::StepContext;
use anyhow::{Context as _, ensure};
use reducer::bucketing::Caps;
use reducer::cuda::Transport;
use reducer::{
    CommError, Instruments, Options, ParamId, Parameter, ReduceError, Reducer, Share, UnusedParameters,
};
use testkit::cuda_ranks::{Rig, options, ranks, step_until_error, step_until_error_with};
use testkit::fake_gpu;
use wire::ids::{Rank, Step};

const PATIENCE: Duration = Duration::from_secs(20);

/// Lengths that no number of ranks divides. Some buckets have one parameter, others several.
const LENS: [usize; 6] = [1, 7, 100_003, 5, 3, 50_021];
/// The samples of each rank, 8 in total. The shares, and their products and sums with small integers, are exact.
const SAMPLES: [&[u64]; 2] = [&[1, 3, 2, 2], &[1, 1, 2, 1, 2, 1]];

fn value(rank: u32, step: u64, id: usize, index: usize) -> f32 {
    ((index * 7 + id * 3 + rank as usize * 11 + step as usize * 5) % 64) as f32 - 31.0
}

/// Returns the averages of the last step on each rank. One parameter is used by rank 1 only, and another by no rank.
fn averages(samples: &[u64], ranks_per_node: Option<u32>) -> anyhow::Result<Vec<Vec<Option<Vec<f32>>>>> {
    ranks(samples.len() as u32, Transport::Nccl, PATIENCE, |mut rig| {
        rig.cuda.ranks_per_node = ranks_per_node;
        let (rank, compute) = (rig.control.rank().0, rig.cuda.compute.clone());
        let parameters = (0..).zip(LENS).map(|(id, len)| Parameter::new(format!("p{id}"), [len])).collect();
        let caps = Caps { first_bytes: 40, other_bytes: 150_000 };
        let options = Options { caps, unused: UnusedParameters::Find, ..Options::default() };
        let mut reducer =
            Reducer::on_device(parameters, rig.control, rig.cuda, options, Instruments::none())?;
        let mut found = Vec::new();
        // The bucket layout changes after the first step.
        for step in 0..3 {
            let share = Share::new(samples[rank as usize], 8);
            reducer.begin_step(StepContext { step: Step(step), shadow: false }, share)?;
            let used = (0..LENS.len()).rev().filter(|id| *id != 3 && (*id != 4 || rank == 1));
            for id in used {
                let values: Vec<f32> = (0..LENS[id]).map(|index| value(rank, step, id, index)).collect();
                reducer.mark_ready(ParamId(id as u32), compute.clone_htod(&values)?.as_view())?;
            }
            let reduced = reducer.finish_step()?;
            let copied =
                reduced.gradients().map(|(_, gradient)| gradient.map(|view| compute.clone_dtoh(&view)));
            found = copied.map(Option::transpose).collect::<Result<Vec<_>, _>>()?;
        }
        Ok(found)
    })
}

/// Returns the averages by definition.
fn expected(samples: &[u64]) -> Vec<Option<Vec<f32>>> {
    let average = |id: usize, index: usize| -> f32 {
        let used = (0..).zip(samples).filter(|(rank, _)| id != 4 || *rank == 1);
        used.map(|(rank, &samples)| value(rank, 2, id, index) * samples as f32 / 8.0).sum()
    };
    let all = LENS.iter().enumerate().map(|(id, &len)| {
        let averages = (0..len).map(|index| average(id, index)).collect();
        Some(averages).filter(|_| id != 3)
    });
    all.collect()
}

#[test]
fn averages_equal_those_of_one_collective_for_all_bucket_sizes() -> anyhow::Result<()> {
    for samples in SAMPLES {
        let size = samples.len() as u32;
        let expected = expected(samples);
        for ranks_per_node in (1..=size).filter(|ranks| size.is_multiple_of(*ranks)).map(Some).chain([None]) {
            for (rank, found) in averages(samples, ranks_per_node)?.into_iter().enumerate() {
                for (id, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    ensure!(
                        found == expected,
                        "{size} ranks in nodes of {ranks_per_node:?}: rank {rank}: wrong average of p{id}"
                    );
                }
            }
        }
    }
    Ok(())
}

fn refused(size: u32, of_rank: impl Fn(&mut Rig) + Sync) -> anyhow::Result<Vec<String>> {
    ranks(size, Transport::Nccl, PATIENCE, |mut rig| {
        of_rank(&mut rig);
        let refused = rig.reducer(options(), Instruments::none()).err();
        Ok(refused.context("no error")?.to_string())
    })
}

#[test]
fn nodes_that_do_not_divide_the_world_are_rejected_on_all_ranks() -> anyhow::Result<()> {
    for ranks_per_node in [0, 3, 8] {
        for error in refused(4, |rig| rig.cuda.ranks_per_node = Some(ranks_per_node))? {
            let said = format!("a world of 4 ranks cannot be divided into nodes of {ranks_per_node} ranks");
            ensure!(error.contains(&said) && error.contains("use one of 1, 2, 4"), "{error}");
        }
    }
    Ok(())
}

#[test]
fn ranks_that_disagree_on_nodes_get_an_error() -> anyhow::Result<()> {
    let errors = refused(4, |rig| {
        rig.cuda.ranks_per_node = (rig.control.rank() != Rank(2)).then_some(2);
    })?;
    let said = "Cuda::ranks_per_node: rank 0 reduces with nodes of 2 ranks, rank 2 with no nodes";
    ensure!(errors[2].contains(said), "{}", errors[2]);
    for rank in [0, 1, 3] {
        ensure!(errors[rank].contains(&format!("rank 2 gave up: {said}")), "rank {rank}: {}", errors[rank]);
    }
    Ok(())
}

#[test]
fn an_nccl_too_old_for_nodes_is_an_error_on_all_ranks() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let old = fake_gpu::nccl_before_groups(folder.path())?;
    let errors = refused(4, |rig| {
        rig.cuda.ranks_per_node = Some(2);
        if rig.control.rank() == Rank(1) {
            rig.cuda.nccl = Some(old.clone());
        }
    })?;
    for (rank, error) in errors.iter().enumerate() {
        ensure!(error.contains("has no function ncclCommSplit"), "rank {rank}: {error}");
        ensure!(error.contains("groups of ranks need NCCL 2.18 or newer"), "rank {rank}: {error}");
    }
    Ok(())
}

/// Runs two steps, then waits until the three other ranks have given up.
fn leave_after_two_steps(rig: Rig, given_up: &Mutex<Receiver<()>>) -> anyhow::Result<ReduceError> {
    step_until_error(rig, |step| {
        if step == 2 {
            let given_up = given_up.lock().unwrap_or_else(PoisonError::into_inner);
            (0..3).for_each(|_| given_up.recv_timeout(PATIENCE).expect("the other ranks give up"));
        }
    })
}

#[test]
fn all_ranks_of_all_nodes_name_a_rank_that_never_arrives() -> anyhow::Result<()> {
    let (tell, told) = channel();
    let told = Mutex::new(told);
    let errors = ranks(4, Transport::Nccl, Duration::from_millis(300), |mut rig| {
        rig.cuda.ranks_per_node = Some(2);
        if rig.control.rank() != Rank(3) {
            let error = step_until_error(rig, |_| {});
            tell.send(())?;
            return error;
        }
        leave_after_two_steps(rig, &told)
    })?;
    let ReduceError::Comm(CommError::TimedOut { absent, .. }) = &errors[0] else {
        anyhow::bail!("rank 0 says: {}", errors[0])
    };
    ensure!(absent.len() == 1 && absent[0].rank == Rank(3), "{}", errors[0]);
    for (rank, error) in errors.iter().enumerate() {
        ensure!(
            *error == errors[0] && error.to_string().contains("rank 3 did not arrive"),
            "{rank}: {error}"
        );
    }
    Ok(())
}

#[test]
fn an_error_on_any_communicator_of_a_rank_ends_all_ranks() -> anyhow::Result<()> {
    // Communicators from the newest: across nodes, ranks 1 and 3, then 0 and 2; nodes of ranks 2 and 3, then 0 and 1;
    // the world.
    for communicator in [1, 3, 4] {
        let (tell, told) = channel();
        let told = Mutex::new(told);
        let errors = ranks(4, Transport::Nccl, PATIENCE, |mut rig| {
            rig.cuda.ranks_per_node = Some(2);
            let rank = rig.control.rank();
            if rank == Rank(3) {
                // This rank leaves, so that all others wait for the collectives that they have begun.
                return leave_after_two_steps(rig, &told);
            }
            let fail = |step| {
                if step == 2 && rank == Rank(0) {
                    // ncclRemoteError
                    fake_gpu::fail_older_communicator(communicator, 0, 6);
                }
            };
            let error = step_until_error_with(rig, |_| {}, fail);
            tell.send(())?;
            error
        })?;
        let said = "NCCL returned 6 (remote process exited or there was a network error)";
        ensure!(errors[0].to_string().contains(said), "rank 0 says: {}", errors[0]);
        for (rank, error) in errors.iter().enumerate().skip(1) {
            ensure!(
                matches!(error, ReduceError::Comm(CommError::RankFailed { rank: Rank(0), reason }) if reason.contains(said)),
                "rank {rank}, communicator {communicator}: {error}"
            );
        }
    }
    Ok(())
}
