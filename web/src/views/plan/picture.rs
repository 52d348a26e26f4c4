//! Training time against the number of ranks, in one chart.

use std::sync::Arc;

use model::plan::{Line, Plan, days, tick};
use viz::xy::Axis;

use crate::xy::{Hit, Ink, Mark, Picture};

/// Creates the chart.
pub fn picture(plan: &Plan) -> Arc<Picture> {
    let ranks = |line: &Line| f64::from(line.planned.ranks);
    let (first, last) = (plan.lines.first().map_or(1.0, ranks), plan.lines.last().map_or(2.0, ranks));
    let ends = plan.lines.iter().flat_map(|line| {
        let (low, high) = line.days.unwrap_or((line.planned.days, line.planned.days));
        [line.planned.ideal_days, low, high]
    });
    let (least, most) =
        ends.fold((f64::MAX, 0.0f64), |(least, most), days| (least.min(days), most.max(days)));
    let (x, y) = (Axis::log(first * 0.84, last * 1.19, 2.0), Axis::log(least * 0.8, most * 1.25, 10.0));
    let line = |read: fn(&Line) -> f64| -> Vec<(f64, f64)> {
        plan.lines.iter().map(|line| (ranks(line), read(line))).collect()
    };
    let band = plan.lines.iter().filter_map(|line| {
        let (low, high) = line.days?;
        Some((ranks(line), low, high))
    });
    let hit = |line: &Line| Hit {
        at: (ranks(line), line.planned.days),
        says: vec![
            units::ranks(line.planned.ranks),
            days(line.planned.days),
            format!("{} with perfect scaling", days(line.planned.ideal_days)),
        ],
    };
    Arc::new(Picture {
        x,
        y,
        x_ticks: x.ticks(12, |ranks| units::count(ranks.round() as u64)),
        y_ticks: y.ticks(5, tick),
        marks: vec![
            Mark::Band { points: band.collect(), ink: Ink::Accent },
            Mark::Line { points: line(|line| line.planned.ideal_days), ink: Ink::Muted, dashed: true },
            Mark::Line { points: line(|line| line.planned.days), ink: Ink::Accent, dashed: false },
            Mark::Rule { x: ranks(&plan.chosen), text: "this plan".into() },
            Mark::Dots { points: line(|line| line.planned.days), ink: Ink::Accent, hollow: false },
        ],
        hits: plan.lines.iter().map(hit).collect(),
    })
}
