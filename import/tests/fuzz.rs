//! Fuzzes the import: damaged files of every format give an error or a job, never a panic, and all that they give is well-formed.

use fuzz::{Corpus, Verdict};
use import::job;
use import::kineto::{self, figures};
use wire::codec;
use wire::event::Event;
use wire::ids::RunId;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");

#[test]
fn damaged_files_are_errors_or_jobs() {
    Corpus::folder(CORPUS).check("import", 20_000, |bytes, choice| {
        // Figures are of all traces, also of those without work of a device.
        if let Ok(trace) = kineto::read(bytes) {
            are_sums(&trace)?;
        }
        let Ok(source) = import::read("rank-1", bytes) else { return Ok(()) };
        // Two ranks, of which one is whole or both are damaged alike.
        let mut other = source.clone();
        other.file = "rank-0".into();
        other.ranks.iter_mut().for_each(|rank| rank.rank = rank.rank.map(|_| 0));
        let mut sources = vec![source];
        if choice % 2 == 0 {
            sources.push(other);
        }
        let run = RunId::new("fuzzed").map_err(|error| error.to_string())?;
        let Ok(job) = job::join(&run, "fuzzed", sources) else { return Ok(()) };
        for frame in job.rounds.iter().flatten() {
            let batch = codec::decode(frame).map_err(|error| format!("a batch is refused: {error}"))?;
            ensure(codec::encode(&batch).is_ok_and(|again| again == *frame), "a batch comes back")?;
            ensure(batch.events.iter().all(is_in_order), "times are in order")?;
        }
        Ok(())
    });
}

fn are_sums(trace: &kineto::Trace) -> Verdict {
    for window in [figures::Window::All, figures::Window::WithoutLastStep, figures::Window::WithLastStep] {
        let found = figures::figures(trace, window);
        ensure(found.hidden_nanos <= found.compute_nanos.min(found.communication_nanos), "overlap")?;
    }
    Ok(())
}

fn is_in_order(event: &Event) -> bool {
    match event {
        Event::Step(step) => step.begin <= step.end,
        Event::Span(span) => span.begin <= span.end,
        Event::Bucket(bucket) => {
            bucket.ready <= bucket.launch && bucket.launch <= bucket.start && bucket.start <= bucket.end
        }
        Event::Started(_) => false,
    }
}

fn ensure(holds: bool, what: &str) -> Verdict {
    if holds { Ok(()) } else { Err(format!("does not hold: {what}")) }
}
