//! The sentences of the Scaling view.

use wire::views::scaling::CapPrediction;

/// Returns the assumptions of predictions from a run on `ranks` ranks.
pub(crate) fn assumptions(ranks: u32) -> Vec<String> {
    vec![
        "The model and the batch per rank stay the same (weak scaling).".into(),
        format!(
            "All-reduce is a ring: from the fit on {} ranks, latency grows with ranks - 1 and the volume per rank \
             with (ranks - 1) / ranks; links between machines are as fast as the measured links.",
            units::count(ranks.into())
        ),
        "Differences between ranks that change from step to step grow like the largest of as many normal draws as there \
         are ranks; steady differences stay the same."
            .into(),
        "The lower end of the band assumes a heavier tail, the upper end tree latency and no growth of unevenness; the \
         model's error at the measured world size widens both."
            .into(),
    ]
}

/// Returns the advice to use the bucket cap `best` instead of the present one, with which a step takes `now`
/// nanoseconds.
pub(crate) fn cap_advice(best: &CapPrediction, now: f64) -> String {
    let saved = now - best.step_nanos;
    format!(
        "A bucket cap of {} MiB is predicted to shorten the step by {} ({:.0} %).",
        best.cap_bytes as f64 / f64::from(1 << 20),
        units::nanos(saved),
        saved / now * 100.0
    )
}
