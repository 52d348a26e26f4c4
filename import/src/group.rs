//! A group of ranks, as files name it.

use std::hash::{Hash, Hasher};

use fnv::FnvHasher;
use timing::parts::comm_of_parts;
use wire::batch::MAX_RANKS;
use wire::ids::Comm;

/// A group of ranks, as a collective names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    /// Its name in PyTorch, which is the same on all of its ranks, and in which groups of like-placed ranks may agree.
    pub name: String,
    /// Its ranks, if they are listed in full: long lists are cut.
    pub ranks: Option<Vec<u32>>,
    /// The number of its ranks.
    pub size: Option<u32>,
}

impl Group {
    /// Returns the communicator of the group: the same number on all of its ranks, and 0 for all ranks of a job with
    /// `world_size` ranks.
    #[must_use]
    pub fn comm(&self, world_size: u32) -> Comm {
        if self.size == Some(world_size) {
            return Comm(0);
        }
        let mut hasher = FnvHasher::default();
        (&self.name, &self.ranks).hash(&mut hasher);
        let hash = hasher.finish();
        let number = (hash ^ (hash >> 32)) as u32;
        // The highest numbers are those of parts of collectives.
        Comm(number.clamp(1, u32::MAX - MAX_RANKS))
    }

    /// Returns true for the group in which an export of a run writes the parts of collectives of other steps
    /// ([`comm_of_parts`]).
    #[must_use]
    pub(crate) fn is_of_parts(&self) -> bool {
        let rank = self.ranks.as_deref().and_then(|ranks| ranks.first()).filter(|_| self.size == Some(1));
        rank.is_some_and(|&rank| rank < MAX_RANKS && self.name == comm_of_parts(rank).to_string())
    }
}
