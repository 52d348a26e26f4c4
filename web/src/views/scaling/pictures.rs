//! The charts of the Scaling view: efficiency against world size, the latency-bandwidth model, and bucket caps.

use std::sync::Arc;

use model::scaling::{above_one, band, missing};
use viz::xy::Axis;
use viz::{palette, ticks};
use wire::live::Part;
use wire::views::scaling::{Scaling, ScalingPoint, ScalingPrediction};

use crate::xy::{Hit, Ink, Mark, Picture, Shown};

fn ranks_axis(answer: &Scaling) -> Axis {
    let measured = answer.points.iter().map(|point| point.ranks);
    let known =
        measured.chain(answer.predictions.iter().map(|prediction| prediction.ranks)).chain([answer.ranks]);
    let (least, most) = known.fold((u32::MAX, 1), |(least, most), ranks| (least.min(ranks), most.max(ranks)));
    Axis::log(f64::from(least) * 0.84, f64::from(most.max(least.saturating_mul(2))) * 1.19, 2.0)
}

/// Efficiency against world size: measured, implied and predicted.
pub fn efficiency(answer: &Scaling) -> Shown {
    if answer.points.is_empty() && answer.predictions.is_empty() {
        let why = missing(answer);
        return Err(why.unwrap_or_else(|| "No run of this name has a throughput yet.".into()));
    }
    let points = |read: fn(&ScalingPoint) -> Option<f64>| -> Vec<(f64, f64)> {
        answer.points.iter().filter_map(|point| Some((f64::from(point.ranks), read(point)?))).collect()
    };
    let predicted = |read: fn(&ScalingPrediction) -> f64| -> Vec<(f64, f64)> {
        answer.predictions.iter().map(|prediction| (f64::from(prediction.ranks), read(prediction))).collect()
    };
    let (measured, implied) = (points(|point| point.measured), points(|point| point.implied));
    let band = answer
        .predictions
        .iter()
        .map(|p| (f64::from(p.ranks), p.efficiency_low, p.efficiency_high))
        .collect();
    let most = measured.iter().chain(&implied).map(|point| point.1).fold(1.0, f64::max);
    let (x, y) = (ranks_axis(answer), Axis::linear(0.0, most * 1.06));
    Ok(Arc::new(Picture {
        x,
        y,
        x_ticks: x.ticks(12, |ranks| units::count(ranks.round() as u64)),
        y_ticks: y.ticks(5, units::percent),
        marks: vec![
            Mark::Band { points: band, ink: Ink::Muted },
            Mark::Line { points: predicted(|p| p.efficiency), ink: Ink::Muted, dashed: true },
            Mark::Rule { x: f64::from(answer.ranks), text: "this run".into() },
            Mark::Dots { points: implied, ink: Ink::Strong, hollow: true },
            Mark::Dots { points: measured, ink: Ink::Accent, hollow: false },
        ],
        hits: efficiency_hits(answer),
    }))
}

fn efficiency_hits(answer: &Scaling) -> Vec<Hit> {
    let point_hit = |point: &ScalingPoint| {
        let mut says = vec![format!("{}: {}", units::ranks(point.ranks), point.run)];
        says.extend(point.measured.map(|e| format!("measured {}", units::percent(e))));
        let base =
            answer.baseline.as_ref().and_then(|base| answer.points.iter().find(|other| other.run == *base));
        let why = point.measured.zip(base).and_then(|(measured, base)| {
            above_one(measured, (point.ranks, base.ranks), answer.rule.unwrap_or_default())
        });
        says.extend(why.map(str::to_owned));
        says.extend(point.implied.map(|e| format!("implied {}", units::percent(e))));
        Some(Hit { at: (f64::from(point.ranks), point.measured.or(point.implied)?), says })
    };
    let prediction_hit = |p: &ScalingPrediction| Hit {
        at: (f64::from(p.ranks), p.efficiency),
        says: vec![
            format!("{}, predicted", units::ranks(p.ranks)),
            format!("{} ({})", units::percent(p.efficiency), band(p)),
            format!("step {}", units::nanos(p.step_nanos)),
        ],
    };
    let mut hits: Vec<Hit> = answer.predictions.iter().map(prediction_hit).collect();
    hits.extend(answer.points.iter().filter_map(point_hit));
    hits.sort_by(|a, b| a.at.0.total_cmp(&b.at.0));
    hits
}

/// Transfer time against payload, with the fitted line.
pub fn comm_model(answer: &Scaling) -> Shown {
    let Some(model) = &answer.comm_model else {
        return Err("No latency-bandwidth model: too few bucket sizes.".into());
    };
    let points: Vec<(f64, f64)> =
        model.points.iter().map(|&(bytes, seconds)| (bytes as f64, seconds * 1e9)).collect();
    let (least, most) = points
        .iter()
        .fold((f64::MAX, 1.0f64), |(least, most), point| (least.min(point.0), most.max(point.0)));
    let top = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let line = |bytes: f64| (bytes, (model.alpha_seconds + model.beta_seconds_per_byte * bytes) * 1e9);
    let (x, y) = (Axis::linear(0.0, most * 1.08), Axis::linear(0.0, ticks::ceiling(top * 1.1)));
    let residual = units::nanos(model.residual_seconds * 1e9);
    let hit = |&(bytes, nanos): &(f64, f64)| Hit {
        at: (bytes, nanos),
        says: vec![
            units::bytes(bytes as u64),
            format!("measured {}", units::nanos(nanos)),
            format!("fitted {}, residual {residual}", units::nanos(line(bytes).1)),
        ],
    };
    // There are no measurements below the smallest payload.
    let fitted = vec![line(least.min(most)), line(most)];
    let extended = vec![line(0.0), line(least.min(most))];
    Ok(Arc::new(Picture {
        x,
        y,
        x_ticks: x.ticks(6, |bytes| units::bytes(bytes as u64)),
        y_ticks: y.ticks(4, units::nanos),
        hits: points.iter().map(hit).collect(),
        marks: vec![
            Mark::Line { points: extended, ink: Ink::Muted, dashed: true },
            Mark::Line { points: fitted, ink: Ink::Muted, dashed: false },
            Mark::Dots { points, ink: Ink::Data(palette::part(Part::ExposedTransfer)), hollow: false },
        ],
    }))
}

/// The predicted step time against the bucket cap.
pub fn caps(answer: &Scaling) -> Shown {
    let (Some(first), Some(last)) = (answer.caps.first(), answer.caps.last()) else {
        let why = missing(answer);
        return Err(why.unwrap_or_else(|| "No predictions without a latency-bandwidth model.".into()));
    };
    let points: Vec<(f64, f64)> =
        answer.caps.iter().map(|cap| (cap.cap_bytes as f64, cap.step_nanos)).collect();
    let (least, most) = points
        .iter()
        .fold((f64::MAX, 0.0f64), |(least, most), point| (least.min(point.1), most.max(point.1)));
    let x = Axis::log(first.cap_bytes as f64 * 0.9, last.cap_bytes as f64 * 1.1, 2.0);
    // The axis does not begin at 0, because differences of a few percent matter here. Its labels show this.
    let room = ((most - least) * 0.15).max(least * 0.005);
    let y = Axis::linear((least - room).max(0.0), most + room);
    let hits = answer.caps.iter().map(|cap| Hit {
        at: (cap.cap_bytes as f64, cap.step_nanos),
        says: vec![
            format!("cap {}", units::bytes(cap.cap_bytes)),
            format!("step {}", units::nanos(cap.step_nanos)),
            format!("exposed transfer {}", units::nanos(cap.exposed_nanos)),
        ],
    });
    Ok(Arc::new(Picture {
        x,
        y,
        x_ticks: x.ticks(6, |bytes| units::bytes(bytes.round() as u64)),
        y_ticks: y.ticks(4, units::nanos),
        hits: hits.collect(),
        marks: vec![
            Mark::Line { points: points.clone(), ink: Ink::Muted, dashed: true },
            Mark::Dots { points, ink: Ink::Strong, hollow: true },
        ],
    }))
}
