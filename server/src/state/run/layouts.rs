//! The layouts of a run's buckets.

use std::sync::Arc;

use wire::ids::Rank;
use wire::layout::Layout;
use wire::views::ModuleLayouts;

use super::Run;

impl Run {
    /// Returns the layouts of rank 0 by module, the oldest first.
    pub(super) fn layouts_of_rank_0(&self) -> impl Iterator<Item = &Arc<Layout>> {
        self.ranks.get(0).into_iter().flat_map(|rank| rank.layouts.all())
    }

    /// Returns the ranks that have other parameters in a bucket of one of these layouts of rank 0.
    pub(super) fn other_layouts(&self, of_rank_0: &[Arc<Layout>]) -> Vec<Rank> {
        let ranks =
            self.ranks.iter().filter(|(_, state)| of_rank_0.iter().any(|one| state.layouts.differs(one)));
        ranks.map(|(rank, _)| Rank(rank as u32)).collect()
    }

    /// Returns the layouts of each module.
    #[must_use]
    pub fn layouts(&self) -> Vec<ModuleLayouts> {
        let all: Vec<Arc<Layout>> = self.layouts_of_rank_0().cloned().collect();
        let of_module = |layouts: &[Arc<Layout>]| ModuleLayouts {
            module: layouts[0].module,
            class: layouts[0].class.clone(),
            layouts: layouts.iter().map(|layout| (**layout).clone()).collect(),
            different: self.other_layouts(layouts),
        };
        all.chunk_by(|a, b| a.module == b.module).map(of_module).collect()
    }
}
