//! What the ranks of a run are asked for in the answers to their batches.

use std::sync::Arc;

use wire::clock::ServerNanos;
use wire::ids::{Rank, Step};
use wire::request::{Requests, TraceRequest};
use wire::traces::TraceSummary;
use wire::views::captures::TraceComparison;

use super::{RankState, Run};

impl Run {
    #[must_use]
    pub fn asked(&self, rank: Rank, now: ServerNanos) -> Requests {
        let Some(state) = self.ranks.get(rank.0 as usize) else { return Requests::default() };
        let (burst, stacks) = (state.devices.asked(now), state.stacks.asked(now));
        // The rank counts the steps of its process.
        let own = |request: TraceRequest| TraceRequest {
            first: Step(request.first.0.saturating_sub(self.first_step_of_attempt())),
            ..request
        };
        let trace = state.trace_asked.filter(|request| request.is_current(now)).map(own);
        Requests { burst, stacks, trace, ..Requests::default() }
    }

    /// Asks ranks for a trace, in the answer to their next batch.
    pub fn ask_for_trace(&mut self, ranks: &[Rank], request: TraceRequest) {
        for (_, state) in self.ranks.iter_mut().filter(|(at, _)| ranks.contains(&Rank(*at as u32))) {
            state.trace_asked = Some(request);
        }
    }

    /// Returns what ran on each rank, if the run is imported.
    #[must_use]
    pub fn trace_summaries(&self) -> Vec<(Rank, Arc<TraceSummary>)> {
        let summary = |(rank, state): (usize, &RankState)| Some((Rank(rank as u32), state.summary.clone()?));
        self.ranks.iter().filter_map(summary).collect()
    }

    /// Sets what differs between the newest traces of two ranks, as evidence.
    pub fn set_traced(&mut self, compared: TraceComparison) {
        self.traced = Some(Arc::new(compared));
    }
}
