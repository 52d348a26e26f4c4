//! Tests of when steps close, and of what becomes of records that are in none.

use wire::clock::MonoNanos;
use wire::event::{BucketRecord, Source, Span, SpanKind, StepRecord};
use wire::ids::{Bucket, Comm, Seq};

use super::*;

/// Closes steps at a time at which those that are open need not stay open.
fn close_later(incoming: &mut Incoming) -> Vec<Closed> {
    for at in 0..=budget::OPEN_NANOS / HEARD_NANOS + 1 {
        incoming.hear(ServerNanos(at * HEARD_NANOS));
    }
    incoming.close_ready()
}

fn end_of(step: u64) -> Event {
    Event::Step(StepRecord {
        step: Step(step),
        begin: MonoNanos(0),
        end: MonoNanos(1),
        samples: 1,
        shadow: false,
    })
}

fn span_of(step: u64) -> Event {
    let (begin, end) = (MonoNanos(0), MonoNanos(1));
    Event::Span(Span { step: Step(step), kind: SpanKind::Forward, begin, end, cpu_nanos: 0 })
}

fn collective_of(step: u64) -> Event {
    let at = MonoNanos(0);
    Event::Bucket(BucketRecord {
        step: Step(step),
        comm: Comm(0),
        seq: Seq(step),
        bucket: Bucket(0),
        bytes: 4,
        ready: at,
        launch: at,
        start: at,
        end: at,
        source: Source::HostClock,
    })
}

#[test]
fn steps_close_in_order_once_their_last_rank_has_ended_them() {
    let mut incoming = Incoming::new(2);
    incoming.add(Rank(0), &end_of(0));
    incoming.add(Rank(0), &end_of(1));
    assert!(close_later(&mut incoming).is_empty(), "step 0 is still open");
    incoming.add(Rank(1), &end_of(0));
    incoming.add(Rank(1), &end_of(1));
    let closed: Vec<u64> = close_later(&mut incoming).iter().map(|closed| closed.records.step.0).collect();
    assert_eq!(closed, [0, 1]);
    incoming.add(Rank(1), &end_of(0));
    assert_eq!(incoming.late().records, 1);
}

#[test]
fn a_step_closes_at_once_without_a_rank_that_skipped_it() {
    let mut incoming = Incoming::new(3);
    for step in 0..3 {
        incoming.add(Rank(0), &end_of(step));
    }
    incoming.add(Rank(1), &end_of(2));
    assert!(incoming.close_ready().is_empty(), "rank 2 may still end step 0");
    incoming.add(Rank(2), &end_of(1));
    let present = |closed: &Closed| closed.records.ranks.iter().map(Option::is_some).collect::<Vec<_>>();
    let closed: Vec<Vec<bool>> = incoming.close_ready().iter().map(present).collect();
    assert_eq!(closed, [[true, false, false], [true, false, true]]);
    incoming.add(Rank(2), &end_of(4));
    assert!(incoming.close_ready().len() == 1, "rank 2 skipped step 2");
    // Ranks 0 and 1 have not got that far, so nothing counts them as missing.
    incoming.add(Rank(0), &end_of(4));
    assert!(incoming.close_ready().is_empty());
}

#[test]
fn a_step_closes_without_a_rank_that_never_sends() {
    let mut incoming = Incoming::new(2);
    for step in 0..3 {
        incoming.add(Rank(0), &end_of(step));
    }
    incoming.add(Rank(1), &end_of(2));
    let closed = incoming.close_overdue();
    assert_eq!(closed.len(), 3);
    assert!(closed[0].records.ranks[1].is_none() && closed[2].records.ranks[1].is_some());
    for step in 3..3 + budget::OPEN_STEPS as u64 + 1 {
        incoming.add(Rank(0), &end_of(step));
    }
    assert_eq!(close_later(&mut incoming).len(), 1);
}

#[test]
fn a_rank_whose_backlog_arrives_seconds_after_that_of_another_is_in_every_step() {
    let mut incoming = Incoming::new(2);
    let backlog = 4 * budget::OPEN_STEPS as u64;
    for step in 0..backlog {
        incoming.add(Rank(0), &end_of(step));
        assert!(incoming.close_ready().is_empty());
    }
    incoming.hear(ServerNanos(2_000_000_000));
    for step in 0..backlog {
        incoming.add(Rank(1), &end_of(step));
    }
    let closed = incoming.close_ready();
    assert_eq!(closed.len() as u64, backlog);
    assert!(closed.iter().all(|closed| closed.records.ranks.iter().all(Option::is_some)));
    assert_eq!(incoming.late().records, 0);
}

#[test]
fn no_step_grows_old_while_the_server_is_stopped() {
    let mut incoming = Incoming::new(2);
    incoming.hear(ServerNanos(0));
    incoming.add(Rank(0), &end_of(0));
    // The server is stopped for a minute, and then reads what rank 0 sent meanwhile before what rank 1 sent.
    incoming.hear(ServerNanos(60_000_000_000));
    let sent = 1..2 * budget::OPEN_STEPS as u64;
    sent.clone().for_each(|step| incoming.add(Rank(0), &end_of(step)));
    assert!(incoming.close_ready().is_empty(), "rank 1 is missing only so far");
    incoming.hear(ServerNanos(60_100_000_000));
    incoming.add(Rank(1), &end_of(0));
    sent.for_each(|step| incoming.add(Rank(1), &end_of(step)));
    let closed = incoming.close_ready();
    assert_eq!(closed.len(), 2 * budget::OPEN_STEPS);
    assert!(closed.iter().all(|closed| closed.records.ranks.iter().all(Option::is_some)));
}

#[test]
fn records_that_arrive_too_late_are_counted_with_their_steps() {
    let mut incoming = Incoming::new(1);
    for step in [100, 99, 7, 98] {
        incoming.add(Rank(0), &end_of(step));
        incoming.close_ready();
    }
    assert_eq!(incoming.late(), LeftOut { records: 3, steps: Some((Step(7), Step(99))) });
}

#[test]
fn a_step_that_hardly_any_rank_sent_is_counted_and_takes_no_memory() {
    let mut incoming = Incoming::new(65_536);
    for step in 0..3_000 {
        incoming.add(Rank(0), &end_of(step));
    }
    assert!(close_later(&mut incoming).is_empty());
    assert_eq!(incoming.sparse_steps, 3_000 - budget::OPEN_STEPS as u64);
    assert!(incoming.bytes() < 256 << 10, "{} bytes", incoming.bytes());
    assert!(incoming.close_all().is_empty());
    assert_eq!(incoming.bytes(), 0, "closing a step subtracts all that it added");
}

#[test]
fn records_beyond_the_limit_of_a_rank_in_a_step_are_counted_and_dropped() {
    let mut incoming = Incoming::new(1);
    for _ in 0..budget::RANK_STEP_RECORDS + 7 {
        incoming.add(Rank(0), &span_of(0));
    }
    incoming.add(Rank(0), &end_of(0));
    let closed = close_later(&mut incoming);
    let rank = closed[0].records.ranks[0].as_ref().expect("rank 0 ended the step");
    assert_eq!((rank.spans.len(), incoming.excess_records), (budget::RANK_STEP_RECORDS, 7));
    assert_eq!(incoming.bytes(), 0);
}

#[test]
fn an_open_step_takes_little_and_all_of_it_is_counted() {
    let mut incoming = Incoming::new(2);
    (0..10_000).for_each(|step| incoming.add(Rank(0), &end_of(step)));
    let ends = incoming.bytes();
    assert!((150..400).contains(&(ends / 10_000)), "{ends} bytes");
    (0..10_000).for_each(|step| incoming.add(Rank(0), &span_of(step)));
    // A vector begins with room for four.
    let spans = incoming.bytes() - ends;
    assert!(spans >= 10_000 * 4 * size_of::<Span>(), "{spans} bytes");
    (0..10_000).for_each(|step| incoming.add(Rank(0), &collective_of(step)));
    let collectives = incoming.bytes() - ends - spans;
    assert!(collectives >= 10_000 * 4 * size_of::<BucketRecord>(), "{collectives} bytes");
    let open_bytes = incoming.bytes() / 10_000;
    let closed = incoming.close_all();
    assert_eq!((closed.len(), incoming.bytes()), (10_000, 0));
    assert!(closed[0].bytes < open_bytes, "no spare room: {} of {open_bytes} bytes", closed[0].bytes);
}

#[test]
fn only_so_many_steps_are_open_however_young() {
    let mut incoming = Incoming::new(2);
    let most = budget::MOST_OPEN_STEPS as u64;
    (0..most).for_each(|step| incoming.add(Rank(0), &end_of(step)));
    assert!(incoming.close_ready().is_empty());
    (most..most + 7).for_each(|step| incoming.add(Rank(0), &end_of(step)));
    let closed: Vec<u64> = incoming.close_ready().iter().map(|closed| closed.records.step.0).collect();
    assert_eq!(closed, (0..7).collect::<Vec<_>>());
}

#[test]
fn another_world_drops_what_no_rank_ended() {
    let mut incoming = Incoming::new(2);
    incoming.add(Rank(0), &end_of(0));
    incoming.add(Rank(1), &span_of(0));
    // To look through all steps for each of them would take minutes.
    (1..200_000).for_each(|step| incoming.add(Rank(1), &span_of(step)));
    let closed = incoming.change_world(1);
    assert_eq!(closed.len(), 1);
    assert!(closed[0].records.ranks[0].is_some() && closed[0].records.ranks[1].is_none());
    assert_eq!(incoming.bytes(), 0);
    incoming.add(Rank(0), &end_of(1));
    assert_eq!((incoming.close_ready().len(), incoming.late().records), (1, 0));
}

#[test]
fn what_a_rank_did_not_end_is_dropped_when_it_restarts() {
    let mut incoming = Incoming::new(2);
    incoming.add(Rank(0), &span_of(0));
    incoming.add(Rank(1), &span_of(0));
    let bytes_before = incoming.bytes();
    incoming.restart(Rank(0));
    assert!(incoming.bytes() < bytes_before);
    (0..2).for_each(|rank| incoming.add(Rank(rank), &end_of(0)));
    let closed = incoming.close_ready();
    let spans = |rank: usize| closed[0].records.ranks[rank].as_ref().map(|records| records.spans.len());
    assert_eq!((spans(0), spans(1)), (Some(0), Some(1)));
}

#[test]
fn what_is_in_no_step_is_counted_by_its_reason() {
    let span = |step: u64| {
        Event::Span(Span {
            step: Step(step),
            kind: SpanKind::Input,
            begin: MonoNanos(0),
            end: MonoNanos(1),
            cpu_nanos: 0,
        })
    };
    let mut incoming = Incoming::new(2);
    for step in 0..3 {
        incoming.add(Rank(0), &span(step));
        incoming.add(Rank(1), &end_of(step));
    }
    incoming.add(Rank(1), &end_of(2));
    assert_eq!(incoming.repeated(), LeftOut { records: 1, steps: Some((Step(2), Step(2))) });
    assert_eq!(incoming.waiting(), LeftOut { records: 6, steps: Some((Step(0), Step(2))) });
    // The process of rank 0 was in the middle of step 2, and never ended two steps before.
    incoming.restart(Rank(0));
    assert_eq!(incoming.unended(), LeftOut { records: 2, steps: Some((Step(0), Step(1))) });

    let mut incoming = Incoming::new(1);
    (0..3).for_each(|step| incoming.add(Rank(0), &span(step)));
    incoming.add(Rank(0), &end_of(3));
    incoming.add(Rank(0), &span(4));
    assert_eq!(incoming.close_all().len(), 1);
    assert_eq!(incoming.unended(), LeftOut { records: 3, steps: Some((Step(0), Step(2))) });

    // The next attempt does the steps that the first one did not end.
    let mut incoming = Incoming::new(1);
    (0..3).for_each(|step| incoming.add(Rank(0), &span(step)));
    assert!(incoming.close_all().is_empty());
    (0..3).for_each(|step| incoming.add(Rank(0), &end_of(step)));
    assert_eq!((incoming.close_ready().len(), incoming.late().records), (3, 0));
}
