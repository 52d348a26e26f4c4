//! The devices of a run: samples, taken once per second, and the bursts that ranks are asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use analysis::devices::DeviceState;
use analysis::memory::Levels;
use wire::burst::{Activity, Burst, BurstOutcome};
use wire::clock::ServerNanos;
use wire::device::{DeviceFigure, DeviceSample};
use wire::ids::Rank;
use wire::request::RecordingRequest;
use wire::views::{Cause, Culprit, RankBurst, RankDevice, RankEventKind, Report, Verdict};

use super::{RankState, Run};

/// The time for which a burst counts as evidence, in nanoseconds.
const BURST_NANOS: i64 = 300_000_000_000;
/// The length of a burst that is requested as evidence, in milliseconds.
const EVIDENCE_MILLIS: u16 = 1_000;
/// The largest number of samples stored per rank: two minutes.
const MAX_SAMPLES: usize = 120;

/// The largest size that a device sample adds, in bytes. Only two minutes are stored, so most samples replace an older
/// one.
pub(super) const SAMPLE_BYTES: usize = size_of::<DeviceState>();
/// The size of an entry in a map of figures, in bytes.
const FIGURE_BYTES: usize = 24;

/// Returns the approximate size of a burst, in bytes.
pub(super) fn burst_bytes(burst: &Burst) -> usize {
    let names = match &burst.outcome {
        BurstOutcome::Recorded(activity) => {
            activity.kernels.iter().map(|kernel| kernel.name.len() + 64).sum()
        }
        _ => 0,
    };
    size_of::<Burst>() + names
}

/// The largest number of errors kept per rank: the newest.
const MAX_ERRORS: usize = 16;

/// The errors of a rank's devices, in all incarnations of the rank: an error often ends the process.
#[derive(Default)]
pub struct DeviceErrors {
    found: VecDeque<(ServerNanos, RankEventKind)>,
}

impl DeviceErrors {
    /// Compares the counts of a sample with those of the sample before it, and adds what is new.
    pub(super) fn add(&mut self, previous: Option<&DeviceSample>, sample: &DeviceSample, now: ServerNanos) {
        use DeviceFigure::{EccUncorrectedErrors, LastXid, OutOfMemoryErrors, XidErrors};
        let earlier = |figure| previous.and_then(|sample| sample.get(figure));
        // Memory errors are counted since the driver was loaded, so those of the first sample are older than the run. The
        // other counts begin with the process.
        let since_sample = |figure| Some(sample.get(figure)?.saturating_sub(earlier(figure)?));
        let since_start = |figure| Some(sample.get(figure)?.saturating_sub(earlier(figure).unwrap_or(0)));
        let more = |count: Option<u64>| count.filter(|&count| count > 0);
        let xid = more(since_start(XidErrors)).and_then(|_| sample.get(LastXid));
        let found = [
            xid.map(|code| RankEventKind::Xid { code }),
            more(since_sample(EccUncorrectedErrors)).map(|count| RankEventKind::MemoryErrors { count }),
            more(since_start(OutOfMemoryErrors)).map(|count| RankEventKind::OutOfMemory { count }),
        ];
        for kind in found.into_iter().flatten() {
            if self.found.len() == MAX_ERRORS {
                self.found.pop_front();
            }
            self.found.push_back((now, kind));
        }
    }

    /// Returns the errors, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ServerNanos, RankEventKind)> + '_ {
        self.found.iter().copied()
    }

    /// Returns the approximate size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.found.len() * size_of::<(ServerNanos, RankEventKind)>()
    }
}

/// A burst, and the time of its arrival.
struct ArrivedBurst {
    burst: Burst,
    at: ServerNanos,
}

#[derive(Default)]
pub struct RankDevices {
    newest: Option<DeviceSample>,
    /// The figures of recent samples that verdicts use.
    device_states: VecDeque<DeviceState>,
    /// The memory over time, shared with reports.
    memory: Arc<Levels>,
    /// The newest burst.
    burst: Option<ArrivedBurst>,
    /// The burst that the rank is asked for and has not sent yet.
    asked: Option<RecordingRequest>,
}

impl RankDevices {
    /// Returns the approximate size, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let newest = self
            .newest
            .as_ref()
            .map_or(0, |sample| sample.device.len() + sample.figures.len() * FIGURE_BYTES);
        let burst = self.burst.as_ref().map_or(0, |arrived| burst_bytes(&arrived.burst));
        newest + burst + self.device_states.len() * SAMPLE_BYTES + self.memory.bytes()
    }

    pub(super) fn add_sample(&mut self, sample: DeviceSample, now: ServerNanos) {
        if self.device_states.len() == MAX_SAMPLES {
            self.device_states.pop_front();
        }
        self.device_states.push_back(DeviceState::new(&sample, now));
        Arc::make_mut(&mut self.memory).add_device(&sample);
        self.newest = Some(sample);
    }

    pub(super) fn add_burst(&mut self, burst: Burst, now: ServerNanos) {
        self.asked = self.asked.filter(|asked| asked.number > burst.request);
        self.burst = Some(ArrivedBurst { burst, at: now });
    }

    pub(super) fn ask(&mut self, request: RecordingRequest) {
        self.asked = Some(request);
    }

    /// Returns the burst that the rank is asked for.
    #[must_use]
    pub fn asked(&self, now: ServerNanos) -> Option<RecordingRequest> {
        self.asked.filter(|asked| asked.is_current(now))
    }

    #[must_use]
    pub fn newest(&self) -> Option<&DeviceSample> {
        self.newest.as_ref()
    }

    pub(super) fn memory(&self) -> Arc<Levels> {
        self.memory.clone()
    }

    pub(super) fn device_states(&self) -> Vec<DeviceState> {
        self.device_states.iter().copied().collect()
    }

    /// Returns the error bound of the device's clock against its host's clock, in nanoseconds, or 0 if it is unknown.
    pub(super) fn clock_bound_nanos(&self) -> u64 {
        let bound = |sample: &DeviceSample| sample.get(DeviceFigure::ClockErrorBoundNanoseconds);
        self.newest.as_ref().and_then(bound).unwrap_or(0)
    }

    /// Returns the kernel activity of the newest burst, if that burst is recent.
    pub(super) fn activity(&self, now: ServerNanos) -> Option<Activity> {
        let arrived = self.burst.as_ref().filter(|arrived| now - arrived.at < BURST_NANOS)?;
        match &arrived.burst.outcome {
            BurstOutcome::Recorded(activity) if activity.records > 0 && arrived.at <= now => {
                Some(activity.clone())
            }
            _ => None,
        }
    }
}

/// Returns the ranks whose devices are to be compared: the culprit of the first verdict that needs device evidence, and
/// a rank that is not a culprit. `known` says which ranks have devices. Returns `None` if either has none.
pub(super) fn compared_ranks(report: &Report, known: &[bool]) -> Option<(u32, u32)> {
    let wants = |verdict: &&Verdict| {
        matches!(
            verdict.cause,
            Cause::Compute | Cause::MoreWork | Cause::Host | Cause::ClockThrottle | Cause::Unknown
        )
    };
    let suspects = report.verdicts.iter().find(wants)?.culprit.as_ref().map(Culprit::ranks)?;
    let has_device = |rank: &u32| known.get(*rank as usize).is_some_and(|known| *known);
    let suspect = suspects.first().copied().filter(has_device)?;
    let peer = (0..known.len() as u32).filter(|rank| !suspects.contains(rank)).find(has_device)?;
    Some((suspect, peer))
}

/// Returns the request for a burst as evidence.
pub(super) fn request_of_evidence(now: ServerNanos) -> RecordingRequest {
    RecordingRequest::new(now, EVIDENCE_MILLIS)
}

/// The devices of a run as they are shown, in order of rank.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// The newest sample of each device.
    pub samples: Vec<RankDevice>,
    /// The newest bursts.
    pub bursts: Vec<RankBurst>,
}

impl Devices {
    /// Returns the devices of these ranks as they are now.
    pub fn new<'a>(ranks: impl Iterator<Item = (usize, &'a RankDevices)>, now: ServerNanos) -> Self {
        let mut shown = Self::default();
        for (rank, devices) in ranks.map(|(rank, devices)| (Rank(rank as u32), devices)) {
            shown.samples.extend(devices.newest().map(|sample| RankDevice { rank, sample: sample.clone() }));
            shown.bursts.extend(devices.burst.as_ref().map(|arrived| RankBurst {
                rank,
                age_millis: (now - arrived.at).max(0).unsigned_abs() / 1_000_000,
                burst: arrived.burst.clone(),
            }));
        }
        shown
    }
}

impl Run {
    /// Returns the devices of each rank that has sent a batch, by rank.
    pub fn devices(&self) -> impl Iterator<Item = (usize, &RankDevices)> {
        self.ranks.iter().map(|(rank, state)| (rank, &state.devices))
    }

    /// Asks ranks (`None`: all) for a burst, in the answer to their next batch. Returns false if there is no such rank.
    pub fn ask_for_burst(&mut self, rank: Option<Rank>, request: RecordingRequest) -> bool {
        let wanted = |at: usize| rank.is_none_or(|rank| rank.0 as usize == at);
        let ranks = self.ranks.iter_mut().filter(|(at, _)| wanted(*at));
        ranks.map(|(_, state)| state.devices.ask(request)).count() > 0
    }

    /// Asks for the device evidence that a verdict needs, once per culprit.
    pub fn want_evidence(&mut self, report: &Report, now: ServerNanos) {
        let has_device = |rank: Option<&RankState>| rank.is_some_and(|rank| rank.devices.newest().is_some());
        let known: Vec<bool> = self.ranks.world().map(has_device).collect();
        let Some((suspect, peer)) = compared_ranks(report, &known) else { return };
        if self.evidence_asked.insert(suspect) {
            let request = request_of_evidence(now);
            self.ask_for_burst(Some(Rank(suspect)), request);
            self.ask_for_burst(Some(Rank(peer)), request);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::clock::MonoNanos;

    use super::*;

    #[test]
    fn errors_are_found_where_their_counts_grow() {
        use DeviceFigure::{EccUncorrectedErrors, LastXid, OutOfMemoryErrors, XidErrors};
        let sample = |[xids, code, ecc, out_of_memory]: [u64; 4]| DeviceSample {
            at: MonoNanos(0),
            device: String::new(),
            figures: [
                (XidErrors, xids),
                (LastXid, code),
                (EccUncorrectedErrors, ecc),
                (OutOfMemoryErrors, out_of_memory),
            ]
            .into(),
        };
        let mut errors = DeviceErrors::default();
        let samples = [[0, 0, 5, 0], [1, 79, 5, 0], [1, 79, 7, 0], [1, 79, 7, 3]].map(sample);
        let mut previous = None;
        for (at, sample) in samples.iter().enumerate() {
            errors.add(previous, sample, ServerNanos(at as i64));
            previous = Some(sample);
        }
        let found: Vec<(i64, RankEventKind)> = errors.iter().map(|(at, kind)| (at.0, kind)).collect();
        let expected = [
            (1, RankEventKind::Xid { code: 79 }),
            (2, RankEventKind::MemoryErrors { count: 2 }),
            (3, RankEventKind::OutOfMemory { count: 3 }),
        ];
        assert_eq!(found, expected);
        // A process that begins with an error has it since its start, but older memory errors are not its own.
        let mut errors = DeviceErrors::default();
        errors.add(None, &sample([2, 48, 9, 0]), ServerNanos(9));
        assert_eq!(errors.iter().collect::<Vec<_>>(), [(ServerNanos(9), RankEventKind::Xid { code: 48 })]);
        (0..100).for_each(|_| errors.add(None, &sample([1, 48, 0, 0]), ServerNanos(9)));
        assert_eq!(errors.iter().count(), MAX_ERRORS);
    }
}
