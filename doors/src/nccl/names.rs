//! NCCL's names and numbers for what a collective does and what it carries (nccl.h).

use crate::trail::Function;

/// Collectives as NCCL's functions name them, less the `nccl` before.
const FUNCTIONS: [(&str, Function); 5] = [
    ("Broadcast", Function::Broadcast),
    ("Reduce", Function::Reduce),
    ("AllGather", Function::AllGather),
    ("ReduceScatter", Function::ReduceScatter),
    ("AllReduce", Function::AllReduce),
];

/// `ncclDataType_t`s by their numbers, and their sizes in bytes. Newer ones are of one byte (`ncclFloat8e4m3`).
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

/// The collective of this name; `None` for what is none, or newer.
pub(crate) fn function_of_name(name: &[u8]) -> Option<Function> {
    FUNCTIONS.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, function)| *function)
}

/// Bytes of an element.
pub(crate) fn bytes_of_code(datatype: usize) -> u64 {
    DATATYPES.get(datatype).map_or(1, |(_, bytes)| *bytes)
}

/// Bytes of an element. NCCL has no name for unsigned bytes and calls them unknown.
pub(crate) fn bytes_of_name(datatype: &[u8]) -> u64 {
    DATATYPES.iter().find(|(known, _)| known.as_bytes() == datatype).map_or(1, |(_, bytes)| *bytes)
}
