//! Tests of groups of NCCL ranks on the fake GPU, which two-level reduction over nodes uses: members, shards, times,
//! and giving up. These figures are not those of a GPU.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use gpu::device::{CudaStream, Device};
use gpu::nccl::communicator::{self, Communicator, Nccl, NoSplit, State};
use gpu::nccl::{UNIQUE_ID_BYTES, UniqueId};
use testkit::fake_gpu;
use testkit::meeting::{Meeting, PATIENCE};

/// A rank of a world.
struct Rank {
    number: u32,
    world: Communicator,
    device: Device,
    stream: Arc<CudaStream>,
}

/// Runs `body` on one thread per rank.
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
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}

fn await_ready(communicator: &Communicator) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while communicator.state()? == State::InProgress {
        ensure!(Instant::now() < deadline, "the other ranks did not join within {PATIENCE:?}");
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
fn ranks_of_a_color_form_a_group_in_the_order_of_their_keys() -> anyhow::Result<()> {
    let colors = [Some(7), Some(3), Some(7), None, Some(3), Some(7)];
    let gathered = ranks(6, |rank| {
        let Rank { number, stream, .. } = &rank;
        let group = rank.group(colors[*number as usize], 100 - number)?;
        // The world still works.
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
fn shards_and_gathers_have_the_times_computed_by_hand() -> anyhow::Result<()> {
    // Four ranks in two groups. Each group sums a megabyte.
    const FLOATS: usize = 250_000;
    ranks(4, |rank| {
        let Rank { number, device, stream, .. } = &rank;
        let group = rank.group(Some(number / 2), *number)?.context("a rank has no group")?;
        let values: Vec<f32> = (0..FLOATS).map(|index| (index % 100) as f32 + *number as f32).collect();
        let mut floats = stream.clone_htod(&values)?;
        let [begin, middle, end] = [device.event()?, device.event()?, device.event()?];
        // After this kernel, calls of the host take no device time.
        fake_gpu::spin(1_000_000 + u64::from(*number) * 100_000, stream);
        begin.record(stream)?;
        group.reduce_scatter(&mut floats.as_view_mut(), stream)?;
        middle.record(stream)?;
        let own = group.shard(FLOATS)?;
        let sums = stream.clone_dtoh(&floats.slice(own.clone()))?;
        let first = (number / 2 * 2) as f32;
        ensure!(own == if number % 2 == 0 { 0..FLOATS / 2 } else { FLOATS / 2..FLOATS });
        let sum = |index: usize| 2.0 * (index % 100) as f32 + 2.0 * first + 1.0;
        ensure!(own.clone().zip(&sums).all(|(index, &found)| found == sum(index)), "the sum is wrong");
        fake_gpu::spin(1_000_000, stream);
        let again = device.event()?;
        again.record(stream)?;
        group.all_gather(&mut floats.as_view_mut(), stream)?;
        end.record(stream)?;
        let all = stream.clone_dtoh(&floats)?;
        ensure!((0..FLOATS).zip(&all).all(|(index, &found)| found == sum(index)), "a sum is wrong");
        // 20 us plus 1 ns per five bytes of a megabyte. The first rank of a group waits for the second.
        let waited = if number % 2 == 0 { 100_000.0 } else { 0.0 };
        let took = [middle.nanos_since(&begin)? - waited, end.nanos_since(&again)?];
        ensure!((took[0] - 220_000.0).abs() < 16.0, "reduce-scatter: {took:?}");
        ensure!((took[1] - 220_000.0).abs() < 16.0, "all-gather: {took:?}");
        Ok(())
    })
    .map(drop)
}

#[test]
fn a_split_waits_for_all_ranks_and_can_be_dropped() -> anyhow::Result<()> {
    let (first, second) = (Meeting::new(2), Meeting::new(2));
    ranks(2, |rank| {
        if rank.number == 1 {
            first.wait()?;
            drop(rank.world.split(None, 0)?);
            second.wait()?;
            return rank.group(Some(0), 0).map(drop);
        }
        let begun = rank.world.split(Some(0), 0)?;
        ensure!(rank.world.state()? == State::InProgress, "rank 1 has not split yet");
        let early = begun.made().err().context("rank 1 has not split yet")?;
        ensure!((early.function, early.code) == ("ncclCommSplit", 7), "{early}");
        first.wait()?;
        second.wait()?;
        // A split whose result was not fetched does not block the next split.
        await_ready(&rank.world)?;
        ensure!(rank.group(Some(0), 1)?.context("no group")?.shard(2)? == (1..2));
        Ok(())
    })
    .map(drop)
}

#[test]
fn communicators_with_interdependent_collectives_are_given_up_together() -> anyhow::Result<()> {
    let given_up = Meeting::new(2);
    ranks(2, |rank| {
        let group = rank.group(Some(0), rank.number)?.context("a rank has no group")?;
        if rank.number == 1 {
            // Rank 1 never joins the collectives.
            given_up.wait()?;
            return Ok(());
        }
        let mut floats = rank.stream.clone_htod(&[1.0_f32; 8])?;
        group.reduce_scatter(&mut floats.as_view_mut(), &rank.stream)?;
        rank.world.all_reduce(&mut floats.as_view_mut(), &rank.stream)?;
        group.all_gather(&mut floats.as_view_mut(), &rank.stream)?;
        let end = rank.device.event()?;
        end.record(&rank.stream)?;
        ensure!(!end.is_done()?, "the collectives ended without rank 1");
        communicator::give_up(vec![rank.world, group], &rank.device);
        ensure!(end.is_done()?, "the device is still blocked");
        given_up.wait()?;
        Ok(())
    })
    .map(drop)
}

#[test]
fn an_nccl_without_groups_names_the_release_that_has_them() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = fake_gpu::nccl_before_groups(folder.path())?;
    let nccl = Nccl::open(Some(&path))?;
    let world = nccl.join(&UniqueId([0; UNIQUE_ID_BYTES]), 0, 1)?;
    let error = world.split(Some(0), 0).err().context("no error")?;
    ensure!(matches!(error, NoSplit::TooOld { .. }), "{error:?}");
    let said = error.to_string();
    ensure!(said.contains("libnccl_2_17.so has no function ncclCommSplit"), "{said}");
    ensure!(said.contains("groups of ranks need NCCL 2.18 or newer"), "{said}");
    world.finish(Duration::from_secs(1))?;
    Ok(())
}
