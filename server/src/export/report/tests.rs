//! Tests of a fixed report in every rendering. After an intended change, run
//! `RENEW_GOLDENS=1 cargo test --lib goldens` and read the difference.

use std::path::Path;

use wire::batch::{Drop, DropReason};
use wire::event::{EventKind, Function};
use wire::ids::{Bucket, Rank};
use wire::traces::{TraceRowKind, TraceSum, TraceSummary};
use wire::views::goodput::{Attempt, Goodput, TimeUse, Uses};
use wire::views::what_if::{EfficiencyKind, Fix, Loss, LossLedger, Phase, Saving, WhatIf};
use wire::views::{
    Account, AccountEntry, AlphaBeta, BucketParameters, BucketStats, Cause, CollectiveCost, ComputedOn,
    Culprit, Figure, FlopsUtilization, Group, GroupStats, Hang, LastRank, LatencyHistogram, Missing,
    OneGroup, OwnOverhead, PastFault, Persistence, RankClock, RankDrops, RankLedger, RunState,
    ScalingEfficiency, Spending, Spread,
};

use super::*;

fn spread(median: f64) -> Spread {
    Spread {
        median,
        p10: median * 0.9,
        p90: median * 1.1,
        p95: median * 1.2,
        p99: median * 1.5,
        mean: median,
    }
}

fn ledger(rank: u32, input: u64, wait: u64) -> RankLedger {
    let parts = [input, 0, 4_600_000, 18_200_000, wait, 4_190_000, 610_000, 90_000].map(|part| part * 292);
    RankLedger {
        rank: Rank(rank),
        input_nanos: parts[0],
        h2d_nanos: parts[1],
        forward_nanos: parts[2],
        backward_nanos: parts[3],
        exposed_wait_nanos: parts[4],
        exposed_transfer_nanos: parts[5],
        optimizer_nanos: parts[6],
        other_nanos: parts[7],
        step_nanos: parts.iter().sum(),
        ..RankLedger::default()
    }
}

fn bucket(bucket: u32, bytes: u64) -> BucketStats {
    let latency =
        LatencyHistogram { first: 36, transfers: vec![0, 3, 140, 120, 29], waits: vec![200, 0, 9, 80, 3] };
    BucketStats {
        group: Group { ranks: 3, stride: 1 },
        function: Function::AllReduce,
        bucket: Bucket(bucket),
        bytes,
        collectives: 292,
        wait_nanos: spread(14_100_000.0),
        transfer_nanos: spread(700_000.0),
        latency,
        hidden_ratio: (bucket > 0).then_some(0.25),
        algbw: Some(1.5e9),
        busbw: Some(2.25e9),
        parameters: Some(parameters(bucket)),
    }
}

/// Bucket 0 has two parameters, bucket 1 has twelve.
fn parameters(bucket: u32) -> BucketParameters {
    let (first, count) =
        if bucket == 0 { (["fc.weight", "fc.bias"], 2) } else { (["c2.bias", "c1.bias"], 12) };
    let first = first.map(str::to_owned).into();
    BucketParameters { module: 0, generation: 1, bucket, first, count }
}

fn verdict() -> Verdict {
    Verdict {
        cost_nanos_per_step: 30_000_000,
        cost_share: 0.48,
        device_hours_per_day: Some(46.1),
        affected_steps: 150,
        confidence: Confidence::High,
        sentence: "Rank 2 waits for its input, which costs 30 ms per step (48 % of step time).".into(),
        evidence: vec![
            "its local work was the longest of all ranks in 292 of 292 steps".into(),
            "its input time is 42 ms longer than the mean of the other ranks".into(),
        ],
        counter_evidence: vec!["rank 0 was last in 3 buckets".into()],
        example_step: Some(200),
        persistence: Some(Persistence::Onset),
        steps: (150, 299),
        advice: "More loader workers or prefetching hide a slow disk.".into(),
        ..Verdict::new(Culprit::Rank(2), Cause::Input)
    }
}

fn what_if() -> WhatIf {
    let saving = |fix, nanos_per_step, share| Saving { fix, nanos_per_step, share };
    WhatIf {
        steps: 280,
        withheld_steps: 12,
        simulation_error: 0.011,
        slowdown: 1.92,
        wasted_share: 0.479,
        even_slowdown: 1.64,
        slowest_share: Figure::Known(0.93),
        ranks: vec![saving(Fix::Rank(Rank(2)), 28e6, 0.478), saving(Fix::Rank(Rank(0)), 0.0, 0.0)],
        phases: vec![saving(Fix::Phase(Phase::Input), 27.5e6, 0.469)],
        buckets: vec![saving(Fix::Bucket(Bucket(1)), 0.6e6, 0.0102)],
    }
}

/// Returns the goodput of a run whose job was restarted.
fn goodput() -> Goodput {
    let uses = Uses::from([
        (TimeUse::Compute, 60_000_000_000),
        (TimeUse::StragglerWait, 12_000_000_000),
        (TimeUse::OtherInSteps, 3_000_000_000),
        (TimeUse::Setup, 9_000_000_000),
        (TimeUse::Checkpoint, 1_500_000_000),
        (TimeUse::Recovery, 10_500_000_000),
        (TimeUse::Repeated, 3_000_000_000),
    ]);
    let attempt = |number, steps, repeated_steps| Attempt {
        number,
        began_unix_millis: 1_795_000_000_000,
        ranks: 3,
        steps: Some(steps),
        repeated_steps,
        uses: uses.clone(),
    };
    Goodput {
        ratio: 75.0 / 99.0,
        compute_ratio: 60.0 / 99.0,
        wall_nanos: 33_000_000_000,
        ranks: 3,
        repeated_steps: 40,
        knows_start: true,
        attempts: vec![attempt(0, (0, 239), 0), attempt(1, (200, 299), 40)],
        uses: uses.clone(),
    }
}

fn traced() -> TraceSummary {
    let sum = |kind, name: &str, nanos, gap_nanos| TraceSum {
        kind,
        name: name.into(),
        nanos,
        calls: 12,
        gap_nanos,
    };
    let long = format!(
        "void at::native::vectorized_elementwise_kernel<4, {}>",
        "at::native::CUDAFunctor_add<float>, ".repeat(3)
    );
    TraceSummary {
        steps: 6,
        step_nanos: 1_200_000_000,
        rows: vec![
            sum(TraceRowKind::Kernel, "ampere_sgemm_128x64_nn", 400_000_000, 3_000_000),
            sum(TraceRowKind::Operator, "aten::mm <a|b>", 90_000_000, 0),
            sum(TraceRowKind::Kernel, &long, 60_000_000, 12_000_000),
        ],
    }
}

/// Returns the report of a typical run. Its name has characters with a meaning in Markdown and HTML.
pub(crate) fn fixed() -> Report {
    let drop = Drop { kind: EventKind::Bucket, reason: DropReason::RingFull, count: 17 };
    Report {
        name: "char_lm <b>|*x*".into(),
        state: RunState::Completed,
        ranks: 3,
        steps: 292,
        step_range: Some((8, 299)),
        step_time_nanos: Figure::Known(spread(58_600_000.0)),
        local_step_time_nanos: Figure::Known(spread(58_600_000.0)),
        period_nanos: Figure::Known(58_600_000.0),
        throughput: Figure::Known(8_732.0),
        batch: Figure::Known(128.0),
        sample_unit: "tokens".into(),
        flops_utilization: FlopsUtilization {
            model: Figure::Known(0.412),
            hardware: Missing::NoHardwareFlops.into(),
            model_flops_per_second: Figure::Known(1.22e15),
            basis: Some(
                "140 GFLOP per token, as the job states; peak 989 TFLOP/s per rank, as the job states".into(),
            ),
        },
        goodput: Figure::Known(goodput()),
        overlap_ratio: Figure::Known(0.312),
        communication_fraction: Figure::Known(0.4),
        tail_nanos: Figure::Known(3e6),
        scaling_efficiency: ScalingEfficiency {
            implied: Figure::Known(0.398),
            measured: Missing::NoSmallerRun.into(),
        },
        own_overhead: Figure::Known(OwnOverhead { ratio: 0.0021, low: -0.004, high: 0.009, pairs: 18 }),
        what_if: Figure::Known(what_if()),
        account: Account {
            wall_nanos: 33_000_000_000,
            is_whole_run: true,
            entries: vec![
                AccountEntry { spending: Spending::Compute, nanos: 16_000_000_000 },
                AccountEntry { spending: Spending::UnevenRanks, nanos: 12_000_000_000 },
                AccountEntry { spending: Spending::Start, nanos: 5_000_000_000 },
            ],
        },
        spent: "The time in steps goes to: forward and backward 57.1 %, waiting for slower ranks 42.9 %."
            .into(),
        loss_ledger: Figure::Known(LossLedger {
            kind: EfficiencyKind::Implied,
            efficiency: 0.398,
            losses: Loss::ALL
                .into_iter()
                .filter(|loss| *loss != Loss::Idle)
                .zip([0.0, 0.478, 0.02, 0.07, 0.01, 0.0, 0.004])
                .collect(),
            residual: 0.02,
        }),
        ledger: vec![
            ledger(0, 22_900, 31_000_000),
            ledger(1, 22_700, 29_800_000),
            ledger(2, 31_000_000, 28_900),
        ],
        verdicts: vec![verdict()],
        verdicts_missing: None,
        past_faults: vec![PastFault {
            culprit: Some(Culprit::Ranks(vec![0, 1])),
            cause: Cause::MoreWork,
            cost_nanos_per_step: 4_250_000,
            steps: (2, 90),
        }],
        last_ranks: vec![
            LastRank {
                rank: Rank(2),
                last: 560,
                collectives: 584,
                nanos_per_step: 31_000_000.0,
                longest_nanos: 48_000_000,
                share: 0.985,
            },
            LastRank {
                rank: Rank(0),
                last: 24,
                collectives: 584,
                nanos_per_step: 472_000.0,
                longest_nanos: 2_000_000,
                share: 0.015,
            },
        ],
        traced: Some(traced()),
        computed_on: ComputedOn::Gpu,
        buckets: vec![bucket(0, 812_000), bucket(1, 4_194_304)],
        comm_model: Figure::Known(AlphaBeta {
            alpha_seconds: 3.1e-4,
            beta_seconds_per_byte: 4e-10,
            residual_seconds: 1e-5,
            points: vec![(812_000, 7e-4), (4_194_304, 2e-3)],
        }),
        clocks: vec![
            RankClock { rank: Rank(0), bound_nanos: Some(41_000), drift_ppb: 1_300.0 },
            RankClock { rank: Rank(1), bound_nanos: None, drift_ppb: 0.0 },
        ],
        drops: vec![RankDrops { rank: Rank(1), drops: vec![drop] }],
        gaps: Vec::new(),
        ..analysis::fixtures::report("char_lm-20261120-101500-1a2b")
    }
}

fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/export/report").join(name);
    if std::env::var_os("RENEW_GOLDENS").is_some() {
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("the golden file exists");
    assert!(text == golden, "{name} has changed (RENEW_GOLDENS=1 updates it):\n{text}");
}

#[test]
fn goldens_of_every_rendering_match() {
    let document = document(&fixed());
    check("golden.txt", &terminal(&document));
    check("golden.md", &markdown(&document));
    check("golden.html", &html(&document));
}

#[test]
fn all_renderings_have_the_same_sentences_and_sections() {
    let document = document(&fixed());
    let (text, html) = (terminal(&document), html(&document).replace("&#39;", "'"));
    for said in
        [&document.verdicts[0].sentence, &document.verdicts[0].evidence[1], &document.verdicts[0].details]
    {
        assert!(text.contains(said) && html.contains(said), "{said}");
        assert!(markdown(&document).contains(said), "{said}");
    }
    for section in document.sections.iter().filter(|section| section.brief) {
        assert!(text.contains(section.title) && html.contains(section.title), "{}", section.title);
    }
}

#[test]
fn html_has_no_external_resources_and_names_are_escaped() {
    let html = html(&document(&fixed()));
    assert!(!html.contains("<script") && !html.contains("http") && !html.contains("char_lm <b>"));
    assert!(html.contains("char_lm &lt;b&gt;|*x*"));
    let opened =
        |tag: &str| html.matches(&format!("<{tag}")).count() - html.matches(&format!("<{tag}er")).count();
    for tag in ["section", "table", "tr", "ul", "svg", "h1", "h2", "dl", "div"] {
        assert_eq!(opened(tag), html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(markdown(&document(&fixed())).contains("char_lm \\<b\\>\\|\\*x\\*"));
}

#[test]
fn a_hang_is_the_first_headline_and_a_missing_verdict_has_a_reason() {
    let hang = Hang {
        since_seconds: Some(31.0),
        since_unix_millis: None,
        limit_seconds: Some(10.0),
        ranks: vec![Rank(1)],
        sentence: "No step has completed for 31 s: rank 1 has not started.".into(),
        standing: Vec::new(),
    };
    let hung = document(&Report { hang: Some(hang), ..fixed() });
    assert!(hung.headlines[0].contains("31 s"));
    let html = html(&hung);
    assert!(html.find("31 s") < html.find("waits for its input") && html.matches("<h1>").count() == 1);
    let empty = Report {
        steps: 0,
        step_range: None,
        step_time_nanos: Missing::NoObservedStep.into(),
        what_if: Missing::NoObservedStep.into(),
        traced: None,
        account: Account::default(),
        spent: String::new(),
        loss_ledger: Missing::NoObservedStep.into(),
        goodput: Missing::NoObservedStep.into(),
        verdicts: Vec::new(),
        last_ranks: Vec::new(),
        buckets: Vec::new(),
        clocks: Vec::new(),
        drops: Vec::new(),
        verdicts_missing: Some(Missing::TooFewSteps { observed: 3, needed: 20 }),
        ..fixed()
    };
    let empty = document(&empty);
    assert_eq!(empty.headlines, ["insufficient evidence: 3 observed steps; a verdict needs 20"]);
    let titles: Vec<&str> = empty.sections.iter().map(|section| section.title).collect();
    assert_eq!(titles, ["Figures", "Not known"]);
}

#[test]
fn a_note_has_its_evidence_in_every_rendering() {
    let note = Verdict { sentence: "Rank 1 is late.".into(), ..verdict() };
    let shown = document(&Report { notes: vec![note], verdicts: Vec::new(), ..fixed() });
    let evidence = &verdict().evidence[0];
    let found = [terminal(&shown), markdown(&shown), html(&shown)];
    for text in &found {
        assert!(text.contains("Note: Rank 1 is late.") && text.contains(evidence.as_str()), "{text}");
        assert!(text.find("Note: ") < text.find(evidence.as_str()), "{text}");
        assert!(text.contains(&verdict().advice), "{text}");
    }
}

#[test]
fn lateness_that_costs_little_has_a_sentence_and_a_line_per_rank() {
    let text = terminal(&document(&fixed()));
    assert!(
        text.contains("Rank 2 is last in 560 of them, by 31.0 ms per step in all (98.5 % of such time)."),
        "{text}"
    );
    let mut hidden = fixed();
    hidden.last_ranks[0].nanos_per_step = 70_000_000.0;
    let text = terminal(&document(&hidden));
    assert!(text.contains("(98.5 % of such time); a fix saves 28.0 ms."), "{text}");
    hidden.last_ranks[0].share = 0.4;
    assert!(!terminal(&document(&hidden)).contains("Rank 2 is last in"));
    hidden.last_ranks.iter_mut().for_each(|rank| rank.nanos_per_step = 500_000.0);
    assert!(!terminal(&document(&hidden)).contains("Who starts collectives last"), "less than 1 % of a step");
    assert!(markdown(&document(&hidden)).contains("Who starts collectives last"));
}

#[test]
fn a_report_of_many_ranks_is_cut_and_says_so() {
    let many = Report { ledger: (0..1_000).map(|rank| ledger(rank, 1_000, 2_000)).collect(), ..fixed() };
    let document = document(&many);
    assert!(terminal(&document).contains("(992 more ranks: see --format json)"));
    assert!(
        html(&document).contains("936 more rows are not shown")
            && markdown(&document).contains("936 more rows are not shown")
    );
}

#[test]
fn groups_and_functions_are_named_if_a_job_has_several() {
    let mut report = fixed();
    report.buckets[0].group = Group { ranks: 2, stride: 1 };
    report.buckets[0].function = Function::AllGather;
    let text = markdown(&document(&report));
    assert!(text.contains("2 ranks, 1 apart, all-gather 0"), "{text}");
    assert!(text.contains("all ranks, all-reduce 1"), "{text}");
    assert!(!text.contains("Groups"), "the report has no groups");
    let cost = CollectiveCost {
        collectives: 24.0,
        bytes: 3e6,
        comm_nanos: 5e6,
        exposed_nanos: Some(4e6),
        wait_nanos: 1.5e6,
    };
    let group = |first: u32, latest| OneGroup { first: Rank(first), cost, latest };
    let stats = |group, functions, count, worst| GroupStats { group, functions, cost, count, worst };
    report.groups = vec![
        stats(Group { ranks: 3, stride: 1 }, vec![Function::AllReduce], 1, vec![group(0, None)]),
        stats(
            Group { ranks: 2, stride: 1 },
            vec![Function::AllGather, Function::ReduceScatter],
            20,
            vec![group(4, Some((Rank(5), 0.8))), group(0, None)],
        ),
    ];
    let text = markdown(&document(&report));
    for row in [
        "| all ranks | all-reduce | 24.0 | 2.86 MiB | 5.00 ms | 4.00 ms | 1.50 ms |  |",
        "| 2 ranks, 1 apart, 20 groups | all-gather, reduce-scatter |",
        "| ranks 4 to 5 |  | 24.0 | 2.86 MiB | 5.00 ms | 4.00 ms | 1.50 ms | rank 5 (80.0 %) |",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
    assert!(text.contains("18 more rows are not shown"), "{text}");
}
