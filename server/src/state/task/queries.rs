//! Answers to queries.

use std::sync::Arc;

use tokio::sync::oneshot;
use wire::ids::RunId;

use super::Task;
use crate::state::budget::RECENT_STEPS;
use crate::state::query::RunQuery;
use crate::state::run::devices::Devices;
use crate::state::run::{ReportWork, Run};
use crate::state::snapshot::RunSnapshot;

impl Task {
    /// Answers a query, at once unless the answer must be read from disk or analyzed first.
    pub(super) fn answer(&mut self, id: RunId, query: RunQuery) {
        let now = self.clock.now();
        let run = self.runs.held.get(&id).map(|held| &held.run);
        match query {
            RunQuery::Placed { step, reply } => self.place(id, step, reply),
            RunQuery::PlacedBetween { first, last, most, reply } => {
                let folder = run.and_then(|run| Some(self.layout.as_ref()?.folder(run.id())));
                send(reply, run.map(|run| run.placed_steps(first, last, most, folder)).unwrap_or_default());
            }
            RunQuery::Steps { first, last, reply } => {
                send(reply, run.map(|run| run.steps().analyzed_between(first, last)).unwrap_or_default());
            }
            RunQuery::Report { newest, reply } => self.report_once_settled(&id, newest, reply),
            RunQuery::ReportBetween { first, last, reply } => {
                send(reply, run.map(|run| run.report_work_between(first, last, RECENT_STEPS, now)));
            }
            RunQuery::Open { reply } => self.open(&id, reply),
            RunQuery::Devices { reply } => {
                send(reply, run.map(|run| Devices::new(run.devices(), now)).unwrap_or_default());
            }
            RunQuery::Usage { usage, reply } => {
                send(reply, run.map(|run| run.usage(usage)).unwrap_or_default());
            }
            RunQuery::RecentUsage { reply } => send(reply, run.map(Run::recent_usage).unwrap_or_default()),
            RunQuery::Stacks { reply } => {
                let stacks = |run: &Run| run.stacks().map(|(rank, stacks)| (rank, stacks.clone())).collect();
                send(reply, run.map(stacks).unwrap_or_default());
            }
            RunQuery::TraceSummaries { reply } => {
                send(reply, run.map(Run::trace_summaries).unwrap_or_default());
            }
            RunQuery::Layouts { reply } => send(reply, run.map(Run::layouts).unwrap_or_default()),
        }
    }

    /// Answers with a run's newest snapshot, or lets the request wait for the first one with a report.
    fn open(&mut self, id: &RunId, reply: oneshot::Sender<Option<Arc<RunSnapshot>>>) {
        let Some(held) = self.held_mut(id) else { return send(reply, None) };
        match held.shown.clone().filter(|shown| shown.report.is_some()) {
            Some(shown) => send(reply, Some(shown)),
            None => held.openers.push(reply),
        }
    }

    /// Answers with what a report over the newest steps needs, or lets the request wait until all closed steps are analyzed.
    fn report_once_settled(&mut self, id: &RunId, newest: usize, reply: oneshot::Sender<Option<ReportWork>>) {
        let now = self.clock.now();
        match self.held_mut(id) {
            Some(held) if !held.run.is_settled() => {
                held.until_settled.push(RunQuery::Report { newest, reply });
            }
            held => send(reply, held.map(|held| held.run.report_work(newest, now))),
        }
    }
}

/// Sends a reply. It may fail because the client has disconnected.
fn send<T>(reply: oneshot::Sender<T>, answer: T) {
    let _gone = reply.send(answer);
}
