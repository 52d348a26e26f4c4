//! The ranks of a run. A rank costs memory once it has spoken: the size of the world is only a claim.

use std::collections::BTreeMap;

/// The ranks that have spoken, of a world of a given size.
pub struct Ranks<T> {
    world_size: usize,
    spoken: BTreeMap<usize, T>,
}

impl<T: Default> Ranks<T> {
    /// A world in which no rank has spoken.
    #[must_use]
    pub fn new(world_size: u32) -> Self {
        Self { world_size: world_size as usize, spoken: BTreeMap::new() }
    }

    /// How many ranks the world has.
    #[must_use]
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// A rank that has spoken.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<&T> {
        self.spoken.get(&rank)
    }

    /// A rank that speaks now.
    pub fn speaking(&mut self, rank: usize) -> &mut T {
        self.spoken.entry(rank).or_default()
    }

    /// How many ranks have spoken.
    #[must_use]
    pub fn spoken(&self) -> usize {
        self.spoken.len()
    }

    /// The ranks that have spoken, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.spoken.iter().map(|(&rank, state)| (rank, state))
    }

    /// The ranks that have spoken, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.spoken.iter_mut().map(|(&rank, state)| (rank, state))
    }

    /// All ranks of the world, in order; `None` for those that have not spoken.
    pub fn world(&self) -> impl Iterator<Item = Option<&T>> {
        let mut spoken = self.spoken.iter().peekable();
        (0..self.world_size)
            .map(move |rank| spoken.next_if(|(known, _)| **known == rank).map(|(_, state)| state))
    }

    /// True when every rank of the world has spoken and `test` holds for each.
    pub fn all(&self, test: impl Fn(&T) -> bool) -> bool {
        self.spoken.len() == self.world_size && self.spoken.values().all(test)
    }

    /// True when `test` holds for a rank that has spoken.
    pub fn any(&self, test: impl Fn(&T) -> bool) -> bool {
        self.spoken.values().any(test)
    }
}
