//! A group of ranks, as files name it.

use std::hash::{Hash, Hasher};

use fnv::FnvHasher;
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
        Comm(number.max(1))
    }
}
