//! Figures that may be missing: a value, or the reason why there is none.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::Function;
use crate::workload::Precision;

/// A figure: its value, or the reason why it is missing.
///
/// JSON has the value itself, or `{"missing": "the reason"}`, which no program can mistake for a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged, remote = "Self")]
pub enum Figure<T> {
    /// There is no value.
    Missing {
        /// The reason.
        missing: Missing,
    },
    /// The value.
    Known(T),
}

impl<T> Figure<T> {
    /// Returns the value; `None` if the figure is missing.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Missing { .. } => None,
        }
    }

    /// Returns the reason why the figure is missing; `None` if it is known.
    pub fn reason(&self) -> Option<&Missing> {
        match self {
            Self::Known(_) => None,
            Self::Missing { missing } => Some(missing),
        }
    }

    /// Returns the value, or the reason why it is missing.
    ///
    /// # Errors
    /// Returns an error if the figure is missing.
    pub fn as_result(&self) -> Result<&T, &Missing> {
        match self {
            Self::Known(value) => Ok(value),
            Self::Missing { missing } => Err(missing),
        }
    }
}

impl<T: Copy> Figure<T> {
    /// Returns a copy of the value; `None` if the figure is missing.
    pub fn value(&self) -> Option<T> {
        self.known().copied()
    }
}

impl<T> From<Result<T, Missing>> for Figure<T> {
    fn from(result: Result<T, Missing>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(missing) => missing.into(),
        }
    }
}

impl<T> From<Missing> for Figure<T> {
    fn from(missing: Missing) -> Self {
        Self::Missing { missing }
    }
}

/// The reason why a figure is missing. Its text completes "the figure is missing because".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Missing {
    /// There is no observed step.
    NoObservedStep,
    /// The job is unmodified, and none of its steps was found.
    NoStepFound,
    /// There is only one observed step.
    OneObservedStep,
    /// The observed steps are fewer than a verdict needs.
    TooFewSteps {
        /// The number of observed steps.
        observed: u64,
        /// The number of observed steps that a verdict needs.
        needed: u64,
    },
    /// The collectives of a recording do not show that a rank is slow.
    FewCollectives {
        /// The number of collectives among all ranks.
        collectives: u64,
        /// The number of observed steps.
        steps: u64,
    },
    /// The run has only one rank, which reduces nothing.
    OneRankReducesNothing,
    /// The records do not say how much memory there is.
    NoMemoryLimit,
    /// The job does not count its samples.
    NoSamples,
    /// No gradient was reduced in the observed steps.
    NothingReduced,
    /// Some ranks of an imported run have no file.
    RanksWithoutFile,
    /// The records say when collectives were enqueued, and not when they ran.
    OnlyEnqueued,
    /// Nothing shows whether ranks compute while some collectives run.
    Unclear {
        /// The least overlap that is possible, in percent, rounded down.
        least: u8,
        /// The largest overlap that is possible, in percent, rounded up.
        most: u8,
        /// The function of most of these collectives.
        function: Function,
    },
    /// A rank of a recorded job is late, and nothing shows whether that costs anything.
    UnknownCost {
        /// The rank that is last most often.
        rank: u32,
        /// In how many collectives it is last.
        last: u64,
        /// The number of collectives among all ranks that have a last rank.
        collectives: u64,
        /// By how much it is later than the rank before it, in the mean over these, in nanoseconds.
        nanos: u64,
        /// The function of most of the collectives during which ranks may compute.
        function: Function,
    },
    /// A rank of a recorded job is late, and that costs nothing.
    LateAtNoCost {
        /// The rank that is last most often.
        rank: u32,
        /// In how many collectives it is last.
        last: u64,
        /// The number of collectives among all ranks that have a last rank.
        collectives: u64,
        /// By how much it is later than the rank before it, in the mean over these, in nanoseconds.
        nanos: u64,
    },
    /// There are too few shadow steps to measure the cost of recording.
    FewShadowSteps,
    /// Imported files do not have it.
    NotInFiles,
    /// No observed step can be replayed.
    NotReplayed,
    /// Most steps take another time in the replay than they took.
    InaccurateReplay {
        /// The number of steps that are off by more than 5 %.
        inaccurate: u64,
        /// The number of observed steps.
        steps: u64,
    },
    /// Even ranks would hardly shorten a step.
    EvenRanks,
    /// All buckets have the same size.
    OneBucketSize,
    /// The observed steps have no all-reduce.
    NoAllReduce,
    /// Some collectives are among only some of the ranks.
    Groups,
    /// Ranks wait for collectives in the middle of a step.
    WaitsMidStep,
    /// There is no run to measure efficiency against.
    NoSmallerRun,
    /// The runs to measure efficiency against have another batch per rank and another total batch.
    OtherBatch,
    /// The job states no operations per sample, and they cannot be worked out.
    NoFlops,
    /// The job does not state the operations per sample that the devices execute.
    NoHardwareFlops,
    /// The job does not state its precision.
    NoPrecision,
    /// No device is known, and the job gives no peak.
    NoPeak,
    /// The device is not in the table of peaks, or does not have the precision.
    UnknownPeak {
        /// The name of the device.
        device: String,
        /// The precision.
        precision: Precision,
    },
    /// More operations per second are counted than the peak allows.
    AboveThePeak {
        /// The operations as a share of the peak, in percent.
        percent: u64,
    },
    /// The report covers a part of the run, and the figure is one of the whole run.
    PartOfRun,
    /// The run is imported from files, which cover a few steps of a job.
    Imported,
    /// A reason that was read from JSON.
    Stated(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoObservedStep => {
                "no observed step: a step counts if it is complete on all ranks and past the first two"
            }
            Self::NoStepFound => {
                "no step was found: steps are found where the same collectives repeat for some seconds"
            }
            Self::OneObservedStep => "only one observed step so far: the figure needs two",
            Self::TooFewSteps { observed, needed } => {
                return write!(
                    f,
                    "insufficient evidence: {observed} observed step{}; a verdict needs {needed}",
                    if *observed == 1 { "" } else { "s" }
                );
            }
            Self::FewCollectives { collectives: 0, .. } => {
                "insufficient evidence: no recorded collective shows which of its ranks was last"
            }
            Self::FewCollectives { collectives, steps } => {
                return write!(
                    f,
                    "insufficient evidence: in the {collectives} collectives of {steps} recorded step{}, no rank is late, \
                     at a cost, more than chance explains",
                    if *steps == 1 { "" } else { "s" }
                );
            }
            Self::OneRankReducesNothing => {
                "a run of one rank reduces nothing: a prediction needs two or more ranks"
            }
            Self::NoMemoryLimit => "the records do not say how much memory there is",
            Self::NoSamples => "the job does not count its samples",
            Self::NothingReduced => "nothing was reduced",
            Self::RanksWithoutFile => {
                "some ranks have no file, so nothing shows which part of a collective is waiting for them"
            }
            Self::OnlyEnqueued => {
                "the records say when collectives were enqueued and not when they ran (NCCL 2.26 and later report it, \
                 and so do events around the calls of a job that is linked with NCCL)"
            }
            Self::Unclear { least, most, function } => {
                return write!(
                    f,
                    "the overlap is between {least} % and {most} %: nothing shows whether ranks compute while their {} run",
                    function.plural()
                );
            }
            Self::UnknownCost { rank, last, collectives, nanos, function } => {
                return write!(
                    f,
                    "rank {rank} is the last to start in {last} of {collectives} collectives, which is more than chance explains, by \
                     {:.1} ms in the mean; what that costs is not known, because nothing shows whether ranks compute while their {} run",
                    *nanos as f64 / 1e6,
                    function.plural()
                );
            }
            Self::LateAtNoCost { rank, last, collectives, nanos } => {
                return write!(
                    f,
                    "rank {rank} is the last to start in {last} of {collectives} collectives, which is more than chance explains, by \
                     {:.1} ms in the mean; that costs nothing, because steps would take as long if it worked like the other ranks",
                    *nanos as f64 / 1e6
                );
            }
            Self::FewShadowSteps => "fewer than six shadow steps between observed ones",
            Self::NotInFiles => "the imported files do not say it",
            Self::NotReplayed => {
                "no observed step can be replayed: records of some rank are missing, or collectives are among only \
                 some ranks and clocks are not aligned, or there are too many ranks and collectives to replay"
            }
            Self::InaccurateReplay { inaccurate, steps } => {
                return write!(
                    f,
                    "with nothing changed, {inaccurate} of {steps} steps cannot be replayed within 5 % of their \
                     measured time, so no prediction can be trusted"
                );
            }
            Self::EvenRanks => "the ranks are even: the figure needs an even slowdown of at least 1.01",
            Self::OneBucketSize => "the model needs buckets of at least two sizes",
            Self::NoAllReduce => "no step with all-reduces was observed",
            Self::Groups => {
                "some collectives are among only some of the ranks: predictions need all ranks in every collective"
            }
            Self::WaitsMidStep => {
                "ranks wait for collectives in the middle of a step: predictions need ranks to wait only at its end"
            }
            Self::NoSmallerRun => "no finished run of the same name on fewer ranks to compare with",
            Self::OtherBatch => {
                "finished runs of the same name on fewer ranks have neither this batch per rank (weak scaling) nor this \
                 total batch (strong scaling)"
            }
            Self::NoFlops => {
                "the job does not state its operations per sample (paceline.workload in Python, Notes::workload in \
                 Rust), and only tokens of a model of known size are counted without"
            }
            Self::NoHardwareFlops => "the job does not state how many operations it executes with recomputation",
            Self::NoPrecision => {
                "the job does not state the precision of its matrix multiplications, on which the peak of a device \
                 depends"
            }
            Self::NoPeak => "no device is known, and the job neither states nor measures a peak",
            Self::UnknownPeak { device, precision } => {
                return write!(
                    f,
                    "the peak of {device} in {} is not known: the job can state it",
                    precision.name()
                );
            }
            Self::AboveThePeak { percent } => {
                return write!(
                    f,
                    "it works out at {percent} % of the peak, so the stated operations per sample, the precision or \
                     the peak is wrong"
                );
            }
            Self::Imported => "it is a figure of a whole job, and the imported files cover a few of its steps",
            Self::PartOfRun => "it is a figure of the whole run, and the report covers a part of it",
            Self::Stated(reason) => reason,
        })
    }
}

// JSON has a reason in words, and a figure without a tag. Frames for the dashboard have the variants.

impl Serialize for Missing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            Self::serialize(self, serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Missing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer).map(Self::Stated)
        } else {
            Self::deserialize(deserializer)
        }
    }
}

impl<T: Serialize> Serialize for Figure<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            Self::serialize(self, serializer)
        } else {
            self.as_result().serialize(serializer)
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Figure<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            Self::deserialize(deserializer)
        } else {
            Result::<T, Missing>::deserialize(deserializer).map(Self::from)
        }
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Missing {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        String::schema()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Missing {}

/// Something that limits what a report covers, although its figures are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gap {
    /// What the report lacks.
    pub kind: GapKind,
    /// A sentence for the user.
    pub sentence: String,
}

/// What a report lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum GapKind {
    /// Steps in which only the enqueueing of collectives was recorded.
    Steps,
    /// Steps of attempts on another number of ranks.
    OtherWorlds,
    /// Ranks without a file, in an imported run.
    Ranks,
    /// The phases of a step: the job marks none, so compute is inferred.
    Phases,
    /// What shows whether ranks compute while some collectives run.
    Overlap,
    /// Figures per bucket and per group.
    Buckets,
    /// The parameters in buckets, which differ between ranks.
    Parameters,
    /// Batches that the server stored and that are damaged or missing.
    StoredBatches,
    /// Batches that the server refused.
    RefusedBatches,
    /// Records that were stored and that no figure includes.
    StoredRecords,
    /// Checksums of stored batches.
    Checksums,
}

impl GapKind {
    /// Returns the name used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::OtherWorlds => "steps on other numbers of ranks",
            Self::Ranks => "ranks",
            Self::Phases => "phases",
            Self::Overlap => "overlap",
            Self::Buckets => "buckets",
            Self::Parameters => "parameters of buckets",
            Self::StoredBatches => "stored batches",
            Self::RefusedBatches => "refused batches",
            Self::StoredRecords => "stored records",
            Self::Checksums => "checksums",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::view;

    #[test]
    fn json_has_the_value_or_the_reason() {
        let known = Figure::Known(0.5);
        let missing = Figure::<f64>::from(Missing::NoSamples);
        assert_eq!(serde_json::to_string(&known).unwrap(), "0.5");
        let json = serde_json::to_string(&missing).unwrap();
        assert_eq!(json, r#"{"missing":"the job does not count its samples"}"#);
        let read: Figure<f64> = serde_json::from_str(&json).unwrap();
        assert_eq!(read.reason().unwrap().to_string(), Missing::NoSamples.to_string());
        assert_eq!(serde_json::from_str::<Figure<f64>>("0.5").unwrap(), known);
        assert!(serde_json::from_str::<Figure<f64>>("\"half\"").is_err());
    }

    #[test]
    fn a_frame_keeps_the_typed_reason() {
        for figure in [
            Figure::Known(vec![1_u64, 2]),
            Missing::TooFewSteps { observed: 3, needed: 20 }.into(),
            Missing::Stated("because".into()).into(),
        ] {
            let frame = view::encode(&figure).unwrap();
            assert_eq!(view::decode::<Figure<Vec<u64>>>(&frame).unwrap(), figure);
        }
    }
}
