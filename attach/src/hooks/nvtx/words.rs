//! Derives the meaning of a range from its name.

use crate::call_log::{Function, Phase};
use crate::hooks::nccl::names::function_of_name;

/// The length of the longest name that is examined, in bytes. Programs that generate names do so for every tensor.
const MAX_BYTES: usize = 128;

/// The meaning of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A range that is not recorded.
    Nothing,
    /// A phase of the host.
    Phase(Phase),
    /// A collective of NCCL.
    Call(Function),
}

impl Meaning {
    /// Returns the meaning of a range in NCCL's own domain, where ranges are named after NCCL's functions. Sends and
    /// receives are not collectives, nor are functions that consist of them (`ncclAlltoAll`).
    pub(super) fn from_nccl(name: &[u8]) -> Self {
        let name = name.strip_prefix(b"p").unwrap_or(name);
        name.strip_prefix(b"nccl").and_then(function_of_name).map_or(Self::Nothing, Self::Call)
    }

    /// Returns the meaning of any other range, by common names for the two phases in which a device waits for its host.
    pub(super) fn from_job(name: &[u8]) -> Self {
        if name.len() > MAX_BYTES {
            return Self::Nothing;
        }
        // PyTorch's name is "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__".
        let is_loader = name.windows(10).any(|part| part.eq_ignore_ascii_case(b"dataloader"));
        let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        if is_loader || is(&INPUT) {
            Self::Phase(Phase::Input)
        } else if is(&COPIES) {
            Self::Phase(Phase::Copy)
        } else {
            Self::Nothing
        }
    }

    /// Returns the code that [`Self::from_code`] reads.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Phase(phase) => 1 + phase as u8,
            Self::Call(function) => CALLS + function as u8,
        }
    }

    pub(super) fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Nothing,
            CALLS.. => Self::Call(Function::from_code(code - CALLS)),
            _ => Phase::from_code(code - 1).map_or(Self::Nothing, Self::Phase),
        }
    }
}

/// The code of the first call.
const CALLS: u8 = 16;
const INPUT: [&str; 9] = [
    "data",
    "input",
    "dataload",
    "data_loading",
    "data loading",
    "load_data",
    "next_batch",
    "get_batch",
    "batch-generator",
];
const COPIES: [&str; 5] = ["h2d", "to_device", "copy_to_device", "batch_to_device", "host_to_device"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_input_are_recognized_and_similar_names_are_not() {
        let input = Meaning::Phase(Phase::Input);
        let names = ["data", "Get_Batch", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"];
        names.iter().for_each(|name| assert_eq!(Meaning::from_job(name.as_bytes()), input, "{name}"));
        assert_eq!(Meaning::from_job(b"h2d"), Meaning::Phase(Phase::Copy));
        let others = ["forward", "data_parallel.backward", "train_batch", "database", "", "ncclAllReduce"];
        others
            .iter()
            .for_each(|name| assert_eq!(Meaning::from_job(name.as_bytes()), Meaning::Nothing, "{name}"));
    }

    #[test]
    fn meanings_survive_the_round_trip_through_codes() {
        let calls = [Function::Broadcast, Function::AllReduce, Function::Other].map(Meaning::Call);
        let others =
            [Meaning::Nothing, Meaning::Phase(Phase::Input), Meaning::Phase(Phase::Copy)].into_iter();
        for meaning in calls.into_iter().chain(others) {
            assert_eq!(Meaning::from_code(meaning.code()), meaning);
        }
        assert_eq!(Meaning::from_nccl(b"pncclAllReduce"), Meaning::Call(Function::AllReduce));
        assert_eq!(Meaning::from_nccl(b"ncclGroupStart"), Meaning::Nothing);
    }
}
