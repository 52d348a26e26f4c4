//! Tests that a step read from disk is shown as from memory, or that the answer says why it cannot be shown.

use std::ops::Range;
use std::sync::Arc;

use wire::batch::{Bye, Note};
use wire::ids::{RunId, Step};

use super::not_shown::NotShown;
use crate::clock::ServerClock;
use crate::metrics::Metrics;
use crate::state::collection::{Collection, Restored};
use crate::state::command::{Accepted, Command, Waiting};
use crate::state::hub::Hub;
use crate::state::query::RunQuery;
use crate::state::recall::stored::tests::{RANKS, all_ranks, record};
use crate::state::restore;
use crate::state::run::Run;
use crate::state::steps::placed::Placed;
use crate::store::directory::Layout;
use crate::store::log::Log;
use crate::store::log::writer::Writer;
use crate::store::sealer::{self, Sealer};
use crate::store::segment::Received;
use crate::vitals::Vitals;

/// A hub with one run, of which only the records of the newest step are in memory, and its data directory.
struct Stage {
    hub: Hub,
    layout: Layout,
    writer: Writer,
    id: RunId,
    _data: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let layout = Layout::new(data.path());
        let id = RunId::new("r").unwrap();
        let clock = ServerClock::start();
        let mut runs = Collection::default();
        let run = Run::new(id.clone(), RANKS, clock.now()).keeping(1);
        runs.add(Restored::new(run, clock.now()));
        let (metrics, vitals) = (Arc::new(Metrics::new()), Vitals::default());
        let (sealer, _thread) = Sealer::start(layout.clone(), &vitals).unwrap();
        let unused = Writer::new(layout.clone());
        let log = Log::start(unused, metrics.server.clone(), sealer, &vitals).unwrap();
        let hub = Hub::start(runs, clock, metrics, &vitals, log, Some(layout.clone()));
        Self { hub, writer: Writer::new(layout.clone()).rotating_at(2_000), layout, id, _data: data }
    }

    /// Makes batches durable and applies them, as ingest does.
    async fn send(&mut self, batches: Vec<Received>) {
        for received in batches {
            if let Some(closed) = self.writer.append(&self.id, &[record(&received)]).unwrap().full {
                sealer::seal(&self.layout.folder(&self.id), closed.last).unwrap();
            }
            let (batch, received) = (Box::new(received.batch), received.at);
            let apply = |reply| {
                let waiting = Some(Waiting { accepted: Accepted::Before, reply });
                Command::Apply { batch, received, room: None, waiting }
            };
            self.hub.ask(apply).await.unwrap().unwrap();
        }
        // Wait until every closed step is analyzed.
        let newest = usize::MAX;
        self.hub.query(self.id.clone(), |reply| RunQuery::Report { newest, reply }).await.unwrap().unwrap();
    }

    async fn send_steps(&mut self, steps: Range<u64>) {
        self.send(all_ranks(steps)).await;
    }

    async fn place(&self, step: u64) -> Result<Placed, NotShown> {
        let step = Some(Step(step));
        self.hub.query(self.id.clone(), |reply| RunQuery::Placed { step, reply }).await.unwrap()
    }

    async fn why_not(&self, step: u64) -> NotShown {
        self.place(step).await.err().unwrap()
    }
}

#[tokio::test]
async fn steps_that_have_left_memory_are_shown_unchanged() {
    let mut stage = Stage::new();
    stage.send_steps(0..60).await;
    let run = restore::run(&stage.layout, &stage.id).unwrap().unwrap();
    assert!(stage.layout.folder(&stage.id).segment(1).exists(), "some steps are sealed");
    for step in 0..60 {
        // Restoring holds all of this run in memory.
        let known = run.placed(Some(Step(step))).unwrap();
        let placed = stage.place(step).await.unwrap();
        assert_eq!(placed.records, known.records, "step {step}");
        assert_eq!(placed.waterfall().encode(), known.waterfall().encode(), "step {step}");
        assert!(!placed.waterfall().rank.is_empty(), "its ranks can be placed");
        assert_eq!(placed.analyze().ranks.len(), RANKS as usize);
    }
}

#[tokio::test]
async fn ranks_that_arrive_too_late_for_a_step_stay_missing() {
    let mut stage = Stage::new();
    let mut batches = all_ranks(0..6);
    let late: Vec<Received> =
        batches.extract_if(.., |sent| (sent.batch.rank.0, sent.batch.seq.0) == (1, 2)).collect();
    // All ranks send their end-of-run messages, and the step closes without the late batch.
    for sent in batches.iter_mut().rev().take(RANKS as usize) {
        sent.batch.notes.push(Note::Bye(Bye { completed: true, reason: String::new() }));
    }
    batches.extend(late);
    stage.send(batches).await;
    let placed = stage.place(2).await.unwrap();
    let there: Vec<bool> = placed.records.ranks.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, true], "as it was analyzed");
}

#[tokio::test]
async fn an_answer_without_a_step_gives_the_reason() {
    let mut stage = Stage::new();
    let NotShown::NotYet(sentence) = stage.why_not(3).await else { panic!("expected NotYet") };
    assert_eq!(sentence, "run r has no step yet that all of its ranks have ended");
    stage.send_steps(0..20).await;
    let NotShown::NotYet(sentence) = stage.why_not(20).await else { panic!("expected NotYet") };
    assert_eq!(sentence, "step 20 of run r has not arrived: the newest is 19");
    stage.send_steps(40..50).await;
    let NotShown::Gone(sentence) = stage.why_not(30).await else { panic!("expected Gone") };
    assert!(sentence.starts_with("no stored batch has records of step 30"), "{sentence}");

    // A segment without its log is damaged while the server runs.
    let folder = stage.layout.folder(&stage.id);
    let path = folder.segment(1).join("steps.parquet");
    let whole = std::fs::read(&path).unwrap();
    let mut spoilt = whole.clone();
    spoilt[whole.len() / 2] ^= 1;
    std::fs::write(&path, spoilt).unwrap();
    let NotShown::Gone(sentence) = stage.why_not(0).await else { panic!("expected Gone") };
    assert!(sentence.starts_with("the records of step 0 are damaged on disk: "), "{sentence}");
    assert!(sentence.contains("segment-000001/steps.parquet: it does not match its checksum"), "{sentence}");
    std::fs::remove_dir_all(&folder.path).unwrap();
    let NotShown::Gone(sentence) = stage.why_not(5).await else { panic!("expected Gone") };
    assert!(sentence.contains("files of run r have been removed"), "{sentence}");
}
