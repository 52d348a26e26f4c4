//! Rings of some of the ranks.

use std::net::TcpListener;

use anyhow::Context as _;
use reducer::Communicator;
use reducer::ring::{Config, Ring};
use wire::ids::Rank;

/// Neighbours, each in one: those that a layer is split over.
pub(crate) fn pairs(world_size: u32) -> Vec<[u32; 2]> {
    (0..world_size).step_by(2).map(|first| [first, first + 1]).collect()
}

/// Neighbours, in up to two: the stages of a pipeline.
pub(crate) fn chain(world_size: u32) -> Vec<[u32; 2]> {
    (1..world_size).map(|second| [second - 1, second]).collect()
}

/// Those of `groups` that this rank is in, in their order.
pub(crate) fn joined(world: &mut Ring, config: &Config, groups: &[[u32; 2]]) -> anyhow::Result<Vec<Ring>> {
    let rank = config.rank.0;
    let (mut own, mut held) = (Vec::new(), Vec::new());
    for group in groups {
        let mut port = Vec::new();
        if rank == group[0] {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            port = listener.local_addr()?.port().to_le_bytes().to_vec();
            held.push(listener);
        }
        world.broadcast(Rank(group[0]), &mut port)?;
        if let Some(position) = group.iter().position(|member| *member == rank) {
            let port = u16::from_le_bytes(port.try_into().ok().context("a port has two bytes")?);
            own.push((Rank(position as u32), format!("127.0.0.1:{port}")));
        }
    }
    // Held so long, so that no two groups have one port; and free on all ranks before anybody connects.
    drop(held);
    world.barrier()?;
    let join = |(rank, master)| Ok(Ring::connect(&Config { rank, world_size: 2, master, ..config.clone() })?);
    own.into_iter().map(join).collect()
}
