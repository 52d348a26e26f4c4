//! The Devices view: samples of the ranks' devices, and bursts, which record every kernel for a short time.

use leptos::prelude::*;
use leptos::task::spawn_local;
use wire::burst::{Activity, BurstOutcome, BurstRequest, KernelTime};
use wire::device::{DeviceFigure, DeviceSample, throttle};
use wire::event::SpanKind;
use wire::views::{RankBurst, RankDevice};

use crate::api;
use crate::live::Live;
use crate::route::RunId;
use crate::socket::Link;

/// The largest number of ranks that are shown. The API has all of them.
const MAX_RANKS: usize = 128;

/// A measure: its name, its meaning as a phrase, and the function that reads its value from a sample. The value is
/// `None` if the device does not report it.
type Measure = (&'static str, &'static str, fn(&DeviceSample) -> Option<String>);

const MEASURES: [Measure; 12] = [
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
        of_most(at, DeviceFigure::SmClockMegahertz, DeviceFigure::SmClockMostMegahertz, (1.0, 0, "MHz"))
    }),
    ("Throttled by", "reasons why the clocks are lowered", |at| {
        let names = throttle::names(at.get(DeviceFigure::ThrottleReasons)?);
        Some(if names.is_empty() { "—".to_owned() } else { names.join(", ") })
    }),
    ("Power", "power drawn, of the limit", |at| {
        of_most(at, DeviceFigure::PowerMilliwatts, DeviceFigure::PowerLimitMilliwatts, (1e-3, 0, "W"))
    }),
    ("Temperature", "temperature of the GPU", |at| {
        Some(format!("{} °C", at.get(DeviceFigure::TemperatureCelsius)?))
    }),
    ("Memory", "memory in use, of the total", |at| {
        of_most(
            at,
            DeviceFigure::MemoryUsedBytes,
            DeviceFigure::MemoryTotalBytes,
            (1.0 / f64::from(1 << 30), 1, "GiB"),
        )
    }),
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

/// Formats a figure and its maximum in a unit, which is given as a factor, a number of digits and a name.
fn of_most(
    at: &DeviceSample,
    figure: DeviceFigure,
    most: DeviceFigure,
    (factor, digits, unit): (f64, usize, &str),
) -> Option<String> {
    let value = |of: DeviceFigure| at.get(of).map(|value| format!("{:.digits$}", value as f64 * factor));
    let now = value(figure)?;
    Some(value(most).map_or_else(|| format!("{now} {unit}"), |most| format!("{now} of {most} {unit}")))
}

fn both(at: &DeviceSample, sent: DeviceFigure, received: DeviceFigure, mebibytes: f64) -> Option<String> {
    let value = |of: DeviceFigure| Some(format!("{:.0}", at.get(of)? as f64 * mebibytes));
    Some(format!("{} / {} MiB/s", value(sent)?, value(received)?))
}

/// The devices of a run.
#[derive(Clone, Default)]
struct Devices {
    samples: Vec<RankDevice>,
    bursts: Vec<RankBurst>,
}

/// The view.
#[component]
pub fn Devices() -> impl IntoView {
    let (live, run) = (expect_context::<Live>(), expect_context::<RunId>());
    let devices = RwSignal::new(None::<Devices>);
    Effect::new(move |_| {
        // Devices are sampled once per second, so they are fetched once per second.
        live.now.track();
        let run = run.get();
        spawn_local(async move {
            // The old content stays while the server is unreachable. The notice tells the user.
            if let (Ok(samples), Ok(bursts)) = (api::devices(&run).await, api::bursts(&run).await) {
                devices.set(Some(Devices { samples, bursts }));
            }
        });
    });
    let has_any = Memo::new(move |_| {
        devices.with(|devices| {
            devices.as_ref().map(|devices| !devices.samples.is_empty() || !devices.bursts.is_empty())
        })
    });
    let samples = Signal::derive(move || devices.get().unwrap_or_default().samples);
    let bursts = Signal::derive(move || devices.get().unwrap_or_default().bursts);
    move || match has_any.get() {
        None => ().into_any(),
        Some(false) => view! { <NoDevices /> }.into_any(),
        Some(true) => view! {
            <Samples samples=samples />
            <Bursts bursts=bursts />
        }
        .into_any(),
    }
}

#[component]
fn NoDevices() -> impl IntoView {
    view! {
        <section class="empty" data-testid="no-devices">
            <h1>"No rank has reported a device"</h1>
            <p>
                "Ranks on NVIDIA GPUs report their device once per second if NVML can be opened. "
                <code>"paceline doctor"</code>" says whether it can."
            </p>
        </section>
    }
}

#[component]
fn Samples(samples: Signal<Vec<RankDevice>>) -> impl IntoView {
    let known = Memo::new(move |_| {
        let is_known =
            |at: &usize| samples.with(|all| all.iter().any(|one| MEASURES[*at].2(&one.sample).is_some()));
        (0..MEASURES.len()).filter(is_known).collect::<Vec<usize>>()
    });
    let headings = move || {
        let heading = |at: usize| {
            let (name, meaning, _) = MEASURES[at];
            view! { <th class="number" scope="col" title=meaning>{name}</th> }
        };
        known.get().into_iter().map(heading).collect_view()
    };
    let row = move |RankDevice { rank, sample }: RankDevice| {
        let value = |at: usize| MEASURES[at].2(&sample).unwrap_or_else(|| "—".into());
        let values =
            known.get().into_iter().map(|at| view! { <td class="number">{value(at)}</td> }).collect_view();
        view! {
            <tr>
                <th class="number" scope="row">{rank.0}</th>
                <td>{sample.device}</td>
                {values}
            </tr>
        }
    };
    let count = move || samples.with(Vec::len);
    view! {
        <section class="panel" aria-label="Devices" data-testid="devices">
            <div class="panel-head">
                <h2>"Devices"<small>" newest sample of each (NVML, once per second)"</small></h2>
            </div>
            <div class="rows" tabindex="0" role="group" aria-label="Devices by rank">
                <table>
                    <thead>
                        <tr>
                            <th class="number" scope="col">"Rank"</th>
                            <th scope="col">"Device"</th>
                            {headings}
                        </tr>
                    </thead>
                    <tbody>{move || samples.get().into_iter().take(MAX_RANKS).map(row).collect_view()}</tbody>
                </table>
            </div>
            {move || view! { <LeftOut ranks=count() /> }}
        </section>
    }
}

#[component]
fn LeftOut(ranks: usize) -> impl IntoView {
    let more = ranks.saturating_sub(MAX_RANKS);
    (more > 0).then(|| view! { <p class="quiet">{more}" more ranks are in the API."</p> })
}

#[component]
fn Bursts(bursts: Signal<Vec<RankBurst>>) -> impl IntoView {
    let (run, live) = (expect_context::<RunId>(), expect_context::<Live>());
    let asked = RwSignal::new(None::<Result<Asked, String>>);
    let ask = move |_| {
        spawn_local(async move {
            let answer = api::ask_for_bursts(&run.get_untracked()).await;
            let until = live.now.get_untracked() + BurstRequest::PATIENCE_MILLIS as f64;
            asked.set(Some(answer.map(|request| Asked {
                number: request.number,
                until_millis: until + f64::from(request.millis),
            })));
        });
    };
    let is_unreachable = move || matches!(live.link.get(), Link::Lost(_) | Link::Connecting);
    let count = move || bursts.with(Vec::len);
    let status = move || {
        match asked.get() {
        Some(Err(error)) => view! { <p class="error" role="status">{error}</p> }.into_any(),
        Some(Ok(Asked { number, until_millis })) => {
            let ranks = live.run.with(|run| run.as_ref().map_or(0, |run| run.report.ranks));
            let is_over = live.now.get() > until_millis;
            bursts.with(|bursts| silent(bursts, number, ranks)).map(|silent| {
                let what = if is_over { "No answer from" } else { "Requested, but not answered yet:" };
                view! { <p class="quiet" role="status">{format!("{what} rank {silent}.")}</p> }
            })
            .into_any()
        }
        None if count() == 0 => view! {
            <p class="quiet">"None yet. A burst slows the job while it records, and yields to other profilers."</p>
        }
        .into_any(),
        None => ().into_any(),
    }
    };
    view! {
        <section class="panel" aria-label="Bursts" data-testid="bursts">
            <div class="panel-head">
                <h2>"Bursts"<small>" every kernel and copy, for a short time (CUPTI)"</small></h2>
                <span class="grow"></span>
                <button disabled=is_unreachable on:click=ask>"Record a second"</button>
            </div>
            {status}
            {move || (count() > 0).then(|| view! { <Outcomes bursts=bursts.get() /> })}
            {move || view! { <LeftOut ranks=count() /> }}
        </section>
    }
}

/// A request for bursts.
#[derive(Clone, Copy)]
struct Asked {
    number: u64,
    /// When the server stops asking, in milliseconds since the Unix epoch on the browser's clock.
    until_millis: f64,
}

/// Names the ranks that have not answered the request with this number; `None` if all have.
fn silent(bursts: &[RankBurst], number: u64, ranks: u32) -> Option<String> {
    let answered = |rank: u32| bursts.iter().any(|one| one.rank.0 == rank && one.burst.request >= number);
    let silent: Vec<u32> = (0..ranks).filter(|&rank| !answered(rank)).collect();
    let names: Vec<String> = silent.iter().take(MAX_RANKS).map(u32::to_string).collect();
    (!names.is_empty()).then(|| names.join(", "))
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

#[component]
fn Outcomes(bursts: Vec<RankBurst>) -> impl IntoView {
    let headings = BURST_COLUMNS
        .map(|(name, meaning)| view! { <th class="number" scope="col" title=meaning>{name}</th> })
        .collect_view();
    let row = |RankBurst { rank, age_millis, burst }: &RankBurst| {
        view! {
            <tr>
                <th class="number" scope="row">{rank.0}</th>
                <td class="number">{units::ago(*age_millis as f64 / 1e3)}</td>
                {outcome(&burst.outcome)}
            </tr>
        }
    };
    let rows = bursts.iter().take(MAX_RANKS).map(row).collect_view();
    let kernels = bursts
        .into_iter()
        .take(MAX_RANKS)
        .filter_map(|one| match one.burst.outcome {
            BurstOutcome::Recorded(activity) if activity.records > 0 => {
                Some(view! { <Kernels rank=one.rank.0 activity=activity /> })
            }
            _ => None,
        })
        .collect_view();
    view! {
        <div class="rows" tabindex="0" role="group" aria-label="Bursts by rank">
            <table>
                <thead><tr><th class="number" scope="col">"Rank"</th>{headings}</tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
        {kernels}
    }
}

/// The cells of one burst, after those of its rank and its age.
fn outcome(outcome: &BurstOutcome) -> AnyView {
    match outcome {
        BurstOutcome::Refused { reason } => {
            view! { <td colspan="8">"nothing recorded: "{reason.clone()}</td> }.into_any()
        }
        BurstOutcome::Recorded(activity) if activity.records == 0 => {
            view! { <td colspan="8">"nothing ran on its device"</td> }.into_any()
        }
        BurstOutcome::Recorded(activity) => {
            shares(activity).map(|cell| view! { <td class="number">{cell}</td> }).collect_view().into_any()
        }
    }
}

fn shares(activity: &Activity) -> [String; 8] {
    let share = |nanos: u64| format!("{:.1} %", nanos as f64 / activity.span_nanos.max(1) as f64 * 100.0);
    let percent =
        |ratio: Option<f64>| ratio.map_or_else(|| "—".into(), |ratio| format!("{:.1} %", ratio * 100.0));
    [
        units::nanos(activity.span_nanos as f64),
        share(activity.compute_nanos),
        share(activity.collective_nanos),
        percent(activity.overlap_ratio()),
        percent(activity.covered_ratio()),
        share(activity.copy_nanos),
        share(activity.idle_nanos),
        match activity.gaps {
            0 => "none".into(),
            gaps => format!("{gaps}, longest {}", units::nanos(activity.longest_gap_nanos as f64)),
        },
    ]
}

#[component]
fn Kernels(rank: u32, activity: Activity) -> impl IntoView {
    let dropped = (activity.dropped > 0).then(|| {
        view! { <p class="quiet">{units::count(activity.dropped)}" records did not fit and are missing."</p> }
    });
    let row = |kernel: KernelTime| {
        view! {
            <tr>
                <th scope="row"><code>{kernel.name}</code></th>
                <td>{kernel.phase.map_or("—", SpanKind::name)}</td>
                <td class="number">{units::nanos(kernel.total_nanos as f64)}</td>
                <td class="number">{units::count(kernel.calls)}</td>
                <td class="number">{units::nanos(kernel.longest_nanos as f64)}</td>
            </tr>
        }
    };
    view! {
        <details class="others">
            <summary>"Rank "{rank}": top kernels of "{units::count(activity.records)}" records"</summary>
            {dropped}
            <div class="rows" tabindex="0" role="group" aria-label=format!("Kernels of rank {rank}")>
                <table>
                    <thead>
                        <tr>
                            <th scope="col">"Kernel"</th>
                            <th scope="col">"Launched during"</th>
                            <th class="number" scope="col">"Total"</th>
                            <th class="number" scope="col">"Calls"</th>
                            <th class="number" scope="col">"Longest"</th>
                        </tr>
                    </thead>
                    <tbody>{activity.kernels.into_iter().map(row).collect_view()}</tbody>
                </table>
            </div>
        </details>
    }
}
