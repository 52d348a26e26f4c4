//! A plan as text and in JSON.

use analysis::plan::TOKENS_PER_PARAMETER;
use analysis::plan::estimate::{Checkpoints, Estimate, Plan};
use serde_json::{Value, json};

use super::{Source, memory};

/// Returns the table of the estimates, and what its figures mean.
pub(super) fn table(plan: &Plan, estimates: &[Estimate], source: &Source, is_mfu_of_run: bool) -> String {
    let mut out = format!(
        "{:>8}{:>14}{:>12}{:>14}{:>12}{:>16}",
        "ranks", "ideal days", "efficiency", "days", "speed-up", "bound by"
    );
    out += if source.has_range() { "                 days, band" } else { "" };
    out += if plan.failures.is_some() { "    checkpoint every    lost to failures\n" } else { "\n" };
    for Estimate { planned, days, days_range, checkpoints, bound, .. } in estimates {
        out += &format!(
            "{:>8}{:>14.2}{:>10.1} %{:>14.2}{:>12.1}{:>16}",
            planned.ranks,
            planned.ideal_days,
            planned.efficiency * 100.0,
            days,
            planned.speed_up,
            bound.name()
        );
        if let Some((fewest, most)) = days_range {
            out += &format!("{:>27}", format!("{fewest:.2} to {most:.2}"));
        }
        if let Some(Checkpoints { interval, lost }) = checkpoints {
            out += &format!("{:>20}{:>18.1} %", units::clock(*interval), lost * 100.0);
        }
        out.push('\n');
    }
    out + "\n" + &meaning(plan, source, is_mfu_of_run) + "\n"
}

/// Says what the figures of the table mean, and where they are from.
fn meaning(plan: &Plan, source: &Source, is_mfu_of_run: bool) -> String {
    let training = &plan.training;
    let per_parameter = training.tokens / training.parameters;
    let mut lines = vec![
        format!("Scaling efficiency: {}.", source.phrase()),
        format!(
            "Tokens: {:.1} per parameter; compute-optimal is about {TOKENS_PER_PARAMETER} (Hoffmann et al., 2022).",
            per_parameter
        ),
    ];
    if source.has_range() {
        lines.push(
            "Band: what the days would be with the ends of the band of the predicted efficiency.".into(),
        );
    }
    if is_mfu_of_run {
        lines.push(format!("MFU: {:.1} %, of the run without its loss to scaling.", training.mfu * 100.0));
    }
    if let Some(pipeline) = plan.pipeline {
        lines.push(format!(
            "Pipeline: its stages are idle for {:.1} % of the step, (S - 1) / (M + S - 1); `days` includes it.",
            pipeline.idle() * 100.0
        ));
    }
    if plan.failures.is_some() {
        lines.push(
            "Checkpoints: the interval that loses the least (Daly, 2006); `days` includes what is lost."
                .into(),
        );
    }
    lines.join("\n")
}

pub(super) fn json(plan: &Plan, estimates: &[Estimate], source: &Source) -> Value {
    let row = |estimate: &Estimate| {
        let Estimate { planned, days, days_range, efficiency_range, checkpoints, bound } = estimate;
        json!({
            "ranks": planned.ranks, "ideal_days": planned.ideal_days, "efficiency": planned.efficiency, "days": days,
            "efficiency_range": efficiency_range, "days_range": days_range,
            "speed_up": planned.speed_up, "bound_by": bound.name(),
            "checkpoint_every_seconds": checkpoints.map(|checkpoints| checkpoints.interval),
            "lost_to_failures": checkpoints.map(|checkpoints| checkpoints.lost),
            "memory": memory::json(&plan.model_on(planned.ranks)),
        })
    };
    json!({
        "efficiency_from": source.phrase(), "mfu": plan.training.mfu, "tokens": plan.training.tokens,
        "plan": estimates.iter().map(row).collect::<Vec<_>>(),
    })
}
