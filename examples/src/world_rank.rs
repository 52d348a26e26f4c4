//! The rank of this process in the world of all ranks.

use wire::ids::Rank;

/// The position of this process among the ranks.
#[derive(Clone, Copy, Debug)]
pub struct WorldRank {
    /// The rank of this process.
    pub rank: Rank,
    /// The number of ranks.
    pub world_size: u32,
}

impl WorldRank {
    /// Returns true on the rank that prints.
    #[must_use]
    pub fn prints(self) -> bool {
        self.rank == Rank(0)
    }
}
