//! Devices and bursts as HTML, which the dashboard inserts.

use maud::{Markup, html};
use units::nanos;
use wire::burst::{Activity, BurstOutcome};
use wire::device::{DeviceFigure as Figure, DeviceSample, throttle};
use wire::event::SpanKind;
use wire::ids::{Rank, RunId};
use wire::views::{RankBurst, RankDevice};

use crate::state::devices::Devices;

/// The largest number of ranks that are shown. The API has all of them.
const MAX_RANKS: usize = 128;

/// A column: its name, its meaning as a phrase, and the function that reads its value from a sample. The value is
/// `None` if the device does not report it.
type Column = (&'static str, &'static str, fn(&DeviceSample) -> Option<String>);

const COLUMNS: [Column; 12] = [
    ("Busy", "share of the last second in which some kernel ran", |at| {
        percent(at, Figure::UtilizationPercent)
    }),
    ("SMs", "share of time in which streaming multiprocessors had work", |at| {
        permille(at, Figure::SmActivityPermille)
    }),
    ("Tensor", "share of time in which tensor cores worked", |at| {
        permille(at, Figure::TensorActivityPermille)
    }),
    ("DRAM", "share of the memory bandwidth in use", |at| permille(at, Figure::DramActivityPermille)),
    ("SM clock", "current clock, of the highest", |at| {
        of_most(at, Figure::SmClockMegahertz, Figure::SmClockMostMegahertz, (1.0, 0, "MHz"))
    }),
    ("Throttled by", "reasons why the clocks are lowered", |at| {
        let names = throttle::names(at.get(Figure::ThrottleReasons)?);
        Some(if names.is_empty() { "—".to_owned() } else { names.join(", ") })
    }),
    ("Power", "power drawn, of the limit", |at| {
        of_most(at, Figure::PowerMilliwatts, Figure::PowerLimitMilliwatts, (1e-3, 0, "W"))
    }),
    ("Temperature", "temperature of the GPU", |at| {
        Some(format!("{} °C", at.get(Figure::TemperatureCelsius)?))
    }),
    ("Memory", "memory in use, of the total", |at| {
        of_most(at, Figure::MemoryUsedBytes, Figure::MemoryTotalBytes, (1.0 / f64::from(1 << 30), 1, "GiB"))
    }),
    ("PCIe", "sent / received", |at| {
        both(at, Figure::PcieSentKibibytesPerSecond, Figure::PcieReceivedKibibytesPerSecond, 1.0 / 1024.0)
    }),
    ("NVLink", "sent / received", |at| {
        both(at, Figure::NvlinkSentMebibytesPerSecond, Figure::NvlinkReceivedMebibytesPerSecond, 1.0)
    }),
    (
        "Errors",
        "critical errors (Xid) since sampling began, with the number of the last one; uncorrected memory errors (ECC)",
        |at| {
            let (xid, ecc) = (at.get(Figure::XidErrors), at.get(Figure::EccUncorrectedErrors));
            xid.or(ecc)?;
            let last = at.get(Figure::LastXid).map_or_else(String::new, |last| format!(" (Xid {last})"));
            Some(format!("{}{last} / {} ECC", xid.unwrap_or(0), ecc.unwrap_or(0)))
        },
    ),
];

fn percent(at: &DeviceSample, figure: Figure) -> Option<String> {
    Some(format!("{} %", at.get(figure)?))
}

fn permille(at: &DeviceSample, figure: Figure) -> Option<String> {
    Some(format!("{:.1} %", at.get(figure)? as f64 / 10.0))
}

/// Formats a figure and its maximum in a unit, which is given as a factor, a number of digits and a name.
fn of_most(
    at: &DeviceSample,
    figure: Figure,
    most: Figure,
    (factor, digits, unit): (f64, usize, &str),
) -> Option<String> {
    let value = |of: Figure| at.get(of).map(|value| format!("{:.digits$}", value as f64 * factor));
    let now = value(figure)?;
    Some(value(most).map_or_else(|| format!("{now} {unit}"), |most| format!("{now} of {most} {unit}")))
}

fn both(at: &DeviceSample, sent: Figure, received: Figure, mebibytes: f64) -> Option<String> {
    let value = |of: Figure| Some(format!("{:.0}", at.get(of)? as f64 * mebibytes));
    Some(format!("{} / {} MiB/s", value(sent)?, value(received)?))
}

/// Returns the devices and bursts of `run` as HTML.
#[must_use]
pub fn part(run: &RunId, devices: &Devices) -> String {
    let part = if devices.samples.is_empty() && devices.bursts.is_empty() {
        no_devices()
    } else {
        html! { (samples(&devices.samples)) (bursts(run, devices)) }
    };
    part.into_string()
}

fn no_devices() -> Markup {
    html! {
        section.empty data-testid="no-devices" {
            h1 { "No rank has reported a device" }
            p {
                "Ranks on NVIDIA GPUs report their device once per second if NVML can be opened. "
                code { "paceline doctor" } " says whether it can."
            }
        }
    }
}

fn samples(samples: &[RankDevice]) -> Markup {
    let is_known = |(.., read): &&Column| samples.iter().any(|one| read(&one.sample).is_some());
    let known: Vec<&Column> = COLUMNS.iter().filter(is_known).collect();
    html! {
        section.panel aria-label="Devices" data-testid="devices" {
            div.panel-head { h2 { "Devices" small { " newest sample of each (NVML, once per second)" } } }
            div.rows {
                table {
                    thead {
                        tr {
                            th.number scope="col" { "Rank" }
                            th scope="col" { "Device" }
                            @for (name, meaning, _) in &known {
                                th.number scope="col" title=(meaning) { (name) }
                            }
                        }
                    }
                    tbody {
                        @for RankDevice { rank, sample } in samples.iter().take(MAX_RANKS) {
                            tr {
                                th.number scope="row" { (rank) }
                                td { (sample.device) }
                                @for (.., read) in &known {
                                    td.number { (read(sample).unwrap_or_else(|| "—".into())) }
                                }
                            }
                        }
                    }
                }
            }
            (left_out(samples.len()))
        }
    }
}

fn left_out(ranks: usize) -> Markup {
    html! {
        @if ranks > MAX_RANKS { p.quiet { (ranks - MAX_RANKS) " more ranks are in the API." } }
    }
}

fn bursts(run: &RunId, devices: &Devices) -> Markup {
    let asked: Vec<String> = devices.asked.iter().take(MAX_RANKS).map(Rank::to_string).collect();
    html! {
        section.panel aria-label="Bursts" data-testid="bursts" {
            div.panel-head {
                h2 { "Bursts" small { " every kernel and copy, for a short time (CUPTI)" } }
                span.grow {}
                form method="post" target="answer" action={ "/api/v1/runs/" (run) "/bursts?millis=1000" } {
                    button { "Record a second" }
                }
                iframe name="answer" title="Answer" hidden {}
            }
            @if !asked.is_empty() {
                p.quiet role="status" { "Requested, but not answered yet: rank " (asked.join(", ")) "." }
            } @else if devices.bursts.is_empty() {
                p.quiet {
                    "None yet. A burst slows the job while it records, and yields to other profilers."
                }
            }
            @if !devices.bursts.is_empty() { (outcomes(&devices.bursts)) }
            (left_out(devices.bursts.len()))
        }
    }
}

/// The columns of the table of bursts: their names, and their meanings as phrases.
const BURST_COLUMNS: [(&str, &str); 9] = [
    ("Received", "time since the burst arrived"),
    ("Length", "from the first record to the last"),
    ("Compute", "share of the length in which a kernel ran that is not a collective"),
    ("Collectives", "share of the length in which a collective ran"),
    ("Hidden by kernels", "share of the collectives during which a kernel computed"),
    (
        "Hidden by streams",
        "share of the collectives during which a stream that computes was busy, including its copies and short gaps \
         between its kernels; compare this with the overlap of steps",
    ),
    ("Copies", "share of the length with copies or fills"),
    ("Idle", "share of the length in which nothing ran"),
    ("Launch gaps", "number of longer idle stretches, in which the device waited for its host"),
];

fn outcomes(bursts: &[RankBurst]) -> Markup {
    let recorded = bursts.iter().take(MAX_RANKS).filter_map(|one| match &one.burst.outcome {
        BurstOutcome::Recorded(activity) if activity.records > 0 => Some((one.rank, activity)),
        _ => None,
    });
    html! {
        div.rows {
            table {
                thead {
                    tr {
                        th.number scope="col" { "Rank" }
                        @for (name, meaning) in BURST_COLUMNS {
                            th.number scope="col" title=(meaning) { (name) }
                        }
                    }
                }
                tbody {
                    @for RankBurst { rank, age_millis, burst } in bursts.iter().take(MAX_RANKS) {
                        tr {
                            th.number scope="row" { (rank) }
                            td.number { (units::ago(*age_millis as f64 / 1e3)) }
                            (outcome(&burst.outcome))
                        }
                    }
                }
            }
        }
        @for (rank, activity) in recorded { (kernels(rank, activity)) }
    }
}

fn outcome(outcome: &BurstOutcome) -> Markup {
    html! {
        @match outcome {
            BurstOutcome::Refused { reason } => { td colspan="8" { "nothing recorded: " (reason) } }
            BurstOutcome::Recorded(activity) if activity.records == 0 => {
                td colspan="8" { "nothing ran on its device" }
            }
            BurstOutcome::Recorded(activity) => {
                @for cell in shares(activity) { td.number { (cell) } }
            }
        }
    }
}

fn shares(activity: &Activity) -> [String; 8] {
    let share = |nanos: u64| format!("{:.1} %", nanos as f64 / activity.span_nanos.max(1) as f64 * 100.0);
    let percent =
        |ratio: Option<f64>| ratio.map_or_else(|| "—".into(), |ratio| format!("{:.1} %", ratio * 100.0));
    [
        nanos(activity.span_nanos as f64),
        share(activity.compute_nanos),
        share(activity.collective_nanos),
        percent(activity.overlap_ratio()),
        percent(activity.covered_ratio()),
        share(activity.copy_nanos),
        share(activity.idle_nanos),
        match activity.gaps {
            0 => "none".into(),
            gaps => format!("{gaps}, longest {}", nanos(activity.longest_gap_nanos as f64)),
        },
    ]
}

fn kernels(rank: Rank, activity: &Activity) -> Markup {
    html! {
        details.others {
            summary { "Rank " (rank) ": top kernels of " (activity.records) " records" }
            @if activity.dropped > 0 { p.quiet { (activity.dropped) " records did not fit and are missing." } }
            div.rows {
                table {
                    thead {
                        tr {
                            th scope="col" { "Kernel" }
                            th scope="col" { "Launched during" }
                            @for name in ["Total", "Calls", "Longest"] { th.number scope="col" { (name) } }
                        }
                    }
                    tbody {
                        @for kernel in &activity.kernels {
                            tr {
                                th scope="row" { code { (kernel.name) } }
                                td { (kernel.phase.map_or("—", SpanKind::name)) }
                                td.number { (nanos(kernel.total_nanos as f64)) }
                                td.number { (kernel.calls) }
                                td.number { (nanos(kernel.longest_nanos as f64)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
