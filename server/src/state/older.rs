//! A range of steps of a run for an export: what is in memory at once, what has left memory as work for a thread.

use std::sync::Arc;

use analysis::clocks::ClockFit;
use analysis::step::{StepAnalysis, StepRecords};

use super::steps::Placed;
use crate::store::StepRange;
use crate::store::folder::RunFolder;
use crate::store::steps::{self, Limits, NotRead};

/// What the hub has of a range of steps.
#[derive(Default)]
pub struct Between {
    /// The steps that are in memory, oldest first, or nothing while there are older ones.
    pub placed: Vec<Placed>,
    /// The steps of the range before the oldest one that is in memory.
    pub older: Option<Older>,
}

/// Steps on disk, and what is needed to place them.
pub struct Older {
    /// The files of the run.
    pub folder: RunFolder,
    /// Which steps.
    pub steps: StepRange,
    /// Each rank's clock, by rank.
    pub fits: Vec<Option<ClockFit>>,
    /// Whether the job knows nothing of Paceline.
    pub is_foreign: bool,
    /// Those of the steps that were analysed without some rank.
    pub incomplete: Vec<Arc<StepAnalysis>>,
}

impl Older {
    /// Reads them, and hands each over as soon as it is whole.
    ///
    /// # Errors
    /// See [`NotRead`], and whatever `visit` fails with.
    pub fn each<E: From<NotRead>>(
        &self,
        limits: &Limits,
        mut visit: impl FnMut(&Placed) -> Result<(), E>,
    ) -> Result<(), E> {
        let world_size = self.fits.len() as u32;
        steps::each(&self.folder, self.steps, world_size, limits, |mut closed| {
            let step = closed.records.step;
            let analysed = self.incomplete.binary_search_by_key(&step, |analysed| analysed.step);
            if let Some(analysed) = analysed.ok().and_then(|at| self.incomplete.get(at)) {
                leave_out_late(&mut closed.records, analysed);
            }
            let records = Arc::new(closed.records);
            visit(&Placed { records, fits: self.fits.clone(), is_foreign: self.is_foreign })
        })?;
        Ok(())
    }
}

/// Ranks whose records came too late when a step was analysed stay missing.
pub fn leave_out_late(records: &mut StepRecords, analysed: &StepAnalysis) {
    let late = records.ranks.iter_mut().zip(&analysed.ranks).filter(|(_, known)| known.is_none());
    late.for_each(|(rank, _)| *rank = None);
}
