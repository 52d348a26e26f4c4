//! Goodput: what a run used its wall time for, on all ranks and over all attempts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a rank used its time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum TimeUse {
    /// Compute in steps: forward, backward and the update, with the communication that they hide.
    Compute = 0,
    /// Exposed wait in steps: the rank waits for a later one.
    StragglerWait = 1,
    /// Exposed transfer in steps.
    ExposedTransfer = 2,
    /// Input in steps, and copies of it to the device.
    Input = 3,
    /// The rest of steps, and steps with a known length only.
    OtherInSteps = 4,
    /// From the start of the run to the first batch of the rank: the start of the process and its imports.
    Launch = 5,
    /// From the first batch of the rank to its first step: communicators, data, a checkpoint that is read.
    Setup = 6,
    /// The first two steps of an attempt, and compilation in later steps.
    WarmUp = 7,
    /// Evaluation that the job marks or that the agent sees.
    Evaluation = 8,
    /// Checkpoints, as far as they block the rank.
    Checkpoint = 9,
    /// No step ends for the time that counts as a hang.
    Hang = 10,
    /// From the last step of an attempt to the first step of the next one.
    Recovery = 11,
    /// Steps that an earlier attempt did already.
    Repeated = 12,
    /// From the last step to the end of the run.
    Ending = 13,
    /// Time between steps that is nothing of the above.
    Between = 14,
}

impl TimeUse {
    /// The number of uses.
    pub const COUNT: usize = 15;
    /// All uses, in the order of their codes. The productive ones come first.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Compute,
        Self::StragglerWait,
        Self::ExposedTransfer,
        Self::Input,
        Self::OtherInSteps,
        Self::Launch,
        Self::Setup,
        Self::WarmUp,
        Self::Evaluation,
        Self::Checkpoint,
        Self::Hang,
        Self::Recovery,
        Self::Repeated,
        Self::Ending,
        Self::Between,
    ];

    /// Returns the name used in Prometheus and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::StragglerWait => "straggler_wait",
            Self::ExposedTransfer => "exposed_transfer",
            Self::Input => "input",
            Self::OtherInSteps => "other_in_steps",
            Self::Launch => "launch",
            Self::Setup => "setup",
            Self::WarmUp => "warm_up",
            Self::Evaluation => "evaluation",
            Self::Checkpoint => "checkpoint",
            Self::Hang => "hang",
            Self::Recovery => "recovery",
            Self::Repeated => "repeated",
            Self::Ending => "ending",
            Self::Between => "between",
        }
    }

    /// Returns the name shown to users.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::StragglerWait => "exposed wait",
            Self::ExposedTransfer => "exposed transfer",
            Self::Input => "input",
            Self::OtherInSteps => "other in steps",
            Self::Launch => "launch and imports",
            Self::Setup => "setup",
            Self::WarmUp => "warm-up and compilation",
            Self::Evaluation => "evaluation",
            Self::Checkpoint => "checkpoints",
            Self::Hang => "hang",
            Self::Recovery => "recovery",
            Self::Repeated => "repeated steps",
            Self::Ending => "ending",
            Self::Between => "between steps",
        }
    }

    /// Returns true for the time in steps that advance the job.
    #[must_use]
    pub fn is_productive(self) -> bool {
        self <= Self::OtherInSteps
    }

    /// Returns true if the use is concluded from what came before and after, because nothing marks it.
    #[must_use]
    pub fn is_inferred(self) -> bool {
        matches!(self, Self::Setup | Self::Hang | Self::Recovery | Self::Ending | Self::Between)
    }
}

/// Times by use, in nanoseconds. A use without time is left out.
pub type Uses = BTreeMap<TimeUse, u64>;

/// What a run used its wall time for (`docs/metrics.md`, "Goodput").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Goodput {
    /// The goodput, 0 to 1: the time in steps that advance the job, as a share of the wall time of all ranks.
    pub ratio: f64,
    /// The time of compute in these steps, as a share of the wall time of all ranks, 0 to 1.
    pub compute_ratio: f64,
    /// The wall time of the run, in nanoseconds: from the start of its first process to its end, or until now.
    pub wall_nanos: u64,
    /// The number of ranks, of the newest attempt.
    pub ranks: u32,
    /// The times of all ranks by use, in nanoseconds. They sum to `wall_nanos` times `ranks`. If attempts have other numbers of
    /// ranks, they sum to the time for which each rank belonged to the job.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u64>))]
    pub uses: Uses,
    /// The steps that more than one attempt did: the most on any rank.
    pub repeated_steps: u64,
    /// True if the start of each process is known. Otherwise the time before its first batch is not part of the wall time.
    pub knows_start: bool,
    /// The attempts, oldest first: the newest [`Goodput::MAX_ATTEMPTS`]. There is more than one if the job was restarted.
    pub attempts: Vec<Attempt>,
}

impl Goodput {
    /// The largest number of attempts that are listed.
    pub const MAX_ATTEMPTS: usize = 64;

    /// Returns the wall time of all ranks together, in nanoseconds.
    #[must_use]
    pub fn total_nanos(&self) -> u64 {
        self.uses.values().sum()
    }

    /// Returns the smallest and the largest number of ranks of an attempt.
    #[must_use]
    pub fn rank_range(&self) -> (u32, u32) {
        if self.total_nanos() == self.wall_nanos.saturating_mul(self.ranks.into()) {
            return (self.ranks, self.ranks);
        }
        let ranks = self.attempts.iter().map(|attempt| attempt.ranks);
        ranks.fold((self.ranks, self.ranks), |(least, most), ranks| (least.min(ranks), most.max(ranks)))
    }

    /// Returns the time of a use as a share of the wall time of all ranks, 0 to 1.
    #[must_use]
    pub fn share(&self, time_use: TimeUse) -> f64 {
        let total = self.total_nanos();
        self.uses.get(&time_use).map_or(0.0, |&nanos| nanos as f64 / total.max(1) as f64)
    }
}

/// One attempt at a job: its processes from their start to their end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attempt {
    /// The number of the attempt, from 0.
    pub number: u32,
    /// The Unix time at which its first process began, in milliseconds.
    pub began_unix_millis: u64,
    /// The number of ranks that took part.
    pub ranks: u32,
    /// The first and the last step that a rank ended, repeated ones included; null before the first.
    pub steps: Option<(u64, u64)>,
    /// The steps of these that an earlier attempt did already: the most on any rank.
    pub repeated_steps: u64,
    /// The times of its ranks by use, in nanoseconds. Recovery is the time before its first step if there is an earlier
    /// attempt, and the time after its last step if there is a later one.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u64>))]
    pub uses: Uses,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_use_has_its_code_its_name_and_its_place() {
        for (code, time_use) in TimeUse::ALL.into_iter().enumerate() {
            assert_eq!(time_use as usize, code);
            assert_eq!(serde_json::to_value(time_use).unwrap(), time_use.name());
        }
        let productive = TimeUse::ALL.into_iter().take_while(|time_use| time_use.is_productive()).count();
        assert_eq!(productive, TimeUse::ALL.into_iter().filter(|time_use| time_use.is_productive()).count());
    }
}
