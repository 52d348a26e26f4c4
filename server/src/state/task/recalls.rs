//! Reads steps whose records have left memory back from disk, on a thread, one at a time.
//!
//! A step that cannot be shown is remembered with its run, and the report is renewed, so that no verdict offers the
//! step again. The example steps of verdicts are looked up before a user requests them, so that no link fails.

use std::time::Duration;

use wire::ids::{RunId, Step};

use super::Task;
use super::work::{Outcome, guarded};
use crate::state::budget;
use crate::state::recall::not_shown::NotShown;
use crate::state::recall::request::{self, PlacedReply, Read, Request, answer};
use crate::state::steps::placed::Placed;
use crate::store::StepRange;

/// The shortest time between lookups of example steps of a live run. The example changes with every report, and reading
/// a step of 1,024 ranks takes about 0.1 s.
const EXAMPLE_EVERY: Duration = Duration::from_secs(10);

impl Task {
    /// Answers with a step in memory, or queues the step to be read.
    pub(super) fn place(&mut self, id: RunId, step: Option<Step>, reply: PlacedReply) {
        match self.look_up(&id, step) {
            Ok(Found::Here(placed)) => answer(reply, Ok(placed)),
            Ok(Found::OnDisk(_)) if self.lines.recall.len() >= budget::WAITING_RECALLS => {
                let busy = "too many steps are being read from disk: try again in a moment".to_owned();
                answer(reply, Err(NotShown::Busy(busy)));
            }
            Ok(Found::OnDisk(step)) => {
                self.lines.recall.push_back(Request { run: id, step, reply: Some(reply) });
            }
            Err(why) => answer(reply, Err(why)),
        }
    }

    fn look_up(&self, id: &RunId, step: Option<Step>) -> Result<Found, NotShown> {
        let held = self.runs.held.get(id).ok_or_else(|| NotShown::NoRun(id.clone()))?;
        let run = &held.run;
        if let Some(placed) = run.placed(step) {
            return Ok(Found::Here(Box::new(placed)));
        }
        let step = step.or_else(|| run.steps().newest_whole()).ok_or_else(|| NotShown::no_step(run.id()))?;
        if let Some(not_yet) = NotShown::not_yet(run.id(), run.steps(), step) {
            return Err(not_yet);
        }
        // The newest complete step may be among those that were read back.
        match run.placed(Some(step)) {
            Some(placed) => Ok(Found::Here(Box::new(placed))),
            None => Ok(Found::OnDisk(step)),
        }
    }

    /// Looks up the example step of a verdict on disk, if it is not in memory.
    pub(super) fn seek_example(&mut self, id: &RunId) {
        let now = self.clock.now();
        let Some(held) = self.runs.held.get_mut(id) else { return };
        let Some(report) = held.report.as_ref().filter(|_| self.layout.is_some()) else { return };
        let pause = if held.run.is_over(now) { Duration::ZERO } else { EXAMPLE_EVERY };
        let examples = report.verdicts.iter().filter_map(|verdict| verdict.example_step.map(Step));
        for step in examples.filter(|&step| !held.run.has_records(step)) {
            if self.lines.recall.is_empty() && held.examples.is_due(step, pause) {
                self.lines.recall.push_back(Request { run: id.clone(), step, reply: None });
                return;
            }
        }
    }

    pub(super) fn start_recall(&mut self, mut asked: Request) {
        // The client may have disconnected, or another request may have read the same step.
        if asked.is_abandoned() {
            return;
        }
        if let Some(reply) = asked.reply.take() {
            match self.look_up(&asked.run, Some(asked.step)) {
                Ok(Found::OnDisk(_)) => asked.reply = Some(reply),
                Ok(Found::Here(placed)) => return answer(reply, Ok(placed)),
                Err(why) => return answer(reply, Err(why)),
            }
        }
        let (Some(layout), true) = (&self.layout, self.runs.held.contains_key(&asked.run)) else {
            let nowhere =
                format!("the records of step {} have left memory and are not stored on disk", asked.step);
            return asked.answer(Err(NotShown::Gone(nowhere)));
        };
        let (folder, step) = (layout.folder(&asked.run), asked.step);
        self.under_way.recalling += 1;
        self.threads.spawn_blocking(move || {
            let read = guarded(|| request::read(&folder, step));
            Outcome::Recalled { asked, read }
        });
    }

    pub(super) fn recalled(&mut self, asked: Request, read: Result<Read, String>) {
        let (id, step) = (asked.run.clone(), asked.step);
        let Some(held) = self.runs.held.get_mut(&id) else {
            return asked.answer(Err(NotShown::NoRun(id)));
        };
        let mut hidden = vec![StepRange { first: step, last: step }];
        let shown = match read {
            Ok(Ok((Some(closed), _))) => Ok(Box::new(held.run.recall(closed))),
            Ok(Ok((None, lost))) => {
                hidden.extend(lost.iter().filter_map(|lost| lost.steps));
                Err(NotShown::gone(&id, held.run.steps(), step, &lost))
            }
            Ok(Err(error)) => Err(NotShown::not_read(&id, step, &error)),
            Err(panic) => Err(NotShown::Gone(format!(
                "reading the records of step {step} fails ({panic}): this is a defect of Paceline"
            ))),
        };
        if let Err(why) = &shown
            && why.is_final()
        {
            tracing::warn!(run = %id, %step, %why, "a step cannot be shown");
            hidden.into_iter().for_each(|steps| held.run.hide(steps));
            held.changed();
        }
        asked.answer(shown);
    }
}

/// The place of a step's records.
enum Found {
    Here(Box<Placed>),
    OnDisk(Step),
}
