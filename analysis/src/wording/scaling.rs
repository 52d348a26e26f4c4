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
        "Differences between ranks that change from step to step grow like the largest of as many draws from the observed \
         ones as there are ranks; steady differences stay the same."
            .into(),
        "The lower end of the band assumes the heaviest tail that the largest differences allow, and that their growth is \
         exposed in full. The upper end assumes tree latency and no growth."
            .into(),
        "The choice of the observed steps and the model's error widen both ends. What none of these steps shows, such as a \
         rarer stall, is not in the band."
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
