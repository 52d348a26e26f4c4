//! Devices and bursts as HTML, which the dashboard inserts.

use std::fmt::{self, Write as _};

use units::nanos;
use wire::burst::{Activity, BurstOutcome};
use wire::device::{DeviceFigure as Figure, DeviceSample, throttle};
use wire::event::SpanKind;
use wire::ids::{Rank, RunId};
use wire::views::{RankBurst, RankDevice};

use crate::export::escape::plain;
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
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut out, run, devices);
    out
}

fn write(out: &mut String, run: &RunId, devices: &Devices) -> fmt::Result {
    if devices.samples.is_empty() && devices.bursts.is_empty() {
        return write!(
            out,
            "<section class=empty data-testid=no-devices><h1>No rank has reported a device</h1>\
             <p>Ranks on NVIDIA GPUs report their device once per second if NVML can be opened. \
             <code>paceline doctor</code> says whether it can.</p></section>"
        );
    }
    looks(out, &devices.samples)?;
    bursts(out, run, devices)
}

fn looks(out: &mut String, looks: &[RankDevice]) -> fmt::Result {
    write!(
        out,
        "<section class=panel aria-label=Devices data-testid=devices><div class=panel-head><h2>Devices\
         <small> newest sample of each (NVML, once per second)</small></h2></div>"
    )?;
    let told: Vec<&Column> =
        COLUMNS.iter().filter(|(.., read)| looks.iter().any(|look| read(&look.sample).is_some())).collect();
    write!(
        out,
        "<div class=rows><table><thead><tr><th scope=col class=number>Rank</th><th scope=col>Device</th>"
    )?;
    for (name, meaning, _) in &told {
        write!(out, "<th scope=col class=number title=\"{meaning}\">{name}</th>")?;
    }
    write!(out, "</tr></thead><tbody>")?;
    for RankDevice { rank, sample } in looks.iter().take(MAX_RANKS) {
        write!(out, "<tr><th scope=row class=number>{rank}</th><td>{}</td>", plain(&sample.device))?;
        for (.., read) in &told {
            write!(out, "<td class=number>{}</td>", read(sample).unwrap_or_else(|| "—".into()))?;
        }
        write!(out, "</tr>")?;
    }
    write!(out, "</tbody></table></div>")?;
    left_out(out, looks.len())?;
    write!(out, "</section>")
}

fn left_out(out: &mut String, ranks: usize) -> fmt::Result {
    match ranks.saturating_sub(MAX_RANKS) {
        0 => Ok(()),
        more => write!(out, "<p class=quiet>{more} more ranks are in the API.</p>"),
    }
}

fn bursts(out: &mut String, run: &RunId, devices: &Devices) -> fmt::Result {
    write!(
        out,
        "<section class=panel aria-label=Bursts data-testid=bursts><div class=panel-head><h2>Bursts\
         <small> every kernel and copy, for a short time (CUPTI)</small></h2><span class=grow></span>\
         <form method=post target=answer action=\"/api/v1/runs/{run}/bursts?millis=1000\"><button>Record a second</button></form>\
         <iframe name=answer title=Answer hidden></iframe></div>"
    )?;
    if !devices.asked.is_empty() {
        let ranks: Vec<String> = devices.asked.iter().take(MAX_RANKS).map(Rank::to_string).collect();
        write!(
            out,
            "<p class=quiet role=status>Requested, but not answered yet: rank {}.</p>",
            ranks.join(", ")
        )?;
    } else if devices.bursts.is_empty() {
        write!(
            out,
            "<p class=quiet>None yet. A burst slows the job while it records, and yields to other profilers.</p>"
        )?;
    }
    if !devices.bursts.is_empty() {
        outcomes(out, &devices.bursts)?;
    }
    left_out(out, devices.bursts.len())?;
    write!(out, "</section>")
}

fn outcomes(out: &mut String, bursts: &[RankBurst]) -> fmt::Result {
    write!(out, "<div class=rows><table><thead><tr><th scope=col class=number>Rank</th>")?;
    for (name, meaning) in [
        ("Received", "time since the burst arrived"),
        ("Length", "from the first record to the last"),
        ("Compute", "share of the length in which a kernel ran that is not a collective"),
        ("Collectives", "share of the length in which a collective ran"),
        ("Hidden by kernels", "share of the collectives during which a kernel computed"),
        (
            "Hidden by streams",
            "share of the collectives during which a stream that computes was busy, including its copies and short \
             gaps between its kernels; compare this with the overlap of steps",
        ),
        ("Copies", "share of the length with copies or fills"),
        ("Idle", "share of the length in which nothing ran"),
        ("Launch gaps", "number of longer idle stretches, in which the device waited for its host"),
    ] {
        write!(out, "<th scope=col class=number title=\"{meaning}\">{name}</th>")?;
    }
    write!(out, "</tr></thead><tbody>")?;
    for RankBurst { rank, age_millis, burst } in bursts.iter().take(MAX_RANKS) {
        write!(
            out,
            "<tr><th scope=row class=number>{rank}</th><td class=number>{}</td>",
            units::ago(*age_millis as f64 / 1e3)
        )?;
        match &burst.outcome {
            BurstOutcome::Refused { reason } => {
                write!(out, "<td colspan=8>nothing recorded: {}</td>", plain(reason))?;
            }
            BurstOutcome::Recorded(activity) if activity.records == 0 => {
                write!(out, "<td colspan=8>nothing ran on its device</td>")?;
            }
            BurstOutcome::Recorded(activity) => shares(out, activity)?,
        }
        write!(out, "</tr>")?;
    }
    write!(out, "</tbody></table></div>")?;
    let recorded = bursts.iter().take(MAX_RANKS).filter_map(|one| match &one.burst.outcome {
        BurstOutcome::Recorded(activity) if activity.records > 0 => Some((one.rank, activity)),
        _ => None,
    });
    recorded.into_iter().try_for_each(|(rank, activity)| kernels(out, rank, activity))
}

fn shares(out: &mut String, activity: &Activity) -> fmt::Result {
    let share = |nanos: u64| format!("{:.1} %", nanos as f64 / activity.span_nanos.max(1) as f64 * 100.0);
    let percent =
        |ratio: Option<f64>| ratio.map_or_else(|| "—".into(), |ratio| format!("{:.1} %", ratio * 100.0));
    let cells = [
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
    ];
    cells.iter().try_for_each(|cell| write!(out, "<td class=number>{cell}</td>"))
}

fn kernels(out: &mut String, rank: Rank, activity: &Activity) -> fmt::Result {
    write!(
        out,
        "<details class=others><summary>Rank {rank}: top kernels of {} records</summary>",
        activity.records
    )?;
    if activity.dropped > 0 {
        write!(out, "<p class=quiet>{} records did not fit and are missing.</p>", activity.dropped)?;
    }
    write!(
        out,
        "<div class=rows><table><thead><tr><th scope=col>Kernel</th><th scope=col>Launched during</th>\
         <th scope=col class=number>Total</th>\
         <th scope=col class=number>Calls</th><th scope=col class=number>Longest</th></tr></thead><tbody>"
    )?;
    for kernel in &activity.kernels {
        write!(
            out,
            "<tr><th scope=row><code>{}</code></th><td>{}</td><td class=number>{}</td><td class=number>{}</td>\
             <td class=number>{}</td></tr>",
            plain(&kernel.name),
            kernel.phase.map_or("—", SpanKind::name),
            nanos(kernel.total_nanos as f64),
            kernel.calls,
            nanos(kernel.longest_nanos as f64)
        )?;
    }
    write!(out, "</tbody></table></div></details>")
}
