//! Bursts when somebody asks for one, and now and then where the environment says so, on a thread of their own.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use analysis::activity::{Work, activity};
use analysis::intervals::Interval;
use wire::burst::{Activity, Burst, BurstOutcome, BurstRequest};
use wire::clock::MonoNanos;

use super::burst::{self, NoBurst, Recorded};
use super::records::{Place, Record, Times};
use crate::background::{Background, Stop};

/// How often it is looked whether somebody asks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Says after how many seconds a burst comes that nobody asked for.
const VARIABLE: &str = "PACELINE_BURST_EVERY";
/// How long it is: some steps.
const UNASKED_MILLIS: u16 = 200;

/// Collectives are known a step or so after they ran.
const SETTLE: Duration = Duration::from_millis(500);

/// Tells which collectives ran in between that are no kernels, since the host carries them.
pub type Carried = Box<dyn Fn(MonoNanos, MonoNanos) -> Vec<(MonoNanos, MonoNanos)> + Send>;

/// How bursts are recorded.
pub struct Wanted {
    /// CUPTI's library, where it is not to be looked for.
    pub file: Option<PathBuf>,
    /// The host's clock.
    pub now: fn() -> MonoNanos,
    /// How often nobody needs to ask; `None` for never.
    pub every: Option<Duration>,
    /// Where the host carries collectives.
    pub carried: Option<Carried>,
    /// The number of the device that counts, where the process uses several; `None` for all.
    pub device: Option<u32>,
}

impl Wanted {
    /// As the environment says (`PACELINE_BURST_EVERY`, in seconds); at most one in a second.
    #[must_use]
    pub fn from_env(file: Option<PathBuf>, now: fn() -> MonoNanos) -> Self {
        let seconds = std::env::var(VARIABLE).ok().and_then(|seconds| seconds.parse::<f64>().ok());
        let every = seconds.filter(|seconds| (1.0..1e9).contains(seconds)).map(Duration::from_secs_f64);
        Self { file, now, every, carried: None, device: None }
    }
}

/// Records bursts until this is dropped, which cuts the one under way short.
pub struct OnDemand {
    _thread: Background,
}

impl OnDemand {
    /// Starts waiting for requests: `asked` hands out the newest whose number is larger than the one it is given, and
    /// `tell` gets what came of it. Nothing of CUPTI is touched before the first one.
    pub fn start(
        wanted: Wanted,
        asked: impl Fn(u64) -> Option<BurstRequest> + Send + 'static,
        mut tell: impl FnMut(Burst) + Send + 'static,
    ) -> Self {
        let work = move |stop: &Stop| {
            let (mut done, mut last) = (0, Instant::now());
            while !stop.is_asked() {
                let is_due = wanted.every.is_some_and(|every| last.elapsed() >= every);
                let unasked = is_due.then_some(BurstRequest { number: 0, millis: UNASKED_MILLIS });
                if let Some(request) = asked(done).or(unasked) {
                    (done, last) = (done.max(request.number), Instant::now());
                    tell(answer(&wanted, request, stop));
                }
                stop.wait(LOOK_EVERY);
            }
        };
        Self { _thread: Background::start("paceline-burst", work) }
    }
}

fn answer(wanted: &Wanted, request: BurstRequest, stop: &Stop) -> Burst {
    let from = (wanted.now)();
    let recorded = record(wanted, Duration::from_millis(request.millis.into()), stop);
    let until = (wanted.now)();
    let outcome = match recorded {
        Ok((recorded, ahead)) => BurstOutcome::Recorded(summed_up(
            &recorded,
            wanted.device,
            &carried(wanted, from, until, ahead, stop),
        )),
        Err(reason) => BurstOutcome::Refused { reason: reason.to_string() },
    };
    Burst { request: request.number, from, until, outcome }
}

/// What was recorded, and CUPTI's clock less the host's.
fn record(wanted: &Wanted, length: Duration, stop: &Stop) -> Result<(Recorded, i64), NoBurst> {
    let burst = burst::Burst::start(wanted.file.as_deref())?;
    stop.wait(length);
    let ahead = burst.ahead(wanted.now)?;
    Ok((burst.finish()?, ahead))
}

/// The collectives that the host carried meanwhile, on CUPTI's clock.
fn carried(wanted: &Wanted, from: MonoNanos, until: MonoNanos, ahead: i64, stop: &Stop) -> Vec<Interval> {
    let Some(carried) = &wanted.carried else { return Vec::new() };
    stop.wait(SETTLE);
    carried(from, until).into_iter().map(|(start, end)| (start.0 + ahead, end.0 + ahead)).collect()
}

fn summed_up(recorded: &Recorded, device: Option<u32>, carried: &[Interval]) -> Activity {
    let counts = |place: &Place| device.is_none_or(|device| device == place.device);
    let ran = |times: &Times| (times.start.cast_signed(), times.end.cast_signed());
    let phases = recorded.phases();
    let work = recorded.records.iter().filter_map(|record| match record {
        Record::Kernel { times, place, name, correlation, .. } if counts(place) => {
            Some(Work { kernel: Some(name), phase: phases.get(correlation).copied(), ran: ran(times) })
        }
        Record::Memcpy { times, place, .. } | Record::Memset { times, place, .. } if counts(place) => {
            Some(Work { kernel: None, phase: None, ran: ran(times) })
        }
        _ => None,
    });
    // The device did not say when.
    let work: Vec<Work<'_>> = work.filter(|work| work.ran.0 > 0).collect();
    activity(&work, carried, recorded.dropped)
}
