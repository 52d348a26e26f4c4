//! What the Scaling view says in words.

use wire::ids::RunId;
use wire::views::scaling::{Scaling, ScalingPrediction};
use wire::views::{AlphaBeta, ScalingRule};

use crate::runs::choices::{Choices, choice};

/// The difference from 1 that two runs of the same job may have by chance.
const NOISE: f64 = 0.005;

/// Says how the run scales: its efficiency against the baseline, and what is predicted for twice as many ranks.
#[must_use]
pub fn sentence(answer: &Scaling) -> String {
    let predicted = answer.predictions.iter().find(|next| next.ranks >= answer.ranks.saturating_mul(2));
    [Some(measured(answer)), predicted.map(|next| prediction(answer, next)), missing(answer)]
        .into_iter()
        .flatten()
        .collect::<Vec<String>>()
        .join(" ")
}

fn measured(answer: &Scaling) -> String {
    let point = |run: &RunId| answer.points.iter().find(|point| point.run == *run);
    let own = point(&answer.run).filter(|own| own.batch.is_some());
    let base = answer.baseline.as_ref().and_then(point);
    let rule = answer.rule.unwrap_or_default();
    match (own.map(|own| own.measured), base) {
        (None, _) => "Efficiency is not measured: the batch per rank or the throughput is not known.".into(),
        (Some(_), Some(base)) if base.run == answer.run => {
            format!("This run is the baseline of the other runs with its {}.", rule.shared())
        }
        (Some(Some(own)), Some(base)) => {
            let sentence = format!(
                "On {}, the throughput per rank is {} of that of {} on {}{}, with the same {} ({}).",
                units::ranks(answer.ranks),
                units::percent(own),
                base.run,
                units::ranks(base.ranks),
                if base.has_verdict { ", a run that had a fault itself" } else { "" },
                rule.shared(),
                rule.name()
            );
            let why = above_one(own, (answer.ranks, base.ranks), rule);
            why.map_or_else(
                || sentence.clone(),
                |why| format!("{sentence} It is more than 100 % because {why}."),
            )
        }
        (Some(_), _) => format!(
            "Efficiency is not measured: no other run with the name “{}” has this batch per rank or this total batch.",
            answer.name
        ),
    }
}

/// Says why an efficiency can be above 1; `None` if it is not. `ranks` are those of the run and of the baseline.
#[must_use]
pub fn above_one(efficiency: f64, ranks: (u32, u32), rule: ScalingRule) -> Option<&'static str> {
    if efficiency <= 1.0 + NOISE {
        return None;
    }
    Some(match rule {
        _ if ranks.0 < ranks.1 => "it has fewer ranks than the baseline",
        ScalingRule::Strong => {
            "a rank has less work, which may fit into its caches, or the baseline was disturbed"
        }
        ScalingRule::Weak => "the baseline was disturbed: the work of a rank is the same",
    })
}

fn prediction(answer: &Scaling, next: &ScalingPrediction) -> String {
    let said = |predicted: &ScalingPrediction| {
        format!(
            "{} on {} ({})",
            units::percent(predicted.efficiency),
            units::ranks(predicted.ranks),
            band(predicted)
        )
    };
    let now = answer.predictions.iter().find(|now| now.ranks == answer.ranks);
    let now = now.map_or_else(String::new, |now| format!("{} and ", said(now)));
    format!("Against one rank, the predicted efficiency is {now}{}.", said(next))
}

/// Returns the error band of a prediction.
#[must_use]
pub fn band(prediction: &ScalingPrediction) -> String {
    let [low, high] = [prediction.efficiency_low, prediction.efficiency_high].map(units::percent);
    format!("{low} to {high}")
}

/// Returns the reason why there are no predictions, as a sentence.
#[must_use]
pub fn missing(answer: &Scaling) -> Option<String> {
    answer.missing.as_ref().map(|why| format!("There are no predictions: {why}."))
}

/// Returns the error of the model at the run's own world size, as a sentence.
#[must_use]
pub fn error(answer: &Scaling) -> Option<String> {
    let error = answer.model_error?;
    let error = units::signed_percent(error);
    Some(format!("For {}, the model is off by {error}.", units::ranks(answer.ranks)))
}

/// Describes the fitted line: its latency and bandwidth, and how close the points are to it.
#[must_use]
pub fn fit(model: &AlphaBeta) -> String {
    let bandwidth = match model.beta_seconds_per_byte {
        beta if beta > 0.0 => units::rate(1.0 / beta, "B/s"),
        _ => "unlimited".into(),
    };
    format!(
        "Latency {}, bandwidth {bandwidth}. Half of the points are within {} of the line.",
        units::nanos(model.alpha_seconds * 1e9),
        units::nanos(model.residual_seconds * 1e9)
    )
}

/// Returns the runs that can be the baseline, for a list.
#[must_use]
pub fn baselines(answer: &Scaling) -> Choices {
    let same_batch = answer.points.iter().filter(|point| point.measured.is_some());
    let runs = same_batch.map(|point| choice(&point.run, point.ranks)).collect();
    Choices { name: format!("same {}", answer.rule.unwrap_or_default().shared()), runs }
}

#[cfg(test)]
mod tests {
    use wire::views::scaling::ScalingPoint;

    use super::*;

    fn point(run: &str, ranks: u32, measured: Option<f64>) -> ScalingPoint {
        ScalingPoint {
            run: RunId::new(run).unwrap(),
            ranks,
            throughput: 100.0,
            step_nanos: 1e7,
            batch: Some(8.0),
            measured,
            implied: None,
            started_unix_millis: 0,
            has_verdict: false,
        }
    }

    fn answer(points: Vec<ScalingPoint>, baseline: &str) -> Scaling {
        Scaling {
            run: RunId::new("own").unwrap(),
            name: "job".into(),
            ranks: 8,
            sample_unit: "samples".into(),
            baseline: Some(RunId::new(baseline).unwrap()),
            rule: Some(ScalingRule::Weak),
            points,
            comm_model: None,
            predictions: Vec::new(),
            model_error: None,
            assumptions: Vec::new(),
            caps: Vec::new(),
            cap_advice: None,
            missing: None,
        }
    }

    #[test]
    fn the_sentence_names_the_baseline_and_the_next_world_size() {
        let mut answer = answer(vec![point("two", 2, Some(1.0)), point("own", 8, Some(0.9))], "two");
        answer.predictions = [1, 8, 16, 32]
            .map(|ranks| ScalingPrediction {
                ranks,
                step_nanos: 1e7,
                efficiency: 0.8,
                efficiency_low: 0.7,
                efficiency_high: 0.85,
            })
            .to_vec();
        assert_eq!(
            sentence(&answer),
            "On 8 ranks, the throughput per rank is 90.0 % of that of two on 2 ranks, with the same batch per rank (weak \
             scaling). Against one rank, the predicted efficiency is 80.0 % on 8 ranks (70.0 % to 85.0 %) and 80.0 % on 16 ranks (70.0 % to 85.0 %)."
        );
    }

    #[test]
    fn without_a_measurement_the_sentence_says_why() {
        let mut alone = answer(vec![point("own", 8, None), point("other-batch", 2, None)], "own");
        alone.baseline = None;
        assert_eq!(
            measured(&alone),
            "Efficiency is not measured: no other run with the name “job” has this batch per rank or this total batch."
        );
        let base = answer(vec![point("own", 8, Some(1.0)), point("sixteen", 16, Some(0.9))], "own");
        assert!(measured(&base).starts_with("This run is the baseline"));
        let uncounted = answer(vec![ScalingPoint { batch: None, ..point("own", 8, None) }], "own");
        assert!(measured(&uncounted).contains("not known"));
    }

    #[test]
    fn an_efficiency_above_one_has_a_reason() {
        let mut answer = answer(vec![point("two", 2, Some(1.0)), point("own", 8, Some(1.2))], "two");
        assert!(measured(&answer).ends_with(
            "more than 100 % because the baseline was disturbed: the work of a rank is the same."
        ));
        answer.rule = Some(ScalingRule::Strong);
        assert!(
            measured(&answer)
                .contains("with the same total batch (strong scaling). It is more than 100 % because a rank")
        );
        assert_eq!(above_one(1.003, (8, 2), ScalingRule::Weak), None);
        assert_eq!(above_one(1.3, (2, 8), ScalingRule::Weak), Some("it has fewer ranks than the baseline"));
    }

    #[test]
    fn only_runs_with_the_same_batch_can_be_the_baseline() {
        let answer = answer(vec![point("two", 2, Some(1.0)), point("other", 4, None)], "two");
        assert_eq!(baselines(&answer).runs, [("two".to_owned(), "two · 2 ranks".to_owned())]);
    }
}
