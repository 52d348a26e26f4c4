//! The ranks of a run. A rank takes memory only after its first batch, because the world size is only a claim of the
//! sender.

use std::collections::BTreeMap;

/// The ranks that have sent a batch, in a world of a given size.
pub struct Ranks<T> {
    world_size: usize,
    spoken: BTreeMap<usize, T>,
}

impl<T: Default> Ranks<T> {
    /// Creates a world in which no rank has sent a batch.
    #[must_use]
    pub fn new(world_size: u32) -> Self {
        Self { world_size: world_size as usize, spoken: BTreeMap::new() }
    }

    /// Returns the world size.
    #[must_use]
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// Returns a rank that has sent a batch.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<&T> {
        self.spoken.get(&rank)
    }

    /// Returns a rank that sends a batch now, and creates its state if this is its first.
    pub fn speaking(&mut self, rank: usize) -> &mut T {
        self.spoken.entry(rank).or_default()
    }

    /// Returns the number of ranks that have sent a batch.
    #[must_use]
    pub fn spoken(&self) -> usize {
        self.spoken.len()
    }

    /// Returns the ranks that have sent a batch, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.spoken.iter().map(|(&rank, state)| (rank, state))
    }

    /// Returns the ranks that have sent a batch, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.spoken.iter_mut().map(|(&rank, state)| (rank, state))
    }

    /// Returns all ranks of the world, in order, with `None` for each rank that has sent nothing.
    pub fn world(&self) -> impl Iterator<Item = Option<&T>> {
        let mut spoken = self.spoken.iter().peekable();
        (0..self.world_size)
            .map(move |rank| spoken.next_if(|(known, _)| **known == rank).map(|(_, state)| state))
    }

    /// Returns true if every rank of the world has sent a batch and `test` holds for each.
    pub fn all(&self, test: impl Fn(&T) -> bool) -> bool {
        self.spoken.len() == self.world_size && self.spoken.values().all(test)
    }

    /// Returns true if `test` holds for any rank that has sent a batch.
    pub fn any(&self, test: impl Fn(&T) -> bool) -> bool {
        self.spoken.values().any(test)
    }
}
