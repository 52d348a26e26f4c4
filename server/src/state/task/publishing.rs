//! Publishing: which runs are shown again, reported again, and leave memory.

use std::sync::Arc;
use std::time::Instant;

use wire::clock::ServerNanos;
use wire::ids::RunId;
use wire::views::RunState;

use super::Task;
use crate::state::budget;
use crate::state::collection::{Held, Shelved};
use crate::state::snapshot::{RunSnapshot, Snapshot};

/// The longest time between reports of a live run, in nanoseconds, even if no batch arrived. With many live runs it
/// grows with their number ([`REPORT_ONE_EVERY_NANOS`]).
const REPORT_AT_LEAST_EVERY_NANOS: i64 = 1_000_000_000;
/// The longest time between reports of a live run, in nanoseconds, per run in memory. It applies above 100 runs, so
/// that thousands of silent runs leave the processor to active ones.
const REPORT_ONE_EVERY_NANOS: i64 = 10_000_000;
/// The time without a look at the clock after which the process was stopped (SIGSTOP, a paused machine), in nanoseconds. Publishing for
/// 10,000 live runs takes about 40 ms.
const STOPPED_NANOS: i64 = 3_000_000_000;

impl Task {
    /// If this process was stopped for a while, its runs have not been silent: it did not listen.
    fn notice_a_stop(&mut self, now: ServerNanos) {
        let away = now - self.looked;
        if away > STOPPED_NANOS {
            tracing::warn!(seconds = away / 1_000_000_000, "this server did not run for some time");
            self.accepting_since = now;
            self.runs.held.values_mut().for_each(|held| held.run.listen_from(now));
        }
        self.looked = now;
    }

    pub(super) fn publish(&mut self) {
        let now = self.clock.now();
        self.notice_a_stop(now);
        let affordable = REPORT_ONE_EVERY_NANOS.saturating_mul(self.runs.held.len() as i64);
        let interval = REPORT_AT_LEAST_EVERY_NANOS.max(affordable);
        for (id, held) in &mut self.runs.held {
            held.run.tick(now);
            if held.run.has_work() && !std::mem::replace(&mut held.is_queued, true) {
                self.lines.analyze.push_back(id.clone());
            }
            held.look_at_the_clock(now, interval);
            if held.is_stale && !held.is_reporting && held.report_is_due(now) {
                held.is_reporting = true;
                self.lines.report.push_back(id.clone());
            }
        }
        let shelved = self.shelve(now);
        if shelved.is_empty() && !self.runs.held.values().any(|held| held.dirty && held.report.is_some()) {
            return;
        }
        let mut snapshot = Snapshot::clone(&self.publisher.borrow());
        let mut completed = Vec::new();
        for (id, held) in self.runs.held.iter_mut().filter(|(_, held)| held.dirty) {
            if let Some(shown) = held.show(now) {
                self.metrics.observe_run(&held.run.values(&shown, now));
                let previous = snapshot.runs.insert(id.clone(), shown.clone());
                let is_completed = |run: &RunSnapshot| run.summary.state == RunState::Completed;
                if is_completed(&shown) && !previous.is_some_and(|previous| is_completed(&previous)) {
                    completed.push((shown.summary.name.clone(), shown.summary.ranks_expected));
                }
            }
        }
        snapshot.runs.extend(shelved);
        self.publisher.send_replace(Arc::new(snapshot));
        for (name, ranks) in completed {
            self.measure_again(&name, ranks);
        }
    }

    /// Renews the reports of runs of this name on more ranks, because the completed run may be their baseline.
    fn measure_again(&mut self, name: &str, ranks: u32) {
        let larger = |held: &&mut Held| held.run.name() == name && held.run.world_size() > ranks;
        for held in self.runs.held.values_mut().filter(larger) {
            held.changed();
            held.reported_at = None;
        }
    }

    /// Drops from memory the ended runs that were not requested recently. If all runs together exceed their budget,
    /// drops more ended runs, and then parts of live runs.
    fn shelve(&mut self, now: ServerNanos) -> Vec<(RunId, Arc<RunSnapshot>)> {
        let mut shelved = Vec::new();
        let mut is_full = self.runs.is_over();
        if self.layout.is_some() {
            let done = self.runs.held.iter().filter(|(_, held)| held.is_done(now));
            let mut done: Vec<(Instant, RunId)> =
                done.map(|(id, held)| (held.asked_at, id.clone())).collect();
            done.sort();
            let excess = done.len().saturating_sub(budget::ENDED_RUNS);
            for (at, (asked_at, id)) in done.into_iter().enumerate() {
                if at < excess || is_full || asked_at.elapsed() > budget::KEEP_ENDED {
                    shelved.extend(self.shelve_one(&id));
                    is_full = is_full && self.runs.is_over();
                }
            }
        }
        self.is_full = !self.runs.fit();
        shelved
    }

    fn shelve_one(&mut self, id: &RunId) -> Option<(RunId, Arc<RunSnapshot>)> {
        let held = self.runs.held.remove(id)?;
        let shelved = Shelved::new(held.shown?.summary.clone(), held.report.as_deref()?);
        let snapshot = shelved.snapshot();
        self.runs.shelved.insert(id.clone(), shelved);
        Some((id.clone(), snapshot))
    }
}
