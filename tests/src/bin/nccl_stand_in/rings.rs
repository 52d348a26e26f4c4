//! Rings over subsets of the ranks.

use std::net::TcpListener;

use anyhow::Context as _;
use reducer::Communicator;
use reducer::ring::{Config, Ring};
use wire::ids::Rank;

/// Returns pairs of neighbors in which every rank occurs once. A layer is split over each pair.
pub(crate) fn pairs(world_size: u32) -> Vec<[u32; 2]> {
    (0..world_size).step_by(2).map(|first| [first, first + 1]).collect()
}

/// Returns pairs of neighbors in which ranks occur up to twice: the stages of a pipeline.
pub(crate) fn chain(world_size: u32) -> Vec<[u32; 2]> {
    (1..world_size).map(|second| [second - 1, second]).collect()
}

/// Joins the groups in `groups` that include this rank, in their order.
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
            let port = u16::from_le_bytes(port.try_into().ok().context("the port does not have two bytes")?);
            own.push((Rank(position as u32), format!("127.0.0.1:{port}")));
        }
    }
    // The listeners are held until here so that no two groups get the same port. The barrier makes sure that all ports
    // are free before a rank connects.
    drop(held);
    world.barrier()?;
    let join = |(rank, master)| Ok(Ring::connect(&Config { rank, world_size: 2, master, ..config.clone() })?);
    own.into_iter().map(join).collect()
}
