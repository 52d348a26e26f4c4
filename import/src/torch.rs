//! Names that PyTorch gives collectives and types.

use wire::event::Function;

/// Returns the function of a collective, by its name in the profiler or in the flight recorder; `None` for other names.
pub(crate) fn function(name: &str) -> Option<Function> {
    Some(match name.trim_start_matches('_') {
        "allreduce" | "allreduce_coalesced" | "all_reduce" | "all_reduce_barrier" => Function::AllReduce,
        "allgather"
        | "allgather_base"
        | "allgather_into_tensor_coalesced"
        | "all_gather"
        | "all_gather_base"
        | "all_gather_into_tensor_coalesced"
        | "all_gather_single"
        | "all_gather_v" => Function::AllGather,
        "reduce_scatter"
        | "reduce_scatter_base"
        | "reduce_scatter_tensor_coalesced"
        | "reduce_scatter_single"
        | "reduce_scatter_v" => Function::ReduceScatter,
        "broadcast" | "broadcast_oop" => Function::Broadcast,
        "reduce" | "reduce_oop" => Function::Reduce,
        "all_to_all"
        | "alltoall"
        | "all_to_allv"
        | "alltoall_base"
        | "all_to_all_single"
        | "all_to_all_v_single" => Function::AllToAll,
        "send" | "recv" => Function::SendReceive,
        _ => return None,
    })
}

/// Returns the size of an element in bytes, by the name that PyTorch gives its type.
pub(crate) fn element_bytes(name: &str) -> Option<u64> {
    Some(match name {
        "Byte" | "Char" | "Bool" | "QInt8" | "QUInt8" | "Float8_e4m3fn" | "Float8_e5m2" => 1,
        "Short" | "Half" | "BFloat16" | "UInt16" => 2,
        "Int" | "Float" | "ComplexHalf" | "UInt32" => 4,
        "Long" | "Double" | "ComplexFloat" | "UInt64" => 8,
        "ComplexDouble" => 16,
        _ => return None,
    })
}
