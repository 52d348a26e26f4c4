//! Bursts on request and, if the environment says so, on a schedule. A separate thread records them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use background::{Background, Stop};
use timing::activity::{Work, activity};
use timing::intervals::Interval;
use wire::burst::{Activity, Burst, BurstOutcome};
use wire::clock::MonoNanos;
use wire::ids::Step;
use wire::request::RecordingRequest;

use super::burst::{self, NoBurst, Recorded};
use super::records::{ActivityOrigin, Record, Times};

/// The time between two checks for a request.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The environment variable with the schedule: a number of seconds, or a number of steps.
const VARIABLE: &str = "PACELINE_BURST_EVERY";
/// The length of a burst that is scheduled by time. It covers some steps.
const UNASKED_MILLIS: u16 = 200;
/// The longest burst that is scheduled by steps. Such a burst is as long as a step and a tenth more, since it begins
/// within a step.
const MAX_STEP_MILLIS: u128 = 5_000;
/// The shortest burst that is scheduled by steps.
const MIN_STEP_MILLIS: u128 = 10;
/// The shortest time between two scheduled bursts.
const MIN_APART: Duration = Duration::from_secs(1);

/// The time after which the collectives of a burst are known. They are known about a step after they ran.
const SETTLE: Duration = Duration::from_millis(500);

/// A function that returns the collectives between two times that have no kernels, because the host reduces them.
pub type Carried = Box<dyn Fn(MonoNanos, MonoNanos) -> Vec<(MonoNanos, MonoNanos)> + Send>;

/// A function that returns the newest step that ended, with its length.
pub type NewestStep = Box<dyn Fn() -> Option<(Step, Duration)> + Send>;

/// The schedule of bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurstSchedule {
    /// A burst once this time has passed since the previous one.
    Time(Duration),
    /// A burst in one step out of this number of steps, the same step on all ranks.
    Steps(u64),
}

/// The error of an invalid `PACELINE_BURST_EVERY`.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE}={0:?} is neither a number of seconds from 1 on (\"60\") nor a number of steps (\"500 steps\"); no \
     bursts are scheduled"
)]
struct NotASchedule(String);

impl BurstSchedule {
    /// Reads the schedule from the environment (`PACELINE_BURST_EVERY`). Returns `None` if there is no schedule. Passes
    /// a message to `complain`, and returns `None`, if the value is invalid.
    pub fn from_env(complain: impl FnOnce(&str)) -> Option<Self> {
        let said = std::env::var(VARIABLE).ok().filter(|said| !said.is_empty())?;
        let schedule = Self::parse(&said);
        if schedule.is_none() {
            complain(&NotASchedule(said).to_string());
        }
        schedule
    }

    fn parse(said: &str) -> Option<Self> {
        let said = said.trim();
        if let Some(steps) = said.strip_suffix("steps") {
            return Some(Self::Steps(steps.trim().parse().ok().filter(|steps| *steps > 0)?));
        }
        let seconds = said.parse::<f64>().ok().filter(|seconds| (1.0..1e9).contains(seconds))?;
        Some(Self::Time(Duration::from_secs_f64(seconds)))
    }
}

/// The state of the schedule.
struct Unasked {
    schedule: Option<BurstSchedule>,
    /// The time of the last burst.
    last: Instant,
    /// The index of the last step's period, for a schedule by steps.
    times: Option<u64>,
}

impl Unasked {
    fn new(schedule: Option<BurstSchedule>) -> Self {
        Self { schedule, last: Instant::now(), times: None }
    }

    /// Notes that a burst was recorded, on request or on schedule.
    fn done(&mut self) {
        self.last = Instant::now();
    }

    fn due(&mut self, newest: Option<(Step, Duration)>) -> Option<RecordingRequest> {
        let request = |millis| Some(RecordingRequest { number: 0, millis });
        match self.schedule? {
            BurstSchedule::Time(time) => request(UNASKED_MILLIS).filter(|_| self.last.elapsed() >= time),
            BurstSchedule::Steps(steps) => {
                let (step, length) = newest?;
                let times = step.0 / steps;
                let previous = *self.times.get_or_insert(times);
                if times == previous || self.last.elapsed() < MIN_APART {
                    return None;
                }
                self.times = Some(times);
                let millis = (length.as_millis() * 11 / 10).clamp(MIN_STEP_MILLIS, MAX_STEP_MILLIS);
                request(millis as u16)
            }
        }
    }
}

/// The settings for bursts.
pub struct BurstSettings {
    /// The path of CUPTI's library. `None` searches for it.
    pub file: Option<PathBuf>,
    /// The host's clock.
    pub now: fn() -> MonoNanos,
    /// The schedule. `None` records bursts on request only.
    pub schedule: Option<BurstSchedule>,
    /// The newest step, by which [`Every::Steps`] counts.
    pub newest_step: NewestStep,
    /// The collectives that the host reduces, if it reduces any.
    pub carried: Option<Carried>,
    /// The index of the device whose work is counted if the process uses several. `None` counts all.
    pub device: Option<u32>,
}

impl BurstSettings {
    /// Returns settings for bursts on request only.
    #[must_use]
    pub fn when_asked(file: Option<PathBuf>, now: fn() -> MonoNanos) -> Self {
        Self { file, now, schedule: None, newest_step: Box::new(|| None), carried: None, device: None }
    }
}

/// The handle of the thread that records bursts. Dropping it ends the thread and cuts a burst in progress short.
pub struct OnDemand {
    _thread: Background,
}

impl OnDemand {
    /// Starts the thread. `asked` returns the newest request whose number is larger than its argument. `tell` receives
    /// the result of each burst. CUPTI is not touched before the first burst.
    pub fn start(
        wanted: BurstSettings,
        asked: impl Fn(u64) -> Option<RecordingRequest> + Send + 'static,
        mut tell: impl FnMut(Burst) + Send + 'static,
    ) -> Self {
        let work = move |stop: &Stop| {
            let (mut done, mut unasked) = (0, Unasked::new(wanted.schedule));
            while !stop.is_asked() {
                if let Some(request) = asked(done).or_else(|| unasked.due((wanted.newest_step)())) {
                    done = done.max(request.number);
                    unasked.done();
                    tell(answer(&wanted, request, stop));
                }
                stop.wait(LOOK_EVERY);
            }
        };
        Self { _thread: Background::start("paceline-burst", work) }
    }
}

fn answer(wanted: &BurstSettings, request: RecordingRequest, stop: &Stop) -> Burst {
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

/// Records a burst. Returns its records, and CUPTI's clock minus the host's in nanoseconds.
fn record(wanted: &BurstSettings, length: Duration, stop: &Stop) -> Result<(Recorded, i64), NoBurst> {
    let burst = burst::Burst::start(wanted.file.as_deref())?;
    stop.wait(length);
    let ahead = burst.ahead(wanted.now)?;
    Ok((burst.finish()?, ahead))
}

/// Returns the collectives that the host reduced meanwhile, on CUPTI's clock.
fn carried(
    wanted: &BurstSettings,
    from: MonoNanos,
    until: MonoNanos,
    ahead: i64,
    stop: &Stop,
) -> Vec<Interval> {
    let Some(carried) = &wanted.carried else { return Vec::new() };
    stop.wait(SETTLE);
    carried(from, until).into_iter().map(|(start, end)| (start.0 + ahead, end.0 + ahead)).collect()
}

fn summed_up(recorded: &Recorded, device: Option<u32>, carried: &[Interval]) -> Activity {
    let counts = |place: &ActivityOrigin| device.is_none_or(|device| device == place.device);
    let ran = |times: &Times| (times.start.cast_signed(), times.end.cast_signed());
    let stream = |place: &ActivityOrigin| (place.device, place.context, place.stream);
    let phases = recorded.phases();
    let work = recorded.records.iter().filter_map(|record| match record {
        Record::Kernel { times, place, name, correlation, .. } if counts(place) => {
            let phase = phases.get(correlation).copied();
            Some(Work { kernel: Some(name), stream: stream(place), phase, ran: ran(times) })
        }
        Record::Memcpy { times, place, .. } | Record::Memset { times, place, .. } if counts(place) => {
            Some(Work { kernel: None, stream: stream(place), phase: None, ran: ran(times) })
        }
        _ => None,
    });
    // A start of 0 means that the device did not report the times.
    let work: Vec<Work<'_>> = work.filter(|work| work.ran.0 > 0).collect();
    activity(&work, carried, recorded.dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_in_seconds_or_in_steps() {
        let minute = BurstSchedule::Time(Duration::from_secs(60));
        for (said, expected) in [
            ("60", Some(minute)),
            (" 60.0 ", Some(minute)),
            ("500 steps", Some(BurstSchedule::Steps(500))),
            ("500steps", Some(BurstSchedule::Steps(500))),
            ("0", None),
            ("0 steps", None),
            ("-3 steps", None),
            ("often", None),
        ] {
            assert_eq!(BurstSchedule::parse(said), expected, "{said:?}");
        }
        let complaint = NotASchedule("often".into()).to_string();
        assert!(complaint.starts_with("PACELINE_BURST_EVERY=\"often\" is neither"), "{complaint}");
    }

    #[test]
    fn a_schedule_by_steps_records_one_step_per_period() {
        let mut unasked = Unasked::new(Some(BurstSchedule::Steps(100)));
        unasked.last -= MIN_APART;
        let mut due = |step: u64, millis: u64| {
            unasked.due(Some((Step(step), Duration::from_millis(millis)))).map(|request| request.millis)
        };
        // All ranks record the same step, whichever step they checked first.
        assert_eq!([due(150, 40), due(199, 40), due(200, 40), due(201, 40)], [None, None, Some(44), None]);
        // After missed periods, one burst is recorded.
        assert_eq!([due(450, 1), due(451, 1), due(500, 60_000)], [Some(10), None, Some(5_000)]);
        assert_eq!(unasked.due(None), None);
    }
}
