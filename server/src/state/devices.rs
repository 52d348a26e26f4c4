//! What is known of the devices of a run: what each says once a second, and bursts.

use std::collections::VecDeque;

use analysis::devices::Look;
use wire::burst::{Activity, Burst, BurstOutcome, BurstRequest};
use wire::clock::ServerNanos;
use wire::device::{DeviceFigure, DeviceSample};
use wire::ids::Rank;
use wire::views::{Cause, Culprit, RankBurst, RankDevice, Report, Verdict};

use super::run::Run;

/// A rank is asked for a burst for so long, in milliseconds: agents send a heartbeat every two seconds.
const ASKED_MILLIS: u64 = 10_000;
/// A burst is evidence for so long.
const BURST_NANOS: i64 = 300_000_000_000;
/// And asked for as evidence for so long, in milliseconds.
const EVIDENCE_MILLIS: u16 = 1_000;
/// Looks at a device that are kept: two minutes of them.
const MOST_LOOKS: usize = 120;

/// What a look at a device takes at most: two minutes of them are kept, so that most replace an older one.
pub(super) const LOOK_BYTES: usize = size_of::<Look>();
/// What an entry of a map of figures takes.
const FIGURE_BYTES: usize = 24;

/// What a burst takes.
pub(super) fn burst_bytes(burst: &Burst) -> usize {
    let names = match &burst.outcome {
        BurstOutcome::Recorded(activity) => {
            activity.kernels.iter().map(|kernel| kernel.name.len() + 64).sum()
        }
        _ => 0,
    };
    size_of::<Burst>() + names
}

/// What is known of the devices of one rank.
#[derive(Default)]
pub struct RankDevices {
    newest: Option<DeviceSample>,
    /// What of the last looks verdicts rest on.
    looks: VecDeque<Look>,
    /// What they did when somebody asked last, and when that came.
    burst: Option<(Burst, ServerNanos)>,
    /// A burst that the rank is asked for and has not answered.
    asked: Option<BurstRequest>,
}

impl RankDevices {
    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let newest =
            self.newest.as_ref().map_or(0, |look| look.device.len() + look.figures.len() * FIGURE_BYTES);
        let burst = self.burst.as_ref().map_or(0, |(burst, _)| burst_bytes(burst));
        newest + burst + self.looks.len() * LOOK_BYTES
    }

    pub(super) fn add_look(&mut self, sample: DeviceSample, now: ServerNanos) {
        if let Some(look) = Look::of(&sample, now) {
            if self.looks.len() == MOST_LOOKS {
                self.looks.pop_front();
            }
            self.looks.push_back(look);
        }
        self.newest = Some(sample);
    }

    pub(super) fn add_burst(&mut self, burst: Burst, now: ServerNanos) {
        self.asked = self.asked.filter(|asked| asked.number > burst.request);
        self.burst = Some((burst, now));
    }

    pub(super) fn ask(&mut self, request: BurstRequest) {
        self.asked = Some(request);
    }

    /// The burst that the rank is asked for, unless it did not answer for too long: most jobs have nobody who could.
    #[must_use]
    pub fn asked(&self, now: ServerNanos) -> Option<BurstRequest> {
        let asked = self.asked?;
        let patience = ASKED_MILLIS + u64::from(asked.millis);
        (now.0.max(0).unsigned_abs() / 1_000_000 < asked.number + patience).then_some(asked)
    }

    /// The newest look.
    #[must_use]
    pub fn newest(&self) -> Option<&DeviceSample> {
        self.newest.as_ref()
    }

    pub(super) fn looks(&self) -> Vec<Look> {
        self.looks.iter().copied().collect()
    }

    /// How far its clock may be off on its host's, as far as that is told.
    pub(super) fn clock_bound_nanos(&self) -> u64 {
        let bound = |look: &DeviceSample| look.get(DeviceFigure::ClockErrorBoundNanoseconds);
        self.newest.as_ref().and_then(bound).unwrap_or(0)
    }

    /// What they did, if that was recorded of late.
    pub(super) fn activity(&self, now: ServerNanos) -> Option<Activity> {
        let (burst, came) = self.burst.as_ref().filter(|(_, came)| now - *came < BURST_NANOS)?;
        match &burst.outcome {
            BurstOutcome::Recorded(activity) if activity.records > 0 && *came <= now => {
                Some(activity.clone())
            }
            _ => None,
        }
    }
}

/// The first suspect of a verdict that wants to know more, and a rank that is not suspected, where both have devices:
/// `known` says which ranks have.
pub(super) fn to_compare(report: &Report, known: &[bool]) -> Option<(u32, u32)> {
    let wants = |verdict: &&Verdict| {
        matches!(verdict.cause, Cause::Compute | Cause::MoreWork | Cause::Host | Cause::ClockThrottle)
    };
    let suspects = report.verdicts.iter().find(wants)?.culprit.as_ref().map(Culprit::ranks)?;
    let has_device = |rank: &u32| known.get(*rank as usize).is_some_and(|known| *known);
    let suspect = suspects.first().copied().filter(has_device)?;
    let peer = (0..known.len() as u32).filter(|rank| !suspects.contains(rank)).find(has_device)?;
    Some((suspect, peer))
}

/// What a verdict asks for.
pub(super) fn request_of_evidence(now: ServerNanos) -> BurstRequest {
    BurstRequest::at(now, EVIDENCE_MILLIS)
}

/// As it is shown; each by rank.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// What each device said last.
    pub looks: Vec<RankDevice>,
    /// The newest bursts.
    pub bursts: Vec<RankBurst>,
    /// Ranks that are asked for a burst and have not answered.
    pub asked: Vec<Rank>,
}

impl Devices {
    /// As they are now.
    #[must_use]
    pub fn of(run: &Run, now: ServerNanos) -> Self {
        let mut shown = Self::default();
        for (rank, devices) in run.devices().map(|(rank, devices)| (Rank(rank as u32), devices)) {
            shown.looks.extend(devices.newest().map(|sample| RankDevice { rank, sample: sample.clone() }));
            shown.bursts.extend(devices.burst.as_ref().map(|(burst, came)| RankBurst {
                rank,
                age_millis: (now - *came).max(0).unsigned_abs() / 1_000_000,
                burst: burst.clone(),
            }));
            shown.asked.extend(devices.asked(now).map(|_| rank));
        }
        shown
    }
}
