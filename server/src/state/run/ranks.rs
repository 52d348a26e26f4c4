//! The ranks of a run. A rank takes memory only after its first batch, because the world size is only a claim of the
//! sender. A rank that a smaller world no longer has keeps its state, but only [`Ranks::ever`], [`Ranks::first`] and [`Ranks::get`]
//! return it.

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

    #[must_use]
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// Sets the world size.
    pub fn resize(&mut self, world_size: u32) {
        self.world_size = world_size as usize;
    }

    /// Returns the number of ranks that the world has, or had if a rank beyond it has sent a batch.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.spoken.last_key_value().map_or(0, |(rank, _)| rank + 1).max(self.world_size)
    }

    /// Returns a rank that has sent a batch, even if the world no longer has it.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<&T> {
        self.spoken.get(&rank)
    }

    /// Returns a rank that sends a batch now, and creates its state if this is its first.
    pub fn speaking(&mut self, rank: usize) -> &mut T {
        self.spoken.entry(rank).or_default()
    }

    /// Returns the number of ranks of the world that have sent a batch.
    #[must_use]
    pub fn spoken(&self) -> usize {
        self.iter().count()
    }

    /// Returns the ranks of the world that have sent a batch, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.spoken.range(..self.world_size).map(|(&rank, state)| (rank, state))
    }

    /// Returns the ranks of the world that have sent a batch, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.spoken.range_mut(..self.world_size).map(|(&rank, state)| (rank, state))
    }

    /// Returns all ranks of the world, in order, with `None` for each rank that has sent nothing.
    pub fn world(&self) -> impl Iterator<Item = Option<&T>> {
        self.first(self.world_size)
    }

    /// Returns the first `count` ranks, in order, with `None` for each rank that has sent nothing. They include ranks that the
    /// world no longer has.
    pub fn first(&self, count: usize) -> impl Iterator<Item = Option<&T>> {
        let mut spoken = self.spoken.iter().peekable();
        (0..count).map(move |rank| spoken.next_if(|(known, _)| **known == rank).map(|(_, state)| state))
    }

    /// Returns all ranks that the run ever had, in order, with `None` for each rank that has sent nothing.
    pub fn ever(&self) -> impl Iterator<Item = Option<&T>> {
        self.first(self.largest())
    }

    /// Returns true if every rank of the world has sent a batch and `test` holds for each.
    pub fn all(&self, test: impl Fn(&T) -> bool) -> bool {
        self.spoken() == self.world_size && self.iter().all(|(_, state)| test(state))
    }

    /// Returns true if `test` holds for any rank of the world that has sent a batch.
    pub fn any(&self, test: impl Fn(&T) -> bool) -> bool {
        self.iter().any(|(_, state)| test(state))
    }
}
