//! Tests of batches on their way from a sender to the hub.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use wire::batch::Batch;
use wire::clock::MonoNanos;
use wire::event::{Event, StepRecord};
use wire::fixtures;
use wire::ids::{BatchSeq, Incarnation, RunId, Step};

use super::*;
use crate::metrics::Metrics;
use crate::state::collection::Collection;
use crate::state::query::RunQuery;
use crate::store::directory::Layout;
use crate::store::log::Log;
use crate::store::log::writer::Writer;
use crate::store::sealer::Sealer;
use crate::vitals::Vitals;

/// An intake on an empty data directory.
struct Stage {
    intake: Intake,
    _data: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let layout = Layout::new(data.path());
        let (clock, metrics, vitals) = (ServerClock::start(), Arc::new(Metrics::new()), Vitals::default());
        let (sealer, _thread) = Sealer::start(layout.clone(), &vitals).unwrap();
        let log = Log::start(Writer::new(layout), metrics.server.clone(), sealer, &vitals).unwrap();
        let hub = Hub::start(Collection::default(), clock, metrics.clone(), &vitals, log, None);
        Self { intake: Intake::new(hub, metrics.server.clone(), clock), _data: data }
    }

    async fn steps(&self, run: &RunId) -> Vec<Step> {
        let (first, last) = (Step(0), Step(9));
        let steps = self.intake.hub.query(run.clone(), |reply| RunQuery::Steps { first, last, reply });
        steps.await.unwrap().iter().map(|step| step.step).collect()
    }
}

/// A batch of the only rank, with one step.
fn batch(run: &RunId) -> Batch {
    let (begin, end) = (MonoNanos(0), MonoNanos(5));
    Batch {
        run: run.clone(),
        events: vec![Event::Step(StepRecord { step: Step(0), begin, end, samples: 1, shadow: false })],
        ..fixtures::batch()
    }
}

#[tokio::test]
async fn a_batch_is_applied_once_though_its_request_was_canceled_and_it_is_sent_again() {
    let stage = Stage::new();
    let run = RunId::new("r").unwrap();
    let frame = Bytes::from(wire::codec::encode(&batch(&run)).unwrap());
    {
        // The hub has the batch once this waits.
        let mut canceled = std::pin::pin!(stage.intake.accept(frame.clone()));
        assert!(matches!(canceled.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    }
    let mut snapshots = stage.intake.hub.subscribe();
    let shown =
        snapshots.wait_for(|snapshot| snapshot.runs.get(&run).is_some_and(|run| run.summary.steps > 0));
    drop(shown.await.unwrap());
    assert_eq!(stage.steps(&run).await, [Step(0)]);

    let receipt = stage.intake.accept(frame).await.unwrap();
    assert_eq!(receipt.batch, batch(&run).receipt());
    assert_eq!(stage.intake.metrics.batches.get(), 0, "it arrived before");
    assert_eq!(stage.steps(&run).await, [Step(0)]);
}

#[tokio::test]
async fn a_refused_batch_is_counted_by_what_its_sender_can_do() {
    let stage = Stage::new();
    let run = RunId::new("r").unwrap();
    let encoded = |batch: &Batch| Bytes::from(wire::codec::encode(batch).unwrap());
    let refused = |frame: Bytes| async { stage.intake.accept(frame).await.unwrap_err().kind() };
    assert_eq!(refused(Bytes::from_static(b"nothing")).await, RefusalKind::Invalid);
    stage.intake.accept(encoded(&batch(&run))).await.unwrap();
    let other_world = Batch { world_size: 2, seq: BatchSeq(1), ..batch(&run) };
    assert_eq!(refused(encoded(&other_world)).await, RefusalKind::Conflict);
    let another = Batch { incarnation: Incarnation(2), ..batch(&run) };
    assert_eq!(refused(encoded(&another)).await, RefusalKind::Busy, "the first process may have ended");
    let counts = &stage.intake.metrics;
    let counts = [&counts.batches, &counts.refused, &counts.conflicts, &counts.deferred];
    assert_eq!(counts.map(|count| count.get()), [1, 1, 1, 1]);
    assert!(stage.intake.receive(u64::MAX).is_err_and(|refusal| refusal.kind() == RefusalKind::TooLarge));
}
