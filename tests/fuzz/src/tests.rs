//! Tests that the fuzzer finds failures and reports them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use super::*;

fn corpus() -> Corpus {
    Corpus::default().with("a", *b"abcdefgh").with("b", *b"01234567")
}

/// Returns the message of the panic with which a check ends.
fn failure(check: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(check)).expect_err("the check must fail");
    panic.downcast_ref::<String>().cloned().expect("the message of the panic is a string")
}

#[test]
fn entries_are_tried_unchanged_first_and_then_damaged() {
    let seen = RefCell::new(Vec::new());
    corpus().check("order", 50, |bytes, _| {
        seen.borrow_mut().push(bytes.to_vec());
        Ok(())
    });
    let seen = seen.into_inner();
    assert_eq!(seen.len(), 2 * 8 + 50 * times() as usize);
    assert_eq!((&*seen[0], &*seen[8]), (&b"abcdefgh"[..], &b"01234567"[..]));
    let different: BTreeSet<_> = seen[16..].iter().collect();
    assert!(different.len() > 40, "only {} inputs differ", different.len());
}

#[test]
fn a_seed_repeats_its_inputs() {
    let inputs = |seed| {
        let config =
            Config { rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() };
        let seen = RefCell::new(Vec::new());
        let run = TestRunner::new(config).run(&mutation::spoilt(&corpus()), |bytes| {
            seen.borrow_mut().push(bytes);
            Ok(())
        });
        run.expect("nothing fails");
        seen.into_inner()
    };
    assert_eq!(inputs(7), inputs(7));
    assert_ne!(inputs(7), inputs(8));
}

#[test]
fn a_panic_is_a_failure_that_reports_seed_and_bytes() {
    let message = failure(|| {
        corpus().check("panics", 10_000, |bytes, _| {
            assert!(!bytes.contains(&0xff), "found 0xff");
            Ok(())
        });
    });
    assert!(message.contains("PACELINE_FUZZ_SEED=") && message.contains("found 0xff"), "{message}");
    assert!(message.contains("b\""), "{message}");
}

#[test]
fn an_unchanged_entry_that_fails_is_named() {
    let message = failure(|| corpus().check("entry", 1, |_, _| Err("no".into())));
    assert_eq!(message, "entry: a unchanged, choice 0: no");
}

#[test]
fn texts_are_mutated_by_whole_words() {
    let text = Corpus::default().with("query", *b"/runs/one?from=7").words(&["18446744073709551615"]);
    let found = Cell::new(false);
    text.check("words", 2_000, |bytes, _| {
        found.set(found.get() || bytes == b"/runs/one?from=18446744073709551615");
        Ok(())
    });
    assert!(found.get(), "no number was replaced by the word");
}
