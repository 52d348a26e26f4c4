//! Tests of what ranks are asked for their stacks, and of what they say by themselves.

use wire::batch::{Batch, Note};
use wire::clock::MonoNanos;
use wire::event::SpanKind;
use wire::fixtures;
use wire::ids::{BatchSeq, Incarnation, RunId};
use wire::stacks::{Frame, Profile, StacksOutcome};
use wire::views::Recurrence;

use super::*;

const NOW: ServerNanos = ServerNanos(1_790_000_000_000_000_000);

fn batch(seq: u64, incarnation: u64, notes: Vec<Note>) -> Batch {
    Batch { incarnation: Incarnation(incarnation), seq: BatchSeq(seq), notes, ..fixtures::batch() }
}

#[test]
fn what_a_rank_says_by_itself_answers_no_request_and_lasts_as_long_as_its_process() {
    let mut run = Run::new(RunId::new("r").expect("the run id is valid"), 1, NOW);
    let frame = Frame { function: "save\n".into(), file: "train.py".into(), line: 21 };
    let profile = Profile { frames: vec![frame.clone()], ..Profile::default() };
    let (begun, from, until) = (MonoNanos(1), MonoNanos(2), MonoNanos(3));
    let request = request_of_evidence(NOW);
    let outcome = StacksOutcome::Sampled(Profile::default());
    let answer = Stacks { request: request.number - 1, from, until, outcome };
    run.apply(batch(0, 1, vec![Note::Stacks(answer.clone())]), NOW).expect("the batch is new");
    run.ask_for_stacks(None, request);
    let long = Note::LongStep(LongStep { begun, usual_nanos: 1, from, until, profile });
    let line = Note::Line(SpanLine { kind: SpanKind::Checkpoint, frame });
    run.apply(batch(1, 1, vec![long, line]), NOW).expect("the batch is new");

    let newest: Vec<&Stacks> = run.stacks().map(|(_, stacks)| stacks.as_ref()).collect();
    assert_eq!(newest, [&answer]);
    assert_eq!(run.asked(Rank(0), NOW).stacks, Some(request), "the request is not answered");
    let said = |run: &Run| (run.long_steps(1)[0].len(), run.span_lines(1)[0].len());
    assert_eq!(said(&run), (1, 1));
    assert_eq!(run.long_steps(1)[0][0].profile.frames[0].function, "save\\n", "lines of a report stay whole");
    run.apply(batch(0, 2, Vec::new()), NOW).expect("another process begins");
    assert_eq!(said(&run), (0, 0), "its clock is another one");
}

#[test]
fn each_rank_is_asked_once_for_a_cause_whichever_verdicts_it_is_in() {
    let mut wanted = Wanted::default();
    let mut ask = |culprit, cause, recurrence, seconds: i64| {
        let verdict = Verdict { recurrence, ..Verdict::new(culprit, cause) };
        let asked = wanted.ranks(&[verdict], &[], 4, ServerNanos(NOW.0 + seconds * 1_000_000_000));
        asked.into_iter().collect::<Vec<u32>>()
    };
    assert_eq!(ask(Culprit::All, Cause::Input, None, 0), [0, 1], "two loaders are compared");
    assert_eq!(ask(Culprit::Rank(2), Cause::Input, None, 1), [2], "rank 0, its peer, was asked");
    assert_eq!(ask(Culprit::Rank(2), Cause::Host, None, 2), [0, 2], "for another cause");
    let often =
        Some(Recurrence { times: 9, every_steps: Some(4), nanos: 1, share_of_time: 0.5, steps: vec![3] });
    assert_eq!(ask(Culprit::Rank(3), Cause::Host, often.clone(), 3), [0_u32; 0], "it takes its own stacks");
    assert_eq!(ask(Culprit::Rank(3), Cause::Input, often, 4), [3], "but not those of its workers");
    assert_eq!(ask(Culprit::All, Cause::Input, None, 30), [0_u32; 0]);
    assert_eq!(ask(Culprit::Rank(1), Cause::Compute, None, 90), [0, 1]);
    assert_eq!(ask(Culprit::All, Cause::Input, None, 91), [0, 1], "a minute later, they may do other things");
}

#[test]
fn a_note_on_a_rank_is_followed_up_and_one_on_all_ranks_is_not() {
    let asked = |culprit| {
        let note = Verdict::new(culprit, Cause::Processor);
        Wanted::default().ranks(&[], &[note], 4, NOW).into_iter().collect::<Vec<u32>>()
    };
    assert_eq!(asked(Culprit::Rank(2)), [0, 2]);
    assert_eq!(asked(Culprit::All), [0_u32; 0]);
}
