//! The world size of a run, which an elastic job changes when it starts again.

use wire::batch::Batch;
use wire::clock::ServerNanos;

use super::Run;
use super::incarnations::{Denied, is_bye_of_launcher};
use crate::state::refusal::ApplyError;

impl Run {
    /// Decides whether a batch's world size is accepted now: the run's own, or that of a new process once all processes of the
    /// run have ended. The server has accepted batches since `accepting_since`.
    ///
    /// # Errors
    /// Returns [`ApplyError::WaitForWorld`] while the run's processes may have ended, and [`ApplyError::WorldSize`] if they are
    /// alive.
    pub(super) fn admit_world(
        &mut self,
        batch: &Batch,
        now: ServerNanos,
        accepting_since: ServerNanos,
    ) -> Result<(), ApplyError> {
        if batch.world_size == self.world_size() {
            return Ok(());
        }
        if !self.may_begin_world(batch) {
            return Err(self.other_world(batch));
        }
        // Other processes of the new world may have been admitted a moment ago. No batch of them is stored yet.
        let heard = self.ranks.iter().filter_map(|(_, rank)| rank.incarnations.heard());
        let Some(heard) = heard.max().map(|heard| heard.max(accepting_since)) else { return Ok(()) };
        match self.world_claims.judge(batch.incarnation, heard, now) {
            Ok(()) => Ok(()),
            Err(Denied::Wait { heard_ago }) => Err(ApplyError::WaitForWorld {
                run: self.id().clone(),
                rank: batch.rank,
                said: batch.world_size,
                known: self.world_size(),
                heard_ago_millis: heard_ago / 1_000_000,
            }),
            Err(_) => Err(self.other_world(batch)),
        }
    }

    /// Changes the world size to that of an admitted batch.
    ///
    /// # Errors
    /// Returns [`ApplyError::WorldSize`] if the batch is of a process whose world has ended.
    pub(super) fn enter_world(&mut self, batch: &Batch) -> Result<(), ApplyError> {
        if batch.world_size == self.world_size() {
            return Ok(());
        }
        if !self.may_begin_world(batch) {
            return Err(self.other_world(batch));
        }
        let closed = self.incoming.change_world(batch.world_size as usize);
        self.steps.wait(closed);
        self.ranks.resize(batch.world_size);
        Ok(())
    }

    /// Returns true if the batch is of a new process, which may belong to a world of another size.
    fn may_begin_world(&self, batch: &Batch) -> bool {
        let rank = self.ranks.get(batch.rank.0 as usize);
        !is_bye_of_launcher(batch) && rank.is_none_or(|rank| !rank.incarnations.knows(batch.incarnation))
    }

    fn other_world(&self, batch: &Batch) -> ApplyError {
        ApplyError::WorldSize {
            run: self.id().clone(),
            rank: batch.rank,
            said: batch.world_size,
            known: self.world_size(),
        }
    }
}
