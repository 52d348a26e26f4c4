//! NCCL's names and codes for collective functions and data types (nccl.h).

use crate::call_log::Function;

/// The collectives by the names of NCCL's functions without the prefix `nccl`.
const FUNCTIONS: [(&str, Function); 5] = [
    ("Broadcast", Function::Broadcast),
    ("Reduce", Function::Reduce),
    ("AllGather", Function::AllGather),
    ("ReduceScatter", Function::ReduceScatter),
    ("AllReduce", Function::AllReduce),
];

/// The `ncclDataType_t`s in the order of their codes, and their sizes in bytes. Newer types have one byte
/// (`ncclFloat8e4m3`).
pub(crate) const DATATYPES: [(&str, u64); 10] = [
    ("ncclInt8", 1),
    ("ncclUint8", 1),
    ("ncclInt32", 4),
    ("ncclUint32", 4),
    ("ncclInt64", 8),
    ("ncclUint64", 8),
    ("ncclFloat16", 2),
    ("ncclFloat32", 4),
    ("ncclFloat64", 8),
    ("ncclBfloat16", 2),
];

/// Returns the collective of this name; `None` if the name is newer or not a collective.
pub(crate) fn function_of_name(name: &[u8]) -> Option<Function> {
    FUNCTIONS.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, function)| *function)
}

/// Returns the size of an element in bytes, by the code of its type.
pub(crate) fn bytes_of_code(datatype: usize) -> u64 {
    DATATYPES.get(datatype).map_or(1, |(_, bytes)| *bytes)
}

/// Returns the size of an element in bytes, by the name of its type. NCCL calls unsigned bytes unknown.
pub(crate) fn bytes_of_name(datatype: &[u8]) -> u64 {
    DATATYPES.iter().find(|(known, _)| known.as_bytes() == datatype).map_or(1, |(_, bytes)| *bytes)
}
