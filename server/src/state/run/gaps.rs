//! What is missing of a run: what the server did not get, lost, refused, or has in no figure.

use std::collections::BTreeMap;

use wire::batch::{Hello, Instrumentation};
use wire::clock::ServerNanos;
use wire::views::{Gap, GapKind};

use super::{RankState, Refused, Run};
use crate::state::budget;
use crate::state::steps::incoming::LeftOut;
use crate::store::batches::{Condition, MissingBatches};
use crate::store::losses::Loss;

impl Run {
    /// Returns the known gaps in what the server stored, and one in what a report covers.
    pub(crate) fn gaps(&self, others: Option<Gap>, now: ServerNanos) -> Vec<Gap> {
        let disk_gaps = self.condition.gaps(self.missing().as_ref()).into_iter();
        let mut gaps: Vec<Gap> = others.into_iter().chain(disk_gaps).chain(self.left_out(now)).collect();
        let Refused { count, last } = &self.refused;
        if *count > 0 {
            let were = if *count == 1 { "batch was" } else { "batches were" };
            let sentence = format!("{count} {were} refused since the server started; the last one: {last}");
            gaps.push(Gap { kind: GapKind::RefusedBatches, sentence });
        }
        gaps
    }

    /// Returns what was stored and is in no figure.
    fn left_out(&self, now: ServerNanos) -> impl Iterator<Item = Gap> {
        let none = LeftOut::default();
        let waiting = if self.state(now).has_ended() { self.incoming.waiting() } else { none };
        let why = [
            (self.incoming.late(), "arrived after this step or a later one had closed"),
            (self.incoming.unended(), "are of ranks that went on without ending the step"),
            (self.incoming.repeated(), "say again that a rank has ended the step"),
            (waiting, "wait for other ranks, which have not ended the step"),
        ];
        let records = why.into_iter().filter_map(|(records, why)| {
            let (first, last) = records.steps?;
            let steps =
                if first == last { format!("step {first}") } else { format!("steps {first} to {last}") };
            let count = counted(records.records, "record");
            Some(format!("{count} of {steps} {why}: they are stored, and no figure includes them"))
        });
        let excess = self.incoming.excess_records;
        let excess = (excess > 0).then(|| {
            let most = budget::RANK_STEP_RECORDS;
            format!("{} beyond {most} of one rank in one step are in no figure", counted(excess, "record"))
        });
        let unanalyzed = self.unanalyzed_steps();
        let unanalyzed = (unanalyzed > 0).then(|| {
            format!(
                "{} in no figure: fewer than one rank in {} sent them, or they arrived faster than this machine analyzes steps",
                if unanalyzed == 1 { "1 step is".into() } else { format!("{} steps are", units::count(unanalyzed)) },
                budget::MIN_PRESENT
            )
        });
        let sentences: Vec<String> = records.chain(excess).chain(unanalyzed).collect();
        sentences.into_iter().map(|sentence| Gap { kind: GapKind::StoredRecords, sentence })
    }

    /// Sets the condition of the run's files.
    pub fn set_condition(&mut self, condition: Condition) {
        self.condition = condition;
    }

    /// Notes that stored batches were lost while the run was recorded.
    pub fn lose(&mut self, lost: Vec<Loss>) {
        self.condition.lost_since.extend(lost);
    }

    /// Returns what the reader of the run's files found: the number of batches of each log or segment, and what is lost.
    #[must_use]
    pub fn stored(&self) -> (BTreeMap<u32, u64>, Vec<Loss>) {
        let Condition { stored, lost, unlisted, .. } = &self.condition;
        let unlisted = unlisted.as_ref().map(|_| Loss::damaged_list());
        (stored.clone(), lost.iter().cloned().chain(unlisted).collect())
    }

    /// Returns the batches that the ranks numbered and that are missing between those that arrived. Of an import that goes on, batches
    /// may arrive in any order.
    fn missing(&self) -> Option<MissingBatches> {
        let is_on_its_way = |rank: &RankState| {
            let is_import = |hello: &Hello| hello.instrumentation == Instrumentation::Trace;
            rank.bye.is_none() && rank.hello.as_ref().is_some_and(is_import)
        };
        let ranks = self.ranks.ever().enumerate().filter_map(|(index, rank)| Some((index, rank?)));
        let ranks = ranks.filter(|(_, rank)| !is_on_its_way(rank));
        let missing = ranks.map(|(index, rank)| (index, rank.incarnations.missing()));
        let missing: Vec<_> = missing.filter(|&(_, missing)| missing > 0).collect();
        let (first, _) = *missing.first()?;
        let whose = match missing.len() {
            1 => format!("rank {first}"),
            ranks => format!("{ranks} ranks, such as rank {first},"),
        };
        let batches = missing.iter().fold(0_u64, |sum, &(_, missing)| sum.saturating_add(missing));
        Some(MissingBatches { batches, owner: whose })
    }

    /// Returns the number of batches refused since the server started.
    #[must_use]
    pub fn refused_batches(&self) -> u64 {
        self.refused.count
    }
}

/// Returns a number of things, such as "1 record".
fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", units::count(count), if count == 1 { "" } else { "s" })
}
