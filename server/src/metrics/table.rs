//! The families of a run: each with its name, its help text, its labels, and where its values come from.

use std::collections::BTreeMap;

use wire::batch::{DropReason, total};
use wire::live::Part;
use wire::views::{Culprit, Report, RunState, Verdict, VerdictState};

use super::family::Values::{BucketTime, Costs, Gauge, RankTime, Ranks, State, StepCount, StepTime, Total};
use super::family::{ByRank, Family, Put};
use super::{MAX_RANKS_IN_FULL, RunValues, WORST_RANKS, seconds};

/// The families of a run, except those of its devices and hosts.
pub(super) const FAMILIES: &[Family] = &[
    // Of closed steps.
    Family {
        name: "paceline_step_seconds",
        help: "Step time, from the first rank's begin to the last rank's end.",
        labels: &[],
        values: StepTime { from: 1e-3, value: |step| seconds(step.step_nanos()) },
    },
    Family {
        name: "paceline_bucket_bytes_total",
        help: "Payload of all collectives, in bytes, counted once for all ranks.",
        labels: &[],
        values: StepCount(|step| total(step.collectives.iter().map(|collective| collective.bytes)) as f64),
    },
    // Of the ranks in steps that were observed in full. What is only assumed is not counted: a missing figure has no series.
    Family {
        name: "paceline_phase_seconds_total",
        help: "Time of a rank by part of its step ledger. The parts sum to the rank's step time.",
        labels: &["rank", "phase"],
        values: RankTime(|step, add| {
            for part in Part::stacked(step.rank.part(Part::Idle) > 0) {
                add(&[&part.name().replace(' ', "_")], step.rank.part(part));
            }
        }),
    },
    Family {
        name: "paceline_straggler_wait_seconds_total",
        help: "Caused wait: how long after the rank before it this rank started, summed over its collectives.",
        labels: &["rank"],
        values: RankTime(|step, add| add(&[], step.rank.caused_wait_nanos)),
    },
    Family {
        name: "paceline_comm_seconds_total",
        help: "Time inside collectives.",
        labels: &["rank"],
        values: RankTime(|step, add| add(&[], step.rank.comm_nanos)),
    },
    Family {
        name: "paceline_exposed_comm_seconds_total",
        help: "Time inside collectives while the rank does not compute, split into wait and transfer.",
        labels: &["rank", "kind"],
        values: RankTime(|step, add| {
            if step.is_overlap_known {
                add(&["wait"], step.rank.part(Part::ExposedWait));
                add(&["transfer"], step.rank.part(Part::ExposedTransfer));
            }
        }),
    },
    Family {
        name: "paceline_hidden_comm_seconds_total",
        help: "Time inside collectives while the rank computes.",
        labels: &["rank"],
        values: RankTime(|step, add| {
            if step.is_overlap_known {
                add(&[], step.rank.hidden_nanos);
            }
        }),
    },
    // Of the collectives of these steps.
    Family {
        name: "paceline_bucket_transfer_seconds",
        help: "Transfer time of a bucket's collective, median over ranks.",
        labels: &["bucket"],
        values: BucketTime {
            from: 1e-5,
            nanos: |collective| collective.transfer_nanos.unwrap_or(collective.transfer_clock_free_nanos),
        },
    },
    Family {
        name: "paceline_bucket_wait_seconds",
        help: "Wait for the last rank in a bucket's collective, mean over ranks.",
        labels: &["bucket"],
        values: BucketTime {
            from: 1e-5,
            nanos: |collective| collective.wait_nanos.unwrap_or(collective.wait_clock_free_nanos),
        },
    },
    // Of a run and its report.
    Family {
        name: "paceline_overlap_ratio",
        help: "Share of communication during which the rank computes.",
        labels: &[],
        values: Gauge(|_, report, set| set(&[], report.overlap_ratio.value())),
    },
    Family {
        name: "paceline_scaling_efficiency_ratio",
        help: "Scaling efficiency: measured against a baseline run, or implied as compute / step.",
        labels: &["kind"],
        values: Gauge(|_, report, set| {
            set(&["implied"], report.scaling_efficiency.implied.value());
            set(&["measured"], report.scaling_efficiency.measured.value());
        }),
    },
    Family {
        name: "paceline_throughput_samples_per_second",
        help: "Samples per second over all ranks.",
        labels: &[],
        values: Gauge(|_, report, set| set(&[], report.throughput.value())),
    },
    Family {
        name: "paceline_mfu_ratio",
        help: "Model FLOPs utilization: operations of the samples per second, as a share of the devices' peak.",
        labels: &[],
        values: Gauge(|_, report, set| set(&[], report.flops_utilization.model.value())),
    },
    Family {
        name: "paceline_hfu_ratio",
        help: "Hardware FLOPs utilization: as paceline_mfu_ratio, with recomputation.",
        labels: &[],
        values: Gauge(|_, report, set| set(&[], report.flops_utilization.hardware.value())),
    },
    Family {
        name: "paceline_goodput_ratio",
        help: "Share of the wall time of all ranks that is steps that advance the job.",
        labels: &[],
        values: Gauge(|_, report, set| set(&[], report.goodput.known().map(|goodput| goodput.ratio))),
    },
    Family {
        name: "paceline_badput_seconds_total",
        help: "Time of all ranks that is not goodput, by what it went to.",
        labels: &["kind"],
        values: Total(|run, raise| {
            let goodput = run.report.and_then(|report| report.goodput.known());
            for (usage, nanos) in goodput.into_iter().flat_map(|goodput| &goodput.uses) {
                // What ends a run is recovery once the run is restarted.
                if !usage.is_productive() {
                    raise(&[usage.name()], seconds(*nanos));
                }
            }
        }),
    },
    Family {
        name: "paceline_own_overhead_ratio",
        help: "Cost of recording as a share of the step, measured by shadow steps. Noise may make it negative.",
        labels: &[],
        values: Gauge(|_, report, set| set(&[], report.own_overhead.known().map(|own| own.ratio))),
    },
    Family {
        name: "paceline_own_overhead_bound_ratio",
        help: "Bounds of the 95 % interval of paceline_own_overhead_ratio.",
        labels: &["bound"],
        values: Gauge(|_, report, set| {
            if let Some(own) = report.own_overhead.known() {
                set(&["low"], Some(own.low));
                set(&["high"], Some(own.high));
            }
        }),
    },
    Family {
        name: "paceline_straggler_cost_ratio",
        help: "Share of the step time that fixing this rank would save, by the verdict on it.",
        labels: &["rank", "cause"],
        values: Costs(costs_of_ranks),
    },
    Family {
        name: "paceline_loss_ratio",
        help: "Share of the time that all ranks lose, or that training pauses, by the verdict on it.",
        labels: &["cause"],
        values: Costs(losses),
    },
    Family {
        name: "paceline_last_step_timestamp_seconds",
        help: "Time when the newest step ended, as Unix time.",
        labels: &[],
        values: Gauge(|run, _, set| {
            set(&[], run.newest.and_then(|step| Some(step.window?.1.0 as f64 / 1e9)));
        }),
    },
    Family {
        name: "paceline_ranks_reporting",
        help: "Number of ranks that were heard from in the last ten seconds.",
        labels: &[],
        values: Gauge(|run, _, set| set(&[], Some(f64::from(run.summary.ranks_reporting)))),
    },
    Family {
        name: "paceline_ranks_expected",
        help: "Number of ranks of the run.",
        labels: &[],
        values: Gauge(|run, _, set| set(&[], Some(f64::from(run.summary.ranks_expected)))),
    },
    Family {
        name: "paceline_run_hung",
        help: "1 if no step has completed for max(10 x median step, 10 s), 0 otherwise.",
        labels: &[],
        values: Gauge(|run, _, set| set(&[], Some(flag(run.summary.state == RunState::Hung)))),
    },
    Family {
        name: "paceline_late_records",
        help: "Records that are in no figure: they arrived after their step was closed, or a step had too many.",
        labels: &[],
        values: Gauge(|run, _, set| set(&[], Some(run.late_records as f64))),
    },
    Family {
        name: "paceline_unanalyzed_steps",
        help: "Steps that are in no figure: too few ranks sent them, or they arrived faster than they are analyzed.",
        labels: &[],
        values: Gauge(|run, _, set| set(&[], Some(run.unanalyzed_steps as f64))),
    },
    Family {
        name: "paceline_run_state",
        help: "1 for the state of the run, 0 for all other states.",
        labels: &["state"],
        values: State,
    },
    // Of the ranks of a run.
    Family {
        name: "paceline_rank_lateness_seconds",
        help: "Start of a rank's collectives minus that of the median rank, mean over those of the newest step.",
        labels: &["rank"],
        values: Ranks(lateness),
    },
    Family {
        name: "paceline_rank_reporting",
        help: "1 if a rank was heard from in the last ten seconds, 0 if not. Absent once the rank has ended.",
        labels: &["rank"],
        values: Ranks(reporting),
    },
    Family {
        name: "paceline_rank_hung",
        help: "1 for each rank that a hung run is waiting for.",
        labels: &["rank"],
        values: Ranks(hung),
    },
    Family {
        name: "paceline_clock_error_bound_seconds",
        help: "Error bound of a rank's aligned times.",
        labels: &["rank"],
        values: Ranks(|run| {
            let bounds = run.clock_bounds.iter().take(run.most_ranks());
            Some(bounds.map(|&(rank, nanos)| (rank, seconds(nanos))).collect())
        }),
    },
    Family {
        name: "paceline_records_dropped_total",
        help: "Records that a rank's agent dropped since the process began, by reason.",
        labels: &["rank", "reason"],
        values: Total(dropped_records),
    },
];

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Returns the verdicts that are not resolved, with the share of time that each costs.
fn present(report: &Report) -> impl Iterator<Item = (&Verdict, f64)> {
    let present = report.verdicts.iter().filter(|verdict| verdict.state != VerdictState::Resolved);
    present.map(|verdict| (verdict, verdict.share_of_time(report.ranks)))
}

/// Returns the ranks that a verdict names; none if it is on all ranks, or of a pause, which is no fault of the rank that has it.
fn named(verdict: &Verdict) -> &[u32] {
    match &verdict.culprit {
        Some(culprit) if !verdict.cause.is_pause() => Culprit::ranks(culprit),
        _ => &[],
    }
}

/// Returns the cost of each verdict on ranks.
fn costs_of_ranks(report: &Report) -> BTreeMap<Vec<String>, f64> {
    let mut costs = BTreeMap::new();
    for (verdict, share) in present(report) {
        for rank in named(verdict) {
            costs.insert(vec![rank.to_string(), verdict.cause.name().to_owned()], share);
        }
    }
    costs
}

/// Returns the cost of all other verdicts.
fn losses(report: &Report) -> BTreeMap<Vec<String>, f64> {
    let mut losses = BTreeMap::new();
    for (verdict, share) in present(report).filter(|(verdict, _)| named(verdict).is_empty()) {
        *losses.entry(vec![verdict.cause.name().to_owned()]).or_insert(0.0) += share;
    }
    losses
}

/// Returns by how much each rank is late in the newest step; of many ranks, those that are late by most.
fn lateness(run: &RunValues<'_>) -> Option<ByRank> {
    let present = run.newest?.present();
    let mut late: ByRank =
        present.filter_map(|(rank, analysis)| Some((rank, analysis.lateness_nanos? / 1e9))).collect();
    if late.len() > MAX_RANKS_IN_FULL {
        late.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        late.truncate(WORST_RANKS);
    }
    Some(late)
}

/// Returns whether data arrives from each rank; of many ranks, those of which none does.
fn reporting(run: &RunValues<'_>) -> Option<ByRank> {
    let shown = run.reporting.iter().filter(|&&(_, reports)| run.is_in_full() || !reports);
    Some(shown.map(|&(rank, reports)| (rank, flag(reports))).take(run.most_ranks()).collect())
}

fn hung(run: &RunValues<'_>) -> Option<ByRank> {
    let ranks = run.summary.hang.iter().flat_map(|hang| &hang.ranks);
    Some(ranks.map(|rank| (rank.0 as usize, 1.0)).take(run.most_ranks()).collect())
}

fn dropped_records(run: &RunValues<'_>, raise: Put<'_, f64>) {
    if run.is_in_full() {
        // Counters begin at 0. Otherwise `increase` would not see the first losses.
        for rank in 0..run.summary.ranks_expected {
            DropReason::ALL.iter().for_each(|reason| raise(&[&rank.to_string(), reason.name()], 0.0));
        }
    }
    for &(rank, reason, count) in run.drops.iter().take(run.most_ranks()) {
        raise(&[&rank.to_string(), reason.name()], count as f64);
    }
}
