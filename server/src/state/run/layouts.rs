//! The layouts of the buckets of a run's ranks.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::ids::Rank;
use wire::layout::{Layout, MAX_HISTORY, MAX_LAYOUT_BYTES, MAX_MODULES};
use wire::views::ModuleLayouts;

use super::Run;

/// The layouts that a rank sent, by module and generation. Of ranks other than 0, only the digests are kept.
#[derive(Default)]
pub struct RankLayouts {
    known: BTreeMap<(u32, u32), Arc<Layout>>,
    bytes: usize,
}

impl RankLayouts {
    /// Returns the approximate size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a layout. It replaces one of the same module and generation. Layouts beyond the limits are ignored, and the
    /// oldest of a module leave.
    pub(super) fn add(&mut self, rank: Rank, mut layout: Layout) {
        if layout.module >= MAX_MODULES || layout.bytes() > MAX_LAYOUT_BYTES {
            return;
        }
        // Older agents send all layouts in full.
        if layout.digest == 0 {
            layout.digest = layout.digest_of_buckets();
        }
        let layout = if rank == Rank(0) { layout } else { layout.digest_alone() };
        let module = layout.module;
        self.bytes += held_bytes(&layout);
        let replaced = self.known.insert((module, layout.generation), Arc::new(layout));
        let history = || self.known.range((module, 0)..=(module, u32::MAX));
        let oldest = history().next().map(|(key, _)| *key).filter(|_| history().count() > MAX_HISTORY);
        let removed = oldest.and_then(|key| self.known.remove(&key));
        for gone in replaced.iter().chain(&removed) {
            self.bytes -= held_bytes(gone);
        }
    }

    /// Returns the layouts by module, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Layout>> {
        self.known.values()
    }

    /// Returns whether a layout is another one than that of rank 0.
    pub(super) fn differs(&self, of_rank_0: &Layout) -> bool {
        let own = self.known.get(&(of_rank_0.module, of_rank_0.generation));
        own.is_some_and(|own| own.digest != of_rank_0.digest)
    }
}

fn held_bytes(layout: &Layout) -> usize {
    size_of::<Layout>() + layout.bytes()
}

impl Run {
    /// Returns the layouts of rank 0 by module, the oldest first.
    pub(super) fn layouts_of_rank_0(&self) -> impl Iterator<Item = &Arc<Layout>> {
        self.ranks.get(0).into_iter().flat_map(|rank| rank.layouts.all())
    }

    /// Returns the ranks that have other parameters in a bucket of one of these layouts of rank 0.
    pub(super) fn other_layouts(&self, of_rank_0: &[Arc<Layout>]) -> Vec<Rank> {
        let ranks = self
            .ranks
            .iter()
            .filter(|(_, state)| of_rank_0.iter().any(|layout| state.layouts.differs(layout)));
        ranks.map(|(rank, _)| Rank(rank as u32)).collect()
    }

    #[must_use]
    pub fn layouts(&self) -> Vec<ModuleLayouts> {
        let all: Vec<Arc<Layout>> = self.layouts_of_rank_0().cloned().collect();
        let module = |layouts: &[Arc<Layout>]| ModuleLayouts {
            module: layouts[0].module,
            class: layouts[0].class.clone(),
            layouts: layouts.iter().map(|layout| (**layout).clone()).collect(),
            different: self.other_layouts(layouts),
        };
        all.chunk_by(|a, b| a.module == b.module).map(module).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(module: u32, generation: u32, parameter: &str) -> Layout {
        let bucket = wire::layout::LayoutBucket { parameters: vec![parameter.into()], ..Default::default() };
        Layout { module, generation, buckets: vec![bucket], ..Layout::default() }.bounded().unwrap()
    }

    #[test]
    fn the_newest_layouts_of_each_module_are_kept_and_the_rest_leaves() {
        let mut layouts = RankLayouts::default();
        layouts.add(Rank(0), layout(1, 0, "of another module"));
        layouts.add(Rank(0), Layout { module: MAX_MODULES, ..Layout::default() });
        (0..1_000).for_each(|generation| layouts.add(Rank(0), layout(0, generation, "a")));
        let bytes = layouts.bytes();
        layouts.add(Rank(0), layout(0, 999, "b"));
        assert_eq!(layouts.bytes(), bytes, "it replaces the one of the same generation");
        assert_eq!(layouts.bytes(), layouts.all().map(|layout| held_bytes(layout)).sum::<usize>());
        let generations: Vec<(u32, u32)> =
            layouts.all().map(|layout| (layout.module, layout.generation)).collect();
        assert_eq!((generations.len(), generations[0]), (MAX_HISTORY + 1, (0, 936)));
    }

    #[test]
    fn a_rank_with_other_parameters_is_told_apart_by_its_digest() {
        let mut other = RankLayouts::default();
        let first = layout(0, 0, "a");
        assert!(!other.differs(&first), "it has sent none");
        other.add(Rank(1), layout(0, 0, "a"));
        assert!(!other.differs(&first));
        other.add(Rank(1), layout(0, 0, "b"));
        assert!(other.differs(&first));
        assert!(other.all().all(|layout| layout.buckets.is_empty()), "the names are not kept");
    }
}
