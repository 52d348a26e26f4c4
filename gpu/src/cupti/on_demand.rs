//! Bursts when somebody asks for one, and now and then where the environment says so, on a thread of their own.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use timing::activity::{Work, activity};
use timing::intervals::Interval;
use wire::burst::{Activity, Burst, BurstOutcome, BurstRequest};
use wire::clock::MonoNanos;
use wire::ids::Step;

use super::burst::{self, NoBurst, Recorded};
use super::records::{Place, Record, Times};
use crate::background::{Background, Stop};

/// How often it is looked whether somebody asks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Says how often a burst comes that nobody asked for: after so many seconds, or so many steps.
const VARIABLE: &str = "PACELINE_BURST_EVERY";
/// One that comes by the clock takes some steps.
const UNASKED_MILLIS: u16 = 200;
/// One that comes by the step takes one of these, and a tenth more, since it begins somewhere in it.
const MOST_STEP_MILLIS: u128 = 5_000;
const LEAST_STEP_MILLIS: u128 = 10;
/// The shortest time between two that nobody asked for.
const LEAST_APART: Duration = Duration::from_secs(1);

/// Collectives are known a step or so after they ran.
const SETTLE: Duration = Duration::from_millis(500);

/// Tells which collectives ran in between that are no kernels, since the host carries them.
pub type Carried = Box<dyn Fn(MonoNanos, MonoNanos) -> Vec<(MonoNanos, MonoNanos)> + Send>;

/// Tells the newest step that ended, and how long it took.
pub type NewestStep = Box<dyn Fn() -> Option<(Step, Duration)> + Send>;

/// How often a burst comes that nobody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// So long after the one before.
    Time(Duration),
    /// One step in so many, the same on all ranks.
    Steps(u64),
}

/// [`Every::from_env`] found something else.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE}={0:?} is neither seconds, at least one (as 60), nor steps (as \"500 steps\"): no burst comes by itself"
)]
struct NotEvery(String);

impl Every {
    /// As the environment says (`PACELINE_BURST_EVERY`); `None` for never, and where that makes no sense, which is said.
    pub fn from_env(complain: impl FnOnce(&str)) -> Option<Self> {
        let said = std::env::var(VARIABLE).ok().filter(|said| !said.is_empty())?;
        let every = Self::parse(&said);
        if every.is_none() {
            complain(&NotEvery(said).to_string());
        }
        every
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

/// Finds out when a burst is due that nobody asked for.
struct Unasked {
    every: Option<Every>,
    last: Instant,
    /// How many times as many steps as asked for there were then.
    times: Option<u64>,
}

impl Unasked {
    fn new(every: Option<Every>) -> Self {
        Self { every, last: Instant::now(), times: None }
    }

    /// One was recorded, whoever asked.
    fn done(&mut self) {
        self.last = Instant::now();
    }

    fn due(&mut self, newest: Option<(Step, Duration)>) -> Option<BurstRequest> {
        let of = |millis| Some(BurstRequest { number: 0, millis });
        match self.every? {
            Every::Time(time) => of(UNASKED_MILLIS).filter(|_| self.last.elapsed() >= time),
            Every::Steps(steps) => {
                let (step, length) = newest?;
                let times = step.0 / steps;
                let before = *self.times.get_or_insert(times);
                if times == before || self.last.elapsed() < LEAST_APART {
                    return None;
                }
                self.times = Some(times);
                let millis = (length.as_millis() * 11 / 10).clamp(LEAST_STEP_MILLIS, MOST_STEP_MILLIS);
                of(millis as u16)
            }
        }
    }
}

/// How bursts are recorded.
pub struct Wanted {
    /// CUPTI's library, where it is not to be looked for.
    pub file: Option<PathBuf>,
    /// The host's clock.
    pub now: fn() -> MonoNanos,
    /// How often nobody needs to ask; `None` for never.
    pub every: Option<Every>,
    /// The newest step, by which [`Every::Steps`] counts.
    pub newest_step: NewestStep,
    /// Where the host carries collectives.
    pub carried: Option<Carried>,
    /// The number of the device that counts, where the process uses several; `None` for all.
    pub device: Option<u32>,
}

impl Wanted {
    /// Only when somebody asks.
    #[must_use]
    pub fn when_asked(file: Option<PathBuf>, now: fn() -> MonoNanos) -> Self {
        Self { file, now, every: None, newest_step: Box::new(|| None), carried: None, device: None }
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
            let (mut done, mut unasked) = (0, Unasked::new(wanted.every));
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
    let stream = |place: &Place| (place.device, place.context, place.stream);
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
    // The device did not say when.
    let work: Vec<Work<'_>> = work.filter(|work| work.ran.0 > 0).collect();
    activity(&work, carried, recorded.dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_often_is_told_in_seconds_or_in_steps() {
        let minute = Every::Time(Duration::from_secs(60));
        for (said, expected) in [
            ("60", Some(minute)),
            (" 60.0 ", Some(minute)),
            ("500 steps", Some(Every::Steps(500))),
            ("500steps", Some(Every::Steps(500))),
            ("0", None),
            ("0 steps", None),
            ("-3 steps", None),
            ("often", None),
        ] {
            assert_eq!(Every::parse(said), expected, "{said:?}");
        }
        let complaint = NotEvery("often".into()).to_string();
        assert!(complaint.starts_with("PACELINE_BURST_EVERY=\"often\" is neither seconds"), "{complaint}");
    }

    #[test]
    fn one_step_in_so_many_is_recorded_from_where_it_was_first_asked_after() {
        let mut unasked = Unasked::new(Some(Every::Steps(100)));
        unasked.last -= LEAST_APART;
        let mut due = |step: u64, millis: u64| {
            unasked.due(Some((Step(step), Duration::from_millis(millis)))).map(|request| request.millis)
        };
        // All ranks record the same step, wherever they began to look.
        assert_eq!([due(150, 40), due(199, 40), due(200, 40), due(201, 40)], [None, None, Some(44), None]);
        // A step that was missed, for whatever reason, is made up for once.
        assert_eq!([due(450, 1), due(451, 1), due(500, 60_000)], [Some(10), None, Some(5_000)]);
        assert_eq!(unasked.due(None), None);
    }
}
