//! The tables of a report: what-ifs, losses of efficiency, step ledger, buckets, clocks, lost records.

use wire::event::EventKind;
use wire::event::Function;
use wire::live::Part;
use wire::views::what_if::{EfficiencyKind, Fix, Loss, Saving, WhatIf};
use wire::views::{BucketParameters, BucketStats, RankLedger, Report};

use super::{Body, Cell, Section, Table};
use analysis::wording::what_if;
use units::{bytes, nanos, percent};

/// The largest number of rows of a table with one row per rank.
const MAX_RANKS: usize = 64;
/// The largest number of fixes in the table.
const MAX_FIXES: usize = 8;
/// The smallest saving of a fix in the table, as a share of the step.
const MIN_SAVING: f64 = 0.005;

pub(super) fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

pub(super) fn section(
    title: &'static str,
    introduction: Vec<String>,
    brief: bool,
    table: Table,
) -> Option<Section> {
    Some(Section { title, introduction, body: Body::Table(table), brief })
}

/// Returns the table of what-ifs: fixes, and what each would save.
pub(super) fn what_if(report: &Report) -> Option<Section> {
    let what_if = report.what_if.known()?;
    let all = what_if.ranks.iter().chain(&what_if.phases).chain(&what_if.buckets);
    let mut fixes: Vec<&Saving> = all.filter(|saving| saving.share >= MIN_SAVING).collect();
    fixes.sort_by(|a, b| b.share.total_cmp(&a.share));
    fixes.truncate(MAX_FIXES);
    let row = |saving: &&Saving| {
        vec![
            name(report, saving.fix).into(),
            nanos(saving.nanos_per_step).into(),
            percent(saving.share).into(),
        ]
    };
    let rows = fixes.iter().map(row).collect();
    let table = Table { head: head(&["fix", "saves/step", "of the step"]), rows, ..Table::default() };
    section("What a fix would save", basis(what_if), true, table)
}

/// Returns sentences on the replay that the savings are based on.
fn basis(what_if: &WhatIf) -> Vec<String> {
    let error = percent(what_if.simulation_error);
    let mut replayed = format!("{} steps replayed, with a median error of {error}", what_if.steps);
    if what_if.withheld_steps > 0 {
        replayed.push_str(&format!("; {} with an error above 5 % are left out", what_if.withheld_steps));
    }
    let [alike, even] = what_if::slowdowns(what_if);
    vec![replayed + ".", alike, even]
}

fn name(report: &Report, fix: Fix) -> String {
    match fix {
        Fix::Rank(rank) => format!("rank {rank} works like other ranks"),
        Fix::Phase(phase) => format!("{} takes its mean on every rank", phase.name()),
        Fix::Bucket(bucket) => format!("{} transfers instantly", report.bucket_name(bucket)),
    }
}

/// Returns the loss ledger: the efficiency and what reduces it.
pub(super) fn losses(report: &Report) -> Option<Section> {
    let ledger = report.loss_ledger.known()?;
    let kind = match ledger.kind {
        EfficiencyKind::Measured => "measured against a run on fewer ranks",
        EfficiencyKind::Implied => "implied (compute / step)",
    };
    let mut rows: Vec<Vec<Cell>> = vec![vec!["efficiency".into(), percent(ledger.efficiency).into()]];
    // The step ledger has all of the exposed wait, and calls it so.
    let name = |loss: Loss| if loss == Loss::ExposedWait { "other exposed wait" } else { loss.name() };
    rows.extend(ledger.losses.iter().map(|(loss, share)| vec![name(*loss).into(), percent(*share).into()]));
    rows.push(vec!["not explained".into(), percent(ledger.residual).into()]);
    let table = Table { head: head(&["", "of the step"]), rows, ..Table::default() };
    section(
        "Where efficiency goes",
        vec![
            format!("Efficiency is {kind}. Efficiency and losses sum to 100 %."),
            "Imbalance is the part of the exposed wait that steady differences between ranks explain.".into(),
        ],
        true,
        table,
    )
}

/// Returns the step ledger, mean per step, with one row per rank.
pub(super) fn ledger(report: &Report) -> Option<Section> {
    if report.steps == 0 {
        return None;
    }
    let mean = |sum: u64| sum as f64 / report.steps as f64;
    let mut names = vec!["rank".to_owned()];
    let parts = || Part::stacked(report.has_idle());
    names.extend(parts().map(|part| part.name().to_owned()));
    names.push("step".into());
    let row = |ledger: &RankLedger| {
        let mut cells: Vec<Cell> = vec![format!("rank {}", ledger.rank).into()];
        cells.extend(parts().map(|part| Cell::from(nanos(mean(ledger.parts()[part as usize])))));
        cells.push(nanos(mean(ledger.step_nanos)).into());
        cells
    };
    let shown = &report.ledger[..report.ledger.len().min(MAX_RANKS)];
    let table = Table {
        head: names,
        rows: shown.iter().map(row).collect(),
        sideways: true,
        left_out: report.ledger.len() - shown.len(),
        bars: shown
            .iter()
            .map(|ledger| (format!("rank {}", ledger.rank), ledger.parts().map(mean)))
            .collect(),
    };
    section("Step ledger, mean per step", Vec::new(), true, table)
}

/// Returns the table of buckets, with their waits and transfers.
pub(super) fn buckets(report: &Report) -> Option<Section> {
    let mut names = head(&[
        "bucket",
        "size",
        "wait",
        "wait, p99",
        "transfer",
        "transfer, p99",
        "hidden",
        "bus bandwidth",
        "distribution",
    ]);
    let has_parameters = report.buckets.iter().any(|bucket| bucket.parameters.is_some());
    names.extend(has_parameters.then(|| "parameters".to_owned()));
    // Group and function are named only if some bucket is not an all-reduce among all ranks.
    let is_plain =
        |bucket: &BucketStats| bucket.group.ranks == report.ranks && bucket.function == Function::AllReduce;
    let name = |bucket: &BucketStats| match report.buckets.iter().all(is_plain) {
        true => bucket.bucket.to_string(),
        false => {
            format!("{}, {} {}", bucket.group.name(report.ranks), bucket.function.name(), bucket.bucket)
        }
    };
    let row = |bucket: &BucketStats| {
        let unknown = || "not known".to_owned();
        let mut cells: Vec<Cell> = vec![
            name(bucket).into(),
            bytes(bucket.bytes).into(),
            nanos(bucket.wait_nanos.median).into(),
            nanos(bucket.wait_nanos.p99).into(),
            nanos(bucket.transfer_nanos.median).into(),
            nanos(bucket.transfer_nanos.p99).into(),
            bucket.hidden_ratio.map_or_else(unknown, percent).into(),
            bucket.busbw.map_or_else(unknown, |busbw| format!("{:.2} GB/s", busbw / 1e9)).into(),
            Cell::Histogram(bucket.latency.clone()),
        ];
        let listed = || bucket.parameters.as_ref().map_or_else(unknown, BucketParameters::listed);
        cells.extend(has_parameters.then(|| listed().into()));
        cells
    };
    let rows = report.buckets.iter().map(row).collect();
    let introduction = vec!["Medians over steps. Wait is the time until the last rank starts.".to_owned()];
    section("Buckets", introduction, false, Table { head: names, rows, ..Table::default() })
}

/// Returns the table of clocks, with their error bounds and drifts.
pub(super) fn clocks(report: &Report) -> Option<Section> {
    let shown = &report.clocks[..report.clocks.len().min(MAX_RANKS)];
    let rows = shown.iter().map(|clock| {
        let bound = clock.bound_nanos.map_or_else(|| "not aligned".into(), |bound| nanos(bound as f64));
        vec![
            format!("rank {}", clock.rank).into(),
            bound.into(),
            clock
                .bound_nanos
                .map_or_else(String::new, |_| format!("{:.1} ppm", clock.drift_ppb / 1e3))
                .into(),
        ]
    });
    let table = Table {
        head: head(&["rank", "error bound", "drift"]),
        rows: rows.collect(),
        left_out: report.clocks.len() - shown.len(),
        ..Table::default()
    };
    section("Clocks", vec!["Error bound and drift against the server's clock.".into()], false, table)
}

/// Returns the table of lost records.
pub(super) fn drops(report: &Report) -> Option<Section> {
    let rows = report.drops.iter().flat_map(|rank| {
        rank.drops.iter().map(|drop| {
            let kind = match drop.kind {
                EventKind::Span => "spans",
                EventKind::Step => "steps",
                EventKind::Started => "collective starts",
                EventKind::Bucket => "buckets",
            };
            vec![
                format!("rank {}", rank.rank).into(),
                kind.into(),
                drop.reason.name().replace('_', " ").into(),
                drop.count.to_string().into(),
            ]
        })
    });
    let rows: Vec<Vec<Cell>> = rows.take(MAX_RANKS).collect();
    let all: usize = report.drops.iter().map(|rank| rank.drops.len()).sum();
    let left_out = all - rows.len();
    let table =
        Table { head: head(&["rank", "records", "reason", "lost"]), rows, left_out, ..Table::default() };
    section("Records lost", Vec::new(), false, table)
}
