//! Tests of restarts with clocks that go back, of two processes of one rank, and of sequence numbers in any order.

use std::collections::BTreeSet;

use proptest::prelude::*;
use wire::batch::Bye;
use wire::fixtures;

use super::*;

const SECOND: i64 = 1_000_000_000;

fn batch(incarnation: u64, seq: u64) -> Batch {
    Batch { incarnation: Incarnation(incarnation), seq: BatchSeq(seq), ..fixtures::batch() }
}

fn bye(incarnation: u64, seq: u64) -> Batch {
    let bye = Note::Bye(Bye { completed: false, reason: "killed".into() });
    Batch { notes: vec![bye], ..batch(incarnation, seq) }
}

/// The incarnations of a rank, with batches sent at given times.
#[derive(Default)]
struct Rank0(Incarnations);

impl Rank0 {
    fn say(&mut self, seconds: f64, batch: &Batch) -> Result<(), Denied> {
        let now = ServerNanos((seconds * SECOND as f64) as i64);
        self.0.admit(batch, now, ServerNanos(0))?;
        self.0.store(batch, now);
        Ok(())
    }
}

#[test]
fn a_restarted_rank_is_accepted_whatever_its_clock_shows() {
    for second_life in [u64::MAX, 0, 99] {
        let mut rank = Rank0::default();
        rank.say(0.0, &batch(100, 0)).unwrap();
        assert!(matches!(rank.say(1.0, &batch(second_life, 0)), Err(Denied::Wait { .. })));
        assert!(matches!(rank.say(4.9, &batch(second_life, 0)), Err(Denied::Wait { .. })));
        rank.say(5.1, &batch(second_life, 0)).unwrap();
        assert_eq!(rank.say(5.2, &batch(second_life, 0)), Err(Denied::Duplicate));
        rank.say(5.3, &batch(second_life, 1)).unwrap();
    }
}

#[test]
fn after_an_end_of_run_message_the_next_incarnation_is_accepted_at_once() {
    let mut rank = Rank0::default();
    rank.say(0.0, &batch(100, 0)).unwrap();
    rank.say(0.1, &bye(100, 1)).unwrap();
    rank.say(0.2, &batch(50, 0)).unwrap();
    // The launcher sends the message for an incarnation that no longer can.
    rank.say(0.3, &bye(7_777, 0)).unwrap();
    rank.say(0.4, &batch(40, 0)).unwrap();
}

#[test]
fn a_second_process_of_a_living_rank_is_refused_and_the_first_is_not() {
    let mut rank = Rank0::default();
    let (mut waited, mut refused) = (0, 0);
    for tenth in 0..200 {
        let seconds = f64::from(tenth) / 10.0;
        rank.say(seconds, &batch(1, tenth as u64)).unwrap();
        match rank.say(seconds + 0.05, &batch(2, 0)) {
            Err(Denied::Wait { .. }) => waited += 1,
            Err(Denied::Taken { heard_ago }) => {
                assert!((heard_ago - SECOND / 20).abs() < 1_000, "{heard_ago}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((29..=32).contains(&waited) && refused == 200 - waited, "{waited} {refused}");
    // The first process ends. The second one was refused before, but now it is accepted.
    rank.say(30.0, &batch(2, 17)).unwrap();
}

#[test]
fn what_a_process_could_not_send_is_accepted_while_its_successor_runs_and_does_not_displace_it() {
    let mut rank = Rank0::default();
    rank.say(0.0, &batch(1, 0)).unwrap();
    // The first process ends without a word, and the next one begins.
    rank.say(60.0, &batch(2, 0)).unwrap();
    for seq in 1..4 {
        rank.say(60.0 + seq as f64, &batch(1, seq)).unwrap();
        rank.say(60.5 + seq as f64, &batch(2, seq)).unwrap();
    }
    rank.say(64.0, &bye(1, 4)).unwrap();
    assert_eq!(rank.say(64.1, &batch(1, 2)), Err(Denied::Duplicate));
    rank.say(64.2, &batch(2, 4)).unwrap();
    // A third one waits until the second one is silent.
    assert!(matches!(rank.say(64.3, &batch(3, 0)), Err(Denied::Wait { .. })));
}

#[test]
fn a_claim_does_not_count_for_another_process() {
    let mut rank = Rank0::default();
    for second in 0..100 {
        rank.say(f64::from(second), &batch(1, second as u64)).unwrap();
        if second >= 90 {
            assert!(rank.say(f64::from(second) + 0.1, &batch(2, 0)).is_err());
        }
    }
    assert!(matches!(rank.say(99.2, &batch(2, 0)), Err(Denied::Taken { .. })));
    assert!(matches!(rank.say(99.3, &batch(3, 0)), Err(Denied::Wait { .. })));
    rank.say(104.1, &batch(3, 0)).unwrap();
}

#[test]
fn an_old_claim_does_not_delay_a_restart() {
    let mut rank = Rank0::default();
    for second in 0..100 {
        rank.say(f64::from(second), &batch(1, second as u64)).unwrap();
        if second == 50 {
            assert!(matches!(rank.say(50.1, &batch(2, 0)), Err(Denied::Wait { .. })));
        }
    }
    assert!(matches!(rank.say(99.1, &batch(3, 0)), Err(Denied::Wait { .. })));
    rank.say(104.1, &batch(3, 0)).unwrap();
}

#[test]
fn silence_while_the_server_was_down_does_not_count() {
    let mut incarnations = Incarnations::default();
    incarnations.store(&batch(1, 0), ServerNanos(0));
    let (began, now) = (ServerNanos(60 * SECOND), ServerNanos(61 * SECOND));
    assert!(matches!(incarnations.admit(&batch(2, 0), now, began), Err(Denied::Wait { .. })));
    incarnations.admit(&batch(1, 1), now, began).unwrap();
}

#[test]
fn drops_of_all_incarnations_are_summed() {
    use wire::batch::DropReason;
    use wire::event::EventKind;
    let drop = |count| Drop { kind: EventKind::Bucket, reason: DropReason::RingFull, count };
    let mut incarnations = Incarnations::default();
    for (incarnation, seq, count) in [(1, 0, 2), (1, 1, 5), (2, 0, 3)] {
        incarnations.store(&Batch { drops: vec![drop(count)], ..batch(incarnation, seq) }, ServerNanos(0));
    }
    assert_eq!(incarnations.drops(), [drop(8)]);
}

#[test]
fn incarnations_and_ranges_are_bounded() {
    let mut rank = Rank0::default();
    for number in 0..MAX_INCARNATIONS as u64 {
        rank.say(number as f64 * 10.0, &batch(number, 0)).unwrap();
    }
    assert_eq!(rank.say(1e6, &batch(u64::MAX, 0)), Err(Denied::TooManyIncarnations));
    let mut numbers = Numbers::default();
    for number in 0..10_000 {
        numbers.add(BatchSeq(number * 2), 0);
    }
    assert_eq!(numbers.ranges.len(), MAX_RANGES);
    assert_eq!(numbers.is_new(BatchSeq(1)), Err(Denied::TooOld));
    assert_eq!(numbers.is_new(BatchSeq(19_997)), Ok(()));
}

proptest! {
    /// In any order, each number is new exactly once.
    #[test]
    fn a_number_is_new_until_it_is_added(numbers in prop::collection::vec(0_u64..200, 0..300), high: bool) {
        let mut known = BTreeSet::new();
        let mut ranges = Numbers::default();
        for number in numbers.into_iter().map(|number| if high { u64::MAX - number } else { number }) {
            let number = BatchSeq(number);
            prop_assert_eq!(ranges.is_new(number).is_ok(), known.insert(number));
            if ranges.is_new(number).is_ok() {
                ranges.add(number, 0);
            }
        }
    }
}

fn dropped(incarnation: u64, seq: u64, reason: DropReason, count: u64) -> Batch {
    let drops = vec![Drop { kind: wire::event::EventKind::Step, reason, count }];
    Batch { drops, ..batch(incarnation, seq) }
}

/// Returns how many batches are missing after these arrived.
fn missing(batches: &[Batch]) -> u64 {
    let mut incarnations = Incarnations::default();
    batches.iter().for_each(|batch| incarnations.store(batch, ServerNanos(0)));
    incarnations.missing()
}

#[test]
fn batches_before_and_between_those_that_arrived_are_missing() {
    let seqs = |seqs: &[u64]| seqs.iter().map(|&seq| batch(1, seq)).collect::<Vec<_>>();
    assert_eq!(missing(&seqs(&[0, 1, 2])), 0);
    assert_eq!(missing(&seqs(&[1, 0, 3, 2])), 0, "in any order");
    assert_eq!(missing(&seqs(&[30, 31])), 30);
    assert_eq!(missing(&seqs(&[0, 1, 5, 6, 8])), 4);
    assert_eq!(missing(&[batch(1, 0), batch(2, 3), batch(1, 2)]), 4, "of both processes");
    assert_eq!(missing(&[batch(1, 0), batch(1, 1), bye(7, 0)]), 0, "a launcher says bye");
}

#[test]
fn batches_that_a_process_gave_up_are_not_missing() {
    let spool = |seq, count| dropped(1, seq, DropReason::SpoolFull, count);
    // A batch that waited in the spool may have been made before the drop.
    assert_eq!(missing(&[batch(1, 0), batch(1, 4), spool(5, 9)]), 0);
    assert_eq!(missing(&[spool(4, 1), spool(5, 1)]), 0);
    assert_eq!(missing(&[batch(1, 0), spool(2, 1), spool(5, 1)]), 2, "nothing more was given up");
    assert_eq!(missing(&[batch(1, 0), dropped(1, 3, DropReason::RingFull, 9)]), 2, "a ring is not a batch");
}

#[test]
fn what_is_missing_is_known_although_its_place_is_forgotten() {
    let gaps = MAX_RANGES as u64 + 10;
    let batches: Vec<Batch> = (0..=gaps).map(|at| batch(1, at * 2)).collect();
    assert_eq!(missing(&batches), gaps);
}
