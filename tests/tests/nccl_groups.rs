//! Groups of NCCL's ranks, and what they do for nodes, on the stand-in: who is in which, shards, times, and giving up.
//! Nothing here is a figure of any GPU.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use gpu::device::{CudaStream, Device};
use gpu::nccl::communicator::{self, Communicator, Nccl, NoSplit, State};
use gpu::nccl::{UNIQUE_ID_BYTES, UniqueId};
use paceline_tests::fake_gpu;
use paceline_tests::meeting::{Meeting, PATIENCE};

/// A rank of a world.
struct Rank {
    number: u32,
    world: Communicator,
    device: Device,
    stream: Arc<CudaStream>,
}

/// Runs `body` on as many threads as ranks.
fn ranks<T: Send>(size: u32, body: impl Fn(Rank) -> anyhow::Result<T> + Sync) -> anyhow::Result<Vec<T>> {
    fake_gpu::library();
    let nccl = Nccl::open(Some(&fake_gpu::path()))?;
    let id = nccl.unique_id()?;
    std::thread::scope(|scope| {
        let (body, nccl, id) = (&body, &nccl, &id);
        let start = |number| {
            scope.spawn(move || {
                let device = Device::open(number as usize % 2)?;
                let stream = device.stream()?;
                let world = nccl.join(id, number, size)?;
                await_ready(&world)?;
                body(Rank { number, world, device, stream })
            })
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

fn await_ready(communicator: &Communicator) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while communicator.state()? == State::InProgress {
        ensure!(Instant::now() < deadline, "the other ranks have not come in {PATIENCE:?}");
        std::thread::yield_now();
    }
    Ok(())
}

impl Rank {
    fn group(&self, color: Option<u32>, key: u32) -> anyhow::Result<Option<Communicator>> {
        let begun = self.world.split(color, key)?;
        await_ready(&self.world)?;
        Ok(begun.made()?)
    }
}

#[test]
fn ranks_of_a_color_are_a_group_in_the_order_of_their_keys() -> anyhow::Result<()> {
    let colors = [Some(7), Some(3), Some(7), None, Some(3), Some(7)];
    let gathered = ranks(6, |rank| {
        let Rank { number, stream, .. } = &rank;
        let group = rank.group(colors[*number as usize], 100 - number)?;
        // The whole goes on as before.
        let mut ones = stream.clone_htod(&[1.0_f32; 5])?;
        rank.world.all_reduce(&mut ones.as_view_mut(), stream)?;
        ensure!(stream.clone_dtoh(&ones)? == [6.0; 5] && rank.world.shard(12)?.len() == 2);
        let Some(group) = group else { return Ok(None) };
        let mut floats = stream.clone_htod(&[-1.0_f32; 6])?;
        let own = group.shard(6)?;
        stream.memcpy_htod(&vec![*number as f32; own.len()], &mut floats.slice_mut(own))?;
        group.all_gather(&mut floats.as_view_mut(), stream)?;
        Ok(Some(stream.clone_dtoh(&floats)?))
    })?;
    let (three, two) = (vec![5.0, 5.0, 2.0, 2.0, 0.0, 0.0], vec![4.0, 4.0, 4.0, 1.0, 1.0, 1.0]);
    let [three, two] = [Some(three), Some(two)];
    ensure!(gathered == [three.clone(), two.clone(), three.clone(), None, two, three], "{gathered:?}");
    Ok(())
}

#[test]
fn a_shard_of_the_sum_has_the_time_that_was_worked_out_by_hand() -> anyhow::Result<()> {
    // Four ranks in two groups: each sums a megabyte over its own.
    const FLOATS: usize = 250_000;
    ranks(4, |rank| {
        let Rank { number, device, stream, .. } = &rank;
        let group = rank.group(Some(number / 2), *number)?.context("every rank has a color")?;
        let values: Vec<f32> = (0..FLOATS).map(|index| (index % 100) as f32 + *number as f32).collect();
        let mut floats = stream.clone_htod(&values)?;
        let [begin, middle, end] = [device.event()?, device.event()?, device.event()?];
        // Behind this, calls of the host take no time of the device's.
        fake_gpu::spin(1_000_000 + u64::from(*number) * 100_000, stream);
        begin.record(stream)?;
        group.reduce_scatter(&mut floats.as_view_mut(), stream)?;
        middle.record(stream)?;
        let own = group.shard(FLOATS)?;
        let sums = stream.clone_dtoh(&floats.slice(own.clone()))?;
        let first = (number / 2 * 2) as f32;
        ensure!(own == if number % 2 == 0 { 0..FLOATS / 2 } else { FLOATS / 2..FLOATS });
        let sum = |index: usize| 2.0 * (index % 100) as f32 + 2.0 * first + 1.0;
        ensure!(own.clone().zip(&sums).all(|(index, &found)| found == sum(index)), "another sum");
        fake_gpu::spin(1_000_000, stream);
        let again = device.event()?;
        again.record(stream)?;
        group.all_gather(&mut floats.as_view_mut(), stream)?;
        end.record(stream)?;
        let all = stream.clone_dtoh(&floats)?;
        ensure!((0..FLOATS).zip(&all).all(|(index, &found)| found == sum(index)), "another whole");
        // 20 us and a nanosecond for each five of a million bytes; the first of a group waits for the second.
        let waited = if number % 2 == 0 { 100_000.0 } else { 0.0 };
        let took = [middle.nanos_since(&begin)? - waited, end.nanos_since(&again)?];
        ensure!((took[0] - 220_000.0).abs() < 16.0, "reduce-scatter: {took:?}");
        ensure!((took[1] - 220_000.0).abs() < 16.0, "all-gather: {took:?}");
        Ok(())
    })
    .map(drop)
}

#[test]
fn a_split_waits_for_all_ranks_and_can_be_left() -> anyhow::Result<()> {
    let (first, second) = (Meeting::new(2), Meeting::new(2));
    ranks(2, |rank| {
        if rank.number == 1 {
            first.wait()?;
            drop(rank.world.split(None, 0)?);
            second.wait()?;
            return rank.group(Some(0), 0).map(drop);
        }
        let begun = rank.world.split(Some(0), 0)?;
        ensure!(rank.world.state()? == State::InProgress, "rank 1 has not come");
        let early = begun.made().err().context("rank 1 has not come")?;
        ensure!((early.function, early.code) == ("ncclCommSplit", 7), "{early}");
        first.wait()?;
        second.wait()?;
        // What nobody has asked for is not in the way of the next.
        await_ready(&rank.world)?;
        ensure!(rank.group(Some(0), 1)?.context("a group")?.shard(2)? == (1..2));
        Ok(())
    })
    .map(drop)
}

#[test]
fn communicators_whose_collectives_wait_for_each_other_are_given_up_together() -> anyhow::Result<()> {
    let given_up = Meeting::new(2);
    ranks(2, |rank| {
        let group = rank.group(Some(0), rank.number)?.context("every rank has a color")?;
        if rank.number == 1 {
            // Never comes.
            given_up.wait()?;
            return Ok(());
        }
        let mut floats = rank.stream.clone_htod(&[1.0_f32; 8])?;
        group.reduce_scatter(&mut floats.as_view_mut(), &rank.stream)?;
        rank.world.all_reduce(&mut floats.as_view_mut(), &rank.stream)?;
        group.all_gather(&mut floats.as_view_mut(), &rank.stream)?;
        let end = rank.device.event()?;
        end.record(&rank.stream)?;
        ensure!(!end.is_done()?, "rank 1 does not come");
        communicator::give_up(vec![rank.world, group], &rank.device);
        ensure!(end.is_done()?, "the device goes on");
        given_up.wait()?;
        Ok(())
    })
    .map(drop)
}

#[test]
fn an_nccl_without_groups_says_which_release_has_them() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = fake_gpu::nccl_before_groups(folder.path())?;
    let nccl = Nccl::open(Some(&path))?;
    let world = nccl.join(&UniqueId([0; UNIQUE_ID_BYTES]), 0, 1)?;
    let error = world.split(Some(0), 0).err().context("it has none")?;
    ensure!(matches!(error, NoSplit::TooOld { .. }), "{error:?}");
    let said = error.to_string();
    ensure!(said.contains("libnccl_2_17.so has no function ncclCommSplit"), "{said}");
    ensure!(said.contains("groups of ranks need NCCL 2.18 or newer"), "{said}");
    world.finish(Duration::from_secs(1))?;
    Ok(())
}
