//! What is known of the devices of a run, as it is shown.

use wire::clock::ServerNanos;
use wire::ids::Rank;
use wire::views::{RankBurst, RankDevice};

use super::run::Run;

/// Each by rank.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// What each device said last.
    pub looks: Vec<RankDevice>,
    /// The newest bursts.
    pub bursts: Vec<RankBurst>,
    /// Ranks that are asked for a burst and have not answered.
    pub asked: Vec<Rank>,
}

impl Devices {
    /// As they are now.
    #[must_use]
    pub fn of(run: &Run, now: ServerNanos) -> Self {
        let rank = |rank: usize| Rank(rank as u32);
        let looks = run.devices().map(|(at, sample)| RankDevice { rank: rank(at), sample: sample.clone() });
        let bursts = run.bursts().map(|(at, burst, came)| RankBurst {
            rank: rank(at),
            age_millis: (now - came).max(0).unsigned_abs() / 1_000_000,
            burst: burst.clone(),
        });
        let all = (0..run.world_size()).map(Rank);
        Self {
            looks: looks.collect(),
            bursts: bursts.collect(),
            asked: all.filter(|rank| run.burst_asked(*rank, now).is_some()).collect(),
        }
    }
}
