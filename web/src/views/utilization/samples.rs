//! The newest sample of each rank's device.

use leptos::prelude::*;
use wire::device::{DeviceFigure, DeviceSample, throttle};
use wire::views::RankDevice;

use crate::table::{Column, Table};

/// A measure: its name, its meaning as a phrase, and the function that reads its value from a sample. The value is
/// `None` if the device does not report it.
type Measure = (&'static str, &'static str, fn(&DeviceSample) -> Option<String>);

const MEASURES: [Measure; 15] = [
    ("Busy", "share of the last second in which some kernel ran", |at| {
        percent(at, DeviceFigure::UtilizationPercent)
    }),
    ("SMs", "share of time in which streaming multiprocessors had work", |at| {
        permille(at, DeviceFigure::SmActivityPermille)
    }),
    ("Tensor", "share of time in which tensor cores worked", |at| {
        permille(at, DeviceFigure::TensorActivityPermille)
    }),
    ("DRAM", "share of the memory bandwidth in use", |at| permille(at, DeviceFigure::DramActivityPermille)),
    ("SM clock", "current clock, of the highest", |at| {
        with_limit(at, DeviceFigure::SmClockMegahertz, DeviceFigure::SmClockMostMegahertz, (1.0, 0, "MHz"))
    }),
    ("Throttled by", "reasons why the clocks are lowered", |at| {
        let names = throttle::names(at.get(DeviceFigure::ThrottleReasons)?);
        Some(if names.is_empty() { "—".to_owned() } else { names.join(", ") })
    }),
    ("Power", "power drawn, of the limit", |at| {
        with_limit(at, DeviceFigure::PowerMilliwatts, DeviceFigure::PowerLimitMilliwatts, (1e-3, 0, "W"))
    }),
    ("Temperature", "temperature of the GPU", |at| {
        Some(format!("{} °C", at.get(DeviceFigure::TemperatureCelsius)?))
    }),
    ("Memory", "memory in use, of the total", |at| {
        with_limit(
            at,
            DeviceFigure::MemoryUsedBytes,
            DeviceFigure::MemoryTotalBytes,
            (1.0 / f64::from(1 << 30), 1, "GiB"),
        )
    }),
    ("Tensors", "memory in use by tensors now / at its peak (PyTorch's allocator)", |at| {
        let known = |figure| at.get(figure).map(units::bytes);
        Some(format!(
            "{} / {}",
            known(DeviceFigure::AllocatedBytes)?,
            known(DeviceFigure::AllocatedPeakBytes)?
        ))
    }),
    (
        "Reserved",
        "memory that PyTorch's allocator holds, with the part that fragmentation keeps from use elsewhere",
        |at| {
            let reserved = units::bytes(at.get(DeviceFigure::ReservedBytes)?);
            let split = at.get(DeviceFigure::InactiveSplitBytes).filter(|bytes| *bytes > 0);
            Some(match split {
                Some(split) => format!("{reserved} ({} fragmented)", units::bytes(split)),
                None => reserved,
            })
        },
    ),
    (
        "Out of memory",
        "times that PyTorch's allocator emptied its cache to try again / errors that it raised",
        |at| {
            let known = |figure| at.get(figure).map(units::count);
            Some(format!(
                "{} / {}",
                known(DeviceFigure::AllocationRetries)?,
                known(DeviceFigure::OutOfMemoryErrors)?
            ))
        },
    ),
    ("PCIe", "sent / received", |at| {
        both(
            at,
            DeviceFigure::PcieSentKibibytesPerSecond,
            DeviceFigure::PcieReceivedKibibytesPerSecond,
            1.0 / 1024.0,
        )
    }),
    ("NVLink", "sent / received", |at| {
        both(
            at,
            DeviceFigure::NvlinkSentMebibytesPerSecond,
            DeviceFigure::NvlinkReceivedMebibytesPerSecond,
            1.0,
        )
    }),
    (
        "Errors",
        "critical errors (Xid) since sampling began, with the number of the last one; uncorrected memory errors (ECC)",
        |at| {
            let (xid, ecc) = (at.get(DeviceFigure::XidErrors), at.get(DeviceFigure::EccUncorrectedErrors));
            xid.or(ecc)?;
            let last =
                at.get(DeviceFigure::LastXid).map_or_else(String::new, |last| format!(" (Xid {last})"));
            Some(format!("{}{last} / {} ECC", xid.unwrap_or(0), ecc.unwrap_or(0)))
        },
    ),
];

fn percent(at: &DeviceSample, figure: DeviceFigure) -> Option<String> {
    Some(format!("{} %", at.get(figure)?))
}

fn permille(at: &DeviceSample, figure: DeviceFigure) -> Option<String> {
    Some(format!("{:.1} %", at.get(figure)? as f64 / 10.0))
}

/// Formats a figure and its limit in a unit, which is given as a factor, a number of digits and a name.
fn with_limit(
    at: &DeviceSample,
    figure: DeviceFigure,
    limit: DeviceFigure,
    (factor, digits, unit): (f64, usize, &str),
) -> Option<String> {
    let value =
        |figure: DeviceFigure| at.get(figure).map(|value| units::fixed(value as f64 * factor, digits));
    let now = value(figure)?;
    Some(value(limit).map_or_else(|| format!("{now} {unit}"), |limit| format!("{now} of {limit} {unit}")))
}

fn both(at: &DeviceSample, sent: DeviceFigure, received: DeviceFigure, mebibytes: f64) -> Option<String> {
    let value = |figure: DeviceFigure| Some(units::fixed(at.get(figure)? as f64 * mebibytes, 0));
    Some(format!("{} / {} MiB/s", value(sent)?, value(received)?))
}

/// The table of samples, with a column for each measure that some device reports.
#[component]
pub fn Samples(samples: Signal<Vec<RankDevice>>) -> impl IntoView {
    let known = Memo::new(move |_| {
        let is_known =
            |at: &usize| samples.with(|all| all.iter().any(|rank| MEASURES[*at].2(&rank.sample).is_some()));
        (0..MEASURES.len()).filter(is_known).collect::<Vec<usize>>()
    });
    let table = move || {
        let (columns, key) = (columns(&known.get()), |row: &RankDevice| row.rank.0);
        view! { <Table testid="device-samples" caption="Devices by rank" columns=columns rows=samples key=key /> }
    };
    view! {
        <section class="panel" aria-label="Devices" data-testid="devices">
            <div class="panel-head">
                <h2>"Devices"<small>" newest sample of each, once per second"</small></h2>
            </div>
            {table}
        </section>
    }
}

fn columns(known: &[usize]) -> Vec<Column<RankDevice>> {
    let mut columns = vec![
        Column::number("Rank", |row: &RankDevice| (f64::from(row.rank.0), row.rank.to_string())),
        Column::text("Device", |row: &RankDevice| row.sample.device.clone()),
    ];
    columns.extend(known.iter().map(|&at| {
        let (name, meaning, read) = MEASURES[at];
        Column::text(name, move |row: &RankDevice| read(&row.sample).unwrap_or_else(|| "—".into()))
            .meaning(meaning)
            .right()
    }));
    columns
}
