//! A range of a run's steps for an export: steps in memory at once, steps on disk as work for another thread.

use std::sync::Arc;

use analysis::step::StepAnalysis;
use timing::clocks::ClockFit;

use super::stored::{self, Limits, NotRead};
use crate::state::steps::placed::{Placed, leave_out_late};
use crate::store::StepRange;
use crate::store::folder::RunFolder;

/// A range of steps, as far as the hub has it.
#[derive(Default)]
pub struct PlacedSteps {
    /// The steps in memory, oldest first; empty if there are older ones on disk.
    pub placed: Vec<Placed>,
    /// The steps of the range that are older than the oldest step in memory.
    pub older: Option<Older>,
}

/// Steps on disk, with what is needed to place them.
pub struct Older {
    /// The run's files.
    pub folder: RunFolder,
    pub steps: StepRange,
    /// The fit of the clock of each rank that the run ever had, by rank.
    pub fits: Vec<Option<ClockFit>>,
    /// Whether the run numbers its collectives by function.
    pub numbers_by_function: bool,
    /// The steps of the range that were analyzed without some rank.
    pub incomplete: Vec<Arc<StepAnalysis>>,
}

impl Older {
    /// Reads the steps and passes each to `visit` as soon as it is complete.
    ///
    /// # Errors
    /// Returns an error if the steps cannot be read ([`NotRead`]), or the error of `visit`.
    pub fn visit<E: From<NotRead>>(
        &self,
        limits: &Limits,
        mut visit: impl FnMut(&Placed) -> Result<(), E>,
    ) -> Result<(), E> {
        stored::visit(&self.folder, self.steps, limits, |mut closed| {
            let step = closed.records.step;
            let analyzed = self.incomplete.binary_search_by_key(&step, |analyzed| analyzed.step);
            if let Some(analyzed) = analyzed.ok().and_then(|at| self.incomplete.get(at)) {
                leave_out_late(&mut closed.records, analyzed);
            }
            let records = Arc::new(closed.records);
            visit(&Placed::new(records, &self.fits, self.numbers_by_function))
        })?;
        Ok(())
    }
}
